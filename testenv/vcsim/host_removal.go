package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// removedHost is a host that was removed from the inventory, with its VMs.
type removedHost struct {
	host *simulator.HostSystem
	// cluster is nil for a standalone host, which has the next three fields.
	cluster *simulator.ClusterComputeResource
	compute *mo.ComputeResource
	pool    *simulator.ResourcePool
	folder  types.ManagedObjectReference
	vms     []*simulator.VirtualMachine
}

// HostRemoval selects the host to remove or add.
type HostRemoval struct {
	Host string `json:"host"`

	// Discovered puts the VMs of an added host into vCenter's folder for discovered VMs instead of
	// their previous folders.
	Discovered bool `json:"discovered"`
}

// discoveredFolder is the name of vCenter's folder for VMs that it discovers on a host.
const discoveredFolder = "Discovered virtual machine"

// removeHost removes a host and its VMs from the inventory in any state and keeps their files, like
// "Remove from Inventory" for a disconnected host.
func (c *Control) removeHost(removal HostRemoval) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "HostSystem", removal.Host)
	if err != nil {
		return nil, err
	}
	host, ctx := entity.(*simulator.HostSystem), c.Inventory.context()
	removed := &removedHost{host: host}
	for _, ref := range slices.Clone(host.Vm) {
		if vm, ok := findVM(ctx, ref); ok {
			c.withLock(ref, func() { detachVM(ctx, vm) })
			removed.vms = append(removed.vms, vm)
		}
	}
	switch parent := ctx.Map.Get(*host.Parent).(type) {
	case *simulator.ClusterComputeResource:
		removed.cluster = parent
		ctx.Map.RemoveReference(ctx, parent, &parent.Host, host.Self)
		adjustSummary(parent.Summary.GetComputeResourceSummary(), host, -1)
	case *mo.ComputeResource:
		removed.compute, removed.folder = parent, *parent.Parent
		removed.pool, _ = ctx.Map.Get(*parent.ResourcePool).(*simulator.ResourcePool)
		ctx.Map.Remove(ctx, *parent.ResourcePool)
		defer func() {
			ctx.Map.Remove(ctx, parent.Self)
			removeChild(ctx, removed.folder, parent.Self)
		}()
	}
	ctx.Map.Remove(ctx, host.Self)
	unmount(ctx, host.Self)
	touch(ctx, *host.Parent)
	c.removedHosts[host.Name] = removed
	return map[string]int{"vms": len(removed.vms)}, nil
}

// addHost adds a removed host and its VMs again. As in a real vCenter all of them get new
// references.
func (c *Control) addHost(addition HostRemoval) (any, error) {
	removed := c.removedHosts[addition.Host]
	if removed == nil {
		return nil, fmt.Errorf("no host %q was removed; use POST /host/remove first", addition.Host)
	}
	delete(c.removedHosts, addition.Host)
	host, ctx, pool := removed.host, c.Inventory.context(), types.ManagedObjectReference{}
	old := host.Self
	ctx.Map.NewEntity(host)
	host.Config.Host = host.Self
	if removed.cluster != nil {
		pool = *removed.cluster.ResourcePool
		ctx.WithLock(removed.cluster, func() {
			removed.cluster.Host = append(removed.cluster.Host, host.Self)
		})
		adjustSummary(removed.cluster.Summary.GetComputeResourceSummary(), host, 1)
		ctx.Map.PutEntity(removed.cluster, host)
	} else {
		pool = addStandalone(ctx, removed)
	}
	mount(ctx, host, old)
	touch(ctx, host.Self, *host.Parent)
	refs := map[string]string{}
	for _, vm := range removed.vms {
		ref, err := c.reattachVM(vm, host.Self, pool, addition.Discovered)
		if err != nil {
			return nil, err
		}
		refs[vm.Name] = ref.Value
	}
	return map[string]any{"host": host.Self.Value, "vms": refs}, nil
}

func addStandalone(ctx *simulator.Context, removed *removedHost) types.ManagedObjectReference {
	ctx.Map.NewEntity(removed.compute)
	ctx.Map.NewEntity(removed.pool)
	removed.compute.Host = []types.ManagedObjectReference{removed.host.Self}
	removed.compute.ResourcePool = &removed.pool.Self
	removed.pool.Owner = removed.compute.Self
	addChild(ctx, ctx.Map.Get(removed.folder).(*simulator.Folder), removed.compute)
	ctx.Map.PutEntity(removed.compute, removed.host)
	ctx.Map.PutEntity(removed.compute, removed.pool)
	return removed.pool.Self
}

