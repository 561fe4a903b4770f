package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sync"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// properties are those that the statuses need, by type.
var properties = map[string][]string{
	"Folder":                 {"name", "parent"},
	"Datacenter":             {"name", "parent"},
	"ComputeResource":        {"name", "parent"},
	"ClusterComputeResource": {"name", "parent"},
	"Datastore":              {"name", "parent"},
	"HostSystem": {
		"name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode",
		"runtime.bootTime", "summary.hardware.cpuMhz", "summary.hardware.numCpuCores",
		"summary.hardware.memorySize", "summary.hardware.vendor", "summary.hardware.model",
		"summary.config.product.version", "summary.config.product.build",
		"summary.quickStats.overallCpuUsage", "summary.quickStats.overallMemoryUsage",
	},
	"VirtualMachine": {
		"name", "parent", "runtime.host", "runtime.connectionState", "runtime.powerState",
		"config.template", "config.uuid", "config.instanceUuid", "config.guestId",
		"config.version", "summary.config.numCpu", "summary.config.memorySizeMB",
		"summary.config.cpuReservation", "summary.config.memoryReservation",
		"summary.config.vmPathName", "datastore", "summary.guest.toolsRunningStatus",
		"summary.guest.toolsVersionStatus2", "summary.guest.guestId", "summary.guest.hwVersion",
		"summary.guest.ipAddress", "guest.net",
	},
}

// nameChannel has the names of hosts or VMs that have changed.
type nameChannel chan event.GenericEvent

// entity is an object of the inventory with the values of its properties.
type entity map[string]any

// inventory has the properties of all hosts and VMs, as current as the last update.
type inventory struct {
	mutex    sync.RWMutex
	entities map[types.ManagedObjectReference]entity
	// references by the name of the host or VM
	hosts, vms map[string]types.ManagedObjectReference
	// the number of VMs on each host, without templates
	vmCounts map[types.ManagedObjectReference]int64

	loaded                 chan struct{}
	vcenter                string
	hostChanges, vmChanges nameChannel
}

func newInventory() *inventory {
	return &inventory{
		entities:    map[types.ManagedObjectReference]entity{},
		hosts:       map[string]types.ManagedObjectReference{},
		vms:         map[string]types.ManagedObjectReference{},
		vmCounts:    map[types.ManagedObjectReference]int64{},
		loaded:      make(chan struct{}),
		hostChanges: make(nameChannel, 1024),
		vmChanges:   make(nameChannel, 1024),
	}
}

