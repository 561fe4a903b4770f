package main

import (
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// TaskLocks keeps tasks apart: one at a time on an entity, but any number of clones of one VM and
// into one folder, and of those one at a time for each name.
//
// Why not the library's locks? A clone would hold its template's, so that ten clones take ten times
// as long; and they go with their object, so that the task of an object that is destroyed meanwhile
// ends the process when it gives its lock back. A guard is taken before any of those.
type TaskLocks struct {
	mu       sync.Mutex
	entities map[types.ManagedObjectReference]*sync.RWMutex
	names    map[nameKey]*sync.Mutex
}

type nameKey struct {
	folder types.ManagedObjectReference
	name   string
}

// NewTaskLocks guards nothing yet.
func NewTaskLocks() *TaskLocks {
	return &TaskLocks{
		entities: map[types.ManagedObjectReference]*sync.RWMutex{},
		names:    map[nameKey]*sync.Mutex{},
	}
}

// Entity is the lock of an entity.
func (l *TaskLocks) Entity(ref types.ManagedObjectReference) *sync.RWMutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entities[ref] == nil {
		l.entities[ref] = &sync.RWMutex{}
	}
	return l.entities[ref]
}

// Name is the lock of a name in a folder.
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

// escapeName is a name as the library keeps it.
func escapeName(name string) string { return nameEscaper.Replace(name) }

var nameUnescaper = strings.NewReplacer("%25", "%", "%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`)

// unescapeName is a name without escapes: "a/b" and "a%2fb" are the same to vCenter.
func unescapeName(name string) string { return nameUnescaper.Replace(name) }

// checkDuplicateName is the fault for a name that another entity in the folder has; nil when it is
// free. The folder must be guarded.
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

// children is a copy of a folder's list.
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
