package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// lookup finds one entity of a type by its reference (vm-12), name or path (/DC0/vm/vm-operator).
// An empty type matches all except ComputeResource, which has the name of its standalone host.
func lookup(ctx *simulator.Context, kind, id string) (mo.Entity, error) {
	var matches []mo.Entity
	for _, entity := range entities(ctx, kind) {
		if ref := entity.Reference(); ref.Value == id || ref.String() == id {
			return entity, nil
		}
		if kind == "" && entity.Reference().Type == "ComputeResource" {
			continue
		}
		if nameOf(entity) == id || (strings.HasPrefix(id, "/") && pathOf(ctx, entity) == id) {
			matches = append(matches, entity)
		}
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return nil, fmt.Errorf("no %s %q in the inventory", cmp.Or(kind, "entity"), id)
	}
	var paths []string
	for _, entity := range matches {
		paths = append(paths, pathOf(ctx, entity))
	}
	return nil, fmt.Errorf("%q is ambiguous: %s", id, strings.Join(paths, ", "))
}

// entities returns the entities of a type in the order of their creation.
func entities(ctx *simulator.Context, kind string) []mo.Entity {
	all := ctx.Map.All(kind)
	slices.SortFunc(all, func(a, b mo.Entity) int {
		return byReference(a.Reference(), b.Reference())
	})
	return all
}

func byReference(a, b types.ManagedObjectReference) int {
	return cmp.Or(
		cmp.Compare(a.Type, b.Type),
		cmp.Compare(serialNumber(a.Value), serialNumber(b.Value)),
		cmp.Compare(a.Value, b.Value),
	)
}

func serialNumber(value string) int {
	number, _ := strconv.Atoi(value[strings.LastIndex(value, "-")+1:])
	return number
}

// nameOf returns the name of an entity; networks have it in another field.
func nameOf(entity mo.Entity) string {
	if name := entity.Entity().Name; name != "" {
		return name
	}
	switch entity := entity.(type) {
	case *mo.Network:
		return entity.Name
	case *simulator.DistributedVirtualPortgroup:
		return entity.Name
	}
	return ""
}

// pathOf returns the inventory path of an entity; that of the root folder is "".
func pathOf(ctx *simulator.Context, entity mo.Entity) string {
	parent := entity.Entity().Parent
	if parent == nil {
		return ""
	}
	parentEntity, ok := ctx.Map.Get(*parent).(mo.Entity)
	if !ok {
		return nameOf(entity)
	}
	return pathOf(ctx, parentEntity) + "/" + nameOf(entity)
}

// datacenterOf returns the datacenter of an entity, or nil.
func datacenterOf(ctx *simulator.Context, entity mo.Entity) *simulator.Datacenter {
	for entity != nil {
		if datacenter, ok := entity.(*simulator.Datacenter); ok {
			return datacenter
		}
		parent := entity.Entity().Parent
		if parent == nil {
			return nil
		}
		entity, _ = ctx.Map.Get(*parent).(mo.Entity)
	}
	return nil
}
