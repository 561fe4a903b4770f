package main

import (
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// TaskCall is a call that starts a task, with the steps before and after the library's work.
type TaskCall struct {
	ctx    *simulator.Context
	tasks  *Tasks
	method string
	this   types.ManagedObjectReference
	effect Effect
	clone  *Clone // only of a CloneVM_Task
	before func() types.BaseMethodFault
	after  func(result types.AnyType) types.BaseMethodFault

	restarts int                            // restarts of the vCenter when the call arrived
	involved []types.ManagedObjectReference // further objects that the task changes
}

func (t *Tasks) newTaskCall(ctx *simulator.Context, method *simulator.Method) *TaskCall {
	call := &TaskCall{
		ctx:      ctx,
		tasks:    t,
		method:   method.Name,
		this:     method.This,
		restarts: t.restartCount(),
	}
	addTaskHooks(call, method.Body)
	return call
}

// matches reports whether this call started a task: the library uses the context of the call, which
// is unique.
func (call *TaskCall) matches(task *simulator.Task) bool {
	return call.started(task) && call.this == *task.Info.Entity &&
		sameTask(call.method, task.Info.Name)
}

// started reports whether this call started the task, directly or through another task.
func (call *TaskCall) started(task *simulator.Task) bool {
	taskCtx := reflect.ValueOf(task).Elem().FieldByName("ctx")
	return taskCtx.Pointer() == reflect.ValueOf(call.ctx).Pointer()
}

type taskFunc = func(*simulator.Task) (types.AnyType, types.BaseMethodFault)

// wrap replaces the library's execution of a task. It does not return to the library, which would
// release the lock of an object that may no longer exist.
func (call *TaskCall) wrap(run taskFunc) taskFunc {
	return func(task *simulator.Task) (types.AnyType, types.BaseMethodFault) {
		call.releaseLock()
		if call.clone != nil {
			// A failing clone creates no VM.
			call.clone.early = call.clone.early && call.effect.Fault == nil
		}
		if call.clone != nil && call.clone.early {
			call.effect.advance(0, visibleAt, call.report(task))
		} else {
			call.effect.Wait(call.report(task))
		}
		call.end(task, func() (types.AnyType, types.BaseMethodFault) {
			return call.perform(task, run)
		})
		runtime.Goexit()
		return nil, nil
	}
}

// report returns a function that sets the progress of a task.
func (call *TaskCall) report(task *simulator.Task) func(percent int32) {
	return func(percent int32) {
		call.ctx.Map.AtomicUpdate(call.ctx, task, []types.PropertyChange{
			{Name: "info.progress", Val: percent},
		})
	}
}

// releaseLock releases the lock of the object, which the library passes to the task, so that other
// calls can use the object while the task waits. The lock is counted per context: this acquires it
// once and releases it twice.
func (call *TaskCall) releaseLock() {
	release := call.ctx.Map.AcquireLock(call.ctx, call.this)
	release()
	release()
}

func (call *TaskCall) perform(
	task *simulator.Task, run taskFunc,
) (types.AnyType, types.BaseMethodFault) {
	if call.effect.Fault != nil {
		return nil, call.effect.Fault
	}
	if call.clone != nil {
		return call.clone.run(call, task, run)
	}
	if fault := call.tasks.checkBusy(append(call.involved, call.this)...); fault != nil {
		return nil, fault
	}
	lock := call.tasks.locks.Entity(call.this)
	lock.Lock()
	defer lock.Unlock()
	if call.ctx.Map.Get(call.this) == nil {
		return nil, &types.ManagedObjectNotFound{Obj: call.this}
	}
	release := call.ctx.Map.AcquireLock(call.ctx, call.this)
	defer release()
	return call.work(task, run)
}

// work runs the library's task between our steps and notifies the collectors of related objects.
func (call *TaskCall) work(
	task *simulator.Task, run taskFunc,
) (types.AnyType, types.BaseMethodFault) {
	related := relatedTo(call.ctx, call.this)
	defer func() { touch(call.ctx, related...) }()
	if call.before != nil {
		if fault := call.before(); fault != nil {
			return nil, fault
		}
	}
	result, fault := run(task)
	if fault != nil {
		return result, fault
	}
	related = append(related, relatedTo(call.ctx, call.this)...)
	if created, ok := result.(types.ManagedObjectReference); ok {
		related = append(related, relatedTo(call.ctx, created)...)
	}
	if call.after != nil {
		fault = call.after(result)
	}
	bindHardwareOfVM(call.ctx, call.this)
	return result, fault
}

// end runs the work and sets the result of the task. A panic of the library fails only the task.
func (call *TaskCall) end(
	task *simulator.Task, work func() (types.AnyType, types.BaseMethodFault),
) {
	result, fault := withRecover(work)
	changes := []types.PropertyChange{
		{Name: "info.completeTime", Val: time.Now()},
		{Name: "info.state", Val: types.TaskInfoStateSuccess},
		{Name: "info.result", Val: result},
	}
	if fault != nil {
		changes[1].Val = types.TaskInfoStateError
		changes = append(changes, types.PropertyChange{
			Name: "info.error", Val: types.LocalizedMethodFault{Fault: fault},
		})
	}
	if call.clone != nil {
		call.tasks.Counter.EndClone(task.Self)
		call.tasks.endClone(call)
		call.tasks.clearBusy(call.clone)
	}
	call.ctx.Map.AtomicUpdate(call.ctx, task, changes)
}

// withRecover runs the work and returns SystemError if it panics.
func withRecover(
	work func() (types.AnyType, types.BaseMethodFault),
) (result types.AnyType, fault types.BaseMethodFault) {
	defer func() {
		if cause := recover(); cause != nil {
			reason := fmt.Sprint("the simulator panicked: ", cause)
			result, fault = nil, &types.SystemErrorFault{Reason: reason}
		}
	}()
	return work()
}
