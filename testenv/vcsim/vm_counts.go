package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// markerPrefix is the prefix of the extraConfig keys that the operators set on their VMs; ownerKey
// has the uid of the owner.
const (
	markerPrefix = "vsphere-operators."
	ownerKey     = markerPrefix + "uid"
)

// VMCounter counts VMs and running clones, and the maximum at any instant. The registry notifies it
// during each change, so it never waits for the lock of an object.
type VMCounter struct {
	Self types.ManagedObjectReference
	ctx  *simulator.Context

	mu       sync.Mutex
	sequence int
	vms      map[types.ManagedObjectReference]*CountedVM
	clones   map[types.ManagedObjectReference]*CountedVM // by task
	// hidden has the VMs of running clones, which are counted as clones.
	hidden  map[types.ManagedObjectReference]bool
	folders map[types.ManagedObjectReference]*Count
	owners  map[string]*Count
}

// CountedVM is a VM or a running clone.
type CountedVM struct {
	Ref          string `json:"ref"`
	Name         string `json:"name"`
	Folder       string `json:"folder"` // its path
	Power        string `json:"power,omitempty"`
	InstanceUUID string `json:"instanceUuid"`
	CPUs         int32  `json:"cpus"`
	MemoryMB     int64  `json:"memoryMB"`
	Template     bool   `json:"template,omitempty"`
	// Cloning is set while the clone task of a VM runs.
	Cloning bool              `json:"cloning,omitempty"`
	Markers map[string]string `json:"marks"`

	folder types.ManagedObjectReference
	// claimed is set if a clone owns its instanceUuid, which several clones may request.
	claimed bool
}

// Count is the number of VMs and clones, and its maximum since the last reset.
type Count struct {
	Now  int `json:"now"`
	Peak int `json:"peak"`

	path string // only of a folder: its last path, as it may no longer exist
}

// VMCounts are all VMs, clones and counts at one instant.
type VMCounts struct {
	Sequence int              `json:"sequence"` // increases with each change
	Time     time.Time        `json:"time"`
	VMs      []CountedVM      `json:"vms"`
	Clones   []CountedVM      `json:"clones"`
	Folders  map[string]Count `json:"folders"` // by path: all VMs and clones in a folder
	Owners   map[string]Count `json:"owners"`  // by uid of the owner, in any folder
}

// NewVMCounter registers for changes in the registry. It must be called before VMs exist.
func NewVMCounter(ctx *simulator.Context) *VMCounter {
	counter := &VMCounter{
		Self: types.ManagedObjectReference{Type: "VMCounter", Value: "vmCounter"}, ctx: ctx,
		vms:     map[types.ManagedObjectReference]*CountedVM{},
		clones:  map[types.ManagedObjectReference]*CountedVM{},
		hidden:  map[types.ManagedObjectReference]bool{},
		folders: map[types.ManagedObjectReference]*Count{},
		owners:  map[string]*Count{},
	}
	ctx.Map.AddHandler(counter)
	return counter
}

// BeginClone counts a started clone.
func (c *VMCounter) BeginClone(task types.ManagedObjectReference, req *types.CloneVM_Task) {
	counted := &CountedVM{
		Ref: task.Value, Name: req.Name, Markers: map[string]string{}, folder: req.Folder,
	}
	if spec := req.Spec.Config; spec != nil {
		counted.InstanceUUID = spec.InstanceUuid
		counted.CPUs, counted.MemoryMB = spec.NumCPUs, spec.MemoryMB
		counted.Markers = markersOf(spec.ExtraConfig)
	}
	c.change(func() { c.set(c.clones, task, counted) })
}

// HideVM excludes the VM of a clone until it is complete.
func (c *VMCounter) HideVM(vm types.ManagedObjectReference) {
	c.change(func() { c.hidden[vm] = true })
}

// ShowVM replaces a clone by its VM in one step; the clone task may still run.
func (c *VMCounter) ShowVM(task types.ManagedObjectReference, vm *mo.VirtualMachine, cloning bool) {
	counted := newCountedVM(vm)
	counted.Cloning = cloning
	c.change(func() {
		c.remove(c.clones, task)
		delete(c.hidden, vm.Self)
		c.set(c.vms, vm.Self, counted)
	})
}

// FinishClone records the end of the clone task of a VM.
func (c *VMCounter) FinishClone(vm types.ManagedObjectReference) {
	c.change(func() {
		if counted := c.vms[vm]; counted != nil {
			counted.Cloning = false
		}
	})
}

// EndClone removes a clone that created no VM.
func (c *VMCounter) EndClone(task types.ManagedObjectReference) {
	c.change(func() { c.remove(c.clones, task) })
}

// ClaimUUID assigns an instanceUuid to a clone, unless a VM or another clone has it.
func (c *VMCounter) ClaimUUID(task types.ManagedObjectReference, uuid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, vm := range c.vms {
		if strings.EqualFold(vm.InstanceUUID, uuid) {
			return false
		}
	}
	for other, clone := range c.clones {
		if other != task && clone.claimed && strings.EqualFold(clone.InstanceUUID, uuid) {
			return false
		}
	}
	if clone := c.clones[task]; clone != nil {
		clone.InstanceUUID, clone.claimed = uuid, true
	}
	return true
}

