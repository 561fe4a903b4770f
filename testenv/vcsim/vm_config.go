package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// checkCloneConfig returns a fault for a clone configuration that vCenter rejects.
func checkCloneConfig(call *TaskCall, req *types.CloneVM_Task) types.BaseMethodFault {
	source, ok := findVM(call.ctx, req.This)
	if !ok {
		return nil
	}
	if req.Spec.Config != nil {
		if fault := checkCores(source.Config, req.Spec.Config); fault != nil {
			return fault
		}
	}
	return call.tasks.profiles.check(&req.Spec.Location)
}

// checkCores returns a fault if the number of CPUs is not a multiple of the cores per socket.
//
// numCoresPerSocket that is not set keeps the VM's or the template's value; 0 lets vCenter choose.
// VMware's own message is "cannot support N CPUs using M cores per socket. CPU count must be a
// multiple of cores per socket". The API reference names no fault for it; it is InvalidArgument.
func checkCores(
	config *types.VirtualMachineConfigInfo, spec *types.VirtualMachineConfigSpec,
) types.BaseMethodFault {
	cores := config.Hardware.NumCoresPerSocket
	if spec.NumCoresPerSocket != nil {
		cores = spec.NumCoresPerSocket
	}
	cpus := cmp.Or(spec.NumCPUs, config.Hardware.NumCPU)
	if cores != nil && *cores > 0 && cpus%*cores != 0 {
		return &types.InvalidArgument{InvalidProperty: "configSpec.numCoresPerSocket"}
	}
	return nil
}

// clonedVApp returns the vApp configuration of a clone: that of its template unless the spec
// removes it.
func clonedVApp(
	source types.BaseVmConfigInfo, spec *types.VirtualMachineConfigSpec,
) types.BaseVmConfigInfo {
	if source == nil || isSet(spec.VAppConfigRemoved) {
		return nil
	}
	info := *source.GetVmConfigInfo()
	info.Property = slices.Clone(info.Property)
	return &info
}

func isSet(flag *bool) bool { return flag != nil && *flag }

// removeVApp removes the vApp configuration for vAppConfigRemoved, which the library ignores.
func removeVApp(ctx *simulator.Context, req *types.ReconfigVM_Task) {
	vm, ok := findVM(ctx, req.This)
	if !ok || !isSet(req.Spec.VAppConfigRemoved) {
		return
	}
	ctx.WithLock(vm, func() { vm.Config.VAppConfig = nil })
	touch(ctx, vm.Self)
}

// VMView is a VM as the control endpoint shows it.
type VMView struct {
	Ref            string            `json:"ref"`
	Name           string            `json:"name"`
	Path           string            `json:"path"`
	Host           string            `json:"host"`
	InstanceUUID   string            `json:"instanceUuid"`
	Power          string            `json:"power"`
	CPUs           int32             `json:"cpus"`
	CoresPerSocket int32             `json:"coresPerSocket"`
	MemoryMB       int32             `json:"memoryMB"`
	Template       bool              `json:"template"`
	Profiles       VMProfiles        `json:"profiles"`
	DiskKeys       []int32           `json:"diskKeys"`
	HasVApp        bool              `json:"hasVApp"`
	VApp           map[string]string `json:"vApp"` // property ids and values
}

// VMs lists all VMs, the oldest first.
func (c *Control) VMs(emptyRequest) (any, error) {
	views := []VMView{}
	for _, entity := range entities(c.Inventory.simCtx, "VirtualMachine") {
		views = append(views, c.view(entity.(*simulator.VirtualMachine)))
	}
	return views, nil
}

