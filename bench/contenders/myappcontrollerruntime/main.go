// Command myappcontrollerruntime is examples/myapp.py on controller-runtime, for
// `python -m bench.children`: myappcontrollerruntime KUBECONFIG NAMESPACE.
//
// It creates and updates its children as the book of kubebuilder does, with CreateOrUpdate. This
// changes only fields that differ, so that it writes nothing at rest. It has as many workers as
// kubewright has by default, and no client-side rate limit.
package main

import (
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

const workers = 64

type reconciler struct {
	client.Client
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var app MyApp
	if err := r.Get(ctx, request.NamespacedName, &app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	metadata := metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}
	labels := map[string]string{"app": app.Name}

	config := &corev1.ConfigMap{ObjectMeta: metadata}
	account := &corev1.ServiceAccount{ObjectMeta: metadata}
	service := &corev1.Service{ObjectMeta: metadata}
	deployment := &appsv1.Deployment{ObjectMeta: metadata}
	ingress := &networkingv1.Ingress{ObjectMeta: metadata}
	autoscaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metadata}
	for _, child := range []struct {
		object client.Object
		wanted bool
		mutate func()
	}{
		{config, true, func() { config.Data = app.Spec.Config }},
		{account, true, func() { mount := false; account.AutomountServiceAccountToken = &mount }},
		{deployment, true, func() { mutateDeployment(deployment, &app, labels) }},
		{service, true, func() { mutateService(service, &app, labels) }},
		{ingress, app.Spec.Host != "", func() { mutateIngress(ingress, &app) }},
		{autoscaler, app.Spec.MaxReplicas != nil, func() { mutateAutoscaler(autoscaler, &app) }},
	} {
		if err := r.keep(ctx, &app, child.object, child.wanted, labels, child.mutate); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.writeStatus(ctx, &app, deployment, service)
}

// keep creates or updates a child, or deletes one that is no longer wanted.
func (r *reconciler) keep(
	ctx context.Context, app *MyApp, child client.Object, wanted bool, labels map[string]string,
	mutate func(),
) error {
	if !wanted {
		err := r.Get(ctx, client.ObjectKeyFromObject(child), child)
		if err == nil && metav1.IsControlledBy(child, app) {
			err = r.Delete(ctx, child)
		}
		return client.IgnoreNotFound(err)
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		child.SetLabels(labels)
		mutate()
		return controllerutil.SetControllerReference(app, child, r.Scheme())
	})
	return err
}

func mutateDeployment(deployment *appsv1.Deployment, app *MyApp, labels map[string]string) {
	spec := &deployment.Spec
	if app.Spec.MaxReplicas == nil {
		spec.Replicas = app.Spec.Replicas
	}
	spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	spec.Template.Labels = labels
	pod := &spec.Template.Spec
	pod.ServiceAccountName = app.Name
	// Fields that the API server defaults keep their values, or each reconcile would update.
	if len(pod.Containers) != 1 {
		pod.Containers = []corev1.Container{{Name: "app"}}
	}
	container := &pod.Containers[0]
	container.Image = app.Spec.Image
	if len(container.Ports) != 1 {
		container.Ports = []corev1.ContainerPort{{}}
	}
	container.Ports[0].ContainerPort = app.Spec.Port
	container.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}}
	if len(pod.Volumes) != 1 || pod.Volumes[0].ConfigMap == nil {
		source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
		pod.Volumes = []corev1.Volume{{Name: "config", VolumeSource: source}}
	}
	pod.Volumes[0].ConfigMap.Name = app.Name
}

func mutateService(service *corev1.Service, app *MyApp, labels map[string]string) {
	service.Spec.Selector = labels
	if len(service.Spec.Ports) != 1 {
		service.Spec.Ports = []corev1.ServicePort{{}}
	}
	service.Spec.Ports[0].Port = 80
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(app.Spec.Port)
}

func mutateIngress(ingress *networkingv1.Ingress, app *MyApp) {
	prefix := networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: app.Name, Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	path := networkingv1.HTTPIngressPath{Path: "/", PathType: &prefix, Backend: backend}
	value := networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}
	ingress.Spec.Rules = []networkingv1.IngressRule{{
		Host: app.Spec.Host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &value},
	}}
}

func mutateAutoscaler(autoscaler *autoscalingv2.HorizontalPodAutoscaler, app *MyApp) {
	autoscaler.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{
		APIVersion: "apps/v1", Kind: "Deployment", Name: app.Name,
	}
	autoscaler.Spec.MinReplicas = app.Spec.Replicas
	autoscaler.Spec.MaxReplicas = *app.Spec.MaxReplicas
}

func (r *reconciler) writeStatus(
	ctx context.Context, app *MyApp, deployment *appsv1.Deployment, service *corev1.Service,
) error {
	before := app.DeepCopyObject().(*MyApp)
	app.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	app.Status.Address = service.Spec.ClusterIP
	app.Status.ObservedGeneration = app.Generation
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "ChildrenReady",
		ObservedGeneration: app.Generation,
	}
	if available := deployment.Status.AvailableReplicas; available < *deployment.Spec.Replicas {
		condition.Status, condition.Reason = metav1.ConditionFalse, "ChildrenNotReady"
		condition.Message = fmt.Sprintf("%d of %d replicas are available", available,
			*deployment.Spec.Replicas)
	}
	meta.SetStatusCondition(&app.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(before.Status, app.Status) {
		return nil
	}
	return r.Status().Patch(ctx, app, client.MergeFrom(before))
}

func newScheme() (*runtime.Scheme, error) {
	groupVersion := schema.GroupVersion{Group: "examples.kubewright.dev", Version: "v1"}
	builder := &scheme.Builder{GroupVersion: groupVersion}
	result, err := builder.Register(&MyApp{}, &MyAppList{}).Build()
	if err != nil {
		return nil, err
	}
	return result, clientgoscheme.AddToScheme(result)
}

func run(kubeconfig, namespace string) error {
	ctrl.SetLogger(zap.New())
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	appScheme, err := newScheme()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  appScheme,
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&MyApp{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&corev1.Service{}).
		Owns(&appsv1.Deployment{}).
		Owns(&networkingv1.Ingress{}).
		Owns(&autoscalingv2.HorizontalPodAutoscaler{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: myappcontrollerruntime KUBECONFIG NAMESPACE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
