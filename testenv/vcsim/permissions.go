package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Permissions are the privileges of the accounts on the entities of the inventory.
//
// Which privileges does an account have? All privileges on all objects, until a test sets a
// permission on the root folder. A permission on an entity replaces the inherited ones. A
// permission that propagates also applies below the entity. A VM inherits from its folder and from
// its resource pool, and has the privileges of both. What if the list is empty? That is vCenter's
// role "No access": the account does not see the entity. Every other role contains
// System.Anonymous, System.View and System.Read. (vSphere Security, "Hierarchical Inheritance of
// Permissions" and "Using Roles to Assign Privileges")
type Permissions struct {
	ctx  *simulator.Context // the context of the simulator itself
	root types.ManagedObjectReference

	onChange func() // makes the collectors compare all objects again

	mu    sync.Mutex
	users map[string]map[types.ManagedObjectReference]grant
}

type grant struct {
	privileges map[string]bool
	propagate  bool
}

var systemPrivileges = []string{"System.Anonymous", "System.Read", "System.View"}

// NewPermissions returns permissions that grant every account all privileges.
func NewPermissions(ctx *simulator.Context, root types.ManagedObjectReference) *Permissions {
	return &Permissions{
		ctx: ctx, root: root, users: map[string]map[types.ManagedObjectReference]grant{},
	}
}

// Set grants an account privileges on an entity. An empty list hides the entity from the account.
func (p *Permissions) Set(
	user string, entity types.ManagedObjectReference, privileges []string, propagate bool,
) {
	granted := map[string]bool{}
	for _, privilege := range privileges {
		granted[privilege] = true
	}
	if len(privileges) > 0 {
		for _, privilege := range systemPrivileges {
			granted[privilege] = true
		}
	}
	p.change(func() {
		if p.users[user] == nil {
			p.users[user] = map[types.ManagedObjectReference]grant{}
		}
		p.users[user][entity] = grant{granted, propagate}
	})
}

// Remove removes a permission. An account without permissions has all privileges.
func (p *Permissions) Remove(user string, entity types.ManagedObjectReference) {
	p.change(func() {
		delete(p.users[user], entity)
		if len(p.users[user]) == 0 {
			delete(p.users, user)
		}
	})
}

// Clear removes all permissions, so that every account has all privileges.
func (p *Permissions) Clear() {
	p.change(func() { p.users = map[string]map[types.ManagedObjectReference]grant{} })
}

func (p *Permissions) change(apply func()) {
	p.mu.Lock()
	apply()
	p.mu.Unlock()
	if p.onChange != nil {
		p.onChange()
	}
}

// Restricted reports whether an account has any permissions set.
func (p *Permissions) Restricted(user string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.users[user]) > 0
}

// Has reports whether an account has a privilege on an object. For objects outside the inventory
// tree, such as managers, the permissions of the root folder apply.
func (p *Permissions) Has(user string, object types.ManagedObjectReference, privilege string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	grants := p.users[user]
	if len(grants) == 0 {
		return true
	}
	if _, ok := p.ctx.Map.Get(object).(mo.Entity); !ok {
		object = p.root
	}
	if entry, ok := grants[object]; ok {
		return entry.privileges[privilege]
	}
	return p.inherits(grants, object, privilege)
}

func (p *Permissions) inherits(
	grants map[types.ManagedObjectReference]grant,
	object types.ManagedObjectReference,
	privilege string,
) bool {
	if object == p.root {
		entry, ok := grants[object]
		return !ok || entry.privileges[privilege]
	}
	return slices.ContainsFunc(p.parents(object), func(parent types.ManagedObjectReference) bool {
		if entry, ok := grants[parent]; ok && entry.propagate {
			return entry.privileges[privilege]
		} else if ok && parent == p.root {
			return false
		}
		return p.inherits(grants, parent, privilege)
	})
}

// parents returns the entities from which an entity inherits permissions.
func (p *Permissions) parents(ref types.ManagedObjectReference) []types.ManagedObjectReference {
	entity, ok := p.ctx.Map.Get(ref).(mo.Entity)
	if !ok {
		return nil
	}
	var parents []types.ManagedObjectReference
	if parent := entity.Entity().Parent; parent != nil {
		parents = append(parents, *parent)
	}
	if vm, ok := entity.(*simulator.VirtualMachine); ok && vm.ResourcePool != nil {
		parents = append(parents, *vm.ResourcePool)
	}
	return parents
}

