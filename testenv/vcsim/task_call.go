package main

import (
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// TaskCall is one call that starts a task, and what happens around it.
type TaskCall struct {
	ctx    *simulator.Context
	tasks  *Tasks
	method string
	this   types.ManagedObjectReference
	effect Effect
	clone  *Clone // of a CloneVM_Task
	before func() types.BaseMethodFault
	after  func(result types.AnyType) types.BaseMethodFault

	restarts int                            // of the vCenter, when the call came
	involved []types.ManagedObjectReference // objects other than `this` that the task changes
}

func (t *Tasks) newTaskCall(ctx *simulator.Context, method *simulator.Method) *TaskCall {
	call := &TaskCall{ctx: ctx, tasks: t, method: method.Name, this: method.This, restarts: t.restarted()}
	arrange(call, method.Body)
	return call
}

// fits reports whether a task is the call's: the library starts it with the context of the call, which no other call has.
func (e *TaskCall) fits(task *simulator.Task) bool {
	return e.runs(task) && e.this == *task.Info.Entity && sameTask(e.method, task.Info.Name)
}

// runs reports whether this call started the task, directly or from inside another one.
func (e *TaskCall) runs(task *simulator.Task) bool {
	return reflect.ValueOf(task).Elem().FieldByName("ctx").Pointer() == reflect.ValueOf(e.ctx).Pointer()
}

type execute = func(*simulator.Task) (types.AnyType, types.BaseMethodFault)

// around does the call in place of the library's own way of running a task. It does not return to it: there the lock of an object that
// may be gone would be given back.
func (e *TaskCall) around(run execute) execute {
	return func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
		e.letGo()
		if e.clone != nil {
			e.clone.early = e.clone.early && e.effect.Fault == nil // a clone that is to fail makes no VM
		}
		if e.clone != nil && e.clone.early {
			e.effect.advance(0, visibleAt, e.report(task))
		} else {
			e.effect.Wait(e.report(task))
		}
		e.end(task, func() (types.AnyType, types.BaseMethodFault) { return e.perform(task, run) })
		runtime.Goexit()
		return nil, nil
	}
}

// report sets the progress of a task.
func (e *TaskCall) report(task *simulator.Task) func(percent int32) {
	return func(percent int32) {
		e.ctx.Map.AtomicUpdate(e.ctx, task, []types.PropertyChange{{Name: "info.progress", Val: percent}})
	}
}

// letGo gives back the object's lock, which the library hands to a task, so that others can use the object while the task waits. The lock
// counts its holds per context: ours makes one more, and releasing two leaves what the call itself still holds.
func (e *TaskCall) letGo() {
	release := e.ctx.Map.AcquireLock(e.ctx, e.this)
	release()
	release()
}

func (e *TaskCall) perform(task *simulator.Task, run execute) (types.AnyType, types.BaseMethodFault) {
	if e.effect.Fault != nil {
		return nil, e.effect.Fault
	}
	if e.clone != nil {
		return e.clone.perform(e, task, run)
	}
	if fault := e.tasks.refuseBusy(append(e.involved, e.this)...); fault != nil {
		return nil, fault
	}
	guard := e.tasks.guard.Entity(e.this)
	guard.Lock()
	defer guard.Unlock()
	if e.ctx.Map.Get(e.this) == nil {
		return nil, &types.ManagedObjectNotFound{Obj: e.this}
	}
	release := e.ctx.Map.AcquireLock(e.ctx, e.this)
	defer release()
	return e.work(task, run)
}

// work runs the library's part between ours, and refreshes all that may have changed for watchers.
func (e *TaskCall) work(task *simulator.Task, run execute) (types.AnyType, types.BaseMethodFault) {
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
	bindMachine(e.ctx, e.this)
	return result, fault
}

// end records how the work ended; a failure of the library itself fails the task only.
func (e *TaskCall) end(task *simulator.Task, work func() (types.AnyType, types.BaseMethodFault)) {
	result, fault := rescued(work)
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()}, {Name: "info.state", Val: types.TaskInfoStateSuccess}, {Name: "info.result", Val: result},
	}
	if fault != nil {
		changes[1].Val = types.TaskInfoStateError
		changes = append(changes, types.PropertyChange{Name: "info.error", Val: types.LocalizedMethodFault{Fault: fault}})
	}
	if e.clone != nil {
		e.tasks.Census.End(task.Self)
		e.tasks.over(e)
		e.tasks.vacate(e.clone)
	}
	e.ctx.Map.AtomicUpdate(e.ctx, task, changes)
}

// rescued is the work, with a SystemError in place of a panic.
func rescued(work func() (types.AnyType, types.BaseMethodFault)) (result types.AnyType, fault types.BaseMethodFault) {
	defer func() {
		if cause := recover(); cause != nil {
			result, fault = nil, &types.SystemErrorFault{Reason: fmt.Sprint("the simulator failed: ", cause)}
		}
	}()
	return work()
}
