package main

import (
	"cmp"
	"errors"
	"maps"
	"sync"

	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmsimulator "github.com/vmware/govmomi/pbm/simulator"
	pbm "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Profiles records the storage profiles in clone specs, which the library ignores. In a real
// vCenter RelocateSpec.profile applies to the VM home directory only; each disk has its own profile
// in RelocateSpec.disk.
type Profiles struct {
	registry *simulator.Registry // of the storage policy service

	mu  sync.Mutex
	vms map[types.ManagedObjectReference]VMProfiles
}

// VMProfiles are the storage profile ids of one VM.
type VMProfiles struct {
	Home  string           `json:"home"`
	Disks map[int32]string `json:"disks"` // by the key of the disk
}

// Profile is a storage profile ("storage policy" in the vSphere Client).
type Profile struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// NewProfiles returns an empty set of records.
func NewProfiles() *Profiles {
	return &Profiles{vms: map[types.ManagedObjectReference]VMProfiles{}}
}

// record stores the profiles of a clone spec.
func (p *Profiles) record(vm types.ManagedObjectReference, spec *types.VirtualMachineRelocateSpec) {
	profiles := VMProfiles{Home: profileID(spec.Profile), Disks: map[int32]string{}}
	for _, disk := range spec.Disk {
		if id := profileID(disk.Profile); id != "" {
			profiles.Disks[disk.DiskId] = id
		}
	}
	for _, change := range spec.DeviceChange {
		device := change.GetVirtualDeviceConfigSpec()
		disk, ok := device.Device.(*types.VirtualDisk)
		if id := profileID(device.Profile); ok && id != "" {
			profiles.Disks[disk.Key] = id
		}
	}
	p.mu.Lock()
	p.vms[vm] = profiles
	p.mu.Unlock()
}

// of returns the profiles of a VM.
func (p *Profiles) of(vm types.ManagedObjectReference) VMProfiles {
	p.mu.Lock()
	defer p.mu.Unlock()
	profiles := p.vms[vm]
	return VMProfiles{Home: profiles.Home, Disks: maps.Clone(profiles.Disks)}
}

// rename moves the profiles of a VM to its new reference.
func (p *Profiles) rename(from, to types.ManagedObjectReference) {
	p.mu.Lock()
	p.vms[to] = p.vms[from]
	delete(p.vms, from)
	p.mu.Unlock()
}

// check returns InvalidArgument for an unknown profile id. The API reference names no fault; the
// storage policy service returns this one.
func (p *Profiles) check(spec *types.VirtualMachineRelocateSpec) types.BaseMethodFault {
	ids := []string{profileID(spec.Profile)}
	for _, disk := range spec.Disk {
		ids = append(ids, profileID(disk.Profile))
	}
	for _, change := range spec.DeviceChange {
		ids = append(ids, profileID(change.GetVirtualDeviceConfigSpec().Profile))
	}
	for _, id := range ids {
		if id != "" && p.find(id) == nil {
			return &types.InvalidArgument{InvalidProperty: "profileId"}
		}
	}
	return nil
}

func profileID(specs []types.BaseVirtualMachineProfileSpec) string {
	for _, spec := range specs {
		if defined, ok := spec.(*types.VirtualMachineDefinedProfileSpec); ok {
			return defined.ProfileId
		}
	}
	return ""
}

// find returns a profile, or nil.
func (p *Profiles) find(id string) *pbm.PbmProfile {
	var profile *pbm.PbmProfile
	p.manager(func(_ *simulator.Context, manager *pbmsimulator.ProfileManager) {
		req := &pbm.PbmRetrieveContent{ProfileIds: []pbm.PbmProfileId{{UniqueId: id}}}
		body := manager.PbmRetrieveContent(req).(*pbmmethods.PbmRetrieveContentBody)
		if body.Fault_ == nil {
			profile = body.Res.Returnval[0].GetPbmProfile()
		}
	})
	return profile
}

// List returns all profiles.
func (p *Profiles) List() []Profile {
	list := []Profile{}
	p.manager(func(_ *simulator.Context, manager *pbmsimulator.ProfileManager) {
		body := manager.PbmQueryProfileDetails(&pbm.PbmQueryProfileDetails{})
		for _, details := range body.(*pbmmethods.PbmQueryProfileDetailsBody).Res.Returnval {
			profile := details.Profile.GetPbmCapabilityProfile().PbmProfile
			list = append(list, Profile{ID: profile.ProfileId.UniqueId, Name: profile.Name})
		}
	})
	return list
}

// Create creates a profile; without an id it gets a random one.
func (p *Profiles) Create(profile Profile) (Profile, error) {
	if profile.Name == "" {
		return profile, errors.New("name is required")
	}
	if profile.ID != "" && p.find(profile.ID) != nil {
		return profile, errors.New("storage profile " + profile.ID + " already exists")
	}
	id := ""
	p.manager(func(ctx *simulator.Context, manager *pbmsimulator.ProfileManager) {
		spec := pbm.PbmCapabilityProfileCreateSpec{
			Name:         profile.Name,
			Category:     "REQUIREMENT",
			ResourceType: pbm.PbmProfileResourceType{ResourceType: "STORAGE"},
		}
		body := manager.PbmCreate(ctx, &pbm.PbmCreate{CreateSpec: spec})
		id = body.(*pbmmethods.PbmCreateBody).Res.Returnval.UniqueId
	})
	profile.ID = cmp.Or(profile.ID, id)
	p.find(id).ProfileId.UniqueId = profile.ID
	return profile, nil
}

// manager calls a function with the library's ProfileManager locked.
func (p *Profiles) manager(run func(*simulator.Context, *pbmsimulator.ProfileManager)) {
	if p.registry == nil {
		return // while the first inventory is created
	}
	for _, object := range p.registry.AllReference("") {
		if manager, ok := object.(*pbmsimulator.ProfileManager); ok {
			ctx := &simulator.Context{Map: p.registry, Session: &simulator.Session{}}
			ctx.WithLock(manager, func() { run(ctx, manager) })
		}
	}
}