// Sees reports whether an account can read an entity: with System.Read on it, or with System.View
// through a permission on an entity below it.
func (p *Permissions) Sees(user string, ref types.ManagedObjectReference) bool {
	if !p.Restricted(user) || p.Has(user, ref, "System.Read") {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for entity, entry := range p.users[user] {
		if entry.privileges["System.View"] && p.isAbove(ref, entity) {
			return true
		}
	}
	return false
}

func (p *Permissions) isAbove(ref, below types.ManagedObjectReference) bool {
	return slices.ContainsFunc(p.parents(below), func(parent types.ManagedObjectReference) bool {
		return parent == ref || p.isAbove(ref, parent)
	})
}

// Visible removes hidden objects from an answer. An object that the request selects directly
// remains, without values. References to hidden entities are left out.
func (p *Permissions) Visible(
	ctx *simulator.Context, objects []types.ObjectContent, specs ...types.PropertyFilterSpec,
) []types.ObjectContent {
	if ctx.Session == nil || !p.Restricted(ctx.Session.UserName) {
		return objects
	}
	user, named := ctx.Session.UserName, map[types.ManagedObjectReference]bool{}
	for _, spec := range specs {
		for _, object := range spec.ObjectSet {
			named[object.Obj] = true
		}
	}
	var visible []types.ObjectContent
	for _, object := range objects {
		switch {
		case p.unseen(user, object.Obj) && !named[object.Obj]:
		case p.unseen(user, object.Obj):
			visible = append(visible, withoutValues(object))
		default:
			visible = append(visible, p.withoutUnseen(user, object))
		}
	}
	return visible
}

func (p *Permissions) unseen(user string, ref types.ManagedObjectReference) bool {
	_, ok := p.ctx.Map.Get(ref).(mo.Entity)
	return ok && !p.Sees(user, ref)
}

func withoutValues(object types.ObjectContent) types.ObjectContent {
	for _, property := range object.PropSet {
		ref := object.Obj
		fault := &types.NoPermission{Object: &ref, PrivilegeId: "System.Read"}
		object.MissingSet = append(object.MissingSet, types.MissingProperty{
			Path: property.Name,
			Fault: types.LocalizedMethodFault{
				Fault: fault, LocalizedMessage: faultMessage("NoPermission"),
			},
		})
	}
	object.PropSet = nil
	return object
}

func (p *Permissions) withoutUnseen(user string, object types.ObjectContent) types.ObjectContent {
	object.PropSet = slices.Clone(object.PropSet)
	for i, property := range object.PropSet {
		var refs []types.ManagedObjectReference
		switch list := property.Val.(type) {
		case types.ArrayOfManagedObjectReference:
			refs = list.ManagedObjectReference
		case *types.ArrayOfManagedObjectReference:
			refs = list.ManagedObjectReference
		default:
			continue
		}
		seen := slices.DeleteFunc(slices.Clone(refs), func(ref types.ManagedObjectReference) bool {
			return p.unseen(user, ref)
		})
		object.PropSet[i].Val = types.ArrayOfManagedObjectReference{ManagedObjectReference: seen}
	}
	return object
}

// PermissionView is a permission as the control endpoint sets and shows it.
type PermissionView struct {
	User       string   `json:"user"`
	Of         string   `json:"of"`         // the root folder when empty
	Privileges []string `json:"privileges"` // empty: no access
	Propagate  *bool    `json:"propagate"`  // to the entities below; true by default
	Remove     bool     `json:"remove"`     // instead of setting it
}

// List returns all permissions that tests have set.
func (p *Permissions) List() []PermissionView {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []PermissionView{}
	for _, user := range slices.Sorted(maps.Keys(p.users)) {
		for _, ref := range slices.SortedFunc(maps.Keys(p.users[user]), byReference) {
			entry := p.users[user][ref]
			list = append(list, PermissionView{
				User: user, Of: ref.Value, Propagate: &entry.propagate,
				Privileges: slices.Sorted(maps.Keys(entry.privileges)),
			})
		}
	}
	return list
}

func (c *Control) permission(view PermissionView) (any, error) {
	if view.User == "" {
		return nil, fmt.Errorf("user is required")
	}
	permissions, entity := c.Interceptor.Permissions, c.Interceptor.Permissions.root
	if view.Of != "" {
		target, err := lookup(c.Inventory.simCtx, "", view.Of)
		if err != nil {
			return nil, err
		}
		entity = target.Reference()
	}
	if view.Remove {
		permissions.Remove(view.User, entity)
		return nil, nil
	}
	allPrivileges := adminPrivileges(c.Inventory.simCtx)
	for _, privilege := range view.Privileges {
		if !slices.Contains(allPrivileges, privilege) {
			return nil, fmt.Errorf(
				"unknown privilege %q; an example is VirtualMachine.Interact.PowerOn", privilege,
			)
		}
	}
	propagate := true
	permissions.Set(view.User, entity, view.Privileges, *cmp.Or(view.Propagate, &propagate))
	return nil, nil
}
