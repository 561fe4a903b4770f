package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// watch reads the updates for all objects of a type from the default collector and stores the
// values.
type watch struct {
	rig     *rig
	client  *govmomi.Client
	version string
	objects map[types.ManagedObjectReference]map[string]types.AnyType
	kinds   map[types.ObjectUpdateKind]int
	first   func(values map[string]types.AnyType) // called with the first values of an object
}

func watchFor(rig *rig, client *govmomi.Client, kind string, paths ...string) *watch {
	rig.Helper()
	ctx := context.Background()
	containerView, err := view.NewManager(client.Client).CreateContainerView(
		ctx, client.ServiceContent.RootFolder, []string{kind}, true,
	)
	if err != nil {
		rig.Fatal(err)
	}
	walk := &types.TraversalSpec{Type: "ContainerView", Path: "view"}
	spec := types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: kind, PathSet: paths}},
		ObjectSet: []types.ObjectSpec{{
			Obj:       containerView.Reference(),
			Skip:      types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{walk},
		}},
	}
	if _, err := property.DefaultCollector(client.Client).CreateFilter(ctx, types.CreateFilter{
		Spec: spec,
	}); err != nil {
		rig.Fatal(err)
	}
	return &watch{
		rig: rig, client: client, kinds: map[types.ObjectUpdateKind]int{},
		objects: map[types.ManagedObjectReference]map[string]types.AnyType{},
	}
}

func (w *watch) wait(options *types.WaitOptions) (*types.UpdateSet, error) {
	req := types.WaitForUpdatesEx{
		This:    w.client.ServiceContent.PropertyCollector,
		Version: w.version,
		Options: options,
	}
	res, err := methods.WaitForUpdatesEx(context.Background(), w.client.Client, &req)
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

// next applies one answer. It returns false if there was no update.
func (w *watch) next() bool {
	w.rig.Helper()
	set, err := w.wait(&types.WaitOptions{MaxWaitSeconds: types.NewInt32(5)})
	if err != nil {
		w.rig.Fatal(err)
	}
	if set == nil {
		return false
	}
	w.apply(set)
	return true
}

func (w *watch) apply(set *types.UpdateSet) {
	w.version = set.Version
	for _, filter := range set.FilterSet {
		for _, update := range filter.ObjectSet {
			w.kinds[update.Kind]++
			if update.Kind == types.ObjectUpdateKindLeave {
				delete(w.objects, update.Obj)
				continue
			}
			if update.Kind == types.ObjectUpdateKindEnter {
				w.objects[update.Obj] = map[string]types.AnyType{}
			}
			for _, change := range update.ChangeSet {
				w.objects[update.Obj][change.Name] = change.Val
			}
			if update.Kind == types.ObjectUpdateKindEnter && w.first != nil {
				w.first(w.objects[update.Obj])
			}
		}
	}
}

// until applies answers until a condition holds.
func (w *watch) until(condition string, holds func() bool) {
	w.rig.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); w.next() {
		if time.Now().After(deadline) {
			w.rig.Fatalf("the watch timed out waiting for: %s; objects: %v", condition, w.objects)
		}
	}
}

func (w *watch) byName(name string) map[string]types.AnyType {
	for _, values := range w.objects {
		if values["name"] == name {
			return values
		}
	}
	return nil
}

func TestTheFirstAnswerHoldsEverythingInPages(t *testing.T) {
	rig := start(t, "--vms", "60", "--hosts", "1")
	watch := watchFor(
		rig, rig.client(), "VirtualMachine", "name", "runtime.powerState", "runtime.host",
	)
	set, err := watch.wait(nil)
	if err != nil {
		t.Fatal(err)
	}
	if set.Truncated == nil || !*set.Truncated || len(set.FilterSet[0].ObjectSet) != 100 {
		t.Fatalf(
			"the first page: truncated %v, %d objects",
			set.Truncated,
			len(set.FilterSet[0].ObjectSet),
		)
	}
	watch.apply(set)
	watch.next()
	if len(watch.objects) != 120 || watch.kinds[types.ObjectUpdateKindEnter] != 120 {
		t.Fatalf("%d objects, %v", len(watch.objects), watch.kinds)
	}
}

func TestAnAnswerThatWasLostIsGivenAgain(t *testing.T) {
	rig := start(t)
	watch := watchFor(rig, rig.client(), "VirtualMachine", "name")
	watch.next()
	rig.call("POST", "/rename", params{"of": "DC0_H0_VM0", "name": "renamed"}, nil)
	// the answer is not applied, so the version does not change
	if _, err := watch.wait(nil); err != nil {
		t.Fatal(err)
	}
	watch.until("the rename again", func() bool { return watch.byName("renamed") != nil })
	watch.version = "999"
	_, err := watch.wait(nil)
	expectFault[*types.InvalidCollectorVersion](t, err)
}

