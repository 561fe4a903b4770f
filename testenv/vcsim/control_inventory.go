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
		"GET /entities": handle(c.entities),
		"GET /truth": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Tasks.Counter.Counts(), nil
		}),
		"DELETE /truth": handle(func(emptyRequest) (any, error) {
			c.Interceptor.Tasks.Counter.ResetPeaks()
			return nil, nil
		}),
		"POST /rename":     handle(c.rename),
		"POST /host":       handle(c.host),
		"POST /schedule":   handle(c.schedule),
		"POST /unschedule": handle(c.unschedule),
		"POST /power":      handle(c.power),
		"POST /move":       handle(c.move),
		"POST /create":     handle(c.create),
		"POST /delete":     handle(c.delete),
		"POST /guest":      handle(c.guest),
		"POST /gpu":        handle(c.gpu),
		"GET /fcds": handle(func(emptyRequest) (any, error) {
			return c.Inventory.Disks(), nil
		}),
		"POST /fcds":        handle(c.createDisk),
		"POST /fcds/delete": handle(c.deleteDisk),
		"POST /fcds/attach": handle(c.attachDisk),
		"POST /attribute":   handle(c.attribute),
		"POST /tag":         handle(c.tag),
		"POST /stats":       handle(c.stats),
		"POST /property":    handle(c.property),
		"POST /churn":       handle(c.churn),
		"GET /vms":          handle(c.VMs),
		"POST /vapp":        handle(c.setVApp),
		"POST /topology":    handle(c.setTopology),
		"POST /suspend":     handle(c.suspend),
		"GET /profiles": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Tasks.profiles.List(), nil
		}),
		"POST /profiles": handle(func(profile Profile) (any, error) {
			return c.Interceptor.Tasks.profiles.Create(profile)
		}),
	}
}

// entities lists all entities, so that tests can look up references without a session.
func (c *Control) entities(emptyRequest) (any, error) {
	list := []map[string]string{}
	for _, entity := range entities(c.Inventory.simCtx, "") {
		ref := entity.Reference()
		list = append(list, map[string]string{
			"type": ref.Type,
			"ref":  ref.Value,
			"name": nameOf(entity),
			"path": pathOf(c.Inventory.simCtx, entity),
		})
	}
	return list, nil
}

// Churn is the maximum relative change of quickStats; 0 sets random values.
type Churn struct {
	Drift float64 `json:"drift"`
}

func (c *Control) churn(request Churn) (any, error) {
	return map[string]int{"changed": churn(c.Inventory.context(), request.Drift)}, nil
}

// Rename is a new name for an entity. In all requests, `of` is a reference, a name or an inventory
// path.
type Rename struct {
	Of   string `json:"of"`
	Name string `json:"name"`
}

func (c *Control) rename(request Rename) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
	if err != nil {
		return nil, err
	}
	if host, ok := entity.(*simulator.HostSystem); ok {
		// The vSphere API cannot rename a host; administrators add it again under its new name.
		c.Inventory.renameHost(host, request.Name)
		return nil, nil
	}
	renamed := object.NewCommon(c.Inventory.client, entity.Reference())
	return nil, waitForTask(renamed.Rename(context.Background(), request.Name))
}

// HostState is the desired state of a host; unset fields do not change.
type HostState struct {
	Host        string `json:"host"`
	Connected   *bool  `json:"connected"`
	Maintenance *bool  `json:"maintenance"`
	GPUs        *int   `json:"gpus"`
	GPUKind     string `json:"gpuKind"` // shared or direct
	// Length is how long it takes to enter maintenance.
	Length Duration `json:"length"`
}

func (c *Control) host(request HostState) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "HostSystem", request.Host)
	if err != nil {
		return nil, err
	}
	host, ctx := object.NewHostSystem(c.Inventory.client, entity.Reference()), context.Background()
	if request.Connected != nil && *request.Connected {
		err = waitForTask(host.Reconnect(ctx, nil, nil))
	} else if request.Connected != nil {
		err = waitForTask(host.Disconnect(ctx))
	}
	if err == nil && request.Maintenance != nil {
		if *request.Maintenance {
			c.Interceptor.Rules.delayInternal(
				"EnterMaintenanceMode_Task", entity.Reference(), request.Length,
			)
			err = waitForTask(host.EnterMaintenanceMode(ctx, 0, false, nil))
		} else {
			err = waitForTask(host.ExitMaintenanceMode(ctx, 0))
		}
	}
	if request.GPUs != nil {
		setGPUs(
			c.Inventory.context(), entity.(*simulator.HostSystem), request.GPUKind, *request.GPUs,
		)
	}
	return nil, err
}

