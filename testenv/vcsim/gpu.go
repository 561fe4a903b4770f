package main

import (
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	gpuDevice = "NVIDIA A100-PCIE-40GB"
	gpuVendor = "NVIDIA Corporation"
	gpuMemory = 40 << 20 // KB
	vgpu      = "grid_a100-10c"
)

var vgpuTypes = []string{"grid_a100-4c", vgpu, "grid_a100-20c", "grid_a100-40c"}

// setGPUs sets the graphics devices of a host: "shared" for vGPUs, "direct" for passthrough. A
// count of 0 removes them.
func setGPUs(ctx *simulator.Context, host *simulator.HostSystem, kind string, count int) {
	infos := []types.HostGraphicsInfo{}
	for number := range count {
		infos = append(infos, types.HostGraphicsInfo{
			DeviceName:     gpuDevice,
			VendorName:     gpuVendor,
			PciId:          pciID(number),
			GraphicsType:   graphicsType(kind),
			MemorySizeInKB: gpuMemory,
		})
	}
	shared := []string{}
	if kind == "shared" && count > 0 {
		shared = vgpuTypes
	}
	changes := []types.PropertyChange{{Name: "config.graphicsInfo", Val: infos}, {
		Name: "config.sharedPassthruGpuTypes", Val: shared,
	}}
	ctx.Map.AtomicUpdate(ctx, host, changes)
	addHardwareManager(ctx, host)
}

func pciID(number int) string { return fmt.Sprintf("0000:%02x:00.0", 0x3b+number) }

func graphicsType(kind string) string {
	if kind == "shared" {
		return string(types.HostGraphicsInfoGraphicsTypeSharedDirect)
	}
	return string(types.HostGraphicsInfoGraphicsTypeDirect)
}

// gpuBacking returns the backing of a PCI device of a VM: "vgpu", "passthrough" or "dynamic".
func gpuBacking(kind string) (types.BaseVirtualDeviceBackingInfo, error) {
	device := types.VirtualDeviceDeviceBackingInfo{DeviceName: gpuDevice}
	switch kind {
	case "vgpu":
		return &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: vgpu}, nil
	case "passthrough":
		return &types.VirtualPCIPassthroughDeviceBackingInfo{
			VirtualDeviceDeviceBackingInfo: device,
			Id:                             pciID(0),
			DeviceId:                       "20f1",
			SystemId:                       "5f6a",
			VendorId:                       nvidia,
		}, nil
	case "dynamic":
		return &types.VirtualPCIPassthroughDynamicBackingInfo{
			VirtualDeviceDeviceBackingInfo: device,
			AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{
				VendorId: nvidia, DeviceId: a100,
			}},
		}, nil
	}
	return nil, fmt.Errorf(
		"unsupported GPU kind %q; use vgpu, passthrough or dynamic", kind,
	)
}

func gpuSpec(kind string) (types.BaseVirtualDeviceConfigSpec, error) {
	backing, err := gpuBacking(kind)
	if err != nil {
		return nil, err
	}
	device := &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
		Key: -1, Backing: backing,
	}}
	return &types.VirtualDeviceConfigSpec{
		Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: device,
	}, nil
}
