package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Hardware is the HostAssignableHardwareManager of a host that has GPUs; the library has none.
type Hardware struct {
	mo.HostAssignableHardwareManager

	host *simulator.HostSystem
}

// RetrieveDynamicPassthroughInfo lists the devices that any VM of the host may be given: those that
// pass through, each once.
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

// addHardwareManager adds the manager to a host, once.
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

// bindHardware records which devices of a host its running VMs have.
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

// bindHardwareOfVM does so for the host of a VM.
func bindHardwareOfVM(ctx *simulator.Context, ref types.ManagedObjectReference) {
	if vm, ok := findVM(ctx, ref); ok && vm.Runtime.Host != nil {
		if host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
			bindHardware(ctx, host)
		}
	}
}

// dynamicDevices lists the devices that vCenter assigns, as opposed to a person.
func dynamicDevices(vm *simulator.VirtualMachine) []types.BaseVirtualDevice {
	return slices.DeleteFunc(slices.Clone(vm.Config.Hardware.Device), func(
		device types.BaseVirtualDevice,
	) bool {
		backing := device.GetVirtualDevice().Backing
		_, dynamic := backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
		return !dynamic
	})
}