func TestALaterCallTakesThePlaceOfAnEarlierOne(t *testing.T) {
	rig := start(t)
	watch := watchFor(rig, rig.client(), "VirtualMachine", "name")
	watch.next()
	ended := make(chan error, 1)
	go func() {
		_, err := watch.wait(nil)
		ended <- err
	}()
	eventually(t, "the call is open", func() bool { return rig.sessions().SOAP[0].Waiting == 1 })
	if _, err := watch.wait(&types.WaitOptions{MaxWaitSeconds: types.NewInt32(0)}); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.RequestCanceled](t, <-ended)
}

func TestTwoSessionsWatchSideBySide(t *testing.T) {
	rig := start(t)
	first := watchFor(rig, rig.client(), "VirtualMachine", "name")
	first.next()
	second := watchFor(rig, rig.client(), "VirtualMachine", "name")
	second.next()
	rig.call("POST", "/rename", params{"of": "DC0_H0_VM0", "name": "renamed"}, nil)
	for _, watch := range []*watch{first, second} {
		watch.until("the rename", func() bool { return watch.byName("renamed") != nil })
	}
}

func TestWatchReportsNewMovedAndDeletedVMs(t *testing.T) {
	rig := start(t, "--standalone-hosts", "2")
	client := rig.client()
	vms := watchFor(
		rig, client, "VirtualMachine", "name", "runtime.host", "guest.ipAddress",
		"runtime.powerState",
	)
	hosts := watchFor(rig, client, "HostSystem", "name", "vm")
	hosts.objects = vms.objects // both watches use one collector
	vms.next()

	rig.call("POST", "/create", params{"name": "new", "host": "DC0_H0", "on": true}, nil)
	vms.until("the new VM with its address", func() bool {
		vm := vms.byName("new")
		return vm != nil && vm["guest.ipAddress"] != nil &&
			contains(vms.byName("DC0_H0")["vm"], vms, "new")
	})
	before := vms.byName("new")["runtime.host"]
	rig.call("POST", "/move", params{"vm": "new", "host": "DC0_H1"}, nil)
	vms.until("the move", func() bool {
		return vms.byName("new")["runtime.host"] != before &&
			contains(vms.byName("DC0_H1")["vm"], vms, "new") &&
			!contains(vms.byName("DC0_H0")["vm"], vms, "new")
	})
	rig.call("POST", "/power", params{"vm": "new", "on": false}, nil)
	vms.until("the address is gone", func() bool {
		return vms.byName("new")["guest.ipAddress"] == nil
	})
	rig.call("POST", "/delete", params{"of": "new"}, nil)
	vms.until("the VM is gone", func() bool { return vms.byName("new") == nil })
}

func contains(refs types.AnyType, watch *watch, name string) bool {
	array, ok := refs.(types.ArrayOfManagedObjectReference)
	if !ok {
		return false
	}
	for _, ref := range array.ManagedObjectReference {
		if watch.objects[ref]["name"] == name {
			return true
		}
	}
	return false
}

func TestChurnIsReported(t *testing.T) {
	rig := start(t, "--churn", "100ms")
	client := rig.client()
	path := "summary.quickStats.overallCpuUsage"
	watch := watchFor(rig, client, "HostSystem", "name", path)
	watch.next()
	before := watch.byName("DC0_H0")[path]
	watch.until("another CPU usage", func() bool { return watch.byName("DC0_H0")[path] != before })
}

func TestUnknownPropertiesAreRefused(t *testing.T) {
	rig := start(t)
	client := rig.client()
	spec := types.PropertyFilterSpec{
		PropSet:   []types.PropertySpec{{Type: "Folder", PathSet: []string{"nmae"}}},
		ObjectSet: []types.ObjectSpec{{Obj: client.ServiceContent.RootFolder}},
	}
	_, err := property.DefaultCollector(client.Client).CreateFilter(
		context.Background(), types.CreateFilter{Spec: spec},
	)
	expectFault[*types.InvalidProperty](t, err)
}

// TestManyHostsChurnQuickly checks the speed for which this collector replaces the library's.
func TestManyHostsChurnQuickly(t *testing.T) {
	rig := start(t, "--hosts", "150", "--vms", "0", "--standalone-hosts", "0")
	watch := watchFor(rig, rig.client(), "HostSystem", "name", "summary.quickStats.overallCpuUsage")
	watch.until("all hosts", func() bool { return len(watch.objects) == 150 })
	rig.call("POST", "/churn", params{}, nil)
	began := time.Now()
	watch.until("all changes", func() bool {
		return watch.kinds[types.ObjectUpdateKindModify] >= 140
	})
	if elapsed := time.Since(began); elapsed > 5*time.Second {
		t.Fatalf("it took %s", elapsed)
	}
}
