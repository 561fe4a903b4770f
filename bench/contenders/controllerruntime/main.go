// Command controllerruntime is an operator on controller-runtime for `python -m bench`:
// controllerruntime KUBECONFIG NAMESPACE [tuned].
//
// It has what kubebuilder scaffolds: a manager, a cached client, and a Reconcile that reads an
// object and updates its status. With "tuned" it has as many workers as kubewright has by default,
// no client-side rate limit, and a merge patch instead of an update.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

const workers = 64

// SampleSpec has the number to double.
type SampleSpec struct {
	Size int64 `json:"size,omitempty"`
}

// SampleStatus has the doubled number.
type SampleStatus struct {
	Doubled            *int64             `json:"doubled,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Sample is a custom resource with a number that its controller doubles.
type Sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SampleSpec   `json:"spec,omitempty"`
	Status            SampleStatus `json:"status,omitempty"`
}

// SampleList is a list of Samples.
type SampleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Sample `json:"items"`
}

// DeepCopyObject implements runtime.Object; usually controller-gen generates it.
func (s *Sample) DeepCopyObject() runtime.Object {
	out := &Sample{TypeMeta: s.TypeMeta, Spec: s.Spec, Status: s.Status}
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if s.Status.Doubled != nil {
		doubled := *s.Status.Doubled
		out.Status.Doubled = &doubled
	}
	out.Status.Conditions = nil
	for _, condition := range s.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return out
}

// DeepCopyObject implements runtime.Object; usually controller-gen generates it.
func (l *SampleList) DeepCopyObject() runtime.Object {
	out := &SampleList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Sample))
	}
	return out
}

type reconciler struct {
	client.Client
	tuned bool
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var sample Sample
	if err := r.Get(ctx, request.NamespacedName, &sample); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if sample.Status.ObservedGeneration == sample.Generation && sample.Status.Doubled != nil {
		return ctrl.Result{}, nil // the update event of the own status write
	}
	before := sample.DeepCopyObject().(*Sample)
	doubled := 2 * sample.Spec.Size
	sample.Status.Doubled, sample.Status.ObservedGeneration = &doubled, sample.Generation
	meta.SetStatusCondition(&sample.Status.Conditions, metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionTrue,
		Reason:             "Reconciled",
		ObservedGeneration: sample.Generation,
	})
	if r.tuned {
		return ctrl.Result{}, r.Status().Patch(ctx, &sample, client.MergeFrom(before))
	}
	return ctrl.Result{}, r.Status().Update(ctx, &sample)
}

func run(kubeconfig, namespace string, tuned bool) error {
	ctrl.SetLogger(zap.New())
	// As in every scaffolded main; GetConfig also sets the client-side rate limit.
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	options := controller.Options{}
	if tuned {
		config.QPS = -1
		options.MaxConcurrentReconciles = workers
	}
	groupVersion := schema.GroupVersion{Group: "bench.kubewright.example", Version: "v1"}
	builder := &scheme.Builder{GroupVersion: groupVersion}
	sampleScheme, err := builder.Register(&Sample{}, &SampleList{}).Build()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  sampleScheme,
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	r := &reconciler{manager.GetClient(), tuned}
	err = ctrl.NewControllerManagedBy(manager).For(&Sample{}).WithOptions(options).Complete(r)
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: controllerruntime KUBECONFIG NAMESPACE [tuned]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], len(os.Args) > 3 && os.Args[3] == "tuned"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
