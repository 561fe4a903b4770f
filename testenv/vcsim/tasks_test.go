package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestDestroyOfAFolderTakesItsChildren(t *testing.T) {
	rig := start(t, "--folder", "vm-operator")
	client, ctx := rig.client(), context.Background()
	inner, err := rig.folder(client, "vm-operator").CreateFolder(ctx, "inner")
	if err != nil {
		t.Fatal(err)
	}
	var created struct {
		Ref string `json:"ref"`
	}
	rig.call("POST", "/create", params{"name": "child", "folder": "inner", "on": true}, &created)
	err = waitForTask(rig.folder(client, "vm-operator").Destroy(ctx))
	expectFault[*types.InvalidPowerState](t, err)
	rig.call("POST", "/power", params{"vm": "child", "on": false}, nil)
	if err := waitForTask(rig.folder(client, "vm-operator").Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
	var vm mo.VirtualMachine
	err = client.RetrieveOne(
		ctx,
		types.ManagedObjectReference{Type: "VirtualMachine", Value: created.Ref},
		[]string{"name"},
		&vm,
	)
	expectFault[*types.ManagedObjectNotFound](t, err)
	err = client.RetrieveOne(ctx, inner.Reference(), []string{"name"}, &mo.Folder{})
	expectFault[*types.ManagedObjectNotFound](t, err)
}

func TestACloneKeepsItsSpec(t *testing.T) {
	rig := start(t, "--folder", "vm-operator", "--template", "vm-operator-template")
	client, ctx := rig.client(), context.Background()
	template, folder := rig.vm(client, "vm-operator-template"), rig.folder(client, "vm-operator")
	pool, err := find.NewFinder(client.Client).ResourcePool(ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		t.Fatal(err)
	}
	poolRef := pool.Reference()
	const instance = "50030000-0000-4000-8000-00000000000a"
	task, err := template.Clone(ctx, folder, "replica", types.VirtualMachineCloneSpec{
		PowerOn:  true,
		Location: types.VirtualMachineRelocateSpec{Pool: &poolRef},
		Config: &types.VirtualMachineConfigSpec{
			Annotation: "ours", InstanceUuid: instance, NumCPUs: 3, MemoryMB: 3072,
			ExtraConfig:   []types.BaseOptionValue{&types.OptionValue{Key: "owner", Value: "me"}},
			CpuAllocation: &types.ResourceAllocationInfo{Reservation: types.NewInt64(500)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info.DescriptionId != "VirtualMachine.clone" || info.EntityName != "vm-operator-template" {
		t.Errorf("the task is %s of %s", info.DescriptionId, info.EntityName)
	}
	var vm mo.VirtualMachine
	paths := []string{"config", "runtime.powerState", "summary", "guest"}
	if err := client.RetrieveOne(
		ctx, info.Result.(types.ManagedObjectReference), paths, &vm,
	); err != nil {
		t.Fatal(err)
	}
	config := vm.Config
	if config.Annotation != "ours" || config.InstanceUuid != instance ||
		config.Hardware.NumCPU != 3 || config.Hardware.MemoryMB != 3072 {
		t.Errorf(
			"the clone has %q %s %d %d", config.Annotation, config.InstanceUuid,
			config.Hardware.NumCPU, config.Hardware.MemoryMB,
		)
	}
	if vm.Summary.Runtime.FaultToleranceState == "" || vm.Summary.Runtime.RecordReplayState == "" {
		t.Error("the summary has empty enums, which pyVmomi cannot read")
	}
	if vm.Summary.Config.Annotation != "ours" || vm.Summary.Config.CpuReservation != 500 {
		t.Errorf(
			"the summary has %q %d", vm.Summary.Config.Annotation, vm.Summary.Config.CpuReservation,
		)
	}
	if owner := object.OptionValueList(config.ExtraConfig); !hasOption(owner, "owner", "me") ||
		!hasOption(owner, toolsOption, "true") {
		t.Errorf("extraConfig: %v", owner)
	}
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn ||
		vm.Guest.IpAddress == "" {
		t.Errorf("the clone is %s with address %q", vm.Runtime.PowerState, vm.Guest.IpAddress)
	}
}

func hasOption(options object.OptionValueList, key, value string) bool {
	got, ok := options.GetString(key)
	return ok && got == value
}

func TestATaskCanBeDelayedWhileItsObjectIsRead(t *testing.T) {
	rig := start(t, "--folder", "vm-operator", "--delay", "CloneVM_Task=1s")
	client, ctx := rig.client(), context.Background()
	vm, folder := rig.vm(client, "DC0_H0_VM0"), rig.folder(client, "vm-operator")
	began := time.Now()
	task, err := vm.Clone(ctx, folder, "slow", types.VirtualMachineCloneSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vm.PowerState(ctx); err != nil {
		t.Fatal(err)
	}
	if children, err := folder.Children(ctx); err != nil || len(children) != 0 {
		t.Fatalf("children %v, %v", children, err)
	}
	if took := time.Since(began); took > 800*time.Millisecond {
		t.Fatalf("reading took %s while the task waited", took)
	}
	if err := task.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Fatalf("the task took only %s", took)
	}
}

func TestTasksAndCallsFailOnDemand(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	vm := rig.vm(client, "DC0_H0_VM0")
	rig.call("POST", "/rules", params{
		"method": "PowerOffVM_Task", "count": 1, "fault": "NoPermission",
	}, nil)
	rig.call("POST", "/rules", params{
		"method": "PowerOffVM_Task",
		"count":  1,
		"where":  "task",
		"fault":  "TaskInProgress",
		"delay":  "50ms",
	}, nil)
	_, err := vm.PowerOff(ctx)
	expectFault[*types.NoPermission](t, err)
	task, err := vm.PowerOff(ctx)
	if err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(ctx, nil)
	expectFault[*types.TaskInProgress](t, err)
	if info.Error.LocalizedMessage != "Another task is already in progress." {
		t.Errorf("the message is %q", info.Error.LocalizedMessage)
	}
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	var rules []Rule
	rig.call("GET", "/rules", nil, &rules)
	if len(rules) != 0 {
		t.Errorf("rules left: %v", rules)
	}
	if text := rig.tryCall("POST", "/rules", params{
		"method": "PowerOffVM_Task", "fault": "Nonsense",
	}, nil); text == "" {
		t.Error("a fault that does not exist was accepted")
	}
}

func TestMaintenanceAndDisconnectAreReported(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	host, err := find.NewFinder(client.Client).HostSystem(ctx, "DC0_H0")
	if err != nil {
		t.Fatal(err)
	}
	vm := rig.vm(client, "DC0_H0_VM0")
	refused := make(chan string, 1)
	go func() {
		refused <- rig.tryCall("POST", "/host", params{
			"host": "DC0_H0", "maintenance": true, "connected": false,
		}, nil)
	}()
	watch, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	paths := []string{"runtime.inMaintenanceMode", "summary.runtime.connectionState"}
	maintenance, disconnected := false, false
	bothChanged := func(changes []types.PropertyChange) bool {
		for _, change := range changes {
			maintenance = maintenance || change.Val == true
			disconnected = disconnected || change.Val == types.HostSystemConnectionStateDisconnected
		}
		return maintenance && disconnected
	}
	collector := property.DefaultCollector(client.Client)
	err = property.Wait(watch, collector, host.Reference(), paths, bothChanged)
	if err != nil {
		t.Fatal(err)
	}
	if text := <-refused; text != "" {
		t.Fatal(text)
	}
	var seen mo.VirtualMachine
	if err := client.RetrieveOne(ctx, vm.Reference(), []string{"runtime"}, &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Runtime.ConnectionState != types.VirtualMachineConnectionStateDisconnected {
		t.Errorf("the VM is %s", seen.Runtime.ConnectionState)
	}
}
