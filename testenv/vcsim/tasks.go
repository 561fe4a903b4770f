package main

import (
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Tasks puts our steps around the tasks of the library. The registry tells it of each new task before the task runs.
type Tasks struct {
	Self types.ManagedObjectReference

	mu       sync.Mutex
	expected []*Errand
}

// NewTasks listens to the registry.
func NewTasks(ctx *simulator.Context) *Tasks {
	tasks := &Tasks{Self: types.ManagedObjectReference{Type: "Tasks", Value: "tasks"}}
	ctx.Map.AddHandler(tasks)
	return tasks
}

// Errand is one call that starts a task, and what happens around it.
type Errand struct {
	ctx    *simulator.Context
	method string
	this   types.ManagedObjectReference
	effect Effect
	before func() types.BaseMethodFault
	after  func(result types.AnyType) types.BaseMethodFault
}

func newErrand(ctx *simulator.Context, method *simulator.Method) *Errand {
	errand := &Errand{ctx: ctx, method: method.Name, this: method.This}
	arrange(errand, method.Body)
	return errand
}

// Expect announces a call; one that starts no task is ignored.
func (t *Tasks) Expect(errand *Errand) {
	if !strings.HasSuffix(errand.method, "_Task") {
		return
	}
	t.mu.Lock()
	t.expected = append(t.expected, errand)
	if len(t.expected) > 1000 {
		t.expected = t.expected[1:] // calls that failed before their task began
	}
	t.mu.Unlock()
}

func (t *Tasks) take(task *simulator.Task) *Errand {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, errand := range t.expected {
		if errand.this == *task.Info.Entity && sameTask(errand.method, task.Info.Name) {
			t.expected = append(t.expected[:i:i], t.expected[i+1:]...)
			return errand
		}
	}
	return nil
}

// sameTask compares a method with the library's name of its task: PowerOnVM_Task runs as "PowerOn", CloneVM_Task as "CloneVm".
func sameTask(method, task string) bool {
	plain := func(name string) string { return strings.ToLower(strings.TrimSuffix(name, "_Task")) }
	return strings.Contains(plain(method), plain(task)) || (method == "DeleteVStorageObject_Task" && task == "DeleteDisk")
}

// Reference names the listener in the registry.
func (t *Tasks) Reference() types.ManagedObjectReference { return t.Self }

// PutObject wraps a new task; it is called in the goroutine that will start it.
func (t *Tasks) PutObject(ctx *simulator.Context, object mo.Reference) {
	task, ok := object.(*simulator.Task)
	if !ok || task.Execute == nil {
		return
	}
	if entity, ok := ctx.Map.Get(*task.Info.Entity).(mo.Entity); ok {
		task.Info.EntityName = nameOf(entity)
	}
	task.Info.DescriptionId = description(task.Info.DescriptionId)
	if errand := t.take(task); errand != nil {
		if session := errand.ctx.Session; session != nil && session.UserName != "" {
			task.Info.Reason = &types.TaskReasonUser{UserName: session.UserName}
		}
		task.Execute = errand.around(task.Execute)
	}
}

// UpdateObject gives failed tasks a message for people; the library's is the name of a Go type.
func (t *Tasks) UpdateObject(_ *simulator.Context, object mo.Reference, _ []types.PropertyChange) {
	if task, ok := object.(*mo.Task); ok && task.Info.Error != nil {
		if fault, ok := task.Info.Error.Fault.(types.BaseMethodFault); ok {
			task.Info.Error.LocalizedMessage = faultMessage(faultName(fault))
		}
	}
}

// RemoveObject has nothing to do.
func (t *Tasks) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}

type execute = func(*simulator.Task) (types.AnyType, types.BaseMethodFault)

func (e *Errand) around(run execute) execute {
	return func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
		e.pause()
		if e.effect.Fault != nil {
			return nil, e.effect.Fault
		}
		neighbours := around(e.ctx, e.this)
		defer func() { touch(e.ctx, neighbours...) }()
		if e.before != nil {
			if fault := e.before(); fault != nil {
				return nil, fault
			}
		}
		result, fault := run(task)
		if fault != nil {
			return result, fault
		}
		neighbours = append(neighbours, around(e.ctx, e.this)...)
		if made, ok := result.(types.ManagedObjectReference); ok {
			neighbours = append(neighbours, around(e.ctx, made)...)
		}
		if e.after != nil {
			fault = e.after(result)
		}
		return result, fault
	}
}

// pause waits with the object's lock given back, so that others can read the object meanwhile. The lock counts its holds per
// context: ours makes the second, and releasing both frees it whatever the call itself still holds.
func (e *Errand) pause() {
	if e.effect.delay <= 0 {
		return
	}
	release := e.ctx.Map.AcquireLock(e.ctx, e.this)
	release()
	release()
	e.effect.Wait()
	e.ctx.Map.AcquireLock(e.ctx, e.this)
}

// around lists an object and those whose properties name it.
func around(ctx *simulator.Context, ref types.ManagedObjectReference) []types.ManagedObjectReference {
	refs := []types.ManagedObjectReference{ref}
	switch object := ctx.Map.Get(ref).(type) {
	case *simulator.VirtualMachine:
		refs = append(refs, object.Datastore...)
		for _, near := range []*types.ManagedObjectReference{object.Parent, object.Runtime.Host, object.ResourcePool} {
			if near != nil {
				refs = append(refs, *near)
			}
		}
	case mo.Entity:
		if parent := object.Entity().Parent; parent != nil {
			refs = append(refs, *parent)
		}
	}
	return refs
}

var descriptions = map[string]string{
	"VirtualMachine.cloneVm":    "VirtualMachine.clone",
	"VirtualMachine.reconfigVm": "VirtualMachine.reconfigure",
	"VirtualMachine.relocateVm": "VirtualMachine.relocate",
	"Folder.createVM":           "Folder.createVm",
}

// description is vCenter's id of a task where the library has another.
func description(id string) string {
	if ours, known := descriptions[id]; known {
		return ours
	}
	return id
}
