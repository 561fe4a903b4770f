package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// files returns the files in all datastores that match a pattern.
func (r *rig) files(pattern string) []string {
	r.Helper()
	var matches []string
	err := filepath.WalkDir(r.server.folder, func(path string, _ os.DirEntry, err error) error {
		if matched, _ := filepath.Match(pattern, filepath.Base(path)); matched {
			matches = append(matches, path)
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return matches
}

func (r *rig) unregister(client *vim25.Client, folder types.ManagedObjectReference) error {
	res, err := methods.UnregisterAndDestroy_Task(
		context.Background(), client, &types.UnregisterAndDestroy_Task{This: folder},
	)
	if err != nil {
		return err
	}
	return object.NewTask(client, res.Returnval).Wait(context.Background())
}

func TestUnregisterAndDestroyKeepsTheFiles(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	if _, err := s.folder.CreateFolder(ctx, "inner"); err != nil {
		t.Fatal(err)
	}
	s.call("POST", "/create", params{"name": "child", "folder": "inner", "disks": 1}, nil)
	s.call("POST", "/create", params{"name": "runs", "folder": "vm-operator", "on": true}, nil)
	folder := s.folder.Reference()
	expectFault[*types.InvalidPowerState](t, s.unregister(s.client.Client, folder))
	s.call("POST", "/power", params{"vm": "runs", "on": false}, nil)
	if err := s.unregister(s.client.Client, folder); err != nil {
		t.Fatal(err)
	}
	expectFault[*types.ManagedObjectNotFound](
		t, s.client.RetrieveOne(ctx, folder, []string{"name"}, &mo.Folder{}),
	)
	var matches []map[string]string
	s.call("GET", "/entities", nil, &matches)
	for _, entity := range matches {
		if entity["name"] == "child" || entity["name"] == "runs" || entity["name"] == "inner" {
			t.Errorf("%v is still there", entity)
		}
	}
	if files := s.files("child.vmx"); len(files) != 1 {
		t.Errorf("the files of the VM: %v", files)
	}
	if disks := s.files("child*.vmdk"); len(disks) == 0 {
		t.Error("the disk is gone")
	}
	for _, vm := range s.counts().VMs {
		if vm.Name == "child" || vm.Name == "runs" {
			t.Errorf("still counted: %+v", vm)
		}
	}
}

func TestDestroyDeletesTheFiles(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/create", params{"name": "child", "folder": "vm-operator", "disks": 1}, nil)
	if len(s.files("child.vmx")) != 1 {
		t.Fatal("there is no VM")
	}
	if err := waitForTask(s.folder.Destroy(context.Background())); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the files are deleted", func() bool { return len(s.files("child.vmx")) == 0 })
}

func TestOnlyFoldersForVMsAreUnregistered(t *testing.T) {
	s := startCloneRig(t)
	var datacenter mo.Datacenter
	var list []map[string]string
	s.call("GET", "/entities", nil, &list)
	for _, entity := range list {
		if entity["path"] == "/DC0" {
			ref := types.ManagedObjectReference{Type: "Datacenter", Value: entity["ref"]}
			if err := s.client.RetrieveOne(
				context.Background(), ref, []string{"vmFolder", "hostFolder"}, &datacenter,
			); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectFault[*types.NotSupported](t, s.unregister(s.client.Client, datacenter.VmFolder))
	expectFault[*types.NotSupported](t, s.unregister(s.client.Client, datacenter.HostFolder))
}
