package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *Control) inventoryRoutes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /entities":     reply(c.entities),
		"GET /truth":        reply(func(nothing) (any, error) { return c.Gate.Tasks.Census.Truth(), nil }),
		"DELETE /truth":     reply(func(nothing) (any, error) { c.Gate.Tasks.Census.Reset(); return nil, nil }),
		"POST /rename":      reply(c.rename),
		"POST /host":        reply(c.host),
		"POST /schedule":    reply(c.schedule),
		"POST /unschedule":  reply(c.unschedule),
		"POST /power":       reply(c.power),
		"POST /move":        reply(c.move),
		"POST /create":      reply(c.create),
		"POST /delete":      reply(c.delete),
		"POST /guest":       reply(c.guest),
		"POST /gpu":         reply(c.gpu),
		"GET /fcds":         reply(func(nothing) (any, error) { return c.Inventory.Disks(), nil }),
		"POST /fcds":        reply(c.createDisk),
		"POST /fcds/delete": reply(c.deleteDisk),
		"POST /fcds/attach": reply(c.attachDisk),
		"POST /attribute":   reply(c.attribute),
		"POST /tag":         reply(c.tag),
		"POST /stats":       reply(c.stats),
		"POST /property":    reply(c.property),
		"POST /churn":       reply(c.churn),
		"GET /vms":          reply(c.VMs),
		"POST /vapp":        reply(c.setVApp),
		"POST /topology":    reply(c.setTopology),
		"POST /suspend":     reply(c.suspend),
		"GET /profiles":     reply(func(nothing) (any, error) { return c.Gate.Tasks.profiles.List(), nil }),
		"POST /profiles":    reply(func(profile Profile) (any, error) { return c.Gate.Tasks.profiles.Make(profile) }),
	}
}

// entities lists all entities, so that a test can go from names to references without a session.
func (c *Control) entities(nothing) (any, error) {
	list := []map[string]string{}
	for _, entity := range entities(c.Inventory.own, "") {
		ref := entity.Reference()
		list = append(list, map[string]string{"type": ref.Type, "ref": ref.Value, "name": nameOf(entity), "path": pathOf(c.Inventory.own, entity)})
	}
	return list, nil
}

// Churn is how far quickStats move; 0 makes new ones altogether.
type Churn struct {
	Drift float64 `json:"drift"`
}

func (c *Control) churn(request Churn) (any, error) {
	return map[string]int{"changed": churn(c.Inventory.context(), request.Drift)}, nil
}

// Rename is a new name for an entity; `of` is everywhere a reference's value, a name or a path.
type Rename struct {
	Of   string `json:"of"`
	Name string `json:"name"`
}

func (c *Control) rename(request Rename) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	if host, ok := entity.(*simulator.HostSystem); ok {
		c.Inventory.nameHost(host, request.Name) // vCenter has no call for this: a host is added again under its new name
		return nil, nil
	}
	return nil, done(object.NewCommon(c.Inventory.client, entity.Reference()).Rename(context.Background(), request.Name))
}

// HostState is what becomes of a host; what is not given stays.
type HostState struct {
	Host        string `json:"host"`
	Connected   *bool  `json:"connected"`
	Maintenance *bool  `json:"maintenance"`
	GPUs        *int   `json:"gpus"`
	GPUKind     string `json:"gpuKind"` // shared or direct
}

func (c *Control) host(request HostState) (any, error) {
	entity, err := lookup(c.Inventory.own, "HostSystem", request.Host)
	if err != nil {
		return nil, err
	}
	host, ctx := object.NewHostSystem(c.Inventory.client, entity.Reference()), context.Background()
	if request.Connected != nil && *request.Connected {
		err = done(host.Reconnect(ctx, nil, nil))
	} else if request.Connected != nil {
		err = done(host.Disconnect(ctx))
	}
	if err == nil && request.Maintenance != nil {
		if *request.Maintenance {
			err = done(host.EnterMaintenanceMode(ctx, 0, false, nil))
		} else {
			err = done(host.ExitMaintenanceMode(ctx, 0))
		}
	}
	if request.GPUs != nil {
		fitGPUs(c.Inventory.context(), entity.(*simulator.HostSystem), request.GPUKind, *request.GPUs)
	}
	return nil, err
}

// Power switches a VM on or off.
type Power struct {
	VM string `json:"vm"`
	On bool   `json:"on"`
}

