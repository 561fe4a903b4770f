package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// need is a privilege that a call requires on an object.
type need struct {
	object    types.ManagedObjectReference
	privilege string
}

// check returns NoPermission for the first required privilege of a call that the account lacks.
func (p *Permissions) check(user string, method *simulator.Method) types.BaseMethodFault {
	if !p.Restricted(user) {
		return nil
	}
	if view, ok := method.Body.(*types.CreateContainerView); ok && !p.Sees(user, view.Container) {
		return &types.NoPermission{Object: &view.Container, PrivilegeId: "System.View"}
	}
	for _, need := range p.needs(method) {
		if !p.Has(user, need.object, need.privilege) {
			object := need.object
			return &types.NoPermission{Object: &object, PrivilegeId: need.privilege}
		}
	}
	return nil
}

// needs lists the privileges that a call requires.
//
// Sources: for calls with the same privilege for all arguments, "Required privileges" of the
// vSphere Web Services API reference, which pyVmomi carries as `privId` of its methods; for
// CloneVM_Task and UnregisterAndDestroy_Task, the text of the same reference; for the parts of a
// ConfigSpec, "Reconfigure privilege" of its fields there; for what a deployment needs on folder,
// datastore and networks, "Required vCenter Server Privileges for Common Tasks" of vSphere
// Security. A mutating call that is not listed is rejected, so that a gap in this table cannot hide
// a missing privilege.
func (p *Permissions) needs(method *simulator.Method) []need {
	this := method.This
	switch req := method.Body.(type) {
	case *types.CloneVM_Task:
		return p.cloneNeeds(req)
	case *types.ReconfigVM_Task:
		return configNeeds(this, &req.Spec)
	case *types.CreateVM_Task:
		return p.createNeeds(req)
	case *types.RelocateVM_Task:
		return p.relocateNeeds(req)
	case *types.Destroy_Task:
		return p.destroyNeeds(this, true)
	case *types.UnregisterAndDestroy_Task:
		return p.destroyNeeds(this, true)
	case *types.Rename_Task:
		return []need{{this, renamePrivileges[this.Type]}}
	case *types.MoveIntoFolder_Task:
		return p.moveNeeds(req)
	case *types.HasPrivilegeOnEntities:
		return needOnAll(req.Entity, "System.Read")
	case *types.RegisterVM_Task:
		return append(needOnAll(refList(req.Pool), "Resource.AssignVMToPool"), need{
			this, "VirtualMachine.Inventory.Register",
		})
	case *types.SetCustomValue:
		return []need{{this, "Global.SetCustomField"}}
	case *types.SetField:
		return []need{{req.Entity, "Global.SetCustomField"}}
	}
	if privilege, listed := methodPrivileges[method.Name]; listed {
		return []need{{this, privilege}}
	}
	if isReadOnly(method.Name) {
		return nil
	}
	return []need{{this, "vcsim.NotInTheTable." + method.Name}}
}

