package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Hardware is the HostAssignableHardwareManager of a host with GPUs, which the library lacks.
type Hardware struct {
	mo.HostAssignableHardwareManager

	host *simulator.HostSystem
}

// RetrieveDynamicPassthroughInfo lists the passthrough devices that can be assigned to VMs of the
// host.
func (h *Hardware) RetrieveDynamicPassthroughInfo(
	*types.RetrieveDynamicPassthroughInfo,
) soap.HasFault {
	res := &types.RetrieveDynamicPassthroughInfoResponse{}
	for _, info := range h.host.Config.GraphicsInfo {
		if info.GraphicsType == graphicsType("direct") {
			res.Returnval = append(res.Returnval, types.VirtualMachineDynamicPassthroughInfo{
				VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: info.PciId},
				VendorName:               info.VendorName,
				DeviceName:               info.DeviceName,
				VendorId:                 nvidia,
				DeviceId:                 a100,
			})
		}
	}
	return &methods.RetrieveDynamicPassthroughInfoBody{Res: res}
}

const (
	nvidia = 0x10de
	a100   = 0x20f1
)

// addHardwareManager adds the manager to a host that has none.
func addHardwareManager(ctx *simulator.Context, host *simulator.HostSystem) {
	ref := types.ManagedObjectReference{
		Type:  "HostAssignableHardwareManager",
		Value: "assignableHardwareManager-" + host.Self.Value,
	}
	if ctx.Map.Get(ref) == nil {
		manager := &Hardware{host: host}
		manager.Self = ref
		ctx.Map.Put(manager)
		ctx.Map.AtomicUpdate(ctx, host, []types.PropertyChange{
			{Name: "configManager.assignableHardwareManager", Val: ref},
			{Name: "config.assignableHardwareConfig", Val: types.HostAssignableHardwareConfig{}},
		})
	}
	bindHardware(ctx, host)
}

// bindHardware records the devices of a host that its running VMs use.
func bindHardware(ctx *simulator.Context, host *simulator.HostSystem) {
	if host.ConfigManager.AssignableHardwareManager == nil {
		return
	}
	manager, ok := ctx.Map.Get(*host.ConfigManager.AssignableHardwareManager).(*Hardware)
	if !ok {
		return
	}
	bindings := []types.HostAssignableHardwareBinding{}
	for _, ref := range slices.Clone(host.Vm) {
		if vm, ok := findVM(ctx, ref); ok &&
			vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			for range dynamicDevices(vm) {
				bindings = append(bindings, types.HostAssignableHardwareBinding{
					InstanceId: "pci:" + pciID(len(bindings)), Vm: ref,
				})
			}
		}
	}
	ctx.Map.AtomicUpdate(ctx, manager, []types.PropertyChange{{Name: "binding", Val: bindings}})
	ctx.Map.AtomicUpdate(ctx, host, []types.PropertyChange{
		{Name: "config.assignableHardwareBinding", Val: bindings},
	})
}

// bindHardwareOfVM calls bindHardware for the host of a VM.
func bindHardwareOfVM(ctx *simulator.Context, ref types.ManagedObjectReference) {
	if vm, ok := findVM(ctx, ref); ok && vm.Runtime.Host != nil {
		if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
			bindHardware(ctx, host)
		}
	}
}

// dynamicDevices returns the devices for which vCenter selects the hardware.
func dynamicDevices(vm *simulator.VirtualMachine) []types.BaseVirtualDevice {
	var devices []types.BaseVirtualDevice
	for _, device := range vm.Config.Hardware.Device {
		backing := device.GetVirtualDevice().Backing
		if _, ok := backing.(*types.VirtualPCIPassthroughDynamicBackingInfo); ok {
			devices = append(devices, device)
		}
	}
	return devices
}
