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
	// visibleAt is the percentage of a clone at which its VM is in the inventory. A real vCenter
	// creates the VM first and copies its disks then.
	visibleAt = 30
)

// Clone is a CloneVM_Task that runs.
//
// The library searches the name, makes the VM and configures it in steps that others can see and
// run between. Here clones of one name into one folder run one after the other, and the new VM
// stays locked, and uncounted, until it has its name, its identity and its configuration. When
// clones are visible early, the VM is then shown without power until the task ends, and refuses
// other tasks with TaskInProgress; otherwise it is shown when its task ends, with its power.
type Clone struct {
	req          *types.CloneVM_Task
	name         string // as the caller gave it
	early        bool
	vm           *simulator.VirtualMachine
	unlock       func() // of its lock
	unlockFolder func() // gives back the folder's lock, when the VM is in it
}

func (c *Clone) run(
	call *TaskCall, task *simulator.Task, run taskFunc,
) (types.AnyType, types.BaseMethodFault) {
	result, fault := c.create(call, task, run)
	if fault != nil || !c.early || c.vm == nil {
		return result, fault
	}
	call.effect.advance(visibleAt, 100, call.report(task))
	return result, c.startVisible(call)
}

// create makes the VM and shows it.
func (c *Clone) create(
	call *TaskCall, task *simulator.Task, run taskFunc,
) (types.AnyType, types.BaseMethodFault) {
	// The folder first: a folder's destruction takes it and then its children, of which the source
	// may be one.
	locks := call.tasks.locks
	folder, source := locks.Entity(c.req.Folder), locks.Entity(call.this)
	name := locks.Name(c.req.Folder, c.name)
	folder.RLock()
	defer folder.RUnlock()
	source.RLock()
	defer source.RUnlock()
	name.Lock()
	defer name.Unlock()
	if fault := c.check(call); fault != nil {
		return nil, fault
	}
	c.fillSpec(call, task.Self)
	if c.name != escapeName(c.name) {
		// To escape a name the library copies the specification onto itself, which doubles its
		// devices: it gets another name for as long as nothing can see the VM.
		c.req.Name = "clone-" + task.Self.Value
	}
	defer c.show(call, task.Self)
	c.unlockFolder = sync.OnceFunc(call.ctx.Map.AcquireLock(call.ctx, c.req.Folder))
	defer c.unlockFolder()
	return call.work(task, run)
}

// finish gives a clone what the library does not: see configureClone. A VM that is shown late gets
// its power before.
func (c *Clone) finish(call *TaskCall, result types.AnyType) types.BaseMethodFault {
	if clone, ok := findVM(call.ctx, result); ok && c.name != c.req.Name {
		name := escapeName(c.name)
		call.ctx.Map.AtomicUpdate(call.ctx, clone, []types.PropertyChange{
			{Name: "name", Val: name},
			{Name: "config.name", Val: name},
			{Name: "summary.config.name", Val: name},
		})
	}
	if fault := configureClone(call, c.req, result); fault != nil || c.early {
		return fault
	}
	return c.powerOn(call.ctx)
}

// startVisible powers on a VM that others see already, and that a person may have removed from the
// inventory meanwhile.
func (c *Clone) startVisible(call *TaskCall) types.BaseMethodFault {
	lock := call.tasks.locks.Entity(c.vm.Self)
	lock.Lock()
	defer lock.Unlock()
	if call.ctx.Map.Get(c.vm.Self) == nil {
		return &types.ManagedObjectNotFound{Obj: c.vm.Self}
	}
	defer func() { touch(call.ctx, relatedTo(call.ctx, c.vm.Self)...) }()
	return c.powerOn(call.ctx)
}

func (c *Clone) powerOn(ctx *simulator.Context) types.BaseMethodFault {
	if c.vm == nil || !c.req.Spec.PowerOn || c.req.Spec.Template {
		return nil
	}
	return powerOn(ctx, c.vm)
}

func (c *Clone) check(call *TaskCall) types.BaseMethodFault {
	if call.restarts != call.tasks.restartCount() {
		return &types.SystemErrorFault{Reason: "the vCenter was restored from a backup"}
	}
	if fault := call.tasks.checkBusy(call.this); fault != nil {
		return fault
	}
	for _, needed := range []types.ManagedObjectReference{c.req.Folder, call.this} {
		if call.ctx.Map.Get(needed) == nil {
			return &types.ManagedObjectNotFound{Obj: needed}
		}
	}
	if fault := checkCloneConfig(call, c.req); fault != nil {
		return fault
	}
	return checkDuplicateName(call.ctx, c.req.Folder, c.name, types.ManagedObjectReference{})
}

// fillSpec gives the clone an instanceUuid that no VM has, a bios uuid and the source's
// extraConfig, where it does not set them.
func (c *Clone) fillSpec(call *TaskCall, task types.ManagedObjectReference) {
	if c.req.Spec.Config == nil {
		c.req.Spec.Config = &types.VirtualMachineConfigSpec{}
	}
	spec := c.req.Spec.Config
	if spec.InstanceUuid == "" || !call.tasks.Counter.ClaimUUID(task, spec.InstanceUuid) {
		spec.InstanceUuid = uuid.NewString()
		call.tasks.Counter.ClaimUUID(task, spec.InstanceUuid)
	}
	if spec.Uuid == "" {
		spec.Uuid = uuid.NewString()
	}
	if source, ok := findVM(call.ctx, call.this); ok {
		call.ctx.WithLock(source, func() {
			spec.ExtraConfig = mergeOptions(spec.ExtraConfig, source.Config.ExtraConfig)
		})
	}
}

// show lets others see the VM, if there is one.
func (c *Clone) show(call *TaskCall, task types.ManagedObjectReference) {
	if c.vm == nil {
		return
	}
	if call.ctx.Map.Get(c.vm.Self) != nil {
		if c.early {
			call.tasks.markBusy(c.vm.Self, task)
		}
		call.tasks.Counter.ShowVM(task, &c.vm.VirtualMachine, c.early)
	}
	c.unlock()
}

// configureClone gives a clone what the library does not: annotation, reservations, cores per
// socket, the template's vApp configuration and storage profiles.
func configureClone(
	call *TaskCall, req *types.CloneVM_Task, result types.AnyType,
) types.BaseMethodFault {
	clone, ok := findVM(call.ctx, result)
	source, hasSource := findVM(call.ctx, req.This)
	if !ok || !hasSource {
		return nil
	}
	call.ctx.WithLock(clone, func() {
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
	call.tasks.profiles.record(clone.Self, &req.Spec.Location)
	return updateSummary(call.ctx, result)
}

// mergeOptions is what a clone sets itself, and the source's options that it does not set; an empty
// value takes an option away.
func mergeOptions(options, source []types.BaseOptionValue) []types.BaseOptionValue {
	var list []types.BaseOptionValue
	for _, option := range inheritOptions(options, source) {
		if option.GetOptionValue().Value != "" {
			list = append(list, option)
		}
	}
	return list
}

// inheritOptions adds the source's options that the clone does not set itself.
func inheritOptions(options, source []types.BaseOptionValue) []types.BaseOptionValue {
	set := map[string]bool{}
	for _, option := range options {
		set[option.GetOptionValue().Key] = true
	}
	for _, option := range source {
		if !set[option.GetOptionValue().Key] {
			options = append(options, option)
		}
	}
	return options
}
