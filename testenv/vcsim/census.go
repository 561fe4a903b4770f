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

// markPrefix begins the extraConfig keys that an operator marks its VMs with; ownerMark names the object that owns a VM.
const (
	markPrefix = "vsphere-operators."
	ownerMark  = markPrefix + "uid"
)

// Census knows at every instant which VMs there are and which clones are under way, and how many there ever were at once. It is notified of
// each change while the library makes it, so it never has to wait for an object.
type Census struct {
	Self types.ManagedObjectReference
	ctx  *simulator.Context

	mu       sync.Mutex
	sequence int
	machines map[types.ManagedObjectReference]*Counted
	clones   map[types.ManagedObjectReference]*Counted // by task
	hidden   map[types.ManagedObjectReference]bool     // VMs of clones under way: counted as clones
	folders  map[types.ManagedObjectReference]*Peak
	owners   map[string]*Peak
}

// Counted is a VM, or a clone under way.
type Counted struct {
	Ref          string            `json:"ref"`
	Name         string            `json:"name"`
	Folder       string            `json:"folder"` // its path
	Power        string            `json:"power,omitempty"`
	InstanceUUID string            `json:"instanceUuid"`
	CPUs         int32             `json:"cpus"`
	MemoryMB     int64             `json:"memoryMB"`
	Template     bool              `json:"template,omitempty"`
	Cloning      bool              `json:"cloning,omitempty"` // of a VM: its clone task still runs
	Marks        map[string]string `json:"marks"`

	folder  types.ManagedObjectReference
	claimed bool // of a clone: the instanceUuid is certain, where two clones may ask for the same one
}

// Peak is how many VMs and clones there are, and the most there ever were at once.
type Peak struct {
	Now  int `json:"now"`
	Peak int `json:"peak"`

	path string // of a folder: the last known, as the folder may be gone
}

// Truth is everything at one instant.
type Truth struct {
	Sequence int             `json:"sequence"` // grows with each change
	Time     time.Time       `json:"time"`
	Machines []Counted       `json:"vms"`
	Clones   []Counted       `json:"clones"`
	Folders  map[string]Peak `json:"folders"` // by path: all VMs and clones in it
	Owners   map[string]Peak `json:"owners"`  // by the mark of the owner: wherever they are
}

// NewCensus listens to the registry, before there is any VM.
func NewCensus(ctx *simulator.Context) *Census {
	census := &Census{
		Self: types.ManagedObjectReference{Type: "Census", Value: "census"}, ctx: ctx,
		machines: map[types.ManagedObjectReference]*Counted{}, clones: map[types.ManagedObjectReference]*Counted{},
		hidden: map[types.ManagedObjectReference]bool{}, folders: map[types.ManagedObjectReference]*Peak{}, owners: map[string]*Peak{},
	}
	ctx.Map.AddHandler(census)
	return census
}

// Begin counts a clone that has started.
func (c *Census) Begin(task types.ManagedObjectReference, req *types.CloneVM_Task) {
	counted := &Counted{Ref: task.Value, Name: req.Name, Marks: map[string]string{}, folder: req.Folder}
	if spec := req.Spec.Config; spec != nil {
		counted.InstanceUUID, counted.CPUs, counted.MemoryMB = spec.InstanceUuid, spec.NumCPUs, spec.MemoryMB
		counted.Marks = marksOf(spec.ExtraConfig)
	}
	c.change(func() { c.put(c.clones, task, counted) })
}

// Hide keeps a clone's VM out until it is whole.
func (c *Census) Hide(vm types.ManagedObjectReference) {
	c.change(func() { c.hidden[vm] = true })
}

// Arrive turns a clone into a VM, in one step; its clone task may still run.
func (c *Census) Arrive(task types.ManagedObjectReference, vm *mo.VirtualMachine, cloning bool) {
	counted := countedOf(vm)
	counted.Cloning = cloning
	c.change(func() {
		c.take(c.clones, task)
		delete(c.hidden, vm.Self)
		c.put(c.machines, vm.Self, counted)
	})
}

// Finish notes that the clone task of a VM has ended.
func (c *Census) Finish(vm types.ManagedObjectReference) {
	c.change(func() {
		if counted := c.machines[vm]; counted != nil {
			counted.Cloning = false
		}
	})
}

// End drops a clone that made no VM.
func (c *Census) End(task types.ManagedObjectReference) {
	c.change(func() { c.take(c.clones, task) })
}

