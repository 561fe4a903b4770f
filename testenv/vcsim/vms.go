package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// VMSpec describes a VM to create; empty fields get defaults.
type VMSpec struct {
	Name         string `json:"name"`
	Datacenter   string `json:"datacenter"` // the first one by default
	Folder       string `json:"folder"`     // the datacenter's VM folder by default
	Host         string `json:"host"`       // the first usable one of the datacenter by default
	UUID         string `json:"uuid"`       // bios uuid
	InstanceUUID string `json:"instanceUuid"`
	Annotation   string `json:"annotation"`
	GuestID      string `json:"guestId"`
	CPUs         int32  `json:"cpus"`
	Cores        int32  `json:"coresPerSocket"` // 1 by default
	MemoryMB     int64  `json:"memoryMB"`
	Disks        *int   `json:"disks"` // a template has one by default, a VM none
	Template     bool   `json:"template"`
	On           bool   `json:"on"`
	WithoutTools bool   `json:"withoutTools"`
}

// CreateVM creates a VM or a template.
func (i *Inventory) CreateVM(request VMSpec) (types.ManagedObjectReference, error) {
	none := types.ManagedObjectReference{}
	place, err := i.place(request)
	if err != nil {
		return none, err
	}
	task, err := place.folder.CreateVM(
		context.Background(), place.spec(request), place.pool, place.host,
	)
	if err != nil {
		return none, err
	}
	info, err := task.WaitForResult(context.Background(), nil)
	if err != nil {
		return none, err
	}
	ref := info.Result.(types.ManagedObjectReference)
	vm := object.NewVirtualMachine(i.client, ref)
	switch {
	case request.Template:
		err = vm.MarkAsTemplate(context.Background())
		touch(i.context(), ref)
	case request.On:
		err = i.Power(ref, true)
	}
	return ref, err
}

type placement struct {
	folder    *object.Folder
	host      *object.HostSystem
	pool      *object.ResourcePool
	datastore string
	network   *types.ManagedObjectReference
}

func (i *Inventory) place(request VMSpec) (placement, error) {
	datacenter, err := i.datacenter(request.Datacenter)
	if err != nil {
		return placement{}, err
	}
	host, err := i.hostIn(datacenter, request.Host)
	if err != nil {
		return placement{}, err
	}
	folder := datacenter.VmFolder
	if request.Folder != "" {
		entity, err := lookup(i.simCtx, "Folder", request.Folder)
		if err != nil {
			return placement{}, err
		}
		folder = entity.Reference()
	}
	if len(host.Datastore) == 0 {
		return placement{}, fmt.Errorf("host %s has no datastore", host.Name)
	}
	datastore := i.simCtx.Map.Get(host.Datastore[0]).(*simulator.Datastore)
	var network *types.ManagedObjectReference
	if len(host.Network) > 0 {
		network = &host.Network[0]
	}
	return placement{
		network:   network,
		folder:    object.NewFolder(i.client, folder),
		host:      object.NewHostSystem(i.client, host.Self),
		pool:      object.NewResourcePool(i.client, i.poolOf(host)),
		datastore: datastore.Name,
	}, nil
}

func (p placement) spec(request VMSpec) types.VirtualMachineConfigSpec {
	tools := "true"
	if request.WithoutTools {
		tools = "false"
	}
	return types.VirtualMachineConfigSpec{
		Name:              request.Name,
		Uuid:              request.UUID,
		InstanceUuid:      request.InstanceUUID,
		Annotation:        request.Annotation,
		GuestId:           cmp.Or(request.GuestID, "otherGuest"),
		NumCPUs:           cmp.Or(request.CPUs, 1),
		MemoryMB:          cmp.Or(request.MemoryMB, 1024),
		NumCoresPerSocket: types.NewInt32(cmp.Or(request.Cores, 1)),
		DeviceChange:      p.devices(request),
		Files:             &types.VirtualMachineFileInfo{VmPathName: "[" + p.datastore + "]"},
		ExtraConfig: []types.BaseOptionValue{&types.OptionValue{
			Key: toolsOption, Value: tools,
		}},
	}
}