// methodPrivileges are the privileges, on the called object, that do not depend on the arguments.
var methodPrivileges = map[string]string{
	"CreateFolder":        "Folder.Create",
	"PowerOnVM_Task":      "VirtualMachine.Interact.PowerOn",
	"PowerOffVM_Task":     "VirtualMachine.Interact.PowerOff",
	"ShutdownGuest":       "VirtualMachine.Interact.PowerOff",
	"TerminateVM":         "VirtualMachine.Interact.PowerOff",
	"SuspendVM_Task":      "VirtualMachine.Interact.Suspend",
	"StandbyGuest":        "VirtualMachine.Interact.Suspend",
	"ResetVM_Task":        "VirtualMachine.Interact.Reset",
	"RebootGuest":         "VirtualMachine.Interact.Reset",
	"UnregisterVM":        "VirtualMachine.Inventory.Unregister",
	"MarkAsTemplate":      "VirtualMachine.Provisioning.MarkAsTemplate",
	"AttachDisk_Task":     "VirtualMachine.Config.AddExistingDisk",
	"DetachDisk_Task":     "VirtualMachine.Config.RemoveDisk",
	"UpgradeVM_Task":      "VirtualMachine.Config.UpgradeVirtualHardware",
	"CustomizeVM_Task":    "VirtualMachine.Provisioning.Customize",
	"InstantClone_Task":   "VirtualMachine.Provisioning.Clone",
	"PromoteDisks_Task":   "VirtualMachine.Provisioning.PromoteDisks",
	"CreateSnapshot_Task": "VirtualMachine.State.CreateSnapshot",

	"CreateSnapshotEx_Task":        "VirtualMachine.State.CreateSnapshot",
	"RemoveAllSnapshots_Task":      "VirtualMachine.State.RemoveSnapshot",
	"RevertToCurrentSnapshot_Task": "VirtualMachine.State.RevertToSnapshot",

	"CreateDatacenter":          "Datacenter.Create",
	"CreateClusterEx":           "Host.Inventory.CreateCluster",
	"AddHost_Task":              "Host.Inventory.AddHostToCluster",
	"AddStandaloneHost_Task":    "Host.Inventory.AddStandaloneHost",
	"DisconnectHost_Task":       "Host.Config.Connection",
	"ReconnectHost_Task":        "Host.Config.Connection",
	"EnterMaintenanceMode_Task": "Host.Config.Maintenance",
	"ExitMaintenanceMode_Task":  "Host.Config.Maintenance",
	"CreateResourcePool":        "Resource.CreatePool",

	"CreateScheduledTask":      "ScheduledTask.Create",
	"ReconfigureScheduledTask": "ScheduledTask.Edit",
	"RemoveScheduledTask":      "ScheduledTask.Delete",
	"RunScheduledTask":         "ScheduledTask.Run",
	"AddCustomFieldDef":        "Global.ManageCustomFields",
	"CancelTask":               "Global.CancelTask",
	"TerminateSession":         "Sessions.TerminateSession",
	"SessionIsActive":          "Sessions.ValidateSession",
	"ImpersonateUser":          "Sessions.ImpersonateUser",
	"AddAuthorizationRole":     "Authorization.ModifyRoles",
	"UpdateAuthorizationRole":  "Authorization.ModifyRoles",
	"SetEntityPermissions":     "Authorization.ModifyPermissions",

	"PbmQueryProfile":           "StorageProfile.View",
	"PbmQueryProfileDetails":    "StorageProfile.View",
	"PbmRetrieveContent":        "StorageProfile.View",
	"PbmQueryAssociatedProfile": "StorageProfile.View",
	"PbmCreate":                 "StorageProfile.Update",
	"PbmUpdate":                 "StorageProfile.Update",
	"PbmDelete":                 "StorageProfile.Update",
}

var renamePrivileges = map[string]string{
	"VirtualMachine":         "VirtualMachine.Config.Rename",
	"Folder":                 "Folder.Rename",
	"Datacenter":             "Datacenter.Rename",
	"ClusterComputeResource": "Host.Inventory.RenameCluster",
	"ResourcePool":           "Resource.RenamePool",
	"VirtualApp":             "VApp.Rename",
	"Datastore":              "Datastore.Rename",
	"Network":                "Network.Config",
}

// cloneNeeds follows the reference of CloneVM_Task for the source, the pool and the datastores.
// The new VM is in the destination folder, so what its configuration needs is checked there.
func (p *Permissions) cloneNeeds(req *types.CloneVM_Task) []need {
	folder := req.Folder
	if req.Spec.Location.Folder != nil {
		folder = *req.Spec.Location.Folder // takes precedence over the parameter
	}
	source, ok := findVM(p.ctx, req.This)
	if !ok {
		return nil // the library returns ManagedObjectNotFound
	}
	needs := []need{
		{req.This, sourcePrivilege(source.Config.Template, req.Spec.Template)},
		{folder, "VirtualMachine.Inventory.CreateFromExisting"},
	}
	if req.Spec.Customization != nil {
		needs = append(needs, need{req.This, "VirtualMachine.Provisioning.Customize"})
	}
	if pool := firstRef(req.Spec.Location.Pool, source.ResourcePool); pool != nil &&
		!req.Spec.Template {
		needs = append(needs, need{*pool, "Resource.AssignVMToPool"})
	}
	needs = append(
		needs,
		needOnAll(targetDatastores(source, &req.Spec.Location), "Datastore.AllocateSpace")...,
	)
	if len(disksOf(source)) > 0 {
		needs = append(needs, need{folder, "VirtualMachine.Config.AddNewDisk"})
	}
	needs = append(needs, needOnAll(source.Network, "Network.Assign")...)
	if req.Spec.Config != nil {
		needs = append(needs, configNeeds(folder, req.Spec.Config)...)
	}
	if usesProfile(&req.Spec.Location) {
		needs = append(needs, need{p.root, "StorageProfile.View"})
	}
	if req.Spec.PowerOn && !req.Spec.Template {
		needs = append(needs, need{folder, "VirtualMachine.Interact.PowerOn"})
	}
	return needs
}