// Reference implements mo.Reference.
func (c *VMCounter) Reference() types.ManagedObjectReference { return c.Self }

// PutObject does nothing: Tasks calls AddVM or HideVM, as it knows whether a new VM belongs to a
// clone.
func (c *VMCounter) PutObject(*simulator.Context, mo.Reference) {}

// UpdateObject updates a changed VM. It ignores calls without changes, which are made without the
// lock of the VM, and VMs that the library changes before it adds or after it removes them.
func (c *VMCounter) UpdateObject(
	_ *simulator.Context, object mo.Reference, changes []types.PropertyChange,
) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok || len(changes) == 0 || vm.Parent == nil {
		return
	}
	counted := newCountedVM(vm)
	c.change(func() {
		if before := c.vms[vm.Self]; before != nil {
			counted.Cloning = before.Cloning
			c.set(c.vms, vm.Self, counted)
		}
	})
}

// RemoveObject removes a VM.
func (c *VMCounter) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	if ref.Type == "VirtualMachine" {
		c.change(func() {
			c.remove(c.vms, ref)
			delete(c.hidden, ref)
		})
	}
}

// AddVM counts a new or moved VM. The caller holds its lock.
func (c *VMCounter) AddVM(vm *mo.VirtualMachine) {
	counted := newCountedVM(vm)
	c.change(func() {
		if !c.hidden[vm.Self] {
			c.set(c.vms, vm.Self, counted)
		}
	})
}

func (c *VMCounter) change(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	apply()
}

// set replaces the entry of a reference. It removes the previous entry first, so that a moved VM is
// never counted twice.
func (c *VMCounter) set(
	set map[types.ManagedObjectReference]*CountedVM,
	ref types.ManagedObjectReference,
	counted *CountedVM,
) {
	c.remove(set, ref)
	set[ref] = counted
	c.count(counted, 1)
}

func (c *VMCounter) remove(
	set map[types.ManagedObjectReference]*CountedVM, ref types.ManagedObjectReference,
) {
	if counted := set[ref]; counted != nil {
		delete(set, ref)
		c.count(counted, -1)
	}
}

func (c *VMCounter) count(counted *CountedVM, step int) {
	addCount(c.folders, counted.folder, step)
	if owner := counted.Markers[ownerKey]; owner != "" {
		addCount(c.owners, owner, step)
	}
}

func addCount[K comparable](peaks map[K]*Count, key K, step int) {
	if peaks[key] == nil {
		peaks[key] = &Count{}
	}
	peak := peaks[key]
	peak.Now += step
	peak.Peak = max(peak.Peak, peak.Now)
}

// ResetPeaks sets the maximum values to the current ones.
func (c *VMCounter) ResetPeaks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	resetPeaks(c.folders)
	resetPeaks(c.owners)
}

func resetPeaks[K comparable](peaks map[K]*Count) {
	for key, peak := range peaks {
		if peak.Peak = peak.Now; peak.Now == 0 {
			delete(peaks, key)
		}
	}
}

// Counts returns a copy of all counts.
func (c *VMCounter) Counts() VMCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := VMCounts{
		Sequence: c.sequence,
		Time:     time.Now(),
		Folders:  map[string]Count{},
		Owners:   map[string]Count{},
	}
	for ref, peak := range c.folders {
		if folder, ok := c.ctx.Map.Get(ref).(mo.Entity); ok {
			peak.path = pathOf(c.ctx, folder)
		}
		counts.Folders[cmp.Or(peak.path, ref.Value)] = *peak
	}
	for owner, peak := range c.owners {
		counts.Owners[owner] = *peak
	}
	counts.VMs, counts.Clones = c.list(c.vms), c.list(c.clones)
	return counts
}

func (c *VMCounter) list(set map[types.ManagedObjectReference]*CountedVM) []CountedVM {
	list := []CountedVM{}
	for _, ref := range slices.SortedFunc(maps.Keys(set), byReference) {
		counted := *set[ref]
		counted.Folder = counted.folder.Value
		if peak := c.folders[counted.folder]; peak != nil && peak.path != "" {
			counted.Folder = peak.path
		}
		list = append(list, counted)
	}
	return list
}

func newCountedVM(vm *mo.VirtualMachine) *CountedVM {
	return &CountedVM{
		Ref:          vm.Self.Value,
		Name:         vm.Name,
		Power:        string(vm.Runtime.PowerState),
		InstanceUUID: vm.Config.InstanceUuid,
		CPUs:         vm.Config.Hardware.NumCPU,
		MemoryMB:     int64(vm.Config.Hardware.MemoryMB),
		Template:     vm.Config.Template,
		Markers:      markersOf(vm.Config.ExtraConfig), folder: *vm.Parent,
	}
}

func markersOf(options []types.BaseOptionValue) map[string]string {
	markers := map[string]string{}
	for _, option := range options {
		if value := option.GetOptionValue(); strings.HasPrefix(value.Key, markerPrefix) {
			markers[value.Key] = asString(value.Value)
		}
	}
	return markers
}
