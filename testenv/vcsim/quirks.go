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

// arrange sets the steps in which vCenter does more than the library.
func arrange(e *TaskCall, body types.AnyType) {
	ctx := e.ctx
	switch req := body.(type) {
	case *types.CloneVM_Task:
		e.clone = &Clone{req: req, name: req.Name, early: e.tasks.early}
		e.after = func(made types.AnyType) types.BaseMethodFault { return e.clone.finish(e, made) }
	case *types.PowerOnVM_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return bootGuest(ctx, req.This) }
	case *types.SuspendVM_Task:
		e.before = func() types.BaseMethodFault { return refuseUnlessPoweredOn(ctx, req.This) }
		e.after = func(types.AnyType) types.BaseMethodFault { return haltGuest(ctx, req.This) }
	case *types.PowerOffVM_Task:
		e.before = func() types.BaseMethodFault { return refuseUnlessPoweredOn(ctx, req.This) }
		e.after = func(types.AnyType) types.BaseMethodFault { return haltGuest(ctx, req.This) }
	case *types.ResetVM_Task:
		e.before = func() types.BaseMethodFault { return refuseUnlessPoweredOn(ctx, req.This) }
	case *types.RelocateVM_Task:
		e.before = func() types.BaseMethodFault { return leaveHost(ctx, req) }
		e.after = func(types.AnyType) types.BaseMethodFault { return joinHost(ctx, req) }
	case *types.DisconnectHost_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return connectMachines(ctx, req.This, false) }
	case *types.ReconnectHost_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return connectMachines(ctx, req.This, true) }
	default:
		arrangeInventory(e, body)
	}
}

// arrangeInventory does so for the methods that make, change and destroy entities.
func arrangeInventory(e *TaskCall, body types.AnyType) {
	ctx, nobody := e.ctx, types.ManagedObjectReference{}
	switch req := body.(type) {
	case *types.Destroy_Task:
		e.before = func() types.BaseMethodFault { return destroyContent(e, req.This) }
	case *types.UnregisterAndDestroy_Task:
		e.before = func() types.BaseMethodFault { return unregisterFolder(e, req.This) }
	case *types.CreateVM_Task:
		e.before = func() types.BaseMethodFault { return taken(ctx, req.This, req.Config.Name, nobody) }
		e.after = func(made types.AnyType) types.BaseMethodFault { return summarize(ctx, made) }
	case *types.RegisterVM_Task:
		e.before = func() types.BaseMethodFault { return taken(ctx, req.This, req.Name, nobody) }
		e.after = func(made types.AnyType) types.BaseMethodFault { return summarize(ctx, made) }
	case *types.ReconfigVM_Task:
		e.before = func() types.BaseMethodFault { return refuseReconfigure(ctx, req) }
		e.after = func(types.AnyType) types.BaseMethodFault {
			removeVApp(ctx, req)
			return summarize(ctx, req.This)
		}
	case *types.Rename_Task:
		e.before = func() types.BaseMethodFault { return refuseRename(ctx, req.This, req.NewName) }
	case *types.MoveIntoFolder_Task:
		e.involved = req.List
		e.before = func() types.BaseMethodFault { return refuseMove(ctx, req) }
	case *types.AttachDisk_Task:
		e.before = func() types.BaseMethodFault { return refuseAttach(ctx, req) }
		e.after = func(types.AnyType) types.BaseMethodFault { return plugDisk(ctx, req) }
	case *types.DetachDisk_Task:
		e.before = func() types.BaseMethodFault { return unplugDisk(ctx, req.This, req.DiskId) }
	}
}

// refuseUnlessPoweredOn is the fault of PowerOffVM_Task, SuspendVM_Task and ResetVM_Task for a VM in another state. The API reference:
// "InvalidPowerState: if the power state is not poweredOn", so that a suspended VM is refused too.
func refuseUnlessPoweredOn(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	vm, ok := machine(ctx, ref)
	if !ok || vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOn, ExistingState: vm.Runtime.PowerState}
}

// refuseReconfigure rejects what cannot be changed while a VM runs or is suspended: the memory image of a suspended VM has its CPUs and
// its memory, so that not even hot-add is possible.
func refuseReconfigure(ctx *simulator.Context, req *types.ReconfigVM_Task) types.BaseMethodFault {
	vm, ok := machine(ctx, req.This)
	if !ok {
		return nil
	}
	state, config := vm.Runtime.PowerState, vm.Config
	if state == types.VirtualMachinePowerStateSuspended {
		config = &types.VirtualMachineConfigInfo{Hardware: config.Hardware}
	}
	if state != types.VirtualMachinePowerStatePoweredOff && !hotPluggable(config, &req.Spec) {
		return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: state}
	}
	if fault := refuseCores(vm.Config, &req.Spec); fault != nil {
		return fault
	}
	return refuseRename(ctx, req.This, req.Spec.Name)
}

// hotPluggable reports whether the CPUs and memory of a spec can be given to a running VM: more of them, where it allows that.
func hotPluggable(config *types.VirtualMachineConfigInfo, spec *types.VirtualMachineConfigSpec) bool {
	allowed := func(flag *bool) bool { return flag != nil && *flag }
	cpus, memory := config.Hardware.NumCPU, int64(config.Hardware.MemoryMB)
	if spec.NumCPUs > cpus && !allowed(config.CpuHotAddEnabled) || spec.NumCPUs != 0 && spec.NumCPUs < cpus && !allowed(config.CpuHotRemoveEnabled) {
		return false
	}
	return spec.MemoryMB == 0 || spec.MemoryMB == memory || spec.MemoryMB > memory && allowed(config.MemoryHotAddEnabled)
}