// devices returns the disks of a VM and the network card of a template. The devices of a template
// determine the privileges that a clone requires.
func (p placement) devices(request VMSpec) []types.BaseVirtualDeviceConfigSpec {
	count := 0
	if request.Name != escapeName(request.Name) {
		return nil // the library duplicates the devices of a VM if its name must be escaped
	}
	if request.Template {
		count = 1
	}
	if request.Disks != nil {
		count = *request.Disks
	}
	var devices object.VirtualDeviceList
	if count > 0 {
		controller, _ := devices.CreateSCSIController("pvscsi")
		devices = append(devices, controller)
	}
	for range count {
		disk := devices.CreateDisk(
			devices[0].(types.BaseVirtualController), types.ManagedObjectReference{}, "",
		)
		// Without a datastore the disk is on that of the VM.
		disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Datastore = nil
		disk.CapacityInKB = 1024 * 1024
		devices = append(devices, disk)
	}
	if request.Template && p.network != nil {
		backing := &types.VirtualEthernetCardNetworkBackingInfo{Network: p.network}
		backing.DeviceName = "VM Network"
		card, _ := devices.CreateEthernetCard("vmxnet3", backing)
		devices = append(devices, card)
	}
	changes, _ := devices.ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd)
	for _, change := range changes {
		if spec := change.GetVirtualDeviceConfigSpec(); isVirtualDisk(spec.Device) {
			spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
		}
	}
	return changes
}

func isVirtualDisk(device types.BaseVirtualDevice) bool {
	_, ok := device.(*types.VirtualDisk)
	return ok
}

func (i *Inventory) datacenter(name string) (*simulator.Datacenter, error) {
	if name != "" {
		datacenter, err := lookup(i.simCtx, "Datacenter", name)
		if err != nil {
			return nil, err
		}
		return datacenter.(*simulator.Datacenter), nil
	}
	return entities(i.simCtx, "Datacenter")[0].(*simulator.Datacenter), nil
}

func (i *Inventory) hostIn(
	datacenter *simulator.Datacenter, name string,
) (*simulator.HostSystem, error) {
	if name != "" {
		host, err := lookup(i.simCtx, "HostSystem", name)
		if err != nil {
			return nil, err
		}
		return host.(*simulator.HostSystem), nil
	}
	for _, entity := range entities(i.simCtx, "HostSystem") {
		host, parent := entity.(*simulator.HostSystem), datacenterOf(i.simCtx, entity)
		if parent != nil && parent.Self == datacenter.Self && acceptsVMs(host) {
			return host, nil
		}
	}
	return nil, fmt.Errorf(
		"datacenter %s has no host that is connected and not in maintenance",
		datacenter.Name,
	)
}

func acceptsVMs(host *simulator.HostSystem) bool {
	return host.Runtime.ConnectionState == types.HostSystemConnectionStateConnected &&
		!host.Runtime.InMaintenanceMode
}

func (i *Inventory) poolOf(host *simulator.HostSystem) types.ManagedObjectReference {
	switch parent := i.simCtx.Map.Get(*host.Parent).(type) {
	case *simulator.ClusterComputeResource:
		return *parent.ResourcePool
	case *mo.ComputeResource:
		return *parent.ResourcePool
	}
	return types.ManagedObjectReference{}
}

// Power powers a VM on or off.
func (i *Inventory) Power(ref types.ManagedObjectReference, on bool) error {
	vm := object.NewVirtualMachine(i.client, ref)
	start := vm.PowerOff
	if on {
		start = vm.PowerOn
	}
	return waitForTask(start(context.Background()))
}

// Move moves a VM to another host.
func (i *Inventory) Move(vm, host types.ManagedObjectReference) error {
	target := i.simCtx.Map.Get(host).(*simulator.HostSystem)
	pool := i.poolOf(target)
	spec := types.VirtualMachineRelocateSpec{Host: &host, Pool: &pool}
	const priority = types.VirtualMachineMovePriorityDefaultPriority
	task, err := object.NewVirtualMachine(i.client, vm).Relocate(
		context.Background(), spec, priority,
	)
	return waitForTask(task, err)
}

// Delete powers off and destroys a VM, or destroys another entity.
func (i *Inventory) Delete(entity mo.Entity) error {
	if vm, ok := entity.(*simulator.VirtualMachine); ok &&
		vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		if err := i.Power(vm.Self, false); err != nil {
			return err
		}
	}
	return waitForTask(object.NewCommon(i.client, entity.Reference()).Destroy(context.Background()))
}

// AddGPU adds a GPU to a VM.
func (i *Inventory) AddGPU(name, kind string) error {
	device, err := gpuSpec(kind)
	if err != nil {
		return err
	}
	entity, err := lookup(i.simCtx, "VirtualMachine", name)
	if err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{device},
	}
	vm := object.NewVirtualMachine(i.client, entity.Reference())
	return waitForTask(vm.Reconfigure(context.Background(), spec))
}

func (i *Inventory) installTools(vm *simulator.VirtualMachine) {
	ctx := i.context()
	ctx.WithLock(vm, func() {
		vm.Config.ExtraConfig = inheritOptions(vm.Config.ExtraConfig, []types.BaseOptionValue{
			&types.OptionValue{Key: toolsOption, Value: "true"},
		})
	})
	if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		startGuest(ctx, vm.Self)
	}
}

// waitForTask waits for the task of an API call.
func waitForTask(task *object.Task, err error) error {
	if err != nil {
		return err
	}
	return task.Wait(context.Background())
}
