package main

import (
	"errors"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Backup is a copy of the VMs and VM folders in the inventory.
type Backup struct {
	folders []savedFolder // parents before their children
	vms     []savedVM
}

type savedFolder struct {
	folder *simulator.Folder
	state  mo.Folder
}

type savedVM struct {
	vm    *simulator.VirtualMachine
	state mo.VirtualMachine
}

// backup saves the inventory of VMs and their folders.
func (c *Control) backup(emptyRequest) (any, error) {
	ctx, saved := c.Inventory.context(), &Backup{}
	for _, entity := range entities(ctx, "Datacenter") {
		saved.addFolders(ctx, entity.(*simulator.Datacenter).VmFolder)
	}
	for _, entity := range entities(ctx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		saved.vms = append(saved.vms, savedVM{vm, *ctx.Checkpoint(vm).(*mo.VirtualMachine)})
	}
	c.lastBackup = saved
	return map[string]int{"folders": len(saved.folders), "vms": len(saved.vms)}, nil
}

func (b *Backup) addFolders(ctx *simulator.Context, ref types.ManagedObjectReference) {
	folder, ok := ctx.Map.Get(ref).(*simulator.Folder)
	if !ok {
		return
	}
	b.folders = append(b.folders, savedFolder{folder, *ctx.Checkpoint(folder).(*mo.Folder)})
	for _, child := range children(ctx, ref) {
		b.addFolders(ctx, child)
	}
}

// Restoration has the options of a restore.
type Restoration struct {
	// KeepSessions lets clients receive the updates of the restore. A real vCenter restarts, so
	// that all sessions end and no client receives a leave update.
	KeepSessions bool `json:"keepSessions"`
	// Orphaned sets the connection state of restored VMs to "orphaned", as for VMs without files.
	Orphaned bool `json:"orphaned"`
}

// restore restores the inventory from the backup without tasks. It removes VMs and folders created
// since then and returns those destroyed or moved. It removes all tasks; clones that have not
// created their VM fail.
func (c *Control) restore(restoration Restoration) (any, error) {
	if c.lastBackup == nil {
		return nil, errors.New("there is no backup; use POST /backup first")
	}
	if !restoration.KeepSessions {
		c.Interceptor.Sessions.End(func(types.UserSession) bool { return true })
		c.REST.End(func(RESTSession) bool { return true })
	}
	ctx := c.Inventory.context()
	c.Interceptor.Tasks.restart(ctx)
	c.restoreFolders(ctx)
	dropped := c.dropNewVMs(ctx)
	returned := c.returnVMs(ctx, restoration.Orphaned)
	c.dropNewFolders(ctx)
	return map[string]int{"dropped": dropped, "returned": returned}, nil
}

// restoreFolders adds destroyed folders again, without children.
func (c *Control) restoreFolders(ctx *simulator.Context) {
	for _, saved := range c.lastBackup.folders {
		if ctx.Map.Get(saved.state.Self) != nil {
			continue
		}
		saved.folder.Folder = *simulator.Checkpoint(&saved.state).(*mo.Folder)
		saved.folder.ChildEntity = nil
		addChild(ctx, ctx.Map.Get(*saved.state.Parent).(*simulator.Folder), saved.folder)
	}
}

func (c *Control) dropNewVMs(ctx *simulator.Context) int {
	inBackup := map[types.ManagedObjectReference]bool{}
	for _, saved := range c.lastBackup.vms {
		inBackup[saved.state.Self] = true
	}
	c.droppedVMs = nil
	for _, entity := range entities(ctx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		if !inBackup[vm.Self] {
			c.withLock(vm.Self, func() { detachVM(ctx, vm) })
			c.droppedVMs = append(c.droppedVMs, vm)
		}
	}
	return len(c.droppedVMs)
}

func (c *Control) returnVMs(ctx *simulator.Context, orphaned bool) int {
	count := 0
	for _, saved := range c.lastBackup.vms {
		folder := ctx.Map.Get(*saved.state.Parent).(*simulator.Folder)
		if vm, ok := findVM(ctx, saved.state.Self); ok {
			if *vm.Parent != folder.Self {
				from := *vm.Parent
				removeChild(ctx, from, vm.Self)
				c.withLock(folder.Self, func() { addChild(ctx, folder, vm) })
			}
			continue
		}
		saved.vm.VirtualMachine = *simulator.Checkpoint(&saved.state).(*mo.VirtualMachine)
		if orphaned {
			saved.vm.Runtime.ConnectionState = types.VirtualMachineConnectionStateOrphaned
			saved.vm.Summary.Runtime.ConnectionState = types.VirtualMachineConnectionStateOrphaned
		}
		c.withLock(folder.Self, func() { attachVM(ctx, folder, saved.vm) })
		count++
	}
	return count
}

func (c *Control) dropNewFolders(ctx *simulator.Context) {
	inBackup := map[types.ManagedObjectReference]bool{}
	current := &Backup{}
	for _, entity := range entities(ctx, "Datacenter") {
		current.addFolders(ctx, entity.(*simulator.Datacenter).VmFolder)
	}
	for _, saved := range c.lastBackup.folders {
		inBackup[saved.state.Self] = true
	}
	for _, entry := range slices.Backward(current.folders) { // children before their parents
		if !inBackup[entry.state.Self] {
			removeFolder(ctx, entry.folder)
		}
	}
}

// discover adds the VMs that the last restore removed, like a vCenter that finds them on its hosts:
// with new references, in the folder for discovered VMs.
func (c *Control) discover(emptyRequest) (any, error) {
	ctx, refs := c.Inventory.context(), map[string]string{}
	for _, vm := range c.droppedVMs {
		host, ok := ctx.Map.Get(*vm.Runtime.Host).(*simulator.HostSystem)
		if !ok {
			continue // the host was removed with its VMs
		}
		ref, err := c.reattachVM(vm, host.Self, c.Inventory.poolOf(host), true)
		if err != nil {
			return nil, err
		}
		refs[vm.Name] = ref.Value
	}
	c.droppedVMs = nil
	return map[string]any{"vms": refs}, nil
}
