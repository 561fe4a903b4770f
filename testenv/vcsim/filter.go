package main

import (
	"maps"
	"reflect"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

type values map[string]types.AnyType

// Filter is a PropertyFilter with the values of each object that were sent last.
type Filter struct {
	mo.PropertyFilter

	collector *Collector
	initial   bool
	sent      map[types.ManagedObjectReference]values
	traversed map[string]struct{} // properties that the filter traverses to its objects
}

func newFilter(collector *Collector, req *types.CreateFilter) *Filter {
	filter := &Filter{collector: collector, initial: true, traversed: map[string]struct{}{}}
	filter.Self.Type = "PropertyFilter"
	filter.Spec, filter.PartialUpdates = req.Spec, req.PartialUpdates
	for _, object := range filter.Spec.ObjectSet {
		filter.addTraversals(object.SelectSet)
	}
	return filter
}

func (f *Filter) addTraversals(specs []types.BaseSelectionSpec) {
	for _, spec := range specs {
		if walk, ok := spec.(*types.TraversalSpec); ok {
			f.traversed[walk.Path] = struct{}{}
			f.addTraversals(walk.SelectSet)
		}
	}
}

// DestroyPropertyFilter removes the filter from its collector.
func (f *Filter) DestroyPropertyFilter(
	ctx *simulator.Context, req *types.DestroyPropertyFilter,
) soap.HasFault {
	c := f.collector
	c.mu.Lock()
	c.filters = slices.DeleteFunc(slices.Clone(c.filters), func(other *Filter) bool {
		return other == f
	})
	simulator.RemoveReference(&c.Filter, f.Self)
	c.mu.Unlock()
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyFilterBody{Res: &types.DestroyPropertyFilterResponse{}}
}

// validate reads one object of each type to find properties that do not exist.
func (f *Filter) validate(ctx *simulator.Context) types.BaseMethodFault {
	members, fault := f.members(ctx)
	if fault != nil {
		return fault
	}
	samples := map[string]types.ManagedObjectReference{}
	for ref := range members {
		samples[ref.Type] = ref
	}
	return unknownProperty(f.read(ctx, slices.Collect(maps.Values(samples))))
}

// refresh compares the objects of the filter with the values sent last and returns the updates.
func (f *Filter) refresh(ctx *simulator.Context, changed *pendingChanges) []types.ObjectUpdate {
	if f.initial {
		f.sent = map[types.ManagedObjectReference]values{}
	}
	var leaving []types.ObjectUpdate
	toRead := map[types.ManagedObjectReference]struct{}{}
	if f.initial || changed.all || f.membershipChanged(changed) {
		members, _ := f.members(ctx)
		for ref := range members {
			if _, ok := f.sent[ref]; !ok {
				toRead[ref] = struct{}{}
			}
		}
		for ref := range f.sent {
			if _, ok := members[ref]; !ok {
				leaving = append(leaving, f.leave(ref))
			}
		}
	}
	f.initial = false
	if changed.all {
		for ref := range f.sent {
			toRead[ref] = struct{}{}
		}
	}
	for ref := range changed.updated {
		if _, ok := f.sent[ref]; ok {
			toRead[ref] = struct{}{}
		}
	}
	for ref := range changed.removed {
		delete(toRead, ref)
		if _, ok := f.sent[ref]; ok {
			leaving = append(leaving, f.leave(ref))
		}
	}
	return append(leaving, f.compare(ctx, slices.Collect(maps.Keys(toRead)))...)
}

// membershipChanged reports whether objects may have entered or left the filter.
func (f *Filter) membershipChanged(changed *pendingChanges) bool {
	for path := range changed.paths {
		if _, ok := f.traversed[path]; ok || (path == "" && f.traversesInventory()) {
			return true
		}
	}
	for _, spec := range f.Spec.PropSet {
		for kind := range changed.kinds {
			if spec.Type == kind || spec.Type == "ManagedEntity" || baseTypes[kind] == spec.Type {
				return true
			}
		}
	}
	return false
}

// traversesInventory reports whether the filter traverses more than a view; views report their own
// changes.
func (f *Filter) traversesInventory() bool {
	_, view := f.traversed["view"]
	return len(f.traversed) > 1 || (len(f.traversed) == 1 && !view)
}

var baseTypes = map[string]string{
	"ClusterComputeResource": "ComputeResource",
	"VirtualApp":             "ResourcePool",
	"StoragePod":             "Folder",
}

func (f *Filter) leave(ref types.ManagedObjectReference) types.ObjectUpdate {
	delete(f.sent, ref)
	return types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref}
}

func (f *Filter) compare(
	ctx *simulator.Context, refs []types.ManagedObjectReference,
) []types.ObjectUpdate {
	slices.SortFunc(refs, byReference)
	var updates []types.ObjectUpdate
	for _, content := range f.read(ctx, refs) {
		current := values{}
		for _, property := range content.PropSet {
			current[property.Name] = property.Val
		}
		previous, seen := f.sent[content.Obj]
		f.sent[content.Obj] = current
		changes := differences(previous, current)
		switch {
		case !seen:
			updates = append(updates, types.ObjectUpdate{
				Kind: types.ObjectUpdateKindEnter, Obj: content.Obj, ChangeSet: changes,
			})
		case len(changes) > 0:
			updates = append(updates, types.ObjectUpdate{
				Kind: types.ObjectUpdateKindModify, Obj: content.Obj, ChangeSet: changes,
			})
		}
	}
	return updates
}

func differences(previous, current values) []types.PropertyChange {
	var changes []types.PropertyChange
	for _, name := range slices.Sorted(maps.Keys(current)) {
		if old, ok := previous[name]; !ok || !reflect.DeepEqual(old, current[name]) {
			changes = append(changes, types.PropertyChange{
				Name: name, Op: types.PropertyChangeOpAssign, Val: current[name],
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(previous)) {
		if _, ok := current[name]; !ok {
			changes = append(changes, types.PropertyChange{
				Name: name, Op: types.PropertyChangeOpAssign,
			})
		}
	}
	return changes
}

// members returns the objects of the filter without reading their properties.
func (f *Filter) members(
	ctx *simulator.Context,
) (map[types.ManagedObjectReference]struct{}, types.BaseMethodFault) {
	spec := f.Spec
	spec.PropSet = nil
	for _, set := range f.Spec.PropSet {
		spec.PropSet = append(spec.PropSet, types.PropertySpec{Type: set.Type})
	}
	objects, fault := retrieve(ctx, spec)
	members := make(map[types.ManagedObjectReference]struct{}, len(objects))
	for _, object := range objects {
		members[object.Obj] = struct{}{}
	}
	return members, fault
}

func (f *Filter) read(
	ctx *simulator.Context, refs []types.ManagedObjectReference,
) []types.ObjectContent {
	spec := types.PropertyFilterSpec{
		PropSet: f.Spec.PropSet, ReportMissingObjectsInResults: types.NewBool(true),
	}
	for _, ref := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	objects, _ := retrieve(ctx, spec)
	return objects
}

func retrieve(
	ctx *simulator.Context, spec types.PropertyFilterSpec,
) ([]types.ObjectContent, types.BaseMethodFault) {
	library := &simulator.PropertyCollector{}
	req := &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{spec}}
	body := library.RetrievePropertiesEx(ctx, req).(*methods.RetrievePropertiesExBody)
	if body.Fault_ != nil {
		fault, _ := body.Fault_.Detail.Fault.(types.BaseMethodFault)
		return nil, fault
	}
	return sharedState(ctx).permissions.Visible(ctx, body.Res.Returnval.Objects), nil
}
