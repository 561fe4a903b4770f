package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// cloneRig is a rig with a template and a folder for its clones.
type cloneRig struct {
	*rig
	client   *govmomi.Client
	template *object.VirtualMachine
	folder   *object.Folder
	pool     types.ManagedObjectReference
}

func startCloneRig(t *testing.T, arguments ...string) *cloneRig {
	t.Helper()
	rig := start(
		t, append([]string{"--folder", "vm-operator", "--template", "template"}, arguments...)...,
	)
	client := rig.client()
	pool, err := find.NewFinder(client.Client).ResourcePool(
		context.Background(), "/DC0/host/DC0_C0/Resources",
	)
	if err != nil {
		t.Fatal(err)
	}
	return &cloneRig{
		rig, client, rig.vm(client, "template"), rig.folder(client, "vm-operator"),
		pool.Reference(),
	}
}

func (s *cloneRig) clone(name string, config *types.VirtualMachineConfigSpec) *object.Task {
	s.Helper()
	spec := types.VirtualMachineCloneSpec{
		PowerOn:  true,
		Config:   config,
		Location: types.VirtualMachineRelocateSpec{Pool: &s.pool},
	}
	task, err := s.template.Clone(context.Background(), s.folder, name, spec)
	if err != nil {
		s.Fatal(err)
	}
	return task
}

func (s *cloneRig) waitVM(task *object.Task) mo.VirtualMachine {
	s.Helper()
	info, err := task.WaitForResult(context.Background(), nil)
	if err != nil {
		s.Fatal(err)
	}
	var vm mo.VirtualMachine
	if err := s.client.RetrieveOne(
		context.Background(), info.Result.(types.ManagedObjectReference), nil, &vm,
	); err != nil {
		s.Fatal(err)
	}
	return vm
}

func (s *cloneRig) counts() VMCounts {
	s.Helper()
	var counts VMCounts
	s.call("GET", "/truth", nil, &counts)
	return counts
}

func ownedBy(owner string) *types.VirtualMachineConfigSpec {
	return &types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
		&types.OptionValue{Key: ownerKey, Value: owner},
	}}
}

func TestOneOfManyClonesWithOneNameSucceeds(t *testing.T) {
	s := startCloneRig(t)
	const clones = 8
	s.call("POST", "/rules", params{
		"method": "CloneVM_Task", "where": "task", "hold": true, "count": clones,
	}, nil)
	var tasks []*object.Task
	for range clones {
		tasks = append(tasks, s.clone("a%b", ownedBy("u1")))
	}
	eventually(t, "all are held", func() bool { return len(s.held()) == clones })
	s.call("POST", "/release", params{}, nil)
	tasks = append(tasks, s.clone("a%b", nil))
	succeeded := 0
	for _, task := range tasks {
		if err := task.Wait(context.Background()); err == nil {
			succeeded++
		} else {
			expectFault[*types.DuplicateName](t, err)
		}
	}
	counts := s.counts()
	peak := counts.Folders["/DC0/vm/vm-operator"]
	if succeeded != 1 || peak.Now != 1 || peak.Peak < clones ||
		counts.Owners["u1"].Peak != clones || len(counts.Clones) != 0 {
		t.Errorf("%d clones succeeded; %+v", succeeded, counts)
	}
	s.call("DELETE", "/truth", nil, nil)
	if peak := s.counts().Folders["/DC0/vm/vm-operator"]; peak.Peak != 1 {
		t.Errorf("after the reset: %+v", peak)
	}
}

func TestACloneThatIsVisibleLateAppearsWhole(t *testing.T) {
	s := startCloneRig(t, "--clones-visible", "late", "--delay", "CloneVM_Task=50ms")
	watch := watchFor(
		s.rig, s.client, "VirtualMachine", "name", "config.extraConfig", "config.hardware.numCPU",
		"runtime.powerState", "parent",
	)
	watch.next()
	const clones = 12
	var tasks []*object.Task
	for number := range clones {
		config := ownedBy(fmt.Sprint(number))
		config.NumCPUs = int32(number%4 + 1)
		tasks = append(tasks, s.clone(fmt.Sprintf("clone-%02d", number), config))
	}
	counts := s.counts()
	if len(counts.Clones)+len(counts.VMs) != clones+5 ||
		counts.Folders["/DC0/vm/vm-operator"].Now != clones {
		t.Errorf("while they run: %+v", counts)
	}
	seen := 0
	watch.first = func(values map[string]types.AnyType) {
		options, _ := values["config.extraConfig"].(types.ArrayOfOptionValue)
		if values["runtime.powerState"] != types.VirtualMachinePowerStatePoweredOn ||
			markersOf(options.OptionValue)[ownerKey] == "" {
			t.Errorf("a clone was seen as %+v", values)
		}
		seen++
	}
	watch.until("all clones are seen", func() bool { return seen == clones })
	for number, task := range tasks {
		vm := s.waitVM(task)
		if vm.Config.Hardware.NumCPU != int32(number%4+1) ||
			markersOf(vm.Config.ExtraConfig)[ownerKey] != fmt.Sprint(number) {
			t.Errorf(
				"clone %d has %d CPUs and %v", number, vm.Config.Hardware.NumCPU,
				markersOf(vm.Config.ExtraConfig),
			)
		}
		if vm.Name != fmt.Sprintf("clone-%02d", number) || vm.Config.Template {
			t.Errorf("clone %d is %s", number, vm.Name)
		}
	}
	if peak := s.counts().Folders["/DC0/vm/vm-operator"]; peak.Peak != clones ||
		peak.Now != clones {
		t.Errorf("counted %+v", peak)
	}
}