func sourcePrivilege(fromTemplate, toTemplate bool) string {
	switch {
	case fromTemplate && toTemplate:
		return "VirtualMachine.Provisioning.CloneTemplate"
	case fromTemplate:
		return "VirtualMachine.Provisioning.DeployTemplate"
	case toTemplate:
		return "VirtualMachine.Provisioning.CreateTemplateFromVM"
	}
	return "VirtualMachine.Provisioning.Clone"
}

func firstRef(first, second *types.ManagedObjectReference) *types.ManagedObjectReference {
	if first != nil {
		return first
	}
	return second
}

// targetDatastores returns the datastores on which a clone creates files.
func targetDatastores(
	source *simulator.VirtualMachine, spec *types.VirtualMachineRelocateSpec,
) []types.ManagedObjectReference {
	targets := slices.Clone(source.Datastore)
	if spec.Datastore != nil {
		targets = refList(spec.Datastore)
	}
	for _, disk := range spec.Disk {
		if !slices.Contains(targets, disk.Datastore) {
			targets = append(targets, disk.Datastore)
		}
	}
	return targets
}

func disksOf(vm *simulator.VirtualMachine) []*types.VirtualDisk {
	var disks []*types.VirtualDisk
	for _, device := range vm.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			disks = append(disks, disk)
		}
	}
	return disks
}

func usesProfile(spec *types.VirtualMachineRelocateSpec) bool {
	if len(spec.Profile) > 0 {
		return true
	}
	for _, disk := range spec.Disk {
		if len(disk.Profile) > 0 {
			return true
		}
	}
	return false
}

// configNeeds lists the privileges for the fields set in a ConfigSpec, as documented there.
func configNeeds(on types.ManagedObjectReference, spec *types.VirtualMachineConfigSpec) []need {
	const prefix = "VirtualMachine.Config."
	parts := []struct {
		set       bool
		privilege string
	}{
		{spec.NumCPUs != 0 || spec.NumCoresPerSocket != nil, prefix + "CPUCount"},
		{spec.CpuHotAddEnabled != nil || spec.CpuHotRemoveEnabled != nil, prefix + "CPUCount"},
		{spec.MemoryMB != 0 || spec.MemoryHotAddEnabled != nil, prefix + "Memory"},
		{len(spec.ExtraConfig) > 0, prefix + "AdvancedConfig"},
		{spec.Uuid != "" || spec.InstanceUuid != "" || spec.GuestId != "", prefix + "Settings"},
		{
			spec.AlternateGuestName != "" || spec.LocationId != "" || spec.NestedHVEnabled != nil,
			prefix + "Settings",
		},
		{
			spec.Files != nil || spec.Tools != nil || spec.Flags != nil || spec.BootOptions != nil,
			prefix + "Settings",
		},
		{spec.Name != "" || spec.Annotation != "", prefix + "Rename"},
		{spec.CpuAllocation != nil || spec.MemoryAllocation != nil, prefix + "Resource"},
		{
			spec.LatencySensitivity != nil || spec.MemoryReservationLockedToMax != nil,
			prefix + "Resource",
		},
		{spec.ManagedBy != nil, prefix + "ManagedBy"},
		{spec.ChangeTrackingEnabled != nil, prefix + "ChangeTracking"},
		{spec.VAppConfig != nil || isSet(spec.VAppConfigRemoved), "VApp.ApplicationConfig"},
	}
	var needs []need
	for _, part := range parts {
		if part.set {
			needs = append(needs, need{on, part.privilege})
		}
	}
	for _, change := range spec.DeviceChange {
		needs = append(needs, deviceNeeds(on, change.GetVirtualDeviceConfigSpec())...)
	}
	return needs
}

