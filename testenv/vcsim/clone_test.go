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

// stage has a template and a folder, and clones the one into the other.
type stage struct {
	*rig
	client   *govmomi.Client
	template *object.VirtualMachine
	folder   *object.Folder
	pool     types.ManagedObjectReference
}

func set(t *testing.T, arguments ...string) *stage {
	t.Helper()
	rig := start(t, append([]string{"--folder", "vm-operator", "--template", "template"}, arguments...)...)
	client := rig.client()
	pool, err := find.NewFinder(client.Client).ResourcePool(context.Background(), "/DC0/host/DC0_C0/Resources")
	if err != nil {
		t.Fatal(err)
	}
	return &stage{rig, client, rig.vm(client, "template"), rig.folder(client, "vm-operator"), pool.Reference()}
}

func (s *stage) clone(name string, config *types.VirtualMachineConfigSpec) *object.Task {
	s.Helper()
	spec := types.VirtualMachineCloneSpec{PowerOn: true, Config: config, Location: types.VirtualMachineRelocateSpec{Pool: &s.pool}}
	task, err := s.template.Clone(context.Background(), s.folder, name, spec)
	if err != nil {
		s.Fatal(err)
	}
	return task
}

func (s *stage) made(task *object.Task) mo.VirtualMachine {
	s.Helper()
	info, err := task.WaitForResult(context.Background(), nil)
	if err != nil {
		s.Fatal(err)
	}
	var vm mo.VirtualMachine
	if err := s.client.RetrieveOne(context.Background(), info.Result.(types.ManagedObjectReference), nil, &vm); err != nil {
		s.Fatal(err)
	}
	return vm
}

func (s *stage) truth() Truth {
	s.Helper()
	var truth Truth
	s.ask("GET", "/truth", nil, &truth)
	return truth
}

func marked(owner string) *types.VirtualMachineConfigSpec {
	return &types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: ownerMark, Value: owner}}}
}

func TestOfManyClonesOfOneNameOneSucceeds(t *testing.T) {
	s := set(t)
	const clones = 8
	s.ask("POST", "/rules", ask{"method": "CloneVM_Task", "where": "task", "hold": true, "count": clones}, nil)
	var tasks []*object.Task
	for range clones {
		tasks = append(tasks, s.clone("a%b", marked("u1")))
	}
	eventually(t, "all are held", func() bool { return len(s.held()) == clones })
	s.ask("POST", "/release", ask{}, nil)
	tasks = append(tasks, s.clone("a%b", nil))
	succeeded := 0
	for _, task := range tasks {
		if err := task.Wait(context.Background()); err == nil {
			succeeded++
		} else {
			expectFault[*types.DuplicateName](t, err)
		}
	}
	truth := s.truth()
	peak := truth.Folders["/DC0/vm/vm-operator"]
	if succeeded != 1 || peak.Now != 1 || peak.Peak < clones || truth.Owners["u1"].Peak != clones || len(truth.Clones) != 0 {
		t.Errorf("%d were made; %+v", succeeded, truth)
	}
	s.ask("DELETE", "/truth", nil, nil)
	if peak := s.truth().Folders["/DC0/vm/vm-operator"]; peak.Peak != 1 {
		t.Errorf("after the reset: %+v", peak)
	}
}

func TestACloneThatIsVisibleLateAppearsWhole(t *testing.T) {
	s := set(t, "--clones-visible", "late", "--delay", "CloneVM_Task=50ms")
	watch := watchFor(s.rig, s.client, "VirtualMachine", "name", "config.extraConfig", "config.hardware.numCPU", "runtime.powerState", "parent")
	watch.next()
	const clones = 12
	var tasks []*object.Task
	for number := range clones {
		config := marked(fmt.Sprint(number))
		config.NumCPUs = int32(number%4 + 1)
		tasks = append(tasks, s.clone(fmt.Sprintf("clone-%02d", number), config))
	}
	truth := s.truth()
	if len(truth.Clones)+len(truth.Machines) != clones+5 || truth.Folders["/DC0/vm/vm-operator"].Now != clones {
		t.Errorf("while they run: %+v", truth)
	}
	seen := 0
	watch.first = func(values map[string]types.AnyType) {
		options, _ := values["config.extraConfig"].(types.ArrayOfOptionValue)
		if values["runtime.powerState"] != types.VirtualMachinePowerStatePoweredOn || marksOf(options.OptionValue)[ownerMark] == "" {
			t.Errorf("a clone was seen as %+v", values)
		}
		seen++
	}
	watch.until("all clones are seen", func() bool { return seen == clones })
	for number, task := range tasks {
		vm := s.made(task)
		if vm.Config.Hardware.NumCPU != int32(number%4+1) || marksOf(vm.Config.ExtraConfig)[ownerMark] != fmt.Sprint(number) {
			t.Errorf("clone %d has %d CPUs and %v", number, vm.Config.Hardware.NumCPU, marksOf(vm.Config.ExtraConfig))
		}
		if vm.Name != fmt.Sprintf("clone-%02d", number) || vm.Config.Template {
			t.Errorf("clone %d is %s", number, vm.Name)
		}
	}
	if peak := s.truth().Folders["/DC0/vm/vm-operator"]; peak.Peak != clones || peak.Now != clones {
		t.Errorf("counted %+v", peak)
	}
}