func TestInstanceUuidsAreUnique(t *testing.T) {
	const wanted = "50030000-0000-4000-8000-00000000000a"
	s := startCloneRig(t)
	request := types.VirtualMachineConfigSpec{InstanceUuid: wanted}
	var tasks []*object.Task
	for number := range 5 {
		config := request
		tasks = append(tasks, s.clone(fmt.Sprint("twin-", number), &config))
	}
	tasks = append(tasks, s.clone("own", nil))
	granted, seen := 0, map[string]bool{}
	for _, task := range tasks {
		vm := s.waitVM(task)
		if vm.Config.InstanceUuid == wanted {
			granted++
		}
		if seen[vm.Config.InstanceUuid] || seen[vm.Config.Uuid] ||
			vm.Config.InstanceUuid != vm.Summary.Config.InstanceUuid {
			t.Errorf("%s has %s and %s", vm.Name, vm.Config.InstanceUuid, vm.Config.Uuid)
		}
		seen[vm.Config.InstanceUuid], seen[vm.Config.Uuid] = true, true
		if options := object.OptionValueList(vm.Config.ExtraConfig); !hasOption(
			options, toolsOption, "true",
		) {
			t.Errorf("%s lost the template's options: %v", vm.Name, options)
		}
	}
	if granted != 1 {
		t.Errorf("%d VMs have the one instanceUuid", granted)
	}
}

func TestDependenciesOfACloneCanBeDestroyed(t *testing.T) {
	for _, gone := range []string{"folder", "template"} {
		s := startCloneRig(t)
		s.call("POST", "/rules", params{
			"method": "CloneVM_Task", "where": "task", "hold": true, "count": 1,
		}, nil)
		task := s.clone("late", nil)
		eventually(t, "the clone is held", func() bool { return len(s.held()) == 1 })
		target := s.folder.Reference()
		if gone == "template" {
			target = s.template.Reference()
		}
		if err := waitForTask(object.NewCommon(s.client.Client, target).Destroy(
			context.Background(),
		)); err != nil {
			t.Fatal(err)
		}
		s.call("POST", "/release", params{}, nil)
		expectFault[*types.ManagedObjectNotFound](t, task.Wait(context.Background()))
		if counts := s.counts(); len(counts.Clones) != 0 {
			t.Errorf("still cloning: %+v", counts.Clones)
		}
	}
}

func TestDestroyAndCloneConcurrently(t *testing.T) {
	s := startCloneRig(t)
	ctx := context.Background()
	for round := range 10 {
		folder, err := s.folder.CreateFolder(ctx, fmt.Sprint("group-", round))
		if err != nil {
			t.Fatal(err)
		}
		spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{
			Pool: &s.pool,
		}}
		var all sync.WaitGroup
		for number := range 4 {
			all.Go(func() {
				if task, err := s.template.Clone(
					ctx, folder, fmt.Sprint("vm-", number), spec,
				); err == nil {
					_ = task.Wait(ctx)
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(round) * 3 * time.Millisecond)
			_ = waitForTask(folder.Destroy(ctx))
		})
		all.Wait()
	}
	left := 0
	for path, peak := range s.counts().Folders {
		if len(path) < 1 || path[0] != '/' {
			left += peak.Now
		}
	}
	if left != 0 {
		t.Errorf("%d VMs are in folders that are gone: %+v", left, s.counts())
	}
}

// TestClonesRunSideBySide runs 50 clones of half a second, ten at a time: locks must not serialize
// them.
func TestClonesRunSideBySide(t *testing.T) {
	s := startCloneRig(t, "--delay", "CloneVM_Task=500ms")
	began, room := time.Now(), make(chan struct{}, 10)
	var all sync.WaitGroup
	for number := range 50 {
		room <- struct{}{}
		all.Go(func() {
			if err := s.clone(
				fmt.Sprintf("replica-%02d", number), nil,
			).Wait(context.Background()); err != nil {
				t.Error(err)
			}
			<-room
		})
	}
	all.Wait()
	t.Logf("50 clones took %s", time.Since(began))
	if counts := s.counts(); counts.Folders["/DC0/vm/vm-operator"].Peak != 50 {
		t.Errorf("counted %+v", counts.Folders)
	}
}
