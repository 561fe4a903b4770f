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
	// visibleAt is the progress, in percent, at which the VM of a clone is in the inventory. A real
	// vCenter creates the VM first and then copies its disks.
	visibleAt = 30
)

// Clone is a running CloneVM_Task.
//
// The library checks the name, creates the VM and configures it in separate steps, between which
// other calls can run. Here clones with the same name and folder run one after the other, and the
// new VM stays locked and uncounted until it has its name, its identity and its configuration. If
// clones are visible early, the VM is then shown powered off until the task ends and rejects other
// tasks with TaskInProgress. Otherwise it is shown when its task ends, in its final power state.
type Clone struct {
	req          *types.CloneVM_Task
	name         string // as in the request
	early        bool
	vm           *simulator.VirtualMachine
	unlock       func() // releases the lock of the VM
	unlockFolder func() // releases the lock of the folder once the VM is in it
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

// create creates the VM and shows it.
func (c *Clone) create(
	call *TaskCall, task *simulator.Task, run taskFunc,
) (types.AnyType, types.BaseMethodFault) {
	// Lock the folder first: destroying a folder locks it and then its children, and the source may
	// be one of them.
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
		// If a name must be escaped, the library duplicates the devices of the spec. The VM
		// therefore has a temporary name until it is visible.
		c.req.Name = "clone-" + task.Self.Value
	}
	defer c.show(call, task.Self)
	c.unlockFolder = sync.OnceFunc(call.ctx.Map.AcquireLock(call.ctx, c.req.Folder))
	defer c.unlockFolder()
	return call.work(task, run)
}

// finish applies what the library leaves out: see configureClone. If the VM is shown late, it is
// powered on before that.
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

// startVisible powers on a VM that is already visible and may have been removed from the inventory
// by another call.
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

// fillSpec sets a unique instanceUuid, a BIOS UUID and the extraConfig of the source where the spec
// has none.
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

// show makes the VM visible to other calls, if it was created.
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

// configureClone applies what the library leaves out: annotation, reservations, cores per socket,
// the template's vApp configuration and storage profiles.
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

// mergeOptions returns the options of a clone and those of its source that it does not set. An
// empty value removes an option.
func mergeOptions(options, source []types.BaseOptionValue) []types.BaseOptionValue {
	var list []types.BaseOptionValue
	for _, option := range inheritOptions(options, source) {
		if option.GetOptionValue().Value != "" {
			list = append(list, option)
		}
	}
	return list
}

// inheritOptions adds the options of the source that the clone does not set.
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
