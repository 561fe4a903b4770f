package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// holdClone starts a clone that is held at a percentage, and waits until it is.
func (s *stage) holdClone(name string, percent int) *object.Task {
	s.Helper()
	s.ask("POST", "/rules", ask{"method": "CloneVM_Task", "where": "task", "hold": true, "at": percent, "count": 1}, nil)
	task := s.clone(name, marked("u1"))
	eventually(s.T, "the clone is held", func() bool { return len(s.held()) == 1 })
	return task
}

func (s *stage) inFolder() []types.ManagedObjectReference {
	s.Helper()
	var folder mo.Folder
	err := s.client.RetrieveOne(context.Background(), s.folder.Reference(), []string{"childEntity"}, &folder)
	if err != nil {
		s.Fatal(err)
	}
	return folder.ChildEntity
}

func TestACloneIsVisibleBeforeItEnds(t *testing.T) {
	s := set(t)
	task := s.holdClone("replica", 60)
	children := s.inFolder()
	if len(children) != 1 {
		t.Fatalf("the folder has %v", children)
	}
	var vm mo.VirtualMachine
	if err := s.client.RetrieveOne(context.Background(), children[0], nil, &vm); err != nil {
		t.Fatal(err)
	}
	if vm.Name != "replica" || marksOf(vm.Config.ExtraConfig)[ownerMark] != "u1" || vm.Config.InstanceUuid == "" {
		t.Errorf("it is %s, %v, %s", vm.Name, marksOf(vm.Config.ExtraConfig), vm.Config.InstanceUuid)
	}
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("it is %s", vm.Runtime.PowerState)
	}
	var info mo.Task
	if err := s.client.RetrieveOne(context.Background(), task.Reference(), []string{"info"}, &info); err != nil {
		t.Fatal(err)
	}
	if info.Info.State != types.TaskInfoStateRunning || info.Info.Progress != 60 {
		t.Errorf("the task is %s at %d %%", info.Info.State, info.Info.Progress)
	}
	truth := s.truth()
	if counted := truth.Folders["/DC0/vm/vm-operator"]; counted.Now != 1 || counted.Peak != 1 || len(truth.Clones) != 0 {
		t.Errorf("counted %+v", truth)
	}
	s.ask("POST", "/release", ask{}, nil)
	finished := s.made(task)
	if finished.Self != children[0] || finished.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		t.Errorf("it became %s, %s", finished.Self, finished.Runtime.PowerState)
	}
	for _, vm := range s.truth().Machines {
		if vm.Cloning {
			t.Errorf("still cloning: %+v", vm)
		}
	}
}

func TestACloneBeforeItsThirdIsInvisible(t *testing.T) {
	s := set(t)
	task := s.holdClone("replica", 20)
	if children := s.inFolder(); len(children) != 0 {
		t.Fatalf("the folder has %v", children)
	}
	if truth := s.truth(); len(truth.Clones) != 1 || truth.Folders["/DC0/vm/vm-operator"].Now != 1 {
		t.Errorf("counted %+v", truth)
	}
	s.ask("POST", "/release", ask{}, nil)
	s.made(task)
}

func TestAnUnfinishedCloneIsBusy(t *testing.T) {
	s, ctx := set(t), context.Background()
	task := s.holdClone("replica", 60)
	vm := object.NewVirtualMachine(s.client.Client, s.inFolder()[0])
	attempts := map[string]func() (*object.Task, error){
		"PowerOn":     func() (*object.Task, error) { return vm.PowerOn(ctx) },
		"PowerOff":    func() (*object.Task, error) { return vm.PowerOff(ctx) },
		"Destroy":     func() (*object.Task, error) { return vm.Destroy(ctx) },
		"Rename":      func() (*object.Task, error) { return vm.Rename(ctx, "other") },
		"Reconfigure": func() (*object.Task, error) { return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2}) },
		"the folder":  func() (*object.Task, error) { return s.folder.Destroy(ctx) },
	}
	for name, attempt := range attempts {
		t.Run(name, func(t *testing.T) { expectFault[*types.TaskInProgress](t, done(attempt())) })
	}
	expectFault[*types.TaskInProgress](t, vm.Unregister(ctx))
	s.ask("POST", "/release", ask{}, nil)
	s.made(task)
	if err := done(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := done(vm.Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
}

func TestADelayedCloneShowsItsVMAfterAThird(t *testing.T) {
	s := set(t, "--delay", "CloneVM_Task=1s")
	watch := watchFor(s.rig, s.client, "VirtualMachine", "name", "runtime.powerState")
	watch.next()
	began := time.Now()
	task := s.clone("replica", nil)
	watch.until("the clone", func() bool { return watch.named("replica") != nil })
	if took := time.Since(began); took < 250*time.Millisecond || took > 800*time.Millisecond {
		t.Errorf("it was visible after %s", took)
	}
	if state := watch.named("replica")["runtime.powerState"]; state != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("it was %v", state)
	}
	watch.until("its power", func() bool {
		return watch.named("replica")["runtime.powerState"] == types.VirtualMachinePowerStatePoweredOn
	})
	s.made(task)
	if took := time.Since(began); took < time.Second {
		t.Errorf("the task took %s", took)
	}
}

func TestACloneIsHeldAtAPercentageOnly(t *testing.T) {
	s := set(t)
	for _, rule := range []ask{
		{"method": "CloneVM_Task", "where": "call", "hold": true, "at": 50},
		{"method": "CloneVM_Task", "where": "task", "at": 50},
		{"method": "CloneVM_Task", "where": "task", "hold": true, "at": 101},
	} {
		if text := s.try("POST", "/rules", rule, nil); text == "" {
			t.Errorf("%v was accepted", rule)
		}
	}
}