func (i *inventory) waitUntilLoaded(ctx context.Context) error {
	select {
	case <-i.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow loads the inventory, and applies changes until the context is canceled.
func (i *inventory) follow(ctx context.Context) error {
	vcenter, err := connect(ctx)
	if err != nil {
		return err
	}
	i.vcenter = vcenter.URL().Hostname()
	content := vcenter.ServiceContent
	container, err := view.NewManager(vcenter).CreateContainerView(
		ctx, content.RootFolder, nil, true,
	)
	if err != nil {
		return err
	}
	filter := new(property.WaitFilter)
	filter.Spec = types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{
			{
				Obj:  container.Reference(),
				Skip: types.NewBool(true),
				SelectSet: []types.BaseSelectionSpec{
					&types.TraversalSpec{Type: "ContainerView", Path: "view"},
				},
			},
			// The view has everything below the root folder, but not the folder.
			{Obj: content.RootFolder},
		},
		ReportMissingObjectsInResults: types.NewBool(true),
	}
	for kind, paths := range properties {
		filter.Spec.PropSet = append(
			filter.Spec.PropSet, types.PropertySpec{Type: kind, PathSet: paths},
		)
	}
	collector := property.DefaultCollector(vcenter)
	return property.WaitForUpdatesEx(
		ctx, collector, filter, func(updates []types.ObjectUpdate) bool {
			i.apply(ctx, updates, filter.Truncated)
			return false
		},
	)
}

func connect(ctx context.Context) (*vim25.Client, error) {
	address, err := url.Parse(os.Getenv("GOVMOMI_URL"))
	if err != nil {
		return nil, err
	}
	transport := soap.NewClient(address, false)
	if err := transport.SetRootCAs(os.Getenv("VC_CA_FILE")); err != nil {
		return nil, fmt.Errorf("VC_CA_FILE: %w", err)
	}
	vcenter, err := vim25.NewClient(ctx, transport)
	if err != nil {
		return nil, err
	}
	login := url.UserPassword(os.Getenv("GOVMOMI_USERNAME"), os.Getenv("GOVMOMI_PASSWORD"))
	client := govmomi.Client{Client: vcenter, SessionManager: session.NewManager(vcenter)}
	return vcenter, client.Login(ctx, login)
}

// apply stores updates. After the inventory is loaded, it also reports what has changed.
func (i *inventory) apply(ctx context.Context, updates []types.ObjectUpdate, truncated bool) {
	i.mutex.Lock()
	var changed []types.ManagedObjectReference
	for _, update := range updates {
		if update.Kind == types.ObjectUpdateKindLeave {
			i.remove(update.Obj)
			continue
		}
		object := i.entities[update.Obj]
		if object == nil {
			object = entity{}
			i.entities[update.Obj] = object
		}
		i.removeFromIndexes(update.Obj, object)
		for _, change := range update.ChangeSet {
			object[change.Name] = change.Val
		}
		i.addToIndexes(update.Obj, object)
		changed = append(changed, update.Obj)
	}
	i.mutex.Unlock()
	select {
	case <-i.loaded:
		i.report(ctx, changed)
	default:
		if !truncated {
			close(i.loaded)
		}
	}
}

func (i *inventory) remove(reference types.ManagedObjectReference) {
	i.removeFromIndexes(reference, i.entities[reference])
	delete(i.entities, reference)
}

// addToIndexes adds an object to the names, and a VM to the count of its host.
func (i *inventory) addToIndexes(reference types.ManagedObjectReference, object entity) {
	name, _ := object["name"].(string)
	switch reference.Type {
	case "HostSystem":
		i.hosts[name] = reference
	case "VirtualMachine":
		i.vms[name] = reference
		if host, ok := object["runtime.host"].(types.ManagedObjectReference); ok {
			if template, _ := object["config.template"].(bool); !template {
				i.vmCounts[host]++
			}
		}
	}
}

// removeFromIndexes reverses addToIndexes.
func (i *inventory) removeFromIndexes(reference types.ManagedObjectReference, object entity) {
	name, ok := object["name"].(string)
	if !ok {
		return
	}
	switch reference.Type {
	case "HostSystem":
		delete(i.hosts, name)
	case "VirtualMachine":
		delete(i.vms, name)
		if host, ok := object["runtime.host"].(types.ManagedObjectReference); ok {
			if template, _ := object["config.template"].(bool); !template {
				i.vmCounts[host]--
			}
		}
	}
}

// report sends the names of changed hosts and VMs. A host that gets or loses a VM is not reported:
// no scenario moves one.
func (i *inventory) report(ctx context.Context, changed []types.ManagedObjectReference) {
	for _, reference := range changed {
		i.mutex.RLock()
		name, _ := i.entities[reference]["name"].(string)
		i.mutex.RUnlock()
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		switch reference.Type {
		case "HostSystem":
			send(ctx, i.hostChanges, object)
		case "VirtualMachine":
			send(ctx, i.vmChanges, object)
		}
	}
}

func send(ctx context.Context, channel nameChannel, object *metav1.PartialObjectMetadata) {
	select {
	case channel <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

func (i *inventory) hostStatus(name string) (HostInfoStatus, bool) {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	reference, found := i.hosts[name]
	if !found {
		return HostInfoStatus{}, false
	}
	host, vms := i.entities[reference], i.vmCounts[reference]
	status := HostInfoStatus{
		Vendor:          text(host["summary.hardware.vendor"]),
		Model:           text(host["summary.hardware.model"]),
		EsxiVersion:     text(host["summary.config.product.version"]),
		EsxiBuild:       text(host["summary.config.product.build"]),
		ConnectionState: string(host["runtime.connectionState"].(types.HostSystemConnectionState)),
		MaintenanceMode: flag(host["runtime.inMaintenanceMode"]),
		BootTime:        seconds(host["runtime.bootTime"]),
		VMs:             &vms,
		VCenter:         i.vcenter,
	}
	total := *number(host["summary.hardware.cpuMhz"]) * *number(host["summary.hardware.numCpuCores"])
	status.TotalCPU = &total
	status.FreeCPU = subtract(total, number(host["summary.quickStats.overallCpuUsage"]))
	memory := *number(host["summary.hardware.memorySize"]) >> 20
	status.TotalMemoryMB = &memory
	status.FreeMemoryMB = subtract(memory, number(host["summary.quickStats.overallMemoryUsage"]))
	status.InventoryPath, status.Datacenter, status.Cluster = i.locate(reference)
	return status, true
}

func (i *inventory) vmStatus(name string) (VMInfoStatus, bool) {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	reference, found := i.vms[name]
	if !found {
		return VMInfoStatus{}, false
	}
	vm := i.entities[reference]
	status := VMInfoStatus{
		GuestID:            text(vm["summary.guest.guestId"], vm["config.guestId"]),
		TotalCPU:           number(vm["summary.config.numCpu"]),
		ResvdCPU:           number(vm["summary.config.cpuReservation"]),
		TotalMem:           number(vm["summary.config.memorySizeMB"]),
		ResvdMem:           number(vm["summary.config.memoryReservation"]),
		PowerState:         string(vm["runtime.powerState"].(types.VirtualMachinePowerState)),
		HwVersion:          text(vm["summary.guest.hwVersion"], vm["config.version"]),
		IPAddress:          text(vm["summary.guest.ipAddress"]),
		PathToVM:           text(vm["summary.config.vmPathName"]),
		ConnectionState:    string(vm["runtime.connectionState"].(types.VirtualMachineConnectionState)),
		ToolsRunningStatus: text(vm["summary.guest.toolsRunningStatus"]),
		ToolsVersionStatus: text(vm["summary.guest.toolsVersionStatus2"]),
		BiosUUID:           text(vm["config.uuid"]),
		InstanceUUID:       text(vm["config.instanceUuid"]),
		Template:           flag(vm["config.template"]),
		VCenter:            i.vcenter,
	}
	if nics, ok := vm["guest.net"].(types.ArrayOfGuestNicInfo); ok {
		for _, nic := range nics.GuestNicInfo {
			status.IPAddresses = append(status.IPAddresses, nic.IpAddress...)
		}
	}
	if stores, ok := vm["datastore"].(types.ArrayOfManagedObjectReference); ok {
		for _, store := range stores.ManagedObjectReference {
			status.Datastores = append(status.Datastores, text(i.entities[store]["name"]))
		}
		slices.Sort(status.Datastores)
	}
	if host, ok := vm["runtime.host"].(types.ManagedObjectReference); ok {
		status.Host = text(i.entities[host]["name"])
		_, _, status.Cluster = i.locate(host)
	}
	status.InventoryPath, status.Datacenter, _ = i.locate(reference)
	return status, true
}

// locate returns the inventory path of an object, and the names of its datacenter and cluster.
func (i *inventory) locate(
	reference types.ManagedObjectReference,
) (path, datacenter, cluster string) {
	for {
		object := i.entities[reference]
		parent, hasParent := object["parent"].(types.ManagedObjectReference)
		if !hasParent {
			return path, datacenter, cluster // the root folder is not part of paths
		}
		name := text(object["name"])
		path = "/" + name + path
		switch reference.Type {
		case "Datacenter":
			datacenter = name
		case "ClusterComputeResource":
			cluster = name
		}
		reference = parent
	}
}