func deviceNeeds(on types.ManagedObjectReference, spec *types.VirtualDeviceConfigSpec) []need {
	_, isDisk := spec.Device.(*types.VirtualDisk)
	edits := spec.Operation == types.VirtualDeviceConfigSpecOperationEdit
	adds := spec.Operation == types.VirtualDeviceConfigSpecOperationAdd
	privilege := "VirtualMachine.Config.AddRemoveDevice"
	switch {
	case edits:
		privilege = "VirtualMachine.Config.EditDevice"
	case isDisk && adds && spec.FileOperation != "":
		privilege = "VirtualMachine.Config.AddNewDisk"
	case isDisk && adds:
		privilege = "VirtualMachine.Config.AddExistingDisk"
	case isDisk:
		privilege = "VirtualMachine.Config.RemoveDisk"
	}
	needs := []need{{on, privilege}}
	card, isCard := spec.Device.(types.BaseVirtualEthernetCard)
	if !isCard {
		return needs
	}
	device := card.GetVirtualEthernetCard()
	backing, ok := device.Backing.(*types.VirtualEthernetCardNetworkBackingInfo)
	if ok && backing.Network != nil {
		needs = append(needs, need{*backing.Network, "Network.Assign"})
	}
	return needs
}

func (p *Permissions) createNeeds(req *types.CreateVM_Task) []need {
	needs := []need{{req.This, "VirtualMachine.Inventory.Create"}, {
		req.Pool, "Resource.AssignVMToPool",
	}}
	for _, change := range req.Config.DeviceChange {
		needs = append(needs, deviceNeeds(req.This, change.GetVirtualDeviceConfigSpec())...)
	}
	return needs
}

func (p *Permissions) relocateNeeds(req *types.RelocateVM_Task) []need {
	privilege := "Resource.ColdMigrate"
	if vm, ok := findVM(p.ctx, req.This); ok &&
		vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		privilege = "Resource.HotMigrate"
	}
	needs := []need{{req.This, privilege}}
	needs = append(needs, needOnAll(refList(req.Spec.Pool), "Resource.AssignVMToPool")...)
	return append(needs, needOnAll(refList(req.Spec.Datastore), "Datastore.AllocateSpace")...)
}

// destroyNeeds requires the privilege on the entity, its parent, and all entities below a folder.
func (p *Permissions) destroyNeeds(ref types.ManagedObjectReference, withParent bool) []need {
	entity, ok := p.ctx.Map.Get(ref).(mo.Entity)
	if !ok {
		return nil
	}
	privilege := map[string]string{
		"VirtualMachine":         "VirtualMachine.Inventory.Delete",
		"Folder":                 "Folder.Delete",
		"Datacenter":             "Datacenter.Delete",
		"HostSystem":             "Host.Inventory.RemoveHostFromCluster",
		"ClusterComputeResource": "Host.Inventory.DeleteCluster",
		"ResourcePool":           "Resource.DeletePool",
		"Datastore":              "Datastore.Delete",
		"Network":                "Network.Delete",
	}[ref.Type]
	if privilege == "" {
		privilege = "vcsim.NotInTheTable.Destroy_Task." + ref.Type
	}
	needs := []need{{ref, privilege}}
	if parent := entity.Entity().Parent; parent != nil && withParent {
		needs = append(needs, need{*parent, privilege})
	}
	for _, child := range children(p.ctx, ref) {
		needs = append(needs, p.destroyNeeds(child, child.Type == "VirtualMachine")...)
	}
	return needs
}

// moveNeeds requires the privilege on the moved entity, its parent and the folder.
func (p *Permissions) moveNeeds(req *types.MoveIntoFolder_Task) []need {
	var needs []need
	for _, ref := range req.List {
		privilege := map[string]string{
			"VirtualMachine":         "VirtualMachine.Inventory.Move",
			"Folder":                 "Folder.Move",
			"HostSystem":             "Host.Inventory.MoveHost",
			"Datastore":              "Datastore.Move",
			"ClusterComputeResource": "Host.Inventory.MoveCluster",
		}[ref.Type]
		needs = append(needs, need{ref, privilege}, need{req.This, privilege})
		if entity, ok := p.ctx.Map.Get(ref).(mo.Entity); ok && entity.Entity().Parent != nil {
			needs = append(needs, need{*entity.Entity().Parent, privilege})
		}
	}
	return needs
}

func needOnAll(refs []types.ManagedObjectReference, privilege string) []need {
	var needs []need
	for _, ref := range refs {
		needs = append(needs, need{ref, privilege})
	}
	return needs
}

func refList(ref *types.ManagedObjectReference) []types.ManagedObjectReference {
	if ref == nil {
		return nil
	}
	return []types.ManagedObjectReference{*ref}
}
