package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// findDisk returns a First Class Disk, or nil, and its datastore. The library keeps one catalog for
// each datastore.
func findDisk(
	ctx *simulator.Context, id types.ID,
) (types.ManagedObjectReference, *simulator.VStorageObject) {
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

// checkAttach returns NotFound for an unknown disk and InvalidState for one that a VM uses.
func checkAttach(ctx *simulator.Context, req *types.AttachDisk_Task) types.BaseMethodFault {
	_, fcd := findDisk(ctx, req.DiskId)
	if fcd == nil {
		return &types.NotFound{}
	}
	if len(fcd.Config.ConsumerId) > 0 {
		return &types.InvalidState{}
	}
	return nil
}

// addDiskDevice adds the virtual disk to the VM, which the library leaves out.
func addDiskDevice(ctx *simulator.Context, req *types.AttachDisk_Task) types.BaseMethodFault {
	vm, ok := findVM(ctx, req.This)
	_, fcd := findDisk(ctx, req.DiskId)
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
	backing := &types.VirtualDiskFlatVer2BackingInfo{
		DiskMode: string(types.VirtualDiskModeIndependent_persistent),
	}
	if file, ok := fcd.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo); ok {
		datastore := file.Datastore
		backing.FileName, backing.Datastore = file.FilePath, &datastore
	}
	device.Backing = backing
	devices.AssignController(device, controller)
	device.Key = freeDiskKey(devices)
	setDevices(ctx, vm, append(devices, device))
	return nil
}

// freeDiskKey returns an unused device key; vCenter numbers disks from 2000.
func freeDiskKey(devices object.VirtualDeviceList) int32 {
	key := int32(2000)
	for devices.FindByKey(key) != nil {
		key++
	}
	return key
}

// removeDiskDevice removes the virtual disk from the VM.
func removeDiskDevice(
	ctx *simulator.Context, ref types.ManagedObjectReference, id types.ID,
) types.BaseMethodFault {
	vm, ok := findVM(ctx, ref)
	if !ok {
		return nil
	}
	devices := slices.DeleteFunc(
		slices.Clone(vm.Config.Hardware.Device),
		func(device types.BaseVirtualDevice) bool { return isDisk(device, id) },
	)
	if len(devices) == len(vm.Config.Hardware.Device) {
		return &types.NotFound{}
	}
	setDevices(ctx, vm, devices)
	return nil
}

func isDisk(device types.BaseVirtualDevice, id types.ID) bool {
	disk, ok := device.(*types.VirtualDisk)
	return ok && disk.VDiskId != nil && *disk.VDiskId == id
}

// setDevices sets the devices of a VM and updates its changeVersion.
func setDevices(
	ctx *simulator.Context, vm *simulator.VirtualMachine, devices []types.BaseVirtualDevice,
) {
	now := time.Now()
	disks := object.VirtualDeviceList(devices).SelectByType((*types.VirtualDisk)(nil))
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "config.hardware.device", Val: devices},
		{Name: "config.changeVersion", Val: fmt.Sprint(now.UnixNano())},
		{Name: "config.modified", Val: now},
		{Name: "summary.config.numVirtualDisks", Val: int32(len(disks))},
	})
}

// destroyDisks deletes the First Class Disks of a VM that is about to be destroyed, except those
// with keepAfterDeleteVm.
func destroyDisks(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	if state := vm.Runtime.PowerState; state == types.VirtualMachinePowerStatePoweredOn {
		return &types.InvalidPowerState{
			RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: state,
		}
	}
	for _, device := range slices.Clone(vm.Config.Hardware.Device) {
		disk, ok := device.(*types.VirtualDisk)
		if !ok || disk.VDiskId == nil {
			continue
		}
		datastore, fcd := findDisk(ctx, *disk.VDiskId)
		if fcd == nil {
			continue
		}
		if fault := removeDiskDevice(ctx, vm.Self, *disk.VDiskId); fault != nil {
			return fault
		}
		releaseDisk(ctx, datastore, fcd)
	}
	return nil
}

// releaseDisk detaches a disk from its VM, and deletes it unless it has keepAfterDeleteVm.
func releaseDisk(
	ctx *simulator.Context, datastore types.ManagedObjectReference, fcd *simulator.VStorageObject,
) {
	manager, keep := ctx.Map.VStorageObjectManager(), fcd.Config.KeepAfterDeleteVm
	ctx.WithLock(manager, func() {
		fcd.Config.ConsumerId = nil
		if keep == nil || !*keep {
			delete(manager.Catalog()[datastore], fcd.Config.Id)
		}
	})
}
