package main

import (
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Gate is what every call passes before the library sees it: counted, refused where vCenter would, made slow or failing where a
// test asked for it.
type Gate struct {
	Calls    *Calls
	Rules    *Rules
	Sessions *Sessions
	Tasks    *Tasks

	Permissions *Permissions

	Relogin bool // whether Login on a live session gives a new one
}

// Admit implements the library's hook (simulator.Registry.Handler).
func (g *Gate) Admit(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	defer redirect(ctx, method) // last: all else is about the object that the caller names
	if ours(ctx) {
		g.Tasks.Expect(g.Tasks.newTaskCall(ctx, method))
		return nil, nil
	}
	g.Calls.Count(method.Name)
	if fault := g.authenticate(ctx, method); fault != nil {
		return nil, fault
	}
	fault := g.refuse(ctx, method)
	if !reads(method.Name) {
		entry := entryOf(ctx, method)
		entry.Refused = faultName(fault)
		g.Calls.Note(entry)
	}
	if fault == nil && ctx.Session != nil {
		call := g.Tasks.newTaskCall(ctx, method)
		call.effect = g.Rules.Take("task", method.Name, method.This.Value)
		g.Tasks.Expect(call)
	}
	return nil, fault
}

// ours reports whether the simulator itself calls: the library's in-process client has a session without a user.
func ours(ctx *simulator.Context) bool { return ctx.Session != nil && ctx.Session.UserName == "" }

func (g *Gate) authenticate(ctx *simulator.Context, method *simulator.Method) types.BaseMethodFault {
	if ctx.Session == nil {
		if anonymous(method) {
			return nil
		}
		object := method.This
		return &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &object, PrivilegeId: "System.View"}}
	}
	g.Sessions.See(ctx.Session)
	switch req := method.Body.(type) {
	case *types.Login:
		if g.Relogin {
			g.leave(ctx)
		}
	case *types.Logout:
		g.Sessions.Release(ctx.Session.Key)
	case *types.TerminateSession:
		for _, key := range req.SessionId {
			if key != ctx.Session.Key {
				g.Sessions.Release(key)
			}
		}
	}
	return nil
}

// leave ends the caller's session, for the login that follows to begin another.
func (g *Gate) leave(ctx *simulator.Context) {
	key := ctx.Session.Key
	ctx.Session = nil
	g.Sessions.End(func(live types.UserSession) bool { return live.Key == key })
}

func (g *Gate) refuse(ctx *simulator.Context, method *simulator.Method) types.BaseMethodFault {
	effect := g.Rules.Take("call", method.Name, method.This.Value)
	effect.Wait(nil)
	if effect.Fault != nil {
		return effect.Fault
	}
	if ctx.Session != nil {
		if fault := g.Permissions.refuse(ctx.Session.UserName, method); fault != nil {
			return fault
		}
	}
	if !reads(method.Name) && !strings.HasSuffix(method.Name, "_Task") {
		if fault := g.Tasks.refuseBusy(method.This); fault != nil { // the others fail as tasks
			return fault
		}
	}
	return refuseName(method.Body)
}

func entryOf(ctx *simulator.Context, method *simulator.Method) Entry {
	entry := Entry{Time: time.Now(), Method: method.Name, Object: method.This.String()}
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

// fetched is the object that a Fetch call asks for; its type is internal to the library.
func fetched(body types.AnyType) types.ManagedObjectReference {
	this := reflect.ValueOf(body).Elem().FieldByName("This")
	if !this.IsValid() {
		return types.ManagedObjectReference{}
	}
	ref, _ := this.Interface().(types.ManagedObjectReference)
	return ref
}
