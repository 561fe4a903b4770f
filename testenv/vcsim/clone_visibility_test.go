package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// holdClone starts a clone and waits until it is held at a percentage.
func (s *cloneRig) holdClone(name string, percent int) *object.Task {
	s.Helper()
	s.call("POST", "/rules", params{
		"method": "CloneVM_Task",
		"where":  "task",
		"hold":   true,
		"at":     percent,
		"count":  1,
	}, nil)
	task := s.clone(name, ownedBy("u1"))
	eventually(s.T, "the clone is held", func() bool { return len(s.held()) == 1 })
	return task
}

func (s *cloneRig) inFolder() []types.ManagedObjectReference {
	s.Helper()
	var folder mo.Folder
	err := s.client.RetrieveOne(context.Background(), s.folder.Reference(), []string{
		"childEntity",
	}, &folder)
	if err != nil {
		s.Fatal(err)
	}
	return folder.ChildEntity
}

func TestACloneIsVisibleBeforeItEnds(t *testing.T) {
	s := startCloneRig(t)
	task := s.holdClone("replica", 60)
	children := s.inFolder()
	if len(children) != 1 {
		t.Fatalf("the folder has %v", children)
	}
	var vm mo.VirtualMachine
	if err := s.client.RetrieveOne(context.Background(), children[0], nil, &vm); err != nil {
		t.Fatal(err)
	}
	if vm.Name != "replica" || markersOf(vm.Config.ExtraConfig)[ownerKey] != "u1" ||
		vm.Config.InstanceUuid == "" {
		t.Errorf(
			"got %s, %v, %s", vm.Name, markersOf(vm.Config.ExtraConfig), vm.Config.InstanceUuid,
		)
	}
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("got %s", vm.Runtime.PowerState)
	}
	var info mo.Task
	if err := s.client.RetrieveOne(context.Background(), task.Reference(), []string{
		"info",
	}, &info); err != nil {
		t.Fatal(err)
	}
	if info.Info.State != types.TaskInfoStateRunning || info.Info.Progress != 60 {
		t.Errorf("the task is %s at %d %%", info.Info.State, info.Info.Progress)
	}
	counts := s.counts()
	if counted := counts.Folders["/DC0/vm/vm-operator"]; counted.Now != 1 || counted.Peak != 1 ||
		len(counts.Clones) != 0 {
		t.Errorf("counted %+v", counts)
	}
	s.call("POST", "/release", params{}, nil)
	finished := s.waitVM(task)
	if finished.Self != children[0] ||
		finished.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		t.Errorf("got %s, %s", finished.Self, finished.Runtime.PowerState)
	}
	for _, vm := range s.counts().VMs {
		if vm.Cloning {
			t.Errorf("still cloning: %+v", vm)
		}
	}
}

func TestACloneBeforeItsThirdIsInvisible(t *testing.T) {
	s := startCloneRig(t)
	task := s.holdClone("replica", 20)
	if children := s.inFolder(); len(children) != 0 {
		t.Fatalf("the folder has %v", children)
	}
	if counts := s.counts(); len(counts.Clones) != 1 ||
		counts.Folders["/DC0/vm/vm-operator"].Now != 1 {
		t.Errorf("counted %+v", counts)
	}
	s.call("POST", "/release", params{}, nil)
	s.waitVM(task)
}

func TestAnUnfinishedCloneIsBusy(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	task := s.holdClone("replica", 60)
	vm := object.NewVirtualMachine(s.client.Client, s.inFolder()[0])
	attempts := map[string]func() (*object.Task, error){
		"PowerOn":  func() (*object.Task, error) { return vm.PowerOn(ctx) },
		"PowerOff": func() (*object.Task, error) { return vm.PowerOff(ctx) },
		"Destroy":  func() (*object.Task, error) { return vm.Destroy(ctx) },
		"Rename":   func() (*object.Task, error) { return vm.Rename(ctx, "other") },
		"Reconfigure": func() (*object.Task, error) {
			return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2})
		},
		"the folder": func() (*object.Task, error) { return s.folder.Destroy(ctx) },
	}
	for name, attempt := range attempts {
		t.Run(name, func(t *testing.T) {
			expectFault[*types.TaskInProgress](t, waitForTask(attempt()))
		})
	}
	expectFault[*types.TaskInProgress](t, vm.Unregister(ctx))
	s.call("POST", "/release", params{}, nil)
	s.waitVM(task)
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := waitForTask(vm.Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
}

func TestADelayedCloneShowsItsVMAfterAThird(t *testing.T) {
	s := startCloneRig(t, "--delay", "CloneVM_Task=1s")
	watch := watchFor(s.rig, s.client, "VirtualMachine", "name", "runtime.powerState")
	watch.next()
	began := time.Now()
	task := s.clone("replica", nil)
	watch.until("the clone", func() bool { return watch.byName("replica") != nil })
	if took := time.Since(began); took < 250*time.Millisecond || took > 800*time.Millisecond {
		t.Errorf("it was visible after %s", took)
	}
	state := watch.byName("replica")["runtime.powerState"]
	if state != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("got %v", state)
	}
	watch.until("its power", func() bool {
		state := watch.byName("replica")["runtime.powerState"]
		return state == types.VirtualMachinePowerStatePoweredOn
	})
	s.waitVM(task)
	if took := time.Since(began); took < time.Second {
		t.Errorf("the task took %s", took)
	}
}

func TestACloneIsHeldAtAPercentageOnly(t *testing.T) {
	s := startCloneRig(t)
	for _, rule := range []params{
		{"method": "CloneVM_Task", "where": "call", "hold": true, "at": 50},
		{"method": "CloneVM_Task", "where": "task", "at": 50},
		{"method": "CloneVM_Task", "where": "task", "hold": true, "at": 101},
	} {
		if text := s.tryCall("POST", "/rules", rule, nil); text == "" {
			t.Errorf("%v was accepted", rule)
		}
	}
}
