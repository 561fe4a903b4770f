package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Tasks wraps the tasks of the library. The registry notifies it of each new task before the task
// runs.
type Tasks struct {
	Self    types.ManagedObjectReference
	Counter *VMCounter

	locks    *TaskLocks
	recent   *RecentTasks
	profiles *Profiles
	early    bool // clones are visible early

	mu       sync.Mutex
	expected []*TaskCall
	clones   []*TaskCall // running
	// creating has, by folder, the clone that creates its VM there.
	creating map[types.ManagedObjectReference]*TaskCall

	// busy has the running clone task of each unfinished VM.
	busy map[types.ManagedObjectReference]types.ManagedObjectReference

	restarts int // number of restores from a backup
}

// NewTasks registers for changes in the registry.
func NewTasks(ctx *simulator.Context, counter *VMCounter, recent *RecentTasks, early bool) *Tasks {
	tasks := &Tasks{
		Self:     types.ManagedObjectReference{Type: "Tasks", Value: "tasks"},
		Counter:  counter,
		locks:    NewTaskLocks(),
		recent:   recent,
		early:    early,
		profiles: NewProfiles(), creating: map[types.ManagedObjectReference]*TaskCall{},
		busy: map[types.ManagedObjectReference]types.ManagedObjectReference{},
	}
	ctx.Map.AddHandler(tasks)
	return tasks
}

// Expect announces a call. It ignores calls that start no task.
func (t *Tasks) Expect(call *TaskCall) {
	if !strings.HasSuffix(call.method, "_Task") {
		return
	}
	t.mu.Lock()
	t.expected = append(t.expected, call)
	if len(t.expected) > 1000 {
		t.expected = t.expected[1:] // calls that failed before their task started
	}
	t.mu.Unlock()
}

func (t *Tasks) takeExpected(task *simulator.Task) *TaskCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, call := range t.expected {
		if call.matches(task) {
			t.expected = append(t.expected[:i:i], t.expected[i+1:]...)
			return call
		}
	}
	return nil
}

// sameTask compares a method with the library's task name: PowerOnVM_Task runs as "PowerOn",
// CloneVM_Task as "CloneVm".
func sameTask(method, task string) bool {
	bare := func(name string) string { return strings.ToLower(strings.TrimSuffix(name, "_Task")) }
	return strings.Contains(bare(method), bare(task)) ||
		(method == "DeleteVStorageObject_Task" && task == "DeleteDisk")
}

// Reference implements mo.Reference.
func (t *Tasks) Reference() types.ManagedObjectReference { return t.Self }

// PutObject wraps a new task. The registry calls it in the goroutine that starts the task.
func (t *Tasks) PutObject(ctx *simulator.Context, object mo.Reference) {
	if vm, ok := object.(*simulator.VirtualMachine); ok {
		if !t.hideClone(vm) {
			t.Counter.AddVM(&vm.VirtualMachine)
		}
		return
	}
	task, ok := object.(*simulator.Task)
	if !ok || task.Execute == nil {
		return
	}
	if entity, ok := ctx.Map.Get(*task.Info.Entity).(mo.Entity); ok {
		task.Info.EntityName = nameOf(entity)
	}
	task.Info.DescriptionId = descriptionID(task.Info.DescriptionId)
	t.recent.Add(ctx, task.Self)
	call := t.takeExpected(task)
	if call == nil {
		task.Execute = t.wrapInner(task, task.Execute)
		return
	}
	if session := call.ctx.Session; session != nil && session.UserName != "" {
		task.Info.Reason = &types.TaskReasonUser{UserName: session.UserName}
	}
	if call.clone != nil {
		t.beginClone(call, task)
	}
	task.Execute = call.wrap(task.Execute)
}

// wrapInner wraps a task that another task starts; a clone creates its VM in one.
func (t *Tasks) wrapInner(task *simulator.Task, run taskFunc) taskFunc {
	folder, clone := *task.Info.Entity, t.cloneOf(task)
	return func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
		if clone != nil && folder.Type == "Folder" {
			t.setCreating(folder, clone)
			defer clone.clone.unlockFolder()
			defer t.setCreating(folder, nil)
		}
		return withRecover(func() (types.AnyType, types.BaseMethodFault) { return run(task) })
	}
}

func (t *Tasks) cloneOf(task *simulator.Task) *TaskCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, call := range t.clones {
		if call.started(task) {
			return call
		}
	}
	return nil
}

// setCreating records the clone that creates a VM in a folder. The library creates one at a time,
// as it holds the lock of the folder.
func (t *Tasks) setCreating(folder types.ManagedObjectReference, clone *TaskCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if clone == nil {
		delete(t.creating, folder)
	} else {
		t.creating[folder] = clone
	}
}