func (c *Control) view(vm *simulator.VirtualMachine) VMView {
	view := VMView{
		Ref: vm.Self.Value, Path: pathOf(c.Inventory.simCtx, vm), DiskKeys: []int32{},
		Profiles: c.Interceptor.Tasks.profiles.of(vm.Self), VApp: map[string]string{},
	}
	var host *types.ManagedObjectReference
	c.Inventory.context().WithLock(vm, func() {
		config := vm.Config
		host = vm.Runtime.Host
		view.Name, view.InstanceUUID = vm.Name, config.InstanceUuid
		view.Power, view.Template = string(vm.Runtime.PowerState), config.Template
		view.CPUs, view.MemoryMB = config.Hardware.NumCPU, config.Hardware.MemoryMB
		if config.Hardware.NumCoresPerSocket != nil {
			view.CoresPerSocket = *config.Hardware.NumCoresPerSocket
		}
		for _, device := range config.Hardware.Device {
			if disk, ok := device.(*types.VirtualDisk); ok {
				view.DiskKeys = append(view.DiskKeys, disk.Key)
			}
		}
		if view.HasVApp = config.VAppConfig != nil; view.HasVApp {
			for _, property := range config.VAppConfig.GetVmConfigInfo().Property {
				view.VApp[property.Id] = cmp.Or(property.Value, property.DefaultValue)
			}
		}
	})
	if host != nil {
		if entity, ok := c.Inventory.simCtx.Map.Get(*host).(mo.Entity); ok {
			view.Host = nameOf(entity)
		}
	}
	return view
}

// VApp is a vApp configuration, as a VM deployed from an OVA has it.
type VApp struct {
	VM         string            `json:"vm"`
	Properties map[string]string `json:"properties"` // ids and values
	Remove     bool              `json:"remove"`
}

// setVApp sets or removes the vApp configuration of a VM or template.
func (c *Control) setVApp(vapp VApp) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "VirtualMachine", vapp.VM)
	if err != nil {
		return nil, err
	}
	info := &types.VmConfigInfo{
		OvfEnvironmentTransport: []string{"com.vmware.guestInfo"},
		IpAssignment: types.VAppIPAssignmentInfo{
			IpAllocationPolicy: "dhcpPolicy", IpProtocol: "IPv4",
		},
	}
	for number, id := range slices.Sorted(maps.Keys(vapp.Properties)) {
		info.Property = append(info.Property, types.VAppPropertyInfo{
			Key: int32(number), Id: id, Label: id, Type: "string", Value: vapp.Properties[id],
		})
	}
	vm, ctx := entity.(*simulator.VirtualMachine), c.Inventory.context()
	ctx.WithLock(vm, func() {
		vm.Config.VAppConfig = info
		if vapp.Remove {
			vm.Config.VAppConfig = nil
		}
	})
	changed(ctx, vm)
	return nil, nil
}

// changed updates the changeVersion of a VM, as vCenter does with each change of its configuration.
func changed(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "config.changeVersion", Val: fmt.Sprint(time.Now().UnixNano())},
	})
}

// CPUTopology is the number of CPUs of a template and how many of them a socket has.
type CPUTopology struct {
	VM             string `json:"vm"`
	CPUs           int32  `json:"cpus"`
	CoresPerSocket int32  `json:"coresPerSocket"`
}

// setTopology sets the CPUs of a template, which ReconfigVM_Task rejects.
func (c *Control) setTopology(topology CPUTopology) (any, error) {
	entity, err := lookup(c.Inventory.simCtx, "VirtualMachine", topology.VM)
	if err != nil {
		return nil, err
	}
	if topology.CPUs < 1 || topology.CoresPerSocket < 0 ||
		topology.CoresPerSocket > 0 && topology.CPUs%topology.CoresPerSocket != 0 {
		return nil, fmt.Errorf(
			"%d CPUs are not a multiple of %d cores per socket",
			topology.CPUs,
			topology.CoresPerSocket,
		)
	}
	vm, ctx := entity.(*simulator.VirtualMachine), c.Inventory.context()
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "config.hardware.numCPU", Val: topology.CPUs},
		{Name: "config.hardware.numCoresPerSocket", Val: topology.CoresPerSocket},
		{Name: "summary.config.numCpu", Val: topology.CPUs},
	})
	changed(ctx, vm)
	return nil, nil
}
