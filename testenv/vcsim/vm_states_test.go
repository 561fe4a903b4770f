package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func (s *cloneRig) vmProperties(name string) mo.VirtualMachine {
	s.Helper()
	var vm mo.VirtualMachine
	if err := s.client.RetrieveOne(
		context.Background(), s.vm(s.client, name).Reference(), nil, &vm,
	); err != nil {
		s.Fatal(err)
	}
	return vm
}

func TestPowerDecidesWhatAVMAllows(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	vm := s.vm(s.client, "DC0_H0_VM0")
	size := types.VirtualMachineConfigSpec{NumCPUs: 2, MemoryMB: 2048}
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.Destroy(ctx)))
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.PowerOn(ctx)))
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.Reconfigure(ctx, size)))
	if err := waitForTask(vm.Reconfigure(
		ctx, types.VirtualMachineConfigSpec{Annotation: "allowed"},
	)); err != nil {
		t.Error(err)
	}
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.PowerOff(ctx)))
	before := s.vmProperties("DC0_H0_VM0").Config.ChangeVersion
	if err := waitForTask(vm.Reconfigure(ctx, size)); err != nil {
		t.Fatal(err)
	}
	after := s.vmProperties("DC0_H0_VM0")
	if after.Config.ChangeVersion == before || after.Config.Hardware.NumCPU != 2 ||
		after.Summary.Config.MemorySizeMB != 2048 {
		t.Errorf(
			"got %d CPUs, %d MB and version %s after %s",
			after.Config.Hardware.NumCPU,
			after.Summary.Config.MemorySizeMB,
			after.Config.ChangeVersion,
			before,
		)
	}
}

// TestASuspendedVMRefusesWhatTheAPIDocuments: the reference of PowerOffVM_Task and SuspendVM_Task
// has "InvalidPowerState: if the power state is not poweredOn". Deleting a VM is refused only while
// it is powered on (UnregisterVM, and DELETE /api/vcenter/vm/{vm}).
func TestASuspendedVMRefusesWhatTheAPIDocuments(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	vm := s.vm(s.client, "DC0_H0_VM0")
	if err := waitForTask(vm.Suspend(ctx)); err != nil {
		t.Fatal(err)
	}
	suspended := s.vmProperties("DC0_H0_VM0")
	if suspended.Runtime.PowerState != types.VirtualMachinePowerStateSuspended ||
		suspended.Guest.IpAddress != "" {
		t.Errorf(
			"got %s with address %q", suspended.Runtime.PowerState, suspended.Guest.IpAddress,
		)
	}
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.PowerOff(ctx)))
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.Suspend(ctx)))
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.Reset(ctx)))
	expectFault[*types.InvalidPowerState](
		t, waitForTask(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2})),
	)
	s.call("POST", "/property", params{
		"of": "DC0_H0_VM0", "property": "config.cpuHotAddEnabled", "value": true,
	}, nil)
	expectFault[*types.InvalidPowerState](
		t, waitForTask(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2})),
	)
	if err := waitForTask(vm.PowerOn(ctx)); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.PowerOn(ctx)))
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.InvalidPowerState](t, waitForTask(vm.Suspend(ctx)))
	s.call("POST", "/suspend", params{"vm": "DC0_H0_VM1"}, nil)
	if err := waitForTask(s.vm(s.client, "DC0_H0_VM1").Destroy(ctx)); err != nil {
		t.Error("a suspended VM can be destroyed:", err)
	}
}

func TestHotAddIsAllowedWhereTheVMSaysSo(t *testing.T) {
	yes := true
	config := &types.VirtualMachineConfigInfo{CpuHotAddEnabled: &yes, MemoryHotAddEnabled: &yes}
	config.Hardware.NumCPU, config.Hardware.MemoryMB = 2, 1024
	for spec, allowed := range map[[2]int64]bool{
		{0, 0}: true, {2, 1024}: true, {3, 2048}: true, {1, 0}: false, {0, 512}: false,
	} {
		request := &types.VirtualMachineConfigSpec{NumCPUs: int32(spec[0]), MemoryMB: spec[1]}
		if got := hotPluggable(config, request); got != allowed {
			t.Errorf("%v: %v", spec, got)
		}
	}
}

func TestNamesAreUniqueInAFolder(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	s.call("POST", "/create", params{"name": "a", "folder": "vm-operator"}, nil)
	s.call("POST", "/create", params{"name": "b", "folder": "vm-operator"}, nil)
	s.call("POST", "/create", params{"name": "c"}, nil)
	if text := s.tryCall("POST", "/create", params{
		"name": "a", "folder": "vm-operator",
	}, nil); text == "" {
		t.Error("a second VM with the same name was created")
	}
	a := s.vm(s.client, "vm-operator/a")
	expectFault[*types.DuplicateName](t, waitForTask(a.Rename(ctx, "b")))
	expectFault[*types.DuplicateName](
		t, waitForTask(a.Reconfigure(ctx, types.VirtualMachineConfigSpec{Name: "b"})),
	)
	if err := waitForTask(s.vm(s.client, "c").Rename(ctx, "a")); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.DuplicateName](
		t,
		waitForTask(s.folder.MoveInto(
			ctx, []types.ManagedObjectReference{s.vm(s.client, "a").Reference()},
		)),
	)
}