func (c *Control) power(request Power) (any, error) {
	vm, err := lookup(c.Inventory.own, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	return nil, c.Inventory.Power(vm.Reference(), request.On)
}

// Suspension names the VM to be suspended.
type Suspension struct {
	VM string `json:"vm"`
}

func (c *Control) suspend(suspension Suspension) (any, error) {
	vm, err := lookup(c.Inventory.own, "VirtualMachine", suspension.VM)
	if err != nil {
		return nil, err
	}
	return nil, done(object.NewVirtualMachine(c.Inventory.client, vm.Reference()).Suspend(context.Background()))
}

// Move puts a VM on another host.
type Move struct {
	VM   string `json:"vm"`
	Host string `json:"host"`
}

func (c *Control) move(request Move) (any, error) {
	vm, err := lookup(c.Inventory.own, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	host, err := lookup(c.Inventory.own, "HostSystem", request.Host)
	if err != nil {
		return nil, err
	}
	return nil, c.Inventory.Move(vm.Reference(), host.Reference())
}

func (c *Control) create(request VMSpec) (any, error) {
	ref, err := c.Inventory.MakeMachine(request)
	return map[string]string{"ref": ref.Value}, err
}

// Target names one entity.
type Target struct {
	Of string `json:"of"`
}

func (c *Control) delete(request Target) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	return nil, c.Inventory.Delete(entity)
}

// Guest sets whether Tools report in a VM.
type Guest struct {
	VM    string `json:"vm"`
	Tools bool   `json:"tools"`
}

func (c *Control) guest(request Guest) (any, error) {
	entity, err := lookup(c.Inventory.own, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	vm, ctx := entity.(*simulator.VirtualMachine), c.Inventory.context()
	ctx.WithLock(vm, func() {
		vm.Config.ExtraConfig = slices.DeleteFunc(slices.Clone(vm.Config.ExtraConfig), func(option types.BaseOptionValue) bool {
			return option.GetOptionValue().Key == toolsOption
		})
	})
	if request.Tools {
		c.Inventory.giveTools(vm)
	} else {
		haltGuest(ctx, vm.Self)
	}
	return nil, nil
}

// GPU is a GPU for a VM.
type GPU struct {
	VM   string `json:"vm"`
	Kind string `json:"kind"`
}

func (c *Control) gpu(request GPU) (any, error) { return nil, c.Inventory.GiveGPU(request.VM, request.Kind) }

func (c *Control) createDisk(request DiskSpec) (any, error) {
	id, err := c.Inventory.MakeDisk(request)
	return map[string]string{"id": id}, err
}

// Disk names a disk, and the VM that is to use it.
type Disk struct {
	Disk string `json:"disk"`
	VM   string `json:"vm"`
}

func (c *Control) deleteDisk(request Disk) (any, error) {
	return map[string]int{"deleted": c.Inventory.DeleteDisks(request.Disk)}, nil
}

func (c *Control) attachDisk(request Disk) (any, error) {
	return nil, c.Inventory.AttachDisk(request.Disk, request.VM)
}

// Attribute is the value of a custom attribute.
type Attribute struct {
	Of    string `json:"of"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (c *Control) attribute(request Attribute) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	manager, err := object.GetCustomFieldsManager(c.Inventory.client)
	if err != nil {
		return nil, err
	}
	key, err := manager.FindKey(context.Background(), request.Name)
	if err != nil {
		field, err := manager.Add(context.Background(), request.Name, entity.Reference().Type, nil, nil)
		if err != nil {
			return nil, err
		}
		key = field.Key
	}
	err = manager.Set(context.Background(), entity.Reference(), key, request.Value)
	touch(c.Inventory.context(), entity.Reference())
	return nil, err
}

// Tag is a tag on an entity.
type Tag struct {
	Of       string `json:"of"`
	Category string `json:"category"`
	Tag      string `json:"tag"`
	Detach   bool   `json:"detach"`
}

func (c *Control) tag(request Tag) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	return nil, c.REST.Tag(entity.Reference(), request.Category, request.Tag, !request.Detach)
}

// Stats are quickStats of one entity by their wire names.
type Stats struct {
	Of    string                     `json:"of"`
	Stats map[string]json.RawMessage `json:"stats"`
}

func (c *Control) stats(request Stats) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(request.Stats)) {
		if err := setProperty(c.Inventory.context(), entity, "summary.quickStats."+name, request.Stats[name]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Property is a value for any property of any entity, as JSON with wire names.
type Property struct {
	Of       string          `json:"of"`
	Property string          `json:"property"`
	Value    json.RawMessage `json:"value"`
}

func (c *Control) property(request Property) (any, error) {
	entity, err := lookup(c.Inventory.own, "", request.Of)
	if err != nil {
		return nil, err
	}
	return nil, setProperty(c.Inventory.context(), entity, request.Property, request.Value)
}
