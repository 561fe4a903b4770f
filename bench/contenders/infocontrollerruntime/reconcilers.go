package main

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// nameField is the index of objects by the name in their spec.
const nameField = "name"

type hostReconciler struct {
	client.Client
	inventory *inventory
}

type vmReconciler struct {
	client.Client
	inventory *inventory
}

func (r *hostReconciler) Reconcile(
	ctx context.Context, request ctrl.Request,
) (ctrl.Result, error) {
	if err := r.inventory.waitUntilLoaded(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var info HostInfo
	if err := r.Get(ctx, request.NamespacedName, &info); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	stored := info.Status
	status, found := r.inventory.hostStatus(info.Spec.Hostname)
	if !found {
		return ctrl.Result{}, fmt.Errorf("no host named %q", info.Spec.Hostname)
	}
	reason, message := "Reconciled", ""
	if status.MaintenanceMode != nil && *status.MaintenanceMode {
		reason = "MaintenanceMode"
		message = fmt.Sprintf(
			"Host %q is in maintenance mode and runs no VMs.", info.Spec.Hostname,
		)
	}
	status.ObservedGeneration = info.Generation
	status.Conditions = withReady(stored.Conditions, info.Generation, reason, message)
	if equality.Semantic.DeepEqual(stored, status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, patchStatus(ctx, r.Client, &info, status)
}

func (r *vmReconciler) Reconcile(
	ctx context.Context, request ctrl.Request,
) (ctrl.Result, error) {
	if err := r.inventory.waitUntilLoaded(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var info VMInfo
	if err := r.Get(ctx, request.NamespacedName, &info); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	stored := info.Status
	status, found := r.inventory.vmStatus(info.Spec.Nodename)
	if !found {
		return ctrl.Result{}, fmt.Errorf("no VM named %q", info.Spec.Nodename)
	}
	status.ObservedGeneration = info.Generation
	status.Conditions = withReady(stored.Conditions, info.Generation, "Reconciled", "")
	if equality.Semantic.DeepEqual(stored, status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, patchStatus(ctx, r.Client, &info, status)
}

// withReady returns a copy of the conditions in which Ready is true.
func withReady(
	stored []metav1.Condition, generation int64, reason, message string,
) []metav1.Condition {
	conditions := append([]metav1.Condition(nil), stored...)
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type:               "Ready",
		Status:             metav1.ConditionTrue,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: generation,
	})
	return conditions
}

// patchStatus sends a merge patch with the whole status. client.MergeFrom would encode the object
// twice and compare, which costs more than the fields that it would leave out.
func patchStatus(ctx context.Context, c client.Client, object client.Object, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// enqueueNaming enqueues the objects of a kind that name what has changed.
func enqueueNaming(reader client.Reader, kind client.Object) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(
		func(ctx context.Context, changed client.Object) []reconcile.Request {
			matching := client.MatchingFields{nameField: changed.GetName()}
			var requests []reconcile.Request
			switch kind.(type) {
			case *HostInfo:
				var list HostInfoList
				if reader.List(ctx, &list, matching, client.UnsafeDisableDeepCopy) != nil {
					return nil
				}
				for i := range list.Items {
					requests = append(requests, requestFor(&list.Items[i]))
				}
			case *VMInfo:
				var list VMInfoList
				if reader.List(ctx, &list, matching, client.UnsafeDisableDeepCopy) != nil {
					return nil
				}
				for i := range list.Items {
					requests = append(requests, requestFor(&list.Items[i]))
				}
			}
			return requests
		},
	)
}

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}