// refuseRename is DuplicateName where the library has InvalidArgument, or no objection.
func refuseRename(ctx *simulator.Context, ref types.ManagedObjectReference, name string) types.BaseMethodFault {
	entity, ok := ctx.Map.Get(ref).(mo.Entity)
	if !ok || entity.Entity().Parent == nil || name == "" {
		return nil
	}
	return taken(ctx, *entity.Entity().Parent, name, ref)
}

func refuseMove(ctx *simulator.Context, req *types.MoveIntoFolder_Task) types.BaseMethodFault {
	for _, ref := range req.List {
		entity, ok := ctx.Map.Get(ref).(mo.Entity)
		if !ok {
			return &types.ManagedObjectNotFound{Obj: ref}
		}
		if fault := taken(ctx, req.This, nameOf(entity), ref); fault != nil {
			return fault
		}
	}
	return nil
}

// destroyContent destroys what goes with an entity: a folder's children, the deepest first, which the library leaves behind, and a VM's disks.
func destroyContent(e *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	if vm, ok := machine(e.ctx, ref); ok {
		return destroyDisks(e.ctx, vm)
	}
	for _, child := range children(e.ctx, ref) {
		if fault := destroyChild(e, child); fault != nil {
			return fault
		}
	}
	return nil
}

func destroyChild(e *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	guard := e.tasks.guard.Entity(ref)
	guard.Lock()
	defer guard.Unlock()
	if fault := e.tasks.refuseBusy(ref); fault != nil {
		return fault
	}
	if e.ctx.Map.Get(ref) == nil {
		return nil
	}
	if fault := destroyContent(e, ref); fault != nil {
		return fault
	}
	return destroy(e.ctx, ref)
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
	neighbours := around(ctx, ref)
	defer func() { touch(ctx, neighbours...) }()
	var fault types.BaseMethodFault
	ctx.WithLock(object, func() {
		body := object.DestroyTask(ctx, &types.Destroy_Task{This: ref}).(*methods.Destroy_TaskBody)
		fault = finish(ctx, body.Fault_, func() types.ManagedObjectReference { return body.Res.Returnval })
	})
	return fault
}

// finish waits for a task that the library has started, and returns its fault.
func finish(ctx *simulator.Context, refused *soap.Fault, started func() types.ManagedObjectReference) types.BaseMethodFault {
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
		time.Sleep(time.Millisecond) // the library's own Wait takes 10 ms at least
	}
}

func powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	var fault types.BaseMethodFault
	ctx.WithLock(vm, func() {
		body := vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody)
		fault = finish(ctx, body.Fault_, func() types.ManagedObjectReference { return body.Res.Returnval })
	})
	if fault != nil {
		return fault
	}
	return bootGuest(ctx, vm.Self)
}

// summarize brings a VM's summary in line with its configuration, and sets what vCenter always sets: with an empty enum in it,
// pyVmomi cannot read the VM's runtime or summary.
func summarize(ctx *simulator.Context, made types.AnyType) types.BaseMethodFault {
	vm, ok := machine(ctx, made)
	if !ok {
		return nil
	}
	ctx.WithLock(vm, func() {
		for _, runtime := range []*types.VirtualMachineRuntimeInfo{&vm.Runtime, &vm.Summary.Runtime} {
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
	touch(ctx, around(ctx, vm.Self)...)
	return nil
}

// leaveHost takes a VM out of its host's list before it moves.
func leaveHost(ctx *simulator.Context, req *types.RelocateVM_Task) types.BaseMethodFault {
	vm, ok := machine(ctx, req.This)
	if !ok || req.Spec.Host == nil || vm.Runtime.Host == nil {
		return nil
	}
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.RemoveReference(ctx, host, &host.Vm, req.This)
	}
	return nil
}

func joinHost(ctx *simulator.Context, req *types.RelocateVM_Task) types.BaseMethodFault {
	vm, ok := machine(ctx, req.This)
	if !ok || vm.Runtime.Host == nil {
		return nil
	}
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.AddReference(ctx, host, &host.Vm, req.This)
	}
	touch(ctx, around(ctx, req.This)...)
	return nil
}

// connectMachines gives the VMs of a host the host's connection state.
func connectMachines(ctx *simulator.Context, ref types.ManagedObjectReference, connected bool) types.BaseMethodFault {
	host, ok := ctx.Map.Get(ref).(*simulator.HostSystem)
	if !ok {
		return nil
	}
	state := types.VirtualMachineConnectionStateDisconnected
	if connected {
		state = types.VirtualMachineConnectionStateConnected
	}
	for _, member := range slices.Clone(host.Vm) {
		if vm, ok := machine(ctx, member); ok {
			ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
				{Name: "runtime.connectionState", Val: state},
				{Name: "summary.runtime.connectionState", Val: state},
			})
		}
	}
	return nil
}

func machine(ctx *simulator.Context, made types.AnyType) (*simulator.VirtualMachine, bool) {
	ref, ok := made.(types.ManagedObjectReference)
	if !ok {
		return nil, false
	}
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	return vm, ok
}
