package main

import (
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// TaskLocks serializes tasks: one at a time on an entity. Clones of one VM and into one folder run
// concurrently, except those with the same name.
//
// Why not the library's locks? A clone would hold the lock of its template, so that ten clones take
// ten times as long. And they are removed with their object, so that a task panics when it releases
// the lock of an object that was destroyed while it ran. These locks are acquired before those of
// the library.
type TaskLocks struct {
	mu       sync.Mutex
	entities map[types.ManagedObjectReference]*sync.RWMutex
	names    map[nameKey]*sync.Mutex
}

type nameKey struct {
	folder types.ManagedObjectReference
	name   string
}

// NewTaskLocks returns an empty set of locks.
func NewTaskLocks() *TaskLocks {
	return &TaskLocks{
		entities: map[types.ManagedObjectReference]*sync.RWMutex{},
		names:    map[nameKey]*sync.Mutex{},
	}
}

// Entity returns the lock of an entity.
func (l *TaskLocks) Entity(ref types.ManagedObjectReference) *sync.RWMutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entities[ref] == nil {
		l.entities[ref] = &sync.RWMutex{}
	}
	return l.entities[ref]
}

// Name returns the lock of a name in a folder.
func (l *TaskLocks) Name(folder types.ManagedObjectReference, name string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := nameKey{folder, unescapeName(name)}
	if l.names[key] == nil {
		l.names[key] = &sync.Mutex{}
	}
	return l.names[key]
}

var nameEscaper = strings.NewReplacer("%", "%25", "/", "%2f", `\`, "%5c")

// escapeName returns a name in the form that the library stores.
func escapeName(name string) string { return nameEscaper.Replace(name) }

var nameUnescaper = strings.NewReplacer("%25", "%", "%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`)

// unescapeName returns a name without escapes; to vCenter "a/b" and "a%2fb" are the same name.
func unescapeName(name string) string { return nameUnescaper.Replace(name) }

// checkDuplicateName returns DuplicateName if another entity in the folder has the name. The caller
// must hold the lock of the folder.
func checkDuplicateName(
	ctx *simulator.Context, folder types.ManagedObjectReference, name string,
	except types.ManagedObjectReference,
) types.BaseMethodFault {
	for _, child := range children(ctx, folder) {
		entity, ok := ctx.Map.Get(child).(mo.Entity)
		if ok && child != except && unescapeName(nameOf(entity)) == unescapeName(name) {
			return &types.DuplicateName{Name: name, Object: child}
		}
	}
	return nil
}

// children returns a copy of the children of a folder.
func children(
	ctx *simulator.Context, ref types.ManagedObjectReference,
) []types.ManagedObjectReference {
	folder, ok := ctx.Map.Get(ref).(*simulator.Folder)
	if !ok {
		return nil
	}
	var list []types.ManagedObjectReference
	ctx.WithLock(folder, func() { list = append(list, folder.ChildEntity...) })
	return list
}
