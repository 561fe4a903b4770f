package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// arrange sets the steps in which vCenter does more than the library.
func arrange(e *Errand, body types.AnyType) {
	ctx := e.ctx
	switch req := body.(type) {
	case *types.Destroy_Task:
		e.before = func() types.BaseMethodFault { return destroyChildren(ctx, req.This) }
	case *types.CloneVM_Task:
		e.after = func(made types.AnyType) types.BaseMethodFault { return finishClone(ctx, req, made) }
	case *types.CreateVM_Task:
		e.after = func(made types.AnyType) types.BaseMethodFault { return summarize(ctx, made) }
	case *types.RegisterVM_Task:
		e.after = func(made types.AnyType) types.BaseMethodFault { return summarize(ctx, made) }
	case *types.ReconfigVM_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return summarize(ctx, req.This) }
	case *types.PowerOnVM_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return bootGuest(ctx, req.This) }
	case *types.PowerOffVM_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return haltGuest(ctx, req.This) }
	case *types.RelocateVM_Task:
		e.before = func() types.BaseMethodFault { return leaveHost(ctx, req) }
		e.after = func(types.AnyType) types.BaseMethodFault { return joinHost(ctx, req) }
	case *types.DisconnectHost_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return connectMachines(ctx, req.This, false) }
	case *types.ReconnectHost_Task:
		e.after = func(types.AnyType) types.BaseMethodFault { return connectMachines(ctx, req.This, true) }
	}
}

// destroyChildren destroys what is in a folder, the deepest first; the library leaves the children behind.
func destroyChildren(ctx *simulator.Context, ref types.ManagedObjectReference) types.BaseMethodFault {
	folder, ok := ctx.Map.Get(ref).(*simulator.Folder)
	if !ok {
		return nil
	}
	for _, child := range slices.Clone(folder.ChildEntity) {
		if fault := destroyChildren(ctx, child); fault != nil {
			return fault
		}
		if fault := destroy(ctx, child); fault != nil {
			return fault
		}
	}
	return nil
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
	task.Wait()
	if task.Info.Error == nil {
		return nil
	}
	fault, _ := task.Info.Error.Fault.(types.BaseMethodFault)
	return fault
}

// finishClone gives a clone what the library forgets: annotation, the source's extraConfig, reservations and power.
func finishClone(ctx *simulator.Context, req *types.CloneVM_Task, made types.AnyType) types.BaseMethodFault {
	clone, ok := machine(ctx, made)
	source, found := machine(ctx, req.This)
	if !ok || !found {
		return nil
	}
	ctx.WithLock(clone, func() {
		config := clone.Config
		config.Annotation = source.Config.Annotation
		config.ExtraConfig = inherited(config.ExtraConfig, source.Config.ExtraConfig)
		if spec := req.Spec.Config; spec != nil {
			if spec.Annotation != "" {
				config.Annotation = spec.Annotation
			}
			if spec.CpuAllocation != nil {
				config.CpuAllocation = spec.CpuAllocation
			}
			if spec.MemoryAllocation != nil {
				config.MemoryAllocation = spec.MemoryAllocation
			}
		}
	})
	if fault := summarize(ctx, made); fault != nil || !req.Spec.PowerOn || req.Spec.Template {
		return fault
	}
	return powerOn(ctx, clone)
}

// inherited adds the source's options that the clone does not set itself.
func inherited(own, source []types.BaseOptionValue) []types.BaseOptionValue {
	set := map[string]bool{}
	for _, option := range own {
		set[option.GetOptionValue().Key] = true
	}
	for _, option := range source {
		if !set[option.GetOptionValue().Key] {
			own = append(own, option)
		}
	}
	return own
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
