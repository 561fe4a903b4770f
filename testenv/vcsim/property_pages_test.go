package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// nameSpecs selects the names of all VMs.
func nameSpecs(t *testing.T, client *govmomi.Client) []types.PropertyFilterSpec {
	t.Helper()
	containerView, err := view.NewManager(client.Client).CreateContainerView(
		context.Background(), client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		t.Fatal(err)
	}
	walk := &types.TraversalSpec{Type: "ContainerView", Path: "view"}
	return []types.PropertyFilterSpec{{
		PropSet: []types.PropertySpec{{
			Type: "VirtualMachine", PathSet: []string{"name", "summary.customValue"},
		}},
		ObjectSet: []types.ObjectSpec{{
			Obj:       containerView.Reference(),
			Skip:      types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{walk},
		}},
	}}
}

// readPages reads all pages and returns their sizes.
func readPages(t *testing.T, client *govmomi.Client, maxObjects int32) []int {
	t.Helper()
	ctx, collector := context.Background(), client.ServiceContent.PropertyCollector
	res, err := methods.RetrievePropertiesEx(ctx, client.Client, &types.RetrievePropertiesEx{
		This:    collector,
		SpecSet: nameSpecs(t, client),
		Options: types.RetrieveOptions{MaxObjects: maxObjects},
	})
	if err != nil {
		t.Fatal(err)
	}
	sizes, token, seen := []int{len(
		res.Returnval.Objects,
	)}, res.Returnval.Token, map[types.ManagedObjectReference]bool{}
	note := func(objects []types.ObjectContent) {
		for _, object := range objects {
			if seen[object.Obj] || len(object.PropSet) == 0 || object.PropSet[0].Val == nil {
				t.Errorf("received %+v", object)
			}
			seen[object.Obj] = true
		}
	}
	note(res.Returnval.Objects)
	for token != "" {
		next, err := methods.ContinueRetrievePropertiesEx(
			ctx, client.Client, &types.ContinueRetrievePropertiesEx{This: collector, Token: token},
		)
		if err != nil {
			t.Fatal(err)
		}
		note(next.Returnval.Objects)
		sizes, token = append(sizes, len(next.Returnval.Objects)), next.Returnval.Token
	}
	return sizes
}

func sum(sizes []int) int {
	total := 0
	for _, size := range sizes {
		total += size
	}
	return total
}

func TestAResultComesInPages(t *testing.T) {
	rig := start(t, "--vms", "30", "--hosts", "1", "--page-objects", "25")
	client := rig.client()
	for maxObjects, wanted := range map[int32]int{0: 3, 100: 3, 10: 6, 60: 3} {
		sizes := readPages(t, client, maxObjects)
		if len(sizes) != wanted || sum(sizes) != 60 {
			t.Errorf("with maxObjects %d: %v", maxObjects, sizes)
		}
	}
	if sizes := readPages(
		t, start(t, "--vms", "30", "--hosts", "1", "--page-objects", "0").client(), 0,
	); len(sizes) != 1 || sizes[0] != 60 {
		t.Errorf("without a limit: %v", sizes)
	}
}

func TestATokenIsGoodOnceAndForItsSession(t *testing.T) {
	rig, ctx := start(t, "--vms", "5", "--hosts", "1"), context.Background()
	client, other := rig.client(), rig.client()
	collector := client.ServiceContent.PropertyCollector
	res, err := methods.RetrievePropertiesEx(ctx, client.Client, &types.RetrievePropertiesEx{
		This:    collector,
		SpecSet: nameSpecs(t, client),
		Options: types.RetrieveOptions{MaxObjects: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	next := types.ContinueRetrievePropertiesEx{This: collector, Token: res.Returnval.Token}
	_, err = methods.ContinueRetrievePropertiesEx(ctx, other.Client, &next)
	expectFault[*types.InvalidProperty](t, err)
	if _, err = methods.ContinueRetrievePropertiesEx(ctx, client.Client, &next); err != nil {
		t.Fatal(err)
	}
	_, err = methods.ContinueRetrievePropertiesEx(ctx, client.Client, &next)
	expectFault[*types.InvalidProperty](t, err)
}

func TestEachPageCanBeSlow(t *testing.T) {
	rig := start(t, "--vms", "5", "--hosts", "1")
	client := rig.client()
	rig.call("POST", "/rules", params{"method": "*", "where": "page", "delay": "100ms"}, nil)
	began := time.Now()
	if sizes := readPages(t, client, 4); len(sizes) != 3 ||
		time.Since(began) < 300*time.Millisecond {
		t.Errorf("%v pages took %s", sizes, time.Since(began))
	}
	watch := watchFor(rig, client, "VirtualMachine", "name")
	began = time.Now()
	for len(watch.objects) < 10 {
		set, err := watch.wait(&types.WaitOptions{MaxObjectUpdates: 4})
		if err != nil {
			t.Fatal(err)
		}
		watch.apply(set)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("three pages took %s", took)
	}
	began = time.Now()
	rig.call("POST", "/rename", params{"of": "DC0_H0_VM0", "name": "renamed"}, nil)
	watch.until("the rename", func() bool { return watch.byName("renamed") != nil })
	if took := time.Since(began); took > 90*time.Millisecond {
		t.Errorf("an update took %s", took)
	}
}
