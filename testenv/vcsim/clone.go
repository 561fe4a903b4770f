package main

import (
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	clonesEarly = "early"
	clonesLate  = "late"
	// visibleAt is the percentage of a clone at which its VM is in the inventory. A real vCenter creates the VM first and
	// copies its disks then.
	visibleAt = 30
)

// Clone is a CloneVM_Task that runs.
//
// The library searches the name, makes the VM and configures it in steps that others can see and run between. Here clones of one
// name into one folder run one after the other, and the new VM stays locked, and uncounted, until it has its name, its identity and
// its configuration. When clones are visible early, the VM is then shown without power until the task ends, and
// refuses other tasks with TaskInProgress; otherwise it is shown when its task ends, with its power.
type Clone struct {
	req     *types.CloneVM_Task
	name    string // as the caller gave it
	early   bool
	made    *simulator.VirtualMachine
	release func() // of its lock
	placed  func() // gives back the folder's lock, when the VM is in it
}

func (c *Clone) perform(e *TaskCall, task *simulator.Task, run execute) (types.AnyType, types.BaseMethodFault) {
	result, fault := c.create(e, task, run)
	if fault != nil || !c.early || c.made == nil {
		return result, fault
	}
	e.effect.advance(visibleAt, 100, e.report(task))
	return result, c.start(e)
}

// create makes the VM and shows it.
func (c *Clone) create(e *TaskCall, task *simulator.Task, run execute) (types.AnyType, types.BaseMethodFault) {
	// The folder first: a folder's destruction takes it and then its children, of which the source may be one.
	folder, source, name := e.tasks.guard.Entity(c.req.Folder), e.tasks.guard.Entity(e.this), e.tasks.guard.Name(c.req.Folder, c.name)
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
	if c.name != escaped(c.name) {
		// To escape a name the library copies the specification onto itself, which doubles its devices: it gets another name
		// for as long as nothing can see the VM.
		c.req.Name = "clone-" + task.Self.Value
	}
	defer c.reveal(e, task.Self)
	c.placed = sync.OnceFunc(e.ctx.Map.AcquireLock(e.ctx, c.req.Folder))
	defer c.placed()
	return e.work(task, run)
}

// finish gives a clone what the library does not: see configureClone. A VM that is shown late gets its power before.
func (c *Clone) finish(e *TaskCall, made types.AnyType) types.BaseMethodFault {
	if clone, ok := machine(e.ctx, made); ok && c.name != c.req.Name {
		name := escaped(c.name)
		e.ctx.Map.AtomicUpdate(e.ctx, clone, []types.PropertyChange{
			{Name: "name", Val: name}, {Name: "config.name", Val: name}, {Name: "summary.config.name", Val: name},
		})
	}
	if fault := configureClone(e, c.req, made); fault != nil || c.early {
		return fault
	}
	return c.power(e.ctx)
}

// start powers on a VM that others see already, and that a person may have removed from the inventory meanwhile.
func (c *Clone) start(e *TaskCall) types.BaseMethodFault {
	guard := e.tasks.guard.Entity(c.made.Self)
	guard.Lock()
	defer guard.Unlock()
	if e.ctx.Map.Get(c.made.Self) == nil {
		return &types.ManagedObjectNotFound{Obj: c.made.Self}
	}
	defer func() { touch(e.ctx, around(e.ctx, c.made.Self)...) }()
	return c.power(e.ctx)
}

func (c *Clone) power(ctx *simulator.Context) types.BaseMethodFault {
	if c.made == nil || !c.req.Spec.PowerOn || c.req.Spec.Template {
		return nil
	}
	return powerOn(ctx, c.made)
}

func (c *Clone) refuse(e *TaskCall) types.BaseMethodFault {
	if e.restarts != e.tasks.restarted() {
		return &types.SystemErrorFault{Reason: "the vCenter was restored from a backup"}
	}
	if fault := e.tasks.refuseBusy(e.this); fault != nil {
		return fault
	}
	for _, needed := range []types.ManagedObjectReference{c.req.Folder, e.this} {
		if e.ctx.Map.Get(needed) == nil {
			return &types.ManagedObjectNotFound{Obj: needed}
		}
	}
	if fault := refuseCloneConfig(e, c.req); fault != nil {
		return fault
	}
	return taken(e.ctx, c.req.Folder, c.name, types.ManagedObjectReference{})
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
		if c.early {
			e.tasks.occupy(c.made.Self, task)
		}
		e.tasks.Census.Arrive(task, &c.made.VirtualMachine, c.early)
	}
	c.release()
}

// configureClone gives a clone what the library does not: annotation, reservations, cores per socket, the template's vApp
// configuration and storage profiles.
func configureClone(e *TaskCall, req *types.CloneVM_Task, made types.AnyType) types.BaseMethodFault {
	clone, ok := machine(e.ctx, made)
	source, found := machine(e.ctx, req.This)
	if !ok || !found {
		return nil
	}
	e.ctx.WithLock(clone, func() {
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
		if spec.NumCoresPerSocket != nil {
			config.Hardware.NumCoresPerSocket = spec.NumCoresPerSocket
		}
		config.VAppConfig = clonedVApp(source.Config.VAppConfig, spec)
	})
	e.tasks.profiles.record(clone.Self, &req.Spec.Location)
	return summarize(e.ctx, made)
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
