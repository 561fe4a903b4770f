package main

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// pendingChanges is what changed since the last read.
type pendingChanges struct {
	updated map[types.ManagedObjectReference]struct{}
	removed map[types.ManagedObjectReference]struct{}
	kinds   map[string]struct{} // kinds of objects that came or went
	paths   map[string]struct{} // first components of changed properties; "" when unknown

	all bool // what the session sees may differ: its permissions have changed
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

// Reference names the relay in the registry.
func (r *changeListener) Reference() types.ManagedObjectReference { return r.Self }

// PutObject marks what came.
func (r *changeListener) PutObject(_ *simulator.Context, object mo.Reference) {
	ref := object.Reference()
	r.collector.recordChange(func(m *pendingChanges) {
		addTo(&m.updated, ref)
		addTo(&m.kinds, ref.Type)
		delete(m.removed, ref)
	})
}

// UpdateObject marks what changed.
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

// RemoveObject marks what goes. The registry calls it before the object is taken out, so that its
// absence cannot be seen yet.
func (r *changeListener) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	r.collector.recordChange(func(m *pendingChanges) {
		addTo(&m.removed, ref)
		addTo(&m.kinds, ref.Type)
	})
}

// touch makes the collectors read objects again that the library may have changed without
// notification.
func touch(ctx *simulator.Context, refs ...types.ManagedObjectReference) {
	for _, ref := range refs {
		if object := ctx.Map.Get(ref); object != nil {
			ctx.Map.Update(ctx, object, nil)
		}
	}
}
