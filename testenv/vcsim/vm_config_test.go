package main

import (
	"context"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

func (s *cloneRig) view(name string) VMView {
	s.Helper()
	var views []VMView
	s.call("GET", "/vms", nil, &views)
	for _, view := range views {
		if view.Name == name {
			return view
		}
	}
	s.Fatalf("there is no VM %s", name)
	return VMView{}
}

func TestCPUsAreAMultipleOfCoresPerSocket(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	s.call("POST", "/topology", params{"vm": "template", "cpus": 4, "coresPerSocket": 2}, nil)
	kept := s.waitVM(s.clone("kept", &types.VirtualMachineConfigSpec{NumCPUs: 6}))
	if cores := kept.Config.Hardware.NumCoresPerSocket; cores == nil || *cores != 2 {
		t.Errorf("the clone has %v cores per socket", cores)
	}
	expectFault[*types.InvalidArgument](
		t, s.clone("odd", &types.VirtualMachineConfigSpec{NumCPUs: 3}).Wait(ctx),
	)
	single := s.waitVM(s.clone(
		"own", &types.VirtualMachineConfigSpec{NumCPUs: 3, NumCoresPerSocket: types.NewInt32(1)},
	))
	if view := s.view("own"); view.CoresPerSocket != 1 || view.CPUs != 3 ||
		single.Config.Hardware.NumCPU != 3 {
		t.Errorf("the clone is %+v", view)
	}
	vm := s.vm(s.client, "vm-operator/kept")
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.InvalidArgument](
		t, waitForTask(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 5})),
	)
	if err := waitForTask(vm.Reconfigure(
		ctx, types.VirtualMachineConfigSpec{NumCPUs: 5, NumCoresPerSocket: types.NewInt32(1)},
	)); err != nil {
		t.Error(err)
	}
}

func TestProfilesOfACloneAreRecorded(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/profiles", params{"name": "gold", "id": "profile-gold"}, nil)
	s.call("POST", "/profiles", params{"name": "silver", "id": "profile-silver"}, nil)
	profile := func(id string) []types.BaseVirtualMachineProfileSpec {
		return []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{
			ProfileId: id,
		}}
	}
	disks := s.view("template").DiskKeys
	if len(disks) != 1 {
		t.Fatalf("the template has disks %v", disks)
	}
	datastore := s.vmProperties("template").Datastore[0]
	location := types.VirtualMachineRelocateSpec{
		Pool: &s.pool, Profile: profile("profile-gold"),
		Disk: []types.VirtualMachineRelocateSpecDiskLocator{{
			DiskId: disks[0], Datastore: datastore, Profile: profile("profile-silver"),
		}},
	}
	clone := func(name string, location types.VirtualMachineRelocateSpec) error {
		return waitForTask(s.template.Clone(
			context.Background(), s.folder, name, types.VirtualMachineCloneSpec{Location: location},
		))
	}
	if err := clone("both", location); err != nil {
		t.Fatal(err)
	}
	if profiles := s.view("both").Profiles; profiles.Home != "profile-gold" ||
		profiles.Disks[disks[0]] != "profile-silver" {
		t.Errorf("got %+v", profiles)
	}
	if err := clone("home", types.VirtualMachineRelocateSpec{
		Pool: &s.pool, Profile: profile("profile-gold"),
	}); err != nil {
		t.Fatal(err)
	}
	if profiles := s.view("home").Profiles; profiles.Home != "profile-gold" ||
		len(profiles.Disks) != 0 {
		t.Errorf("got %+v", profiles)
	}
	expectFault[*types.InvalidArgument](
		t,
		clone("none", types.VirtualMachineRelocateSpec{
			Pool: &s.pool, Profile: profile("profile-tin"),
		}),
	)
	location.Disk[0].Profile = profile("profile-tin")
	expectFault[*types.InvalidArgument](t, clone("none", location))
	var all []Profile
	s.call("GET", "/profiles", nil, &all)
	if len(all) < 3 {
		t.Errorf("there are %v", all)
	}
}

func TestAVAppConfigurationIsClonedUnlessRemoved(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	s.call("POST", "/vapp", params{
		"vm": "template", "properties": params{"hostname": "ova", "user-data": ""},
	}, nil)
	if vm := s.waitVM(s.clone("kept", nil)); vm.Config.VAppConfig == nil {
		t.Error("the clone has no vApp configuration")
	}
	if view := s.view("kept"); !view.HasVApp || view.VApp["hostname"] != "ova" {
		t.Errorf("got %+v", view)
	}
	removed := s.waitVM(s.clone(
		"removed", &types.VirtualMachineConfigSpec{VAppConfigRemoved: types.NewBool(true)},
	))
	if removed.Config.VAppConfig != nil || s.view("removed").HasVApp {
		t.Errorf("the clone has %+v", removed.Config.VAppConfig)
	}
	if err := waitForTask(s.vm(s.client, "vm-operator/kept").Reconfigure(
		ctx, types.VirtualMachineConfigSpec{VAppConfigRemoved: types.NewBool(true)},
	)); err != nil {
		t.Fatal(err)
	}
	if s.view("kept").HasVApp || !s.view("template").HasVApp {
		t.Error("it is not the VM's that was removed")
	}
}
