// Command infocontrollerruntime is an operator on controller-runtime for `python -m bench.product`:
// HostInfo and VMInfo with the statuses of vsphere-operators.
//
// The environment has KUBECONFIG, GOVMOMI_URL, GOVMOMI_USERNAME, GOVMOMI_PASSWORD and VC_CA_FILE.
// It has the settings that are best for it: 64 workers, the priority queue, no client-side rate
// limit, a predicate that ignores its own status writes, a cache without managedFields, and one
// merge patch for each status. Lists are streams (WatchList), as client-go does it by default.
// It reads the vCenter with govmomi's property collector and follows it, as vsphere-operators does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const workers = 64

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	groupVersion := schema.GroupVersion{Group: "topology.corinternal.com", Version: "v1"}
	kinds := &scheme.Builder{GroupVersion: groupVersion}
	kinds.Register(&HostInfo{}, &HostInfoList{}, &VMInfo{}, &VMInfoList{})
	registered, err := kinds.Build()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  registered,
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: server.Options{BindAddress: "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	inventory := newInventory()
	if err := addHostInfo(ctx, mgr, inventory); err != nil {
		return err
	}
	if err := addVMInfo(ctx, mgr, inventory); err != nil {
		return err
	}
	// Not a runnable of the manager, which would start it after its caches: lists and the load of
	// the vCenter run at the same time.
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(inventory.follow(ctx)) }()
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func addHostInfo(ctx context.Context, mgr manager.Manager, inventory *inventory) error {
	name := func(object client.Object) []string {
		return []string{object.(*HostInfo).Spec.Hostname}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &HostInfo{}, nameField, name); err != nil {
		return err
	}
	return newController(mgr, &HostInfo{}, inventory.hostChanges).
		Complete(&hostReconciler{mgr.GetClient(), inventory})
}

func addVMInfo(ctx context.Context, mgr manager.Manager, inventory *inventory) error {
	name := func(object client.Object) []string {
		return []string{object.(*VMInfo).Spec.Nodename}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &VMInfo{}, nameField, name); err != nil {
		return err
	}
	return newController(mgr, &VMInfo{}, inventory.vmChanges).
		Complete(&vmReconciler{mgr.GetClient(), inventory})
}

func newController(mgr manager.Manager, kind client.Object, changes nameChannel) *builder.Builder {
	usesPriorityQueue := true
	return ctrl.NewControllerManagedBy(mgr).
		For(kind, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(changes, enqueueNaming(mgr.GetClient(), kind))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, UsePriorityQueue: &usesPriorityQueue,
		})
}
