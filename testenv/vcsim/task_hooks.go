package main

import (
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// addTaskHooks sets the steps that vCenter does in addition to the library.
func addTaskHooks(call *TaskCall, body types.AnyType) {
	ctx := call.ctx
	switch req := body.(type) {
	case *types.CloneVM_Task:
		call.clone = &Clone{req: req, name: req.Name, early: call.tasks.early}
		call.after = func(result types.AnyType) types.BaseMethodFault {
			return call.clone.finish(call, result)
		}
	case *types.PowerOnVM_Task:
		call.after = func(types.AnyType) types.BaseMethodFault { return startGuest(ctx, req.This) }
	case *types.SuspendVM_Task:
		call.before = func() types.BaseMethodFault { return checkPoweredOn(ctx, req.This) }
		call.after = func(types.AnyType) types.BaseMethodFault { return stopGuest(ctx, req.This) }
	case *types.PowerOffVM_Task:
		call.before = func() types.BaseMethodFault { return checkPoweredOn(ctx, req.This) }
		call.after = func(types.AnyType) types.BaseMethodFault { return stopGuest(ctx, req.This) }
	case *types.ResetVM_Task:
		call.before = func() types.BaseMethodFault { return checkPoweredOn(ctx, req.This) }
	case *types.RelocateVM_Task:
		call.before = func() types.BaseMethodFault { return leaveHost(ctx, req) }
		call.after = func(types.AnyType) types.BaseMethodFault { return enterHost(ctx, req) }
	case *types.DisconnectHost_Task:
		call.after = func(types.AnyType) types.BaseMethodFault {
			return setVMConnections(ctx, req.This, false)
		}
	case *types.ReconnectHost_Task:
		call.after = func(types.AnyType) types.BaseMethodFault {
			return setVMConnections(ctx, req.This, true)
		}
	default:
		addInventoryHooks(call, body)
	}
}

// addInventoryHooks sets the steps of methods that create, change and destroy entities.
func addInventoryHooks(call *TaskCall, body types.AnyType) {
	ctx, none := call.ctx, types.ManagedObjectReference{}
	switch req := body.(type) {
	case *types.Destroy_Task:
		call.before = func() types.BaseMethodFault { return destroyContent(call, req.This) }
	case *types.UnregisterAndDestroy_Task:
		call.before = func() types.BaseMethodFault { return unregisterFolder(call, req.This) }
	case *types.CreateVM_Task:
		call.before = func() types.BaseMethodFault {
			return checkDuplicateName(ctx, req.This, req.Config.Name, none)
		}
		call.after = func(result types.AnyType) types.BaseMethodFault {
			return updateSummary(ctx, result)
		}
	case *types.RegisterVM_Task:
		call.before = func() types.BaseMethodFault {
			return checkDuplicateName(ctx, req.This, req.Name, none)
		}
		call.after = func(result types.AnyType) types.BaseMethodFault {
			return updateSummary(ctx, result)
		}
	case *types.ReconfigVM_Task:
		call.before = func() types.BaseMethodFault { return checkReconfigure(ctx, req) }
		call.after = func(types.AnyType) types.BaseMethodFault {
			removeVApp(ctx, req)
			return updateSummary(ctx, req.This)
		}
	case *types.Rename_Task:
		call.before = func() types.BaseMethodFault {
			return checkRename(ctx, req.This, req.NewName)
		}
	case *types.MoveIntoFolder_Task:
		call.involved = req.List
		call.before = func() types.BaseMethodFault { return checkMove(ctx, req) }
	case *types.AttachDisk_Task:
		call.before = func() types.BaseMethodFault { return checkAttach(ctx, req) }
		call.after = func(types.AnyType) types.BaseMethodFault { return addDiskDevice(ctx, req) }
	case *types.DetachDisk_Task:
		call.before = func() types.BaseMethodFault {
			return removeDiskDevice(ctx, req.This, req.DiskId)
		}
	}
}

// checkPoweredOn returns InvalidPowerState for a VM that is not powered on. The API reference of
// PowerOffVM_Task, SuspendVM_Task and ResetVM_Task has "InvalidPowerState: if the power state is
// not poweredOn", which includes suspended VMs.
func checkPoweredOn(
	ctx *simulator.Context, ref types.ManagedObjectReference,
) types.BaseMethodFault {
	vm, ok := findVM(ctx, ref)
	if !ok || vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	return &types.InvalidPowerState{
		RequestedState: types.VirtualMachinePowerStatePoweredOn,
		ExistingState:  vm.Runtime.PowerState,
	}
}

// checkReconfigure rejects changes that are not possible while a VM runs or is suspended. A
// suspended VM allows no hot-add, because its memory image depends on its CPUs and memory.
func checkReconfigure(ctx *simulator.Context, req *types.ReconfigVM_Task) types.BaseMethodFault {
	vm, ok := findVM(ctx, req.This)
	if !ok {
		return nil
	}
	// The API reference of ConfigSpec.changeVersion: "if the changeVersion does not match the
	// current value, the operation fails with a ConcurrentAccess fault".
	if version := req.Spec.ChangeVersion; version != "" && version != vm.Config.ChangeVersion {
		return &types.ConcurrentAccess{}
	}
	state, config := vm.Runtime.PowerState, vm.Config
	if state == types.VirtualMachinePowerStateSuspended {
		config = &types.VirtualMachineConfigInfo{Hardware: config.Hardware}
	}
	if state != types.VirtualMachinePowerStatePoweredOff && !hotPluggable(config, &req.Spec) {
		return &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: state,
		}
	}
	if fault := checkCores(vm.Config, &req.Spec); fault != nil {
		return fault
	}
	return checkRename(ctx, req.This, req.Spec.Name)
}

