package main

import (
	"context"
	"slices"
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type added struct {
	Host string            `json:"host"`
	VMs  map[string]string `json:"vms"`
}

func TestARemovedHostTakesItsVMsAndComesBackWithNewReferences(t *testing.T) {
	for _, name := range []string{"DC0_C0_H0", "DC0_H0"} {
		s := startCloneRig(t, "--vms", "0")
		s.call("POST", "/create", params{
			"name":         "mine",
			"host":         name,
			"folder":       "vm-operator",
			"on":           true,
			"instanceUuid": "50030000-0000-4000-8000-00000000000a",
		}, nil)
		watch := watchFor(
			s.rig, s.client, "VirtualMachine", "name", "runtime.host", "runtime.powerState",
			"config.instanceUuid", "parent",
		)
		watch.next()
		before := watch.byName("mine")
		old := s.vm(s.client, "vm-operator/mine").Reference()
		s.call("POST", "/host/remove", params{"host": name}, nil)
		watch.until("the VM leaves", func() bool { return watch.byName("mine") == nil })
		if counts := s.counts(); counts.Folders["/DC0/vm/vm-operator"].Now != 0 {
			t.Errorf("counted %+v", counts.Folders)
		}
		var list []map[string]string
		s.call("GET", "/entities", nil, &list)
		for _, entity := range list {
			if entity["name"] == name {
				t.Errorf("%s is still there as %v", name, entity)
			}
		}
		var back added
		s.call("POST", "/host/add", params{"host": name}, &back)
		watch.until("the VM comes back", func() bool { return watch.byName("mine") != nil })
		after := watch.byName("mine")
		if back.VMs["mine"] == old.Value || back.VMs["mine"] == "" ||
			after["runtime.host"] == before["runtime.host"] {
			t.Errorf("it came back as %+v, on %v", back, after["runtime.host"])
		}
		if after["config.instanceUuid"] != before["config.instanceUuid"] ||
			after["parent"] != before["parent"] {
			t.Errorf("got %v and is %v", before, after)
		}
		if after["runtime.powerState"] != types.VirtualMachinePowerStatePoweredOn {
			t.Errorf("got %v", after["runtime.powerState"])
		}
		host := types.ManagedObjectReference{Type: "HostSystem", Value: back.Host}
		var esx mo.HostSystem
		if err := s.client.RetrieveOne(context.Background(), host, []string{
			"name", "vm", "parent",
		}, &esx); err != nil {
			t.Fatal(err)
		}
		mine := types.ManagedObjectReference{Type: "VirtualMachine", Value: back.VMs["mine"]}
		if esx.Name != name || !slices.Contains(esx.Vm, mine) {
			t.Errorf("the host is %s with %v", esx.Name, esx.Vm)
		}
		// It works as before.
		vm := s.vm(s.client, "vm-operator/mine")
		if err := waitForTask(vm.PowerOff(context.Background())); err != nil {
			t.Fatal(err)
		}
		if err := waitForTask(vm.Destroy(context.Background())); err != nil {
			t.Fatal(err)
		}
		if text := s.tryCall("POST", "/host/add", params{"host": name}, nil); text == "" {
			t.Error("a host was added twice")
		}
	}
}

func TestDiscoveredVMsAreInAFolderOfTheirOwn(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/create", params{
		"name": "mine", "host": "DC0_H0", "folder": "vm-operator",
	}, nil)
	s.call("POST", "/host/remove", params{"host": "DC0_H0"}, nil)
	s.call("POST", "/host/add", params{"host": "DC0_H0", "discovered": true}, nil)
	s.vm(s.client, discoveredFolder+"/mine")
}

func TestARestoreBringsBackTheInventoryOfTheBackup(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	kept, err := s.folder.CreateFolder(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	s.call("POST", "/create", params{"name": "old", "folder": "kept", "cpus": 3, "disks": 1}, nil)
	old := s.vmProperties("vm-operator/kept/old")
	s.call("POST", "/backup", nil, nil)

	if err := waitForTask(kept.Destroy(ctx)); err != nil {
		t.Fatal(err)
	}
	newVM := s.waitVM(s.clone("new", ownedBy("u1")))
	if _, err := s.folder.CreateFolder(ctx, "later"); err != nil {
		t.Fatal(err)
	}
	s.call("DELETE", "/ledger", nil, nil)
	s.call("POST", "/restore", params{}, nil)

	if live := s.sessions(); len(live.SOAP)+len(live.REST) != 0 {
		t.Errorf("a restored vCenter has sessions: %+v", live)
	}
	s.client = s.rig.client()
	back := s.vmProperties("vm-operator/kept/old")
	if back.Self != old.Self || back.Config.Hardware.NumCPU != 3 ||
		len(back.Config.Hardware.Device) != len(old.Config.Hardware.Device) {
		t.Errorf(
			"it came back as %s with %d CPUs and %d devices",
			back.Self,
			back.Config.Hardware.NumCPU,
			len(back.Config.Hardware.Device),
		)
	}
	expectFault[*types.ManagedObjectNotFound](
		t, s.client.RetrieveOne(ctx, newVM.Self, []string{"name"}, &mo.VirtualMachine{}),
	)
	var list []map[string]string
	s.call("GET", "/entities", nil, &list)
	for _, entity := range list {
		if entity["name"] == "later" || entity["name"] == "new" {
			t.Errorf("%v is there", entity)
		}
	}
	var manager mo.TaskManager
	if err := s.client.RetrieveOne(ctx, *s.client.ServiceContent.TaskManager, []string{
		"recentTask",
	}, &manager); err != nil || len(manager.RecentTask) != 0 {
		t.Errorf("tasks: %v, %v", manager.RecentTask, err)
	}
	if counts := s.counts(); counts.Owners["u1"].Now != 0 ||
		counts.Folders["/DC0/vm/vm-operator/kept"].Now != 1 {
		t.Errorf("counted %+v", counts)
	}

	var discovered added
	s.call("POST", "/discover", nil, &discovered)
	if discovered.VMs["new"] == "" || discovered.VMs["new"] == newVM.Self.Value {
		t.Errorf("discovered %v", discovered)
	}
	if markers := markersOf(
		s.vmProperties(discoveredFolder + "/new").Config.ExtraConfig,
	); markers[ownerKey] != "u1" {
		t.Errorf("got %v", markers)
	}
}

func TestAClonePendingAtARestoreFails(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/backup", nil, nil)
	s.holdClone("replica", 10)
	s.call("POST", "/restore", params{}, nil)
	s.call("POST", "/release", params{}, nil)
	eventually(t, "no clone runs", func() bool { return len(s.counts().Clones) == 0 })
	if counted := s.counts().Owners["u1"]; counted.Now != 0 {
		t.Errorf("counted %+v", counted)
	}
}
