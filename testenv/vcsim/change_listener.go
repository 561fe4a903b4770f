package main

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// pendingChanges are the changes since the last read.
type pendingChanges struct {
	updated map[types.ManagedObjectReference]struct{}
	removed map[types.ManagedObjectReference]struct{}
	kinds   map[string]struct{} // types of added and removed objects
	paths   map[string]struct{} // first components of changed property paths; "" if unknown

	all bool // compare every object: the permissions of the session have changed
}

func addTo[K comparable](set *map[K]struct{}, key K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[key] = struct{}{}
}

// changeListener notifies a collector of every change in the registry. It is not the collector
// itself: the registry keeps listeners by reference, and the default collectors of all sessions
// share one.
type changeListener struct {
	Self      types.ManagedObjectReference
	collector *Collector
}

var listenerCount atomic.Int64

func newChangeListener(collector *Collector) *changeListener {
	value := "changeListener-" + strconv.FormatInt(listenerCount.Add(1), 10)
	return &changeListener{
		Self:      types.ManagedObjectReference{Type: "ChangeListener", Value: value},
		collector: collector,
	}
}

// Reference implements mo.Reference.
func (r *changeListener) Reference() types.ManagedObjectReference { return r.Self }

// PutObject records an added object.
func (r *changeListener) PutObject(_ *simulator.Context, object mo.Reference) {
	ref := object.Reference()
	r.collector.recordChange(func(m *pendingChanges) {
		addTo(&m.updated, ref)
		addTo(&m.kinds, ref.Type)
		delete(m.removed, ref)
	})
}

// UpdateObject records an updated object.
func (r *changeListener) UpdateObject(
	_ *simulator.Context, object mo.Reference, changes []types.PropertyChange,
) {
	ref := object.Reference()
	r.collector.recordChange(func(m *pendingChanges) {
		addTo(&m.updated, ref)
		if len(changes) == 0 {
			addTo(&m.paths, "")
		}
		for _, change := range changes {
			word, _, _ := strings.Cut(change.Name, ".")
			addTo(&m.paths, word)
		}
	})
}

// RemoveObject records a removed object. The registry calls it before it removes the object, so the
// object can still be found.
func (r *changeListener) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	r.collector.recordChange(func(m *pendingChanges) {
		addTo(&m.removed, ref)
		addTo(&m.kinds, ref.Type)
	})
}

// touch notifies the collectors of objects that the library may have changed silently.
func touch(ctx *simulator.Context, refs ...types.ManagedObjectReference) {
	for _, ref := range refs {
		if object := ctx.Map.Get(ref); object != nil {
			ctx.Map.Update(ctx, object, nil)
		}
	}
}
