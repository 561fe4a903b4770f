package main

import (
	"context"
	"slices"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// missing returns the privilege and object of NoPermission, or "" if the call succeeded.
func missing(t *testing.T, err error) (string, types.ManagedObjectReference) {
	t.Helper()
	var denied *types.NoPermission
	if _, ok := fault.As(err, &denied); ok {
		if denied.Object == nil {
			t.Fatalf("NoPermission for %s names no object", denied.PrivilegeId)
		}
		return denied.PrivilegeId, *denied.Object
	}
	if err != nil {
		t.Fatal(err)
	}
	return "", types.ManagedObjectReference{}
}

func (s *cloneRig) operator(privileges ...string) *govmomi.Client {
	s.Helper()
	s.call("POST", "/permissions", params{"user": "operator", "privileges": privileges}, nil)
	client, err := s.login("operator", "secret")
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// fullClone clones with all arguments that the operators use.
func (s *cloneRig) fullClone(client *govmomi.Client, name, profile string) error {
	config := ownedBy("u1")
	config.NumCPUs, config.MemoryMB = 2, 2048
	config.InstanceUuid = "50030000-0000-4000-8000-00000000000a"
	spec := types.VirtualMachineCloneSpec{
		PowerOn:  true,
		Config:   config,
		Location: types.VirtualMachineRelocateSpec{Pool: &s.pool},
	}
	if profile != "" {
		spec.Location.Profile = []types.BaseVirtualMachineProfileSpec{
			&types.VirtualMachineDefinedProfileSpec{ProfileId: profile},
		}
	}
	template := object.NewVirtualMachine(client.Client, s.template.Reference())
	return waitForTask(template.Clone(
		context.Background(), object.NewFolder(client.Client, s.folder.Reference()), name, spec,
	))
}

func TestACloneNeedsEachOfItsPrivileges(t *testing.T) {
	s := startCloneRig(t, "--account", "operator:secret")
	var gold Profile
	s.call("POST", "/profiles", params{"name": "gold"}, &gold)
	needed := map[string]string{
		"VirtualMachine.Provisioning.DeployTemplate":  "VirtualMachine",
		"VirtualMachine.Inventory.CreateFromExisting": "Folder",
		"VirtualMachine.Config.AddNewDisk":            "Folder",
		"VirtualMachine.Config.CPUCount":              "Folder",
		"VirtualMachine.Config.Memory":                "Folder",
		"VirtualMachine.Config.AdvancedConfig":        "Folder",
		"VirtualMachine.Config.Settings":              "Folder",
		"VirtualMachine.Interact.PowerOn":             "Folder",
		"Datastore.AllocateSpace":                     "Datastore",
		"Resource.AssignVMToPool":                     "ResourcePool",
		"Network.Assign":                              "Network",
		"StorageProfile.View":                         "Folder",
	}
	var all []string
	for privilege := range needed {
		all = append(all, privilege)
	}
	client := s.operator(all...)
	for privilege, kind := range needed {
		rest := slices.DeleteFunc(slices.Clone(all), func(other string) bool {
			return other == privilege
		})
		s.call("POST", "/permissions", params{"user": "operator", "privileges": rest}, nil)
		missingPrivilege, on := missing(t, s.fullClone(client, "denied", gold.ID))
		if missingPrivilege != privilege || on.Type != kind {
			t.Errorf("without %s it says %q on %s", privilege, missingPrivilege, on.Type)
		}
	}
	s.call("POST", "/permissions", params{"user": "operator", "privileges": all}, nil)
	if err := s.fullClone(client, "allowed", gold.ID); err != nil {
		t.Error("with all of them:", err)
	}
	var ledger []LedgerEntry
	s.call("GET", "/ledger", nil, &ledger)
	if refused := ledger[0].Refused; refused != "NoPermission" {
		t.Errorf("the ledger has %q", refused)
	}
	if err := s.fullClone(s.client, "administrator", ""); err != nil {
		t.Error("the other account may do everything:", err)
	}
}

func TestOtherCallsNeedTheirPrivileges(t *testing.T) {
	s, ctx := startCloneRig(t, "--account", "operator:secret"), context.Background()
	s.call("POST", "/create", params{"name": "mine", "folder": "vm-operator"}, nil)
	client := s.operator("Global.LogEvent")
	vm := object.NewVirtualMachine(client.Client, s.vm(s.client, "vm-operator/mine").Reference())
	folder := object.NewFolder(client.Client, s.folder.Reference())
	attempts := []struct {
		privilege string
		attempt   func() error
	}{
		{"VirtualMachine.Interact.PowerOn", func() error { return waitForTask(vm.PowerOn(ctx)) }},
		{"VirtualMachine.Interact.Suspend", func() error { return waitForTask(vm.Suspend(ctx)) }},
		{"VirtualMachine.Interact.PowerOff", func() error { return waitForTask(vm.PowerOff(ctx)) }},
		{"VirtualMachine.Config.CPUCount", func() error {
			return waitForTask(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2}))
		}},
		{"VirtualMachine.Config.Rename", func() error {
			return waitForTask(vm.Rename(ctx, "renamed"))
		}},
		{"VirtualMachine.Inventory.Delete", func() error { return waitForTask(vm.Destroy(ctx)) }},
		{"Folder.Create", func() error { _, err := folder.CreateFolder(ctx, "sub"); return err }},
		{"Folder.Delete", func() error { return s.unregister(client.Client, folder.Reference()) }},
		{"vcsim.NotInTheTable.ExportVm", func() error { _, err := vm.Export(ctx); return err }},
	}
	for _, testCase := range attempts {
		missingPrivilege, _ := missing(t, testCase.attempt())
		if missingPrivilege != testCase.privilege {
			t.Errorf("got error %q, and not %s", missingPrivilege, testCase.privilege)
		}
	}
}

