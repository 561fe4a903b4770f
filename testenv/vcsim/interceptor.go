package main

import (
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Interceptor handles every call before the library does. It counts the call, rejects it where
// vCenter would, and applies the rules for delays and faults.
type Interceptor struct {
	Calls    *Calls
	Rules    *Rules
	Sessions *Sessions
	Tasks    *Tasks

	Permissions *Permissions

	Relogin bool // whether Login on a live session starts a new one
}

// Intercept implements the library's hook (simulator.Registry.Handler).
func (i *Interceptor) Intercept(
	ctx *simulator.Context, method *simulator.Method,
) (mo.Reference, types.BaseMethodFault) {
	defer redirect(ctx, method) // last: all checks apply to the object of the request
	if isInternal(ctx) {
		call := i.Tasks.newTaskCall(ctx, method)
		call.effect = i.Rules.Take(internalStage, method.Name, method.This.Value)
		i.Tasks.Expect(call)
		return nil, nil
	}
	i.Calls.Count(method.Name)
	if fault := i.authenticate(ctx, method); fault != nil {
		return nil, fault
	}
	fault := i.check(ctx, method)
	if !isReadOnly(method.Name) {
		entry := newLedgerEntry(ctx, method)
		entry.Refused = faultName(fault)
		i.Calls.Record(entry)
	}
	if fault == nil && ctx.Session != nil {
		call := i.Tasks.newTaskCall(ctx, method)
		call.effect = i.Rules.Take("task", method.Name, method.This.Value)
		i.Tasks.Expect(call)
	}
	return nil, fault
}

// isInternal reports whether the simulator itself made the call: the session of the library's
// in-process client has no user.
func isInternal(
	ctx *simulator.Context,
) bool {
	return ctx.Session != nil && ctx.Session.UserName == ""
}

func (i *Interceptor) authenticate(
	ctx *simulator.Context, method *simulator.Method,
) types.BaseMethodFault {
	if ctx.Session == nil {
		if allowsAnonymous(method) {
			return nil
		}
		object := method.This
		return &types.NotAuthenticated{NoPermission: types.NoPermission{
			Object: &object, PrivilegeId: "System.View",
		}}
	}
	i.Sessions.Track(ctx.Session)
	switch req := method.Body.(type) {
	case *types.Login:
		if i.Relogin {
			i.endSession(ctx)
		}
	case *types.Logout:
		i.Sessions.Release(ctx.Session.Key)
	case *types.TerminateSession:
		for _, key := range req.SessionId {
			if key != ctx.Session.Key {
				i.Sessions.Release(key)
			}
		}
	}
	return nil
}

// endSession ends the session of the caller, so that Login starts a new one.
func (i *Interceptor) endSession(ctx *simulator.Context) {
	key := ctx.Session.Key
	ctx.Session = nil
	i.Sessions.End(func(live types.UserSession) bool { return live.Key == key })
}

func (i *Interceptor) check(
	ctx *simulator.Context, method *simulator.Method,
) types.BaseMethodFault {
	effect := i.Rules.Take("call", method.Name, method.This.Value)
	effect.Wait(nil)
	if effect.Fault != nil {
		return effect.Fault
	}
	if ctx.Session != nil {
		if fault := i.Permissions.check(ctx.Session.UserName, method); fault != nil {
			return fault
		}
	}
	if !isReadOnly(method.Name) && !strings.HasSuffix(method.Name, "_Task") {
		// Methods that start a task fail in the task.
		if fault := i.Tasks.checkBusy(method.This); fault != nil {
			return fault
		}
	}
	return checkName(method.Body)
}

func newLedgerEntry(ctx *simulator.Context, method *simulator.Method) LedgerEntry {
	entry := LedgerEntry{Time: time.Now(), Method: method.Name, Object: method.This.String()}
	entry.NewName, _ = newName(method.Body)
	if ctx.Session != nil {
		entry.Session, entry.User = ctx.Session.Key, ctx.Session.UserName
	}
	if entity, ok := ctx.Map.Get(method.This).(mo.Entity); ok {
		entry.Name = nameOf(entity)
	}
	return entry
}

func faultName(fault types.BaseMethodFault) string {
	if fault == nil {
		return ""
	}
	return reflect.TypeOf(fault).Elem().Name()
}

// fetchTarget returns the object of a Fetch call. The library does not export the type of the
// request.
func fetchTarget(body types.AnyType) types.ManagedObjectReference {
	this := reflect.ValueOf(body).Elem().FieldByName("This")
	if !this.IsValid() {
		return types.ManagedObjectReference{}
	}
	ref, _ := this.Interface().(types.ManagedObjectReference)
	return ref
}