// reattachVM adds a removed VM to the inventory again under a new reference.
func (c *Control) reattachVM(
	vm *simulator.VirtualMachine, host, pool types.ManagedObjectReference, discovered bool,
) (types.ManagedObjectReference, error) {
	ctx, old := c.Inventory.context(), vm.Self
	folder, err := c.folderFor(vm, host, discovered)
	if err != nil {
		return old, err
	}
	ctx.Map.NewEntity(vm)
	vm.Runtime.Host, vm.ResourcePool, vm.Parent = &host, &pool, &folder.Self
	vm.Summary.Runtime.Host = &host
	c.Interceptor.Tasks.profiles.rename(old, vm.Self)
	c.withLock(folder.Self, func() { attachVM(ctx, folder, vm) })
	return vm.Self, nil
}

// folderFor returns the previous folder of a VM if it still exists, otherwise the one for
// discovered VMs.
func (c *Control) folderFor(
	vm *simulator.VirtualMachine, host types.ManagedObjectReference, discovered bool,
) (*simulator.Folder, error) {
	ctx := c.Inventory.context()
	if folder, ok := ctx.Map.Get(*vm.Parent).(*simulator.Folder); ok && !discovered {
		return folder, nil
	}
	datacenter := datacenterOf(ctx, ctx.Map.Get(host).(mo.Entity))
	for _, child := range children(ctx, datacenter.VmFolder) {
		if folder, ok := ctx.Map.Get(child).(*simulator.Folder); ok &&
			folder.Name == discoveredFolder {
			return folder, nil
		}
	}
	parent := object.NewFolder(c.Inventory.client, datacenter.VmFolder)
	created, err := parent.CreateFolder(context.Background(), discoveredFolder)
	if err != nil {
		return nil, err
	}
	return ctx.Map.Get(created.Reference()).(*simulator.Folder), nil
}

// withLock runs a change while no task runs on the entity.
func (c *Control) withLock(ref types.ManagedObjectReference, change func()) {
	lock := c.Interceptor.Tasks.locks.Entity(ref)
	lock.Lock()
	defer lock.Unlock()
	change()
}

// adjustSummary adds (1) or subtracts (-1) a host in the summary of its cluster.
func adjustSummary(summary *types.ComputeResourceSummary, host *simulator.HostSystem, step int32) {
	hardware := host.Summary.Hardware
	summary.TotalCpu += step * hardware.CpuMhz
	summary.TotalMemory += int64(step) * hardware.MemorySize
	summary.NumCpuCores += int16(step) * hardware.NumCpuCores
	summary.NumCpuThreads += int16(step) * hardware.NumCpuThreads
	summary.EffectiveCpu += step * hardware.CpuMhz
	summary.EffectiveMemory += int64(step) * hardware.MemorySize
	summary.NumHosts += step
	summary.NumEffectiveHosts += step
}

// unmount removes a host from all datastores and networks.
func unmount(ctx *simulator.Context, host types.ManagedObjectReference) {
	for _, entity := range entities(ctx, "Datastore") {
		datastore := entity.(*simulator.Datastore)
		ctx.WithLock(datastore, func() {
			datastore.Host = slices.DeleteFunc(
				slices.Clone(datastore.Host),
				func(mount types.DatastoreHostMount) bool { return mount.Key == host },
			)
		})
		touch(ctx, datastore.Self)
	}
	for _, entity := range entities(ctx, "Network") {
		if network, ok := entity.(*mo.Network); ok {
			ctx.Map.RemoveReference(ctx, network, &network.Host, host)
			touch(ctx, network.Self)
		}
	}
}

// mount adds a host to its datastores and networks under its new reference.
func mount(ctx *simulator.Context, host *simulator.HostSystem, old types.ManagedObjectReference) {
	for _, ref := range host.Datastore {
		if datastore, ok := ctx.Map.Get(ref).(*simulator.Datastore); ok {
			access := types.HostMountInfo{
				AccessMode: string(types.HostMountModeReadWrite),
				Mounted:    types.NewBool(true),
				Accessible: types.NewBool(true),
			}
			ctx.WithLock(datastore, func() {
				datastore.Host = append(datastore.Host, types.DatastoreHostMount{
					Key: host.Self, MountInfo: access,
				})
			})
			touch(ctx, datastore.Self)
		}
	}
	for _, ref := range host.Network {
		if network, ok := ctx.Map.Get(ref).(*mo.Network); ok {
			ctx.Map.AddReference(ctx, network, &network.Host, host.Self)
			touch(ctx, network.Self)
		}
	}
}