// hotPluggable reports whether a running VM can change to the CPUs and memory of a spec.
func hotPluggable(
	config *types.VirtualMachineConfigInfo, spec *types.VirtualMachineConfigSpec,
) bool {
	allowed := func(flag *bool) bool { return flag != nil && *flag }
	cpus, memory := config.Hardware.NumCPU, int64(config.Hardware.MemoryMB)
	if spec.NumCPUs > cpus && !allowed(config.CpuHotAddEnabled) || spec.NumCPUs != 0 &&
		spec.NumCPUs < cpus && !allowed(config.CpuHotRemoveEnabled) {
		return false
	}
	return spec.MemoryMB == 0 || spec.MemoryMB == memory || spec.MemoryMB > memory &&
		allowed(config.MemoryHotAddEnabled)
}

// checkRename returns DuplicateName where the library returns InvalidArgument or no fault.
func checkRename(
	ctx *simulator.Context, ref types.ManagedObjectReference, name string,
) types.BaseMethodFault {
	entity, ok := ctx.Map.Get(ref).(mo.Entity)
	if !ok || entity.Entity().Parent == nil || name == "" {
		return nil
	}
	return checkDuplicateName(ctx, *entity.Entity().Parent, name, ref)
}

func checkMove(ctx *simulator.Context, req *types.MoveIntoFolder_Task) types.BaseMethodFault {
	for _, ref := range req.List {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		if fault := checkDuplicateName(ctx, req.This, nameOf(entity), ref); fault != nil {
			return fault
		}
	}
	return nil
}

// destroyContent destroys the children of a folder, the deepest first, which the library keeps, or
// the disks of a VM.
func destroyContent(call *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	if vm, ok := findVM(call.ctx, ref); ok {
		return destroyDisks(call.ctx, vm)
	}
	for _, child := range children(call.ctx, ref) {
		if fault := destroyChild(call, child); fault != nil {
			return fault
		}
	}
	return nil
}

func destroyChild(call *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	lock := call.tasks.locks.Entity(ref)
	lock.Lock()
	defer lock.Unlock()
	if fault := call.tasks.checkBusy(ref); fault != nil {
		return fault
	}
	if call.ctx.Map.Get(ref) == nil {
		return nil
	}
	if fault := destroyContent(call, ref); fault != nil {
		return fault
	}
	return destroy(call.ctx, ref)
}

type destroyer interface {
	mo.Reference
	DestroyTask(*simulator.Context, *types.Destroy_Task) soap.HasFault
}

func destroy(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	object, ok := ctx.Map.Get(ref).(destroyer)
	if !ok {
		return &types.NotSupported{}
	}
	related := relatedTo(ctx, ref)
	defer func() { touch(ctx, related...) }()
	var fault types.BaseMethodFault
	ctx.WithLock(object, func() {
		body := object.DestroyTask(ctx, &types.Destroy_Task{This: ref}).(*methods.Destroy_TaskBody)
		fault = waitLibraryTask(ctx, body.Fault_, func() types.ManagedObjectReference {
			return body.Res.Returnval
		})
	})
	return fault
}