func TestInstanceUuidsAreUnique(t *testing.T) {
	const wanted = "50030000-0000-4000-8000-00000000000a"
	s := set(t)
	request := types.VirtualMachineConfigSpec{InstanceUuid: wanted}
	var tasks []*object.Task
	for number := range 5 {
		config := request
		tasks = append(tasks, s.clone(fmt.Sprint("twin-", number), &config))
	}
	tasks = append(tasks, s.clone("own", nil))
	granted, seen := 0, map[string]bool{}
	for _, task := range tasks {
		vm := s.made(task)
		if vm.Config.InstanceUuid == wanted {
			granted++
		}
		if seen[vm.Config.InstanceUuid] || seen[vm.Config.Uuid] || vm.Config.InstanceUuid != vm.Summary.Config.InstanceUuid {
			t.Errorf("%s has %s and %s", vm.Name, vm.Config.InstanceUuid, vm.Config.Uuid)
		}
		seen[vm.Config.InstanceUuid], seen[vm.Config.Uuid] = true, true
		if options := object.OptionValueList(vm.Config.ExtraConfig); !has(options, toolsOption, "true") {
			t.Errorf("%s lost the template's options: %v", vm.Name, options)
		}
	}
	if granted != 1 {
		t.Errorf("%d VMs have the one instanceUuid", granted)
	}
}

func TestWhatACloneNeedsCanVanish(t *testing.T) {
	for _, gone := range []string{"folder", "template"} {
		s := set(t)
		s.ask("POST", "/rules", ask{"method": "CloneVM_Task", "where": "task", "hold": true, "count": 1}, nil)
		task := s.clone("late", nil)
		eventually(t, "the clone is held", func() bool { return len(s.held()) == 1 })
		target := s.folder.Reference()
		if gone == "template" {
			target = s.template.Reference()
		}
		if err := done(object.NewCommon(s.client.Client, target).Destroy(context.Background())); err != nil {
			t.Fatal(err)
		}
		s.ask("POST", "/release", ask{}, nil)
		expectFault[*types.ManagedObjectNotFound](t, task.Wait(context.Background()))
		if truth := s.truth(); len(truth.Clones) != 0 {
			t.Errorf("still cloning: %+v", truth.Clones)
		}
	}
}

func TestDestroyAndCloneAtOnceDoNoHarm(t *testing.T) {
	s := set(t)
	ctx := context.Background()
	for round := range 10 {
		folder, err := s.folder.CreateFolder(ctx, fmt.Sprint("group-", round))
		if err != nil {
			t.Fatal(err)
		}
		spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &s.pool}}
		var all sync.WaitGroup
		for number := range 4 {
			all.Go(func() {
				if task, err := s.template.Clone(ctx, folder, fmt.Sprint("vm-", number), spec); err == nil {
					_ = task.Wait(ctx)
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(round) * 3 * time.Millisecond)
			_ = done(folder.Destroy(ctx))
		})
		all.Wait()
	}
	left := 0
	for path, peak := range s.truth().Folders {
		if len(path) < 1 || path[0] != '/' {
			left += peak.Now
		}
	}
	if left != 0 {
		t.Errorf("%d VMs are in folders that are gone: %+v", left, s.truth())
	}
}

// TestClonesRunSideBySide has ten under way at a time, of half a second each: five rounds, whatever the simulator's own locks do.
func TestClonesRunSideBySide(t *testing.T) {
	s := set(t, "--delay", "CloneVM_Task=500ms")
	began, room := time.Now(), make(chan struct{}, 10)
	var all sync.WaitGroup
	for number := range 50 {
		room <- struct{}{}
		all.Go(func() {
			if err := s.clone(fmt.Sprintf("replica-%02d", number), nil).Wait(context.Background()); err != nil {
				t.Error(err)
			}
			<-room
		})
	}
	all.Wait()
	t.Logf("50 clones took %s", time.Since(began))
	if truth := s.truth(); truth.Folders["/DC0/vm/vm-operator"].Peak != 50 {
		t.Errorf("counted %+v", truth.Folders)
	}
}