// beginClone counts a clone as running before its call is answered.
func (t *Tasks) beginClone(call *TaskCall, task *simulator.Task) {
	t.mu.Lock()
	t.clones = append(t.clones, call)
	t.mu.Unlock()
	t.Counter.BeginClone(task.Self, call.clone.req)
}

// endClone removes a clone from the running ones.
func (t *Tasks) endClone(call *TaskCall) {
	t.mu.Lock()
	t.clones = slices.DeleteFunc(t.clones, func(other *TaskCall) bool { return other == call })
	t.mu.Unlock()
}

// restart removes all tasks. Clones that have not created their VM fail.
func (t *Tasks) restart(ctx *simulator.Context) {
	t.mu.Lock()
	t.restarts++
	t.mu.Unlock()
	t.recent.Clear(ctx)
}

func (t *Tasks) restartCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restarts
}

// markBusy records the running clone task of a VM.
func (t *Tasks) markBusy(vm, task types.ManagedObjectReference) {
	t.mu.Lock()
	t.busy[vm] = task
	t.mu.Unlock()
}

// clearBusy allows tasks on the VM of a finished clone.
func (t *Tasks) clearBusy(clone *Clone) {
	if clone.vm == nil {
		return
	}
	t.mu.Lock()
	delete(t.busy, clone.vm.Self)
	t.mu.Unlock()
	t.Counter.FinishClone(clone.vm.Self)
}

// checkBusy returns TaskInProgress for a VM while its clone task runs. The API reference lists it
// for all calls that change a VM.
func (t *Tasks) checkBusy(refs ...types.ManagedObjectReference) types.BaseMethodFault {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ref := range refs {
		if task, busy := t.busy[ref]; busy {
			return &types.TaskInProgress{Task: task}
		}
	}
	return nil
}

// hideClone locks the VM of a clone when it is created, so that readers wait until it is complete.
// It returns false for other VMs.
func (t *Tasks) hideClone(vm *simulator.VirtualMachine) bool {
	t.mu.Lock()
	call := t.creating[*vm.Parent]
	t.mu.Unlock()
	if call == nil || call.clone.vm != nil {
		return false
	}
	t.Counter.HideVM(vm.Self)
	call.clone.vm, call.clone.unlock = vm, call.ctx.Map.AcquireLock(call.ctx, vm)
	return true
}

// setName names the VM of a clone before it is in the folder, where the library panics on an empty
// name.
func (t *Tasks) setName(vm *mo.VirtualMachine) {
	if vm.Parent == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if call := t.creating[*vm.Parent]; call != nil {
		vm.Name = escapeName(call.clone.name)
	}
}

// UpdateObject sets the message of a failed task, which in the library is the name of a Go type,
// and records the end of a task.
func (t *Tasks) UpdateObject(_ *simulator.Context, object mo.Reference, _ []types.PropertyChange) {
	if vm, ok := object.(*mo.VirtualMachine); ok && vm.Name == "" {
		t.setName(vm)
	}
	task, ok := object.(*mo.Task)
	if !ok {
		return
	}
	if task.Info.Error != nil {
		if fault, ok := task.Info.Error.Fault.(types.BaseMethodFault); ok {
			task.Info.Error.LocalizedMessage = faultMessage(faultName(fault))
		}
	}
	if task.Info.CompleteTime != nil {
		t.recent.End(task.Self, *task.Info.CompleteTime)
	}
}

// RemoveObject implements simulator.RegisterObject.
func (t *Tasks) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

// relatedTo returns an object and the objects with properties that refer to it.
func relatedTo(
	ctx *simulator.Context, ref types.ManagedObjectReference,
) []types.ManagedObjectReference {
	refs := []types.ManagedObjectReference{ref}
	switch object := ctx.Map.Get(ref).(type) {
	case *simulator.VirtualMachine:
		refs = append(refs, object.Datastore...)
		for _, neighbour := range []*types.ManagedObjectReference{
			object.Parent, object.Runtime.Host, object.ResourcePool,
		} {
			if neighbour != nil {
				refs = append(refs, *neighbour)
			}
		}
	case mo.Entity:
		if parent := object.Entity().Parent; parent != nil {
			refs = append(refs, *parent)
		}
	}
	return refs
}

var descriptionIDs = map[string]string{
	"VirtualMachine.cloneVm":    "VirtualMachine.clone",
	"VirtualMachine.reconfigVm": "VirtualMachine.reconfigure",
	"VirtualMachine.relocateVm": "VirtualMachine.relocate",
	"Folder.createVM":           "Folder.createVm",
}

// descriptionID returns vCenter's descriptionId of a task where the library's differs.
func descriptionID(id string) string {
	if vcenterID, ok := descriptionIDs[id]; ok {
		return vcenterID
	}
	return id
}
