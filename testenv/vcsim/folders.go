package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Folders implements the VM folder method that the library lacks. The library calls the method on
// the object of the request, and folders must keep the library's type, so the interceptor redirects
// these calls to this object.
type Folders struct {
	Self types.ManagedObjectReference
}

var folderMethods = types.ManagedObjectReference{Type: "FolderMethods", Value: "folderMethods"}

// NewFolders adds the object to the registry.
func NewFolders(ctx *simulator.Context) { ctx.Map.Put(&Folders{Self: folderMethods}) }

// Reference implements mo.Reference.
func (f *Folders) Reference() types.ManagedObjectReference { return f.Self }

// redirect changes the target of a call to the object that implements it.
func redirect(ctx *simulator.Context, method *simulator.Method) {
	_, isFolder := ctx.Map.Get(method.This).(*simulator.Folder)
	if isFolder && method.Name == "UnregisterAndDestroy_Task" {
		method.This = folderMethods
	}
}

// UnregisterAndDestroyTask removes a folder and the VMs and folders below it from the inventory.
// Unlike Destroy_Task it keeps the files of the VMs.
func (f *Folders) UnregisterAndDestroyTask(
	ctx *simulator.Context, req *types.UnregisterAndDestroy_Task,
) soap.HasFault {
	folder, ok := ctx.Map.Get(req.This).(*simulator.Folder)
	if !ok {
		fault := simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.This})
		return &methods.UnregisterAndDestroy_TaskBody{Fault_: fault}
	}
	task := simulator.CreateTask(folder, "unregisterAndDestroy",
		func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, nil })
	return &methods.UnregisterAndDestroy_TaskBody{
		Res: &types.UnregisterAndDestroy_TaskResponse{Returnval: task.Run(ctx)},
	}
}

// unregisterFolder does the work of the task. According to the API reference each removal is a
// separate transaction: after a failure the remaining objects stay in the inventory.
func unregisterFolder(call *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	folder, ok := call.ctx.Map.Get(ref).(*simulator.Folder)
	if !ok {
		return &types.ManagedObjectNotFound{Obj: ref}
	}
	if !slices.Contains(folder.ChildType, "VirtualMachine") ||
		isRootOfDatacenter(call.ctx, folder) {
		return &types.NotSupported{}
	}
	for _, child := range children(call.ctx, ref) {
		if fault := unregisterChild(call, child); fault != nil {
			return fault
		}
	}
	removeFolder(call.ctx, folder)
	return nil
}

func unregisterChild(call *TaskCall, ref types.ManagedObjectReference) types.BaseMethodFault {
	lock := call.tasks.locks.Entity(ref)
	lock.Lock()
	defer lock.Unlock()
	if fault := call.tasks.checkBusy(ref); fault != nil {
		return fault
	}
	switch object := call.ctx.Map.Get(ref).(type) {
	case *simulator.Folder:
		return unregisterFolder(call, ref)
	case *simulator.VirtualMachine:
		if state := object.Runtime.PowerState; state == types.VirtualMachinePowerStatePoweredOn {
			return &types.InvalidPowerState{
				RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: state,
			}
		}
		detachVM(call.ctx, object)
		return nil
	case nil:
		return nil
	}
	return &types.NotSupported{}
}

func isRootOfDatacenter(ctx *simulator.Context, folder *simulator.Folder) bool {
	if folder.Parent == nil {
		return true
	}
	_, ok := ctx.Map.Get(*folder.Parent).(*simulator.Datacenter)
	return ok
}

// removeFolder removes an empty folder from the inventory.
func removeFolder(ctx *simulator.Context, folder *simulator.Folder) {
	parent := *folder.Parent
	ctx.Map.Remove(ctx, folder.Self)
	removeChild(ctx, parent, folder.Self)
}

// removeChild removes an entity from the children of its folder.
func removeChild(ctx *simulator.Context, parent, child types.ManagedObjectReference) {
	if folder, ok := ctx.Map.Get(parent).(*simulator.Folder); ok {
		ctx.Map.RemoveReference(ctx, folder, &folder.ChildEntity, child)
	}
	touch(ctx, parent)
}

// addChild adds an entity to a folder. It updates the list of children first, so that views find
// the entity.
func addChild(ctx *simulator.Context, folder *simulator.Folder, entity mo.Entity) {
	ctx.WithLock(folder, func() {
		ctx.WithLock(entity, func() {
			folder.ChildEntity = append(folder.ChildEntity, entity.Reference())
			ctx.Map.PutEntity(folder, entity)
		})
	})
	touch(ctx, folder.Self)
}

// detachVM removes a VM from the inventory in any power state and keeps its files. The library's
// UnregisterVM rejects running VMs.
func detachVM(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	related := relatedTo(ctx, vm.Self)
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.RemoveReference(ctx, host, &host.Vm, vm.Self)
	}
	if vm.ResourcePool != nil {
		forgetInPool(ctx, *vm.ResourcePool, vm.Self)
	}
	for _, ref := range vm.Datastore {
		if datastore, ok := ctx.Map.Get(ref).(*simulator.Datastore); ok {
			ctx.Map.RemoveReference(ctx, datastore, &datastore.Vm, vm.Self)
		}
	}
	parent := *vm.Parent
	ctx.Map.Remove(ctx, vm.Self)
	removeChild(ctx, parent, vm.Self)
	touch(ctx, related...)
}

func forgetInPool(ctx *simulator.Context, pool, vm types.ManagedObjectReference) {
	switch pool := ctx.Map.Get(pool).(type) {
	case *simulator.ResourcePool:
		ctx.Map.RemoveReference(ctx, pool, &pool.Vm, vm)
	case *simulator.VirtualApp:
		ctx.Map.RemoveReference(ctx, pool, &pool.Vm, vm)
	}
}

// attachVM adds a detached VM to the inventory again, with its references.
func attachVM(ctx *simulator.Context, folder *simulator.Folder, vm *simulator.VirtualMachine) {
	if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		ctx.Map.AddReference(ctx, host, &host.Vm, vm.Self)
	}
	if vm.ResourcePool != nil {
		switch pool := ctx.Map.Get(*vm.ResourcePool).(type) {
		case *simulator.ResourcePool:
			ctx.Map.AddReference(ctx, pool, &pool.Vm, vm.Self)
		case *simulator.VirtualApp:
			ctx.Map.AddReference(ctx, pool, &pool.Vm, vm.Self)
		}
	}
	for _, ref := range vm.Datastore {
		if datastore, ok := ctx.Map.Get(ref).(*simulator.Datastore); ok {
			ctx.Map.AddReference(ctx, datastore, &datastore.Vm, vm.Self)
		}
	}
	addChild(ctx, folder, vm)
	touch(ctx, relatedTo(ctx, vm.Self)...)
}