func TestPermissionsPropagateAndAreReplacedBelow(t *testing.T) {
	s := startCloneRig(t, "--account", "operator:secret")
	const power = "VirtualMachine.Interact.PowerOn"
	s.call("POST", "/create", params{"name": "mine", "folder": "vm-operator"}, nil)
	client := s.operator("Global.LogEvent")
	vm := s.vm(s.client, "vm-operator/mine").Reference()
	has := func() bool {
		session, err := client.SessionManager.UserSession(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		req := &types.HasPrivilegeOnEntities{
			This:      *client.ServiceContent.AuthorizationManager,
			Entity:    []types.ManagedObjectReference{vm},
			SessionId: session.Key, PrivId: []string{power, "System.Read"},
		}
		res, err := methods.HasPrivilegeOnEntities(context.Background(), client.Client, req)
		if err != nil {
			t.Fatal(err)
		}
		if !res.Returnval[0].PrivAvailability[1].IsGranted {
			t.Error("it cannot read")
		}
		return res.Returnval[0].PrivAvailability[0].IsGranted
	}
	steps := []struct {
		permission params
		granted    bool
	}{
		{params{"of": "", "privileges": []string{power}}, true},
		{params{"of": "", "privileges": []string{"Global.LogEvent"}}, false},
		{params{"of": "vm-operator", "privileges": []string{power}, "propagate": false}, false},
		{params{"of": "vm-operator", "privileges": []string{power}}, true},
		{params{"of": "mine", "privileges": []string{"Global.LogEvent"}}, false},
		{params{"of": "mine", "remove": true}, true},
		{params{"of": "vm-operator", "remove": true}, false},
		// a VM inherits from its pool too
		{params{"of": "/DC0/host/DC0_C0/Resources", "privileges": []string{power}}, true},
	}
	for number, step := range steps {
		step.permission["user"] = "operator"
		s.call("POST", "/permissions", step.permission, nil)
		if number == len(steps)-1 {
			s.call("POST", "/move", params{"vm": "mine", "host": "DC0_C0_H0"}, nil)
		}
		if granted := has(); granted != step.granted {
			t.Errorf("step %d, %v: %v", number, step.permission, granted)
		}
	}
	s.call("DELETE", "/permissions", nil, nil)
	if !has() {
		t.Error("without permissions an account may do everything")
	}
	if text := s.tryCall("POST", "/permissions", params{
		"user": "operator", "privileges": []string{"Virtualmachine.Poweron"},
	}, nil); text == "" {
		t.Error("a privilege that does not exist was accepted")
	}
}

func TestWithoutAccessNothingIsSeen(t *testing.T) {
	s, ctx := startCloneRig(t, "--account", "operator:secret"), context.Background()
	client := s.operator()
	manager := view.NewManager(client.Client)
	create := func() error {
		_, err := manager.CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{
			"VirtualMachine",
		}, true)
		return err
	}
	if missingPrivilege, _ := missing(t, create()); missingPrivilege != "System.View" {
		t.Errorf("got error %q", missingPrivilege)
	}
	// A permission on a folder makes the folders above it visible, and nothing else.
	s.call("POST", "/create", params{"name": "mine", "folder": "vm-operator"}, nil)
	s.call("POST", "/permissions", params{
		"user": "operator", "of": "vm-operator", "privileges": []string{"Folder.Create"},
	}, nil)
	if err := create(); err != nil {
		t.Fatal(err)
	}
	watch := watchFor(s.rig, client, "VirtualMachine", "name")
	watch.next()
	if len(watch.objects) != 1 || watch.byName("mine") == nil {
		t.Errorf("got %v", watch.objects)
	}
}

func TestAVMWithoutPermissionLeavesAndEnters(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	s.call("POST", "/create", params{"name": "mine", "folder": "vm-operator"}, nil)
	vm := s.vm(s.client, "vm-operator/mine").Reference()
	watch := watchFor(s.rig, s.client, "VirtualMachine", "name")
	watch.next()
	s.call("POST", "/permissions", params{
		"user": "user", "of": "mine", "privileges": []string{},
	}, nil)
	watch.until("the VM leaves", func() bool { return watch.byName("mine") == nil })
	if watch.kinds[types.ObjectUpdateKindLeave] != 1 {
		t.Errorf("received %v", watch.kinds)
	}
	if children := s.inFolder(); len(children) != 0 {
		t.Errorf("the folder shows %v", children)
	}
	err := s.client.RetrieveOne(ctx, vm, []string{"name"}, &mo.VirtualMachine{})
	if missingPrivilege, _ := missing(t, err); missingPrivilege != "System.Read" {
		t.Errorf("got error %q", missingPrivilege)
	}
	if counts := s.counts(); counts.Folders["/DC0/vm/vm-operator"].Now != 1 {
		t.Errorf("the VM still exists: %+v", counts.Folders)
	}
	newWatch := watchFor(s.rig, s.rig.client(), "VirtualMachine", "name")
	newWatch.next()
	if newWatch.byName("mine") != nil || newWatch.byName("template") == nil {
		t.Errorf("a new session sees %v", newWatch.objects)
	}
	s.call("POST", "/permissions", params{"user": "user", "of": "mine", "remove": true}, nil)
	watch.until("the VM enters", func() bool { return watch.byName("mine") != nil })
	if children := s.inFolder(); len(children) != 1 || children[0] != vm {
		t.Errorf("the folder shows %v", children)
	}
}
