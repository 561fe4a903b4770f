package main

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// marks is what changed since the last read.
type marks struct {
	changed map[types.ManagedObjectReference]struct{}
	gone    map[types.ManagedObjectReference]struct{}
	kinds   map[string]struct{} // kinds of objects that came or went
	paths   map[string]struct{} // first components of changed properties; "" when unknown

	everything bool // what the session sees may differ: its permissions have changed
}

func add[K comparable](set *map[K]struct{}, key K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[key] = struct{}{}
}

// relay notifies a collector of every change in the registry. It is not the collector itself: the registry keeps listeners by
// reference, and the default collectors of all sessions share one.
type relay struct {
	Self      types.ManagedObjectReference
	collector *Collector
}

var relays atomic.Int64

func newRelay(collector *Collector) *relay {
	value := "relay-" + strconv.FormatInt(relays.Add(1), 10)
	return &relay{Self: types.ManagedObjectReference{Type: "Relay", Value: value}, collector: collector}
}

// Reference names the relay in the registry.
func (r *relay) Reference() types.ManagedObjectReference { return r.Self }

// PutObject marks what came.
func (r *relay) PutObject(_ *simulator.Context, object mo.Reference) {
	ref := object.Reference()
	r.collector.mark(func(m *marks) {
		add(&m.changed, ref)
		add(&m.kinds, ref.Type)
		delete(m.gone, ref)
	})
}

// UpdateObject marks what changed.
func (r *relay) UpdateObject(_ *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	ref := object.Reference()
	r.collector.mark(func(m *marks) {
		add(&m.changed, ref)
		if len(changes) == 0 {
			add(&m.paths, "")
		}
		for _, change := range changes {
			word, _, _ := strings.Cut(change.Name, ".")
			add(&m.paths, word)
		}
	})
}

// RemoveObject marks what goes. The registry calls it before the object is taken out, so that its absence cannot be seen yet.
func (r *relay) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	r.collector.mark(func(m *marks) {
		add(&m.gone, ref)
		add(&m.kinds, ref.Type)
	})
}

// touch makes the collectors read objects again that the library may have changed without notification.
func touch(ctx *simulator.Context, refs ...types.ManagedObjectReference) {
	for _, ref := range refs {
		if object := ctx.Map.Get(ref); object != nil {
			ctx.Map.Update(ctx, object, nil)
		}
	}
}
