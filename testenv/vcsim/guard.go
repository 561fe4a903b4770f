package main

import (
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Guard keeps tasks apart: one at a time on an entity, but any number of clones of one VM and into one folder, and of those one at a time
// for each name.
//
// Why not the library's locks? A clone would hold its template's, so that ten clones take ten times as long; and they go with their object,
// so that the task of an object that is destroyed meanwhile ends the process when it gives its lock back. A guard is taken before any of those.
type Guard struct {
	mu       sync.Mutex
	entities map[types.ManagedObjectReference]*sync.RWMutex
	names    map[named]*sync.Mutex
}

type named struct {
	folder types.ManagedObjectReference
	name   string
}

// NewGuard guards nothing yet.
func NewGuard() *Guard {
	return &Guard{entities: map[types.ManagedObjectReference]*sync.RWMutex{}, names: map[named]*sync.Mutex{}}
}

// Entity is the lock of an entity.
func (g *Guard) Entity(ref types.ManagedObjectReference) *sync.RWMutex {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entities[ref] == nil {
		g.entities[ref] = &sync.RWMutex{}
	}
	return g.entities[ref]
}

// Name is the lock of a name in a folder.
func (g *Guard) Name(folder types.ManagedObjectReference, name string) *sync.Mutex {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := named{folder, plain(name)}
	if g.names[key] == nil {
		g.names[key] = &sync.Mutex{}
	}
	return g.names[key]
}

var specials = strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c")

// escaped is a name as the library keeps it.
func escaped(name string) string { return specials.Replace(name) }

var escapes = strings.NewReplacer("%25", "%", "%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`)

// plain is a name without escapes: "a/b" and "a%2fb" are the same to vCenter.
func plain(name string) string { return escapes.Replace(name) }

// taken is the fault for a name that another entity in the folder has; nil when it is free. The folder must be guarded.
func taken(ctx *simulator.Context, folder types.ManagedObjectReference, name string, except types.ManagedObjectReference) types.BaseMethodFault {
	for _, child := range children(ctx, folder) {
		entity, ok := ctx.Map.Get(child).(mo.Entity)
		if ok && child != except && plain(nameOf(entity)) == plain(name) {
			return &types.DuplicateName{Name: name, Object: child}
		}
	}
	return nil
}

// children is a copy of a folder's list.
func children(ctx *simulator.Context, ref types.ManagedObjectReference) []types.ManagedObjectReference {
	folder, ok := ctx.Map.Get(ref).(*simulator.Folder)
	if !ok {
		return nil
	}
	var list []types.ManagedObjectReference
	ctx.WithLock(folder, func() { list = append(list, folder.ChildEntity...) })
	return list
}