// waitLibraryTask waits for a task that the library started and returns its fault.
func waitLibraryTask(
	ctx *simulator.Context, refused *soap.Fault, started func() types.ManagedObjectReference,
) types.BaseMethodFault {
	if refused != nil {
		fault, _ := refused.Detail.Fault.(types.BaseMethodFault)
		return fault
	}
	task := ctx.Map.Get(started()).(*simulator.Task)
	for {
		var info types.TaskInfo
		ctx.Map.WithLock(&simulator.Context{}, task, func() { info = task.Info })
		switch info.State {
		case types.TaskInfoStateSuccess:
			return nil
		case types.TaskInfoStateError:
			fault, _ := info.Error.Fault.(types.BaseMethodFault)
			return fault
		}
		time.Sleep(time.Millisecond) // the library's Wait takes at least 10 ms
	}
}

func powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	var fault types.BaseMethodFault
	ctx.WithLock(vm, func() {
		body := vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{
			This: vm.Self,
		}).(*methods.PowerOnVM_TaskBody)
		fault = waitLibraryTask(ctx, body.Fault_, func() types.ManagedObjectReference {
			return body.Res.Returnval
		})
	})
	if fault != nil {
		return fault
	}
	return startGuest(ctx, vm.Self)
}

// updateSummary copies configuration values into the summary of a VM and sets the enums that
// vCenter always sets: pyVmomi cannot read a runtime or summary with an empty enum.
func updateSummary(ctx *simulator.Context, vmRef types.AnyType) types.BaseMethodFault {
	vm, ok := findVM(ctx, vmRef)
	if !ok {
		return nil
	}
	ctx.WithLock(vm, func() {
		for _, runtime := range []*types.VirtualMachineRuntimeInfo{
			&vm.Runtime, &vm.Summary.Runtime,
		} {
			runtime.FaultToleranceState = types.VirtualMachineFaultToleranceStateNotConfigured
			runtime.RecordReplayState = types.VirtualMachineRecordReplayStateInactive
		}
		summary := &vm.Summary.Config
		summary.Annotation = vm.Config.Annotation
		if cpu := vm.Config.CpuAllocation; cpu != nil && cpu.Reservation != nil {
			summary.CpuReservation = int32(*cpu.Reservation)
		}
		if memory := vm.Config.MemoryAllocation; memory != nil && memory.Reservation != nil {
			summary.MemoryReservation = int32(*memory.Reservation)
		}
	})
	touch(ctx, relatedTo(ctx, vm.Self)...)
	return nil
}

// leaveHost removes a VM from its host before it moves.
func leaveHost(ctx *simulator.Context, req *types.RelocateVM_Task) types.BaseMethodFault {
	vm, ok := findVM(ctx, req.This)
	if !ok || req.Spec.Host == nil || vm.Runtime.Host == nil {
		return nil
	}
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.RemoveReference(ctx, host, &host.Vm, req.This)
	}
	return nil
}

func enterHost(ctx *simulator.Context, req *types.RelocateVM_Task) types.BaseMethodFault {
	vm, ok := findVM(ctx, req.This)
	if !ok || vm.Runtime.Host == nil {
		return nil
	}
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.AddReference(ctx, host, &host.Vm, req.This)
	}
	touch(ctx, relatedTo(ctx, req.This)...)
	return nil
}

// setVMConnections sets the connection state of the VMs of a host.
func setVMConnections(
	ctx *simulator.Context, ref types.ManagedObjectReference, connected bool,
) types.BaseMethodFault {
	host, ok := ctx.Map.Get(ref).(*simulator.HostSystem)
	if !ok {
		return nil
	}
	state := types.VirtualMachineConnectionStateDisconnected
	if connected {
		state = types.VirtualMachineConnectionStateConnected
	}
	for _, member := range slices.Clone(host.Vm) {
		if vm, ok := findVM(ctx, member); ok {
			ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
				{Name: "runtime.connectionState", Val: state},
				{Name: "summary.runtime.connectionState", Val: state},
			})
		}
	}
	return nil
}

func findVM(ctx *simulator.Context, value types.AnyType) (*simulator.VirtualMachine, bool) {
	ref, ok := value.(types.ManagedObjectReference)
	if !ok {
		return nil, false
	}
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	return vm, ok
}