// Claim gives an instanceUuid to a clone, unless a VM or another clone has it.
func (c *Census) Claim(task types.ManagedObjectReference, uuid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, vm := range c.machines {
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

// Reference names the listener in the registry.
func (c *Census) Reference() types.ManagedObjectReference { return c.Self }

// PutObject does nothing: the caller that knows whether a new VM belongs to a clone calls See or Hide.
func (c *Census) PutObject(*simulator.Context, mo.Reference) {}

// UpdateObject counts a VM that changed. Without changes it is only a hint for watchers, given without the VM's lock; and the library
// changes VMs that are not there yet, and such as are gone.
func (c *Census) UpdateObject(_ *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok || len(changes) == 0 || vm.Parent == nil {
		return
	}
	counted := countedOf(vm)
	c.change(func() {
		if before := c.machines[vm.Self]; before != nil {
			counted.Cloning = before.Cloning
			c.put(c.machines, vm.Self, counted)
		}
	})
}

// RemoveObject drops a VM.
func (c *Census) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	if ref.Type == "VirtualMachine" {
		c.change(func() {
			c.take(c.machines, ref)
			delete(c.hidden, ref)
		})
	}
}

// See counts a VM that comes or moves; its lock is held.
func (c *Census) See(vm *mo.VirtualMachine) {
	counted := countedOf(vm)
	c.change(func() {
		if !c.hidden[vm.Self] {
			c.put(c.machines, vm.Self, counted)
		}
	})
}

func (c *Census) change(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	apply()
}

// put counts one in place of what had its reference. It goes before the other comes: a VM that moves is never counted twice.
func (c *Census) put(set map[types.ManagedObjectReference]*Counted, ref types.ManagedObjectReference, counted *Counted) {
	c.take(set, ref)
	set[ref] = counted
	c.count(counted, 1)
}

func (c *Census) take(set map[types.ManagedObjectReference]*Counted, ref types.ManagedObjectReference) {
	if counted := set[ref]; counted != nil {
		delete(set, ref)
		c.count(counted, -1)
	}
}

func (c *Census) count(counted *Counted, step int) {
	raise(c.folders, counted.folder, step)
	if owner := counted.Marks[ownerMark]; owner != "" {
		raise(c.owners, owner, step)
	}
}

func raise[K comparable](peaks map[K]*Peak, key K, step int) {
	if peaks[key] == nil {
		peaks[key] = &Peak{}
	}
	peak := peaks[key]
	peak.Now += step
	peak.Peak = max(peak.Peak, peak.Now)
}

// Reset lets the peaks begin at what is now.
func (c *Census) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	forget(c.folders)
	forget(c.owners)
}

func forget[K comparable](peaks map[K]*Peak) {
	for key, peak := range peaks {
		if peak.Peak = peak.Now; peak.Now == 0 {
			delete(peaks, key)
		}
	}
}

// Truth is a copy of all.
func (c *Census) Truth() Truth {
	c.mu.Lock()
	defer c.mu.Unlock()
	truth := Truth{Sequence: c.sequence, Time: time.Now(), Folders: map[string]Peak{}, Owners: map[string]Peak{}}
	for ref, peak := range c.folders {
		if folder, ok := c.ctx.Map.Get(ref).(mo.Entity); ok {
			peak.path = pathOf(c.ctx, folder)
		}
		truth.Folders[cmp.Or(peak.path, ref.Value)] = *peak
	}
	for owner, peak := range c.owners {
		truth.Owners[owner] = *peak
	}
	truth.Machines, truth.Clones = c.list(c.machines), c.list(c.clones)
	return truth
}

func (c *Census) list(set map[types.ManagedObjectReference]*Counted) []Counted {
	list := []Counted{}
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

func countedOf(vm *mo.VirtualMachine) *Counted {
	return &Counted{
		Ref: vm.Self.Value, Name: vm.Name, Power: string(vm.Runtime.PowerState), InstanceUUID: vm.Config.InstanceUuid,
		CPUs: vm.Config.Hardware.NumCPU, MemoryMB: int64(vm.Config.Hardware.MemoryMB), Template: vm.Config.Template,
		Marks: marksOf(vm.Config.ExtraConfig), folder: *vm.Parent,
	}
}

func marksOf(options []types.BaseOptionValue) map[string]string {
	marks := map[string]string{}
	for _, option := range options {
		if value := option.GetOptionValue(); strings.HasPrefix(value.Key, markPrefix) {
			marks[value.Key] = text(value.Value)
		}
	}
	return marks
}
