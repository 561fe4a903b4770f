package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// disk is a First Class Disk and where it is, or nil; the library's catalog is by datastore.
func disk(ctx *simulator.Context, id types.ID) (types.ManagedObjectReference, *simulator.VStorageObject) {
	manager := ctx.Map.VStorageObjectManager()
	var location types.ManagedObjectReference
	var fcd *simulator.VStorageObject
	ctx.WithLock(manager, func() {
		for datastore, disks := range manager.Catalog() {
			if disks[id] != nil {
				location, fcd = datastore, disks[id]
			}
		}
	})
	return location, fcd
}

// refuseAttach rejects a disk that another VM uses.
func refuseAttach(ctx *simulator.Context, req *types.AttachDisk_Task) types.BaseMethodFault {
	_, fcd := disk(ctx, req.DiskId)
	if fcd == nil {
		return &types.NotFound{}
	}
	if len(fcd.Config.ConsumerId) > 0 {
		return &types.InvalidState{}
	}
	return nil
}

// plugDisk gives the VM the device, which the library forgets.
func plugDisk(ctx *simulator.Context, req *types.AttachDisk_Task) types.BaseMethodFault {
	vm, ok := machine(ctx, req.This)
	_, fcd := disk(ctx, req.DiskId)
	if !ok || fcd == nil {
		return nil
	}
	devices := object.VirtualDeviceList(slices.Clone(vm.Config.Hardware.Device))
	controller := devices.PickController((*types.VirtualSCSIController)(nil))
	if controller == nil {
		scsi := &types.ParaVirtualSCSIController{}
		scsi.Key, scsi.SharedBus = 1000, types.VirtualSCSISharingNoSharing
		controller, devices = scsi, append(devices, scsi)
	}
	id := req.DiskId
	device := &types.VirtualDisk{CapacityInKB: fcd.Config.CapacityInMB * 1024, VDiskId: &id}
	backing := &types.VirtualDiskFlatVer2BackingInfo{DiskMode: string(types.VirtualDiskModeIndependent_persistent)}
	if file, ok := fcd.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo); ok {
		datastore := file.Datastore
		backing.FileName, backing.Datastore = file.FilePath, &datastore
	}
	device.Backing = backing
	devices.AssignController(device, controller)
	device.Key = freeKey(devices)
	plug(ctx, vm, append(devices, device))
	return nil
}

// freeKey is a key for a disk; vCenter counts them from 2000.
func freeKey(devices object.VirtualDeviceList) int32 {
	key := int32(2000)
	for devices.FindByKey(key) != nil {
		key++
	}
	return key
}

// unplugDisk takes the device away.
func unplugDisk(ctx *simulator.Context, ref types.ManagedObjectReference, id types.ID) types.BaseMethodFault {
	vm, ok := machine(ctx, ref)
	if !ok {
		return nil
	}
	devices := slices.DeleteFunc(slices.Clone(vm.Config.Hardware.Device), func(device types.BaseVirtualDevice) bool { return isDisk(device, id) })
	if len(devices) == len(vm.Config.Hardware.Device) {
		return &types.NotFound{}
	}
	plug(ctx, vm, devices)
	return nil
}

func isDisk(device types.BaseVirtualDevice, id types.ID) bool {
	disk, ok := device.(*types.VirtualDisk)
	return ok && disk.VDiskId != nil && *disk.VDiskId == id
}

// plug sets a VM's devices and moves its changeVersion.
func plug(ctx *simulator.Context, vm *simulator.VirtualMachine, devices []types.BaseVirtualDevice) {
	now := time.Now()
	disks := object.VirtualDeviceList(devices).SelectByType((*types.VirtualDisk)(nil))
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "config.hardware.device", Val: devices},
		{Name: "config.changeVersion", Val: fmt.Sprint(now.UnixNano())},
		{Name: "config.modified", Val: now},
		{Name: "summary.config.numVirtualDisks", Val: int32(len(disks))},
	})
}

// destroyDisks destroys the First Class Disks of a VM that is about to be destroyed, but spares those that are to be kept.
func destroyDisks(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if state := vm.Runtime.PowerState; state == types.VirtualMachinePowerStatePoweredOn {
		return &types.InvalidPowerState{RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: state}
	}
	for _, device := range slices.Clone(vm.Config.Hardware.Device) {
		plugged, ok := device.(*types.VirtualDisk)
		if !ok || plugged.VDiskId == nil {
			continue
		}
		datastore, fcd := disk(ctx, *plugged.VDiskId)
		if fcd == nil {
			continue
		}
		if fault := unplugDisk(ctx, vm.Self, *plugged.VDiskId); fault != nil {
			return fault
		}
		release(ctx, datastore, fcd)
	}
	return nil
}

// release frees the disk of a VM that goes away, or deletes it with the VM.
func release(ctx *simulator.Context, datastore types.ManagedObjectReference, fcd *simulator.VStorageObject) {
	manager, keep := ctx.Map.VStorageObjectManager(), fcd.Config.KeepAfterDeleteVm
	ctx.WithLock(manager, func() {
		fcd.Config.ConsumerId = nil
		if keep == nil || !*keep {
			delete(manager.Catalog()[datastore], fcd.Config.Id)
		}
	})
}
