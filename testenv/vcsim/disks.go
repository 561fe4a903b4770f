package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

// DiskSpec describes a First Class Disk to create; empty fields get defaults.
type DiskSpec struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	SizeMB       int64  `json:"sizeMB"`
	Datastore    string `json:"datastore"`    // the first one by default
	Provisioning string `json:"provisioning"` // thin, eagerZeroedThick or lazyZeroedThick
	// Keep is keepAfterDeleteVm: destroying the VM does not delete the disk.
	Keep bool `json:"keep"`
}

// DiskView is a First Class Disk as the control endpoint shows it.
type DiskView struct {
	Name      string   `json:"name"`
	ID        string   `json:"id"`
	SizeMB    int64    `json:"sizeMB"`
	Datastore string   `json:"datastore"`
	Path      string   `json:"path"`
	Consumers []string `json:"consumers"`
}

// CreateDisk creates a First Class Disk and returns its id.
func (i *Inventory) CreateDisk(request DiskSpec) (string, error) {
	datastore, err := i.datastore(request.Datastore)
	if err != nil {
		return "", err
	}
	spec := types.VslmCreateSpec{
		Name:              cmp.Or(request.Name, "pvc-"+uuid.NewString()),
		CapacityInMB:      cmp.Or(request.SizeMB, 1024),
		KeepAfterDeleteVm: types.NewBool(request.Keep),
		BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
			VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: datastore},
			ProvisioningType:          cmp.Or(request.Provisioning, "thin"),
		},
	}
	task, err := vslm.NewObjectManager(i.client).CreateDisk(context.Background(), spec)
	if err != nil {
		return "", err
	}
	info, err := task.WaitForResult(context.Background(), nil)
	if err != nil {
		return "", err
	}
	disk, ok := info.Result.(types.VStorageObject)
	if !ok {
		return "", fmt.Errorf("the result of creating a disk is a %T", info.Result)
	}
	if request.ID == "" {
		return disk.Config.Id.Id, nil
	}
	return request.ID, i.setDiskID(datastore, disk.Config.Id, request.ID)
}

// setDiskID changes the id of a disk, which the API cannot do.
func (i *Inventory) setDiskID(
	datastore types.ManagedObjectReference, from types.ID, to string,
) error {
	ctx, manager := i.context(), i.simCtx.Map.VStorageObjectManager()
	var err error
	ctx.WithLock(manager, func() {
		disks := manager.Catalog()[datastore]
		disk := disks[from]
		if disk == nil {
			err = fmt.Errorf("the new disk %s is not in the catalog", from.Id)
			return
		}
		delete(disks, from)
		disk.Config.Id.Id = to
		disks[disk.Config.Id] = disk
	})
	return err
}

// DeleteDisks deletes the disks with a name or id, even while attached, and returns their number.
func (i *Inventory) DeleteDisks(nameOrID string) int {
	ctx, manager, count := i.context(), i.simCtx.Map.VStorageObjectManager(), 0
	ctx.WithLock(manager, func() {
		for _, disks := range manager.Catalog() {
			for id, disk := range disks {
				if id.Id == nameOrID || disk.Config.Name == nameOrID {
					delete(disks, id)
					count++
				}
			}
		}
	})
	return count
}

// Disks lists all First Class Disks by name.
func (i *Inventory) Disks() []DiskView {
	ctx, manager, views := i.context(), i.simCtx.Map.VStorageObjectManager(), []DiskView{}
	ctx.WithLock(manager, func() {
		for datastore, disks := range manager.Catalog() {
			for _, disk := range disks {
				views = append(views, i.diskView(datastore, disk))
			}
		}
	})
	slices.SortFunc(views, func(a, b DiskView) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return views
}

func (i *Inventory) diskView(
	datastore types.ManagedObjectReference, disk *simulator.VStorageObject,
) DiskView {
	view := DiskView{
		Name:      disk.Config.Name,
		ID:        disk.Config.Id.Id,
		SizeMB:    disk.Config.CapacityInMB,
		Consumers: []string{},
	}
	if entity, ok := i.simCtx.Map.Get(datastore).(*simulator.Datastore); ok {
		view.Datastore = entity.Name
	}
	if backing, ok := disk.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo); ok {
		view.Path = backing.FilePath
	}
	for _, consumer := range disk.Config.ConsumerId {
		view.Consumers = append(view.Consumers, consumer.Id)
	}
	return view
}

// AttachDisk attaches a disk to a VM through the API; an empty VM detaches it.
func (i *Inventory) AttachDisk(nameOrID, vm string) error {
	fcd, err := i.diskByNameOrID(nameOrID)
	if err != nil {
		return err
	}
	if vm == "" {
		return i.detachDisk(fcd)
	}
	entity, err := lookup(i.simCtx, "VirtualMachine", vm)
	if err != nil {
		return err
	}
	datastore, _ := findDisk(i.context(), fcd.Config.Id)
	task, err := methods.AttachDisk_Task(context.Background(), i.client, &types.AttachDisk_Task{
		This: entity.Reference(), DiskId: fcd.Config.Id, Datastore: datastore,
	})
	if err != nil {
		return err
	}
	return waitForTask(object.NewTask(i.client, task.Returnval), nil)
}

func (i *Inventory) detachDisk(fcd *simulator.VStorageObject) error {
	for _, entity := range entities(i.simCtx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		if slices.ContainsFunc(fcd.Config.ConsumerId, func(id types.ID) bool {
			return id.Id == vm.Config.Uuid
		}) {
			req := &types.DetachDisk_Task{This: vm.Self, DiskId: fcd.Config.Id}
			task, err := methods.DetachDisk_Task(context.Background(), i.client, req)
			if err != nil {
				return err
			}
			return waitForTask(object.NewTask(i.client, task.Returnval), nil)
		}
	}
	return nil
}

// diskByNameOrID finds a disk by its name or id.
func (i *Inventory) diskByNameOrID(nameOrID string) (*simulator.VStorageObject, error) {
	ctx, manager := i.context(), i.simCtx.Map.VStorageObjectManager()
	var fcd *simulator.VStorageObject
	ctx.WithLock(manager, func() {
		for _, disks := range manager.Catalog() {
			for id, disk := range disks {
				if id.Id == nameOrID || disk.Config.Name == nameOrID {
					fcd = disk
				}
			}
		}
	})
	if fcd == nil {
		return nil, fmt.Errorf("First Class Disk %q not found", nameOrID)
	}
	return fcd, nil
}

func (i *Inventory) datastore(name string) (types.ManagedObjectReference, error) {
	if name == "" {
		return entities(i.simCtx, "Datastore")[0].Reference(), nil
	}
	datastore, err := lookup(i.simCtx, "Datastore", name)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	return datastore.Reference(), nil
}

func (i *Inventory) createDisks(s *Settings) error {
	for _, text := range s.FCDNames {
		name, id, _ := strings.Cut(text, "=")
		if _, err := i.CreateDisk(DiskSpec{Name: name, ID: id}); err != nil {
			return fmt.Errorf("disk %s: %w", name, err)
		}
	}
	datastores := entities(i.simCtx, "Datastore")
	for number := range s.FCDs {
		datastore := datastores[number%len(datastores)].Reference().Value
		if _, err := i.CreateDisk(DiskSpec{Datastore: datastore}); err != nil {
			return err
		}
	}
	return nil
}
