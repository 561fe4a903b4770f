package main

import (
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Clone is a CloneVM_Task under way.
//
// The library searches the name, makes the VM and configures it in steps that others can see and run between. Here clones of one name into one
// folder come one after the other, and the new VM stays locked, and uncounted, until it is whole and has its power.
type Clone struct {
	req     *types.CloneVM_Task
	made    *simulator.VirtualMachine
	release func() // of its lock
	placed  func() // gives back the folder's lock, when the VM is in it
}

func (c *Clone) perform(e *TaskCall, task *simulator.Task, run execute) (types.AnyType, types.BaseMethodFault) {
	// The folder first: a folder's destruction takes it and then its children, of which the source may be one.
	folder, source, name := e.tasks.guard.Entity(c.req.Folder), e.tasks.guard.Entity(e.this), e.tasks.guard.Name(c.req.Folder, c.req.Name)
	folder.RLock()
	defer folder.RUnlock()
	source.RLock()
	defer source.RUnlock()
	name.Lock()
	defer name.Unlock()
	if fault := c.refuse(e); fault != nil {
		return nil, fault
	}
	c.complete(e, task.Self)
	defer c.reveal(e, task.Self)
	c.placed = sync.OnceFunc(e.ctx.Map.AcquireLock(e.ctx, c.req.Folder))
	defer c.placed()
	return e.work(task, run)
}

func (c *Clone) refuse(e *TaskCall) types.BaseMethodFault {
	for _, needed := range []types.ManagedObjectReference{c.req.Folder, e.this} {
		if e.ctx.Map.Get(needed) == nil {
			return &types.ManagedObjectNotFound{Obj: needed}
		}
	}
	return taken(e.ctx, c.req.Folder, c.req.Name, types.ManagedObjectReference{})
}

// complete gives the clone an instanceUuid that no VM has, a bios uuid and the source's extraConfig, where it does not set them.
func (c *Clone) complete(e *TaskCall, task types.ManagedObjectReference) {
	if c.req.Spec.Config == nil {
		c.req.Spec.Config = &types.VirtualMachineConfigSpec{}
	}
	spec := c.req.Spec.Config
	if spec.InstanceUuid == "" || !e.tasks.Census.Claim(task, spec.InstanceUuid) {
		spec.InstanceUuid = uuid.NewString()
		e.tasks.Census.Claim(task, spec.InstanceUuid)
	}
	if spec.Uuid == "" {
		spec.Uuid = uuid.NewString()
	}
	if source, ok := machine(e.ctx, e.this); ok {
		e.ctx.WithLock(source, func() { spec.ExtraConfig = merged(spec.ExtraConfig, source.Config.ExtraConfig) })
	}
}

// reveal lets others see the VM, if there is one.
func (c *Clone) reveal(e *TaskCall, task types.ManagedObjectReference) {
	if c.made == nil {
		return
	}
	if e.ctx.Map.Get(c.made.Self) != nil {
		e.tasks.Census.Arrive(task, &c.made.VirtualMachine)
	}
	c.release()
}

// finishClone gives a clone what the library forgets: annotation, reservations and power.
func finishClone(ctx *simulator.Context, req *types.CloneVM_Task, made types.AnyType) types.BaseMethodFault {
	clone, ok := machine(ctx, made)
	source, found := machine(ctx, req.This)
	if !ok || !found {
		return nil
	}
	ctx.WithLock(clone, func() {
		config, spec := clone.Config, req.Spec.Config
		config.Annotation = source.Config.Annotation
		if spec.Annotation != "" {
			config.Annotation = spec.Annotation
		}
		if spec.CpuAllocation != nil {
			config.CpuAllocation = spec.CpuAllocation
		}
		if spec.MemoryAllocation != nil {
			config.MemoryAllocation = spec.MemoryAllocation
		}
	})
	if fault := summarize(ctx, made); fault != nil || !req.Spec.PowerOn || req.Spec.Template {
		return fault
	}
	return powerOn(ctx, clone)
}

// merged is what a clone sets itself, and the source's options that it does not set; an empty value takes an option away.
func merged(own, source []types.BaseOptionValue) []types.BaseOptionValue {
	var list []types.BaseOptionValue
	for _, option := range inherited(own, source) {
		if option.GetOptionValue().Value != "" {
			list = append(list, option)
		}
	}
	return list
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