func TestRecentTasksAreThoseThatRunOrEndedLately(t *testing.T) {
	s, ctx := startCloneRig(t, "--tasks-kept", "300ms"), context.Background()
	s.call("POST", "/rules", params{
		"method": "CloneVM_Task",
		"where":  "task",
		"delay":  "2s",
		"hold":   true,
		"count":  1,
	}, nil)
	running := s.clone("slow", nil)
	for number := range 250 {
		if err := waitForTask(s.template.Reconfigure(
			ctx, types.VirtualMachineConfigSpec{Annotation: fmt.Sprint(number)},
		)); err != nil {
			t.Fatal(err)
		}
	}
	recent := func() []types.ManagedObjectReference {
		var manager mo.TaskManager
		if err := s.client.RetrieveOne(ctx, *s.client.ServiceContent.TaskManager, []string{
			"recentTask",
		}, &manager); err != nil {
			t.Fatal(err)
		}
		return manager.RecentTask
	}
	eventually(t, "only the clone is left", func() bool {
		list := recent()
		return len(list) == 1 && list[0] == running.Reference()
	})
	eventually(t, "progress moves", func() bool {
		var task mo.Task
		if err := s.client.RetrieveOne(ctx, running.Reference(), []string{
			"info",
		}, &task); err != nil {
			t.Fatal(err)
		}
		info := task.Info
		if info.State != types.TaskInfoStateRunning ||
			info.DescriptionId != "VirtualMachine.clone" ||
			*info.Entity != s.template.Reference() ||
			info.QueueTime.IsZero() {
			t.Fatalf("the task is %+v", info)
		}
		return info.Progress > 20
	})
	eventually(t, "it is held", func() bool { return len(s.held()) == 1 })
	s.call("POST", "/release", params{}, nil)
	info, err := running.WaitForResult(ctx, nil)
	if err != nil || info.Result == nil || info.CompleteTime == nil {
		t.Fatalf("it ended as %+v, %v", info, err)
	}
	eventually(t, "the task is forgotten", func() bool { return len(recent()) == 0 })
	expectFault[*types.ManagedObjectNotFound](
		t, s.client.RetrieveOne(ctx, running.Reference(), []string{"info"}, &mo.Task{}),
	)
}

func TestAttachedDisksGoWithTheirVM(t *testing.T) {
	s, ctx := startCloneRig(t, "--powered-off", "DC0_H0_VM0"), context.Background()
	disks := func() map[string]DiskView {
		var list []DiskView
		s.call("GET", "/fcds", nil, &list)
		views := map[string]DiskView{}
		for _, view := range list {
			views[view.Name] = view
		}
		return views
	}
	for _, name := range []string{"pvc-lost", "pvc-kept", "pvc-freed"} {
		s.call("POST", "/fcds", params{"name": name, "keep": name == "pvc-kept"}, nil)
		before := s.vmProperties("DC0_H0_VM0").Config
		s.call("POST", "/fcds/attach", params{"disk": name, "vm": "DC0_H0_VM0"}, nil)
		vm := s.vmProperties("DC0_H0_VM0")
		plugged := object.VirtualDeviceList(vm.Config.Hardware.Device).Select(func(
			device types.BaseVirtualDevice,
		) bool {
			return isDisk(device, types.ID{Id: disks()[name].ID})
		})
		if len(plugged) != 1 || vm.Config.ChangeVersion == before.ChangeVersion ||
			disks()[name].Consumers[0] != vm.Config.Uuid {
			t.Fatalf("%s: %d devices, %+v", name, len(plugged), disks()[name])
		}
	}
	if text := s.tryCall("POST", "/fcds/attach", params{
		"disk": "pvc-lost", "vm": "DC0_H0_VM1",
	}, nil); text == "" {
		t.Error("a disk was attached to two VMs")
	}
	s.call("POST", "/fcds/attach", params{"disk": "pvc-freed", "vm": ""}, nil)
	if freed := disks()["pvc-freed"]; len(freed.Consumers) != 0 ||
		len(s.vmProperties("DC0_H0_VM0").Config.Hardware.Device) == 0 {
		t.Errorf("still used: %+v", freed)
	}
	if err := waitForTask(s.vm(s.client, "DC0_H0_VM0").Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
	left := disks()
	if _, lost := left["pvc-lost"]; lost || len(left) != 2 || len(left["pvc-kept"].Consumers) != 0 {
		t.Errorf("left: %+v", left)
	}
}