// Power powers a VM on or off.
type Power struct {
	VM string `json:"vm"`
	On bool   `json:"on"`
}

func (c *Control) power(request Power) (any, error) {
	vm, err := lookup(c.Inventory.simCtx, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	return nil, c.Inventory.Power(vm.Reference(), request.On)
}

// Suspension selects the VM to suspend.
type Suspension struct {
	VM string `json:"vm"`
}

func (c *Control) suspend(suspension Suspension) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "VirtualMachine", suspension.VM)
	if err != nil {
		return nil, err
	}
	vm := object.NewVirtualMachine(c.Inventory.client, entity.Reference())
	return nil, waitForTask(vm.Suspend(context.Background()))
}

// Move moves a VM to another host.
type Move struct {
	VM     string   `json:"vm"`
	Host   string   `json:"host"`
	Length Duration `json:"length"` // how long it takes
}

func (c *Control) move(request Move) (any, error) {
	vm, err := lookup(c.Inventory.simCtx, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	host, err := lookup(c.Inventory.simCtx, "HostSystem", request.Host)
	if err != nil {
		return nil, err
	}
	c.Interceptor.Rules.delayInternal("RelocateVM_Task", vm.Reference(), request.Length)
	return nil, c.Inventory.Move(vm.Reference(), host.Reference())
}

func (c *Control) create(request VMSpec) (any, error) {
	ref, err := c.Inventory.CreateVM(request)
	return map[string]string{"ref": ref.Value}, err
}

// Target selects an entity.
type Target struct {
	Of string `json:"of"`
}

func (c *Control) delete(request Target) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
	if err != nil {
		return nil, err
	}
	return nil, c.Inventory.Delete(entity)
}

// Guest sets whether VMware Tools run in a VM.
type Guest struct {
	VM    string `json:"vm"`
	Tools bool   `json:"tools"`
}

func (c *Control) guest(request Guest) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "VirtualMachine", request.VM)
	if err != nil {
		return nil, err
	}
	vm, ctx := entity.(*simulator.VirtualMachine), c.Inventory.context()
	ctx.WithLock(vm, func() {
		vm.Config.ExtraConfig = slices.DeleteFunc(
			slices.Clone(vm.Config.ExtraConfig),
			func(option types.BaseOptionValue) bool {
				return option.GetOptionValue().Key == toolsOption
			},
		)
	})
	if request.Tools {
		c.Inventory.installTools(vm)
	} else {
		stopGuest(ctx, vm.Self)
	}
	return nil, nil
}

// GPU is a GPU to add to a VM.
type GPU struct {
	VM   string `json:"vm"`
	Kind string `json:"kind"`
}

func (c *Control) gpu(request GPU) (any, error) {
	return nil, c.Inventory.AddGPU(request.VM, request.Kind)
}

func (c *Control) createDisk(request DiskSpec) (any, error) {
	id, err := c.Inventory.CreateDisk(request)
	return map[string]string{"id": id}, err
}

// Disk selects a disk and the VM to attach it to.
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
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
	if err != nil {
		return nil, err
	}
	manager, err := object.GetCustomFieldsManager(c.Inventory.client)
	if err != nil {
		return nil, err
	}
	key, err := manager.FindKey(context.Background(), request.Name)
	if err != nil {
		field, err := manager.Add(
			context.Background(), request.Name, entity.Reference().Type, nil, nil,
		)
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
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
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
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(request.Stats)) {
		path := "summary.quickStats." + name
		err := setProperty(c.Inventory.context(), entity, path, request.Stats[name])
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Property is a JSON value, with wire names, for any property of any entity.
type Property struct {
	Of       string          `json:"of"`
	Property string          `json:"property"`
	Value    json.RawMessage `json:"value"`
}

func (c *Control) property(request Property) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "", request.Of)
	if err != nil {
		return nil, err
	}
	return nil, setProperty(c.Inventory.context(), entity, request.Property, request.Value)
}
