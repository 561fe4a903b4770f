package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
)

func TestInventoryMatchesFlags(t *testing.T) {
	rig := start(
		t, "--datacenters", "2",
		"--host-name", "esxi-dell-e.rainpole.com", "--host-pattern", "esxi-%04d.rainpole.com",
		"--node", "tkg-worker-1=4203a0b5-0000-4000-8000-000000000001",
		"--template", "vm-operator-template", "--folder", "vm-operator",
		"--gpu-host", "esxi-dell-e.rainpole.com", "--gpu-vm", "tkg-worker-1=vgpu",
		"--without-tools", "DC0_H0_VM0", "--powered-off", "DC0_H0_VM1",
	)
	client, ctx := rig.client(), context.Background()
	host, err := find.NewFinder(client.Client).HostSystem(
		ctx, "/DC0/host/esxi-dell-e.rainpole.com/*",
	)
	if err != nil {
		t.Fatal(err)
	}
	var esx mo.HostSystem
	if err := client.RetrieveOne(ctx, host.Reference(), []string{
		"config.graphicsInfo", "config.sharedPassthruGpuTypes", "summary.quickStats",
	}, &esx); err != nil {
		t.Fatal(err)
	}
	if len(esx.Config.GraphicsInfo) != 2 || len(esx.Config.SharedPassthruGpuTypes) == 0 ||
		esx.Summary.QuickStats.OverallCpuUsage == 0 {
		t.Errorf("the host has %+v", esx.Config.GraphicsInfo)
	}
	var node mo.VirtualMachine
	if err := client.RetrieveOne(ctx, rig.vm(client, "tkg-worker-1").Reference(), []string{
		"config", "guest", "summary",
	}, &node); err != nil {
		t.Fatal(err)
	}
	gpu := slices.ContainsFunc(node.Config.Hardware.Device, func(
		device types.BaseVirtualDevice,
	) bool {
		_, ok := device.GetVirtualDevice().Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo)
		return ok
	})
	if node.Config.Uuid != "4203a0b5-0000-4000-8000-000000000001" || !gpu ||
		node.Guest.IpAddress == "" {
		t.Errorf("the node is %s, GPU %v, %q", node.Config.Uuid, gpu, node.Guest.IpAddress)
	}
	for datacenter := range strings.SplitSeq("DC0 DC1", " ") {
		if _, err := find.NewFinder(client.Client).Folder(
			ctx, "/"+datacenter+"/vm/vm-operator",
		); err != nil {
			t.Error(err)
		}
		template, err := find.NewFinder(client.Client).VirtualMachine(
			ctx, "/"+datacenter+"/vm/vm-operator-template",
		)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := template.IsTemplate(ctx); err != nil || !is {
			t.Errorf("template: %v, %v", is, err)
		}
	}
	state, _ := rig.vm(client, "DC0_H0_VM1").PowerState(ctx)
	if state != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("the VM is %s", state)
	}
}

func TestCountersAndLedger(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	vm := rig.vm(client, "DC0_H0_VM0")
	rig.call("DELETE", "/calls", nil, nil)
	rig.call("DELETE", "/ledger", nil, nil)
	if _, err := methods.GetCurrentTime(ctx, client.Client); err != nil {
		t.Fatal(err)
	}
	if err := waitForTask(vm.PowerOff(ctx)); err != nil {
		t.Fatal(err)
	}
	rig.call("POST", "/power", params{"vm": "DC0_H0_VM0", "on": true}, nil)
	var counts map[string]int
	rig.call("GET", "/calls", nil, &counts)
	if counts["CurrentTime"] != 1 || counts["PowerOffVM_Task"] != 1 ||
		counts["PowerOnVM_Task"] != 0 {
		t.Errorf("counted %v", counts)
	}
	var ledger []LedgerEntry
	rig.call("GET", "/ledger", nil, &ledger)
	if len(ledger) != 1 || ledger[0].Method != "PowerOffVM_Task" ||
		ledger[0].Name != "DC0_H0_VM0" || ledger[0].User != "user" {
		t.Errorf("the ledger: %+v", ledger)
	}
}

func TestFirstClassDisks(t *testing.T) {
	rig := start(
		t,
		"--fcds",
		"3",
		"--fcd",
		"pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43=7d0a1d4c-0000-4000-8000-000000000001",
		"--datastores",
		"2",
	)
	client, ctx := rig.client(), context.Background()
	rig.call("POST", "/fcds", params{
		"name": "pvc-late", "sizeMB": 20, "datastore": "LocalDS_1",
	}, nil)
	rig.call("POST", "/fcds/attach", params{"disk": "pvc-late", "vm": "DC0_H0_VM0"}, nil)
	manager, names := vslm.NewObjectManager(client.Client), []string{}
	stores, err := find.NewFinder(client.Client).DatastoreList(ctx, "/DC0/datastore/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range stores {
		ids, err := manager.List(ctx, store)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			disk, err := manager.Retrieve(ctx, store, id.Id)
			if err != nil {
				t.Fatal(err)
			}
			if disk.Config.Name == "pvc-late" &&
				(disk.Config.CapacityInMB != 20 || len(disk.Config.ConsumerId) != 1) {
				t.Errorf("pvc-late is %+v", disk.Config)
			}
			if id.Id == "7d0a1d4c-0000-4000-8000-000000000001" &&
				disk.Config.Name != "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43" {
				t.Errorf("%s is called %s", id.Id, disk.Config.Name)
			}
			names = append(names, disk.Config.Name)
		}
	}
	if len(names) != 5 {
		t.Errorf("disks: %v", names)
	}
	rig.call("POST", "/fcds/delete", params{"disk": "pvc-late"}, nil)
	var left []DiskView
	rig.call("GET", "/fcds", nil, &left)
	if len(left) != 4 {
		t.Errorf("left: %v", left)
	}
}

func TestTagsAndAttributes(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	rig.call("POST", "/tag", params{"of": "DC0_H0", "category": "zone", "tag": "a"}, nil)
	rig.call("POST", "/tag", params{"of": "DC0_H0", "category": "zone", "tag": "b"}, nil)
	rig.call("POST", "/tag", params{
		"of": "DC0_H0", "category": "zone", "tag": "b", "detach": true,
	}, nil)
	vapi := rest.NewClient(client.Client)
	if err := vapi.Login(ctx, user); err != nil {
		t.Fatal(err)
	}
	host, err := find.NewFinder(client.Client).HostSystem(ctx, "DC0_H0")
	if err != nil {
		t.Fatal(err)
	}
	attached, err := tags.NewManager(vapi).GetAttachedTags(ctx, host.Reference())
	if err != nil || len(attached) != 1 || attached[0].Name != "a" {
		t.Errorf("tags: %v, %v", attached, err)
	}
	if list := rig.sessions().REST; len(list) != 1 {
		t.Errorf("REST sessions: %+v", list)
	}
	watch := watchFor(
		rig, client, "HostSystem", "name", "customValue", "summary.quickStats.overallCpuUsage",
		"runtime.connectionState",
	)
	watch.next()
	rig.call("POST", "/attribute", params{"of": "DC0_H0", "name": "owner", "value": "me"}, nil)
	watch.until("the attribute", func() bool {
		values, ok := watch.byName("DC0_H0")["customValue"].(types.ArrayOfCustomFieldValue)
		return ok && len(values.CustomFieldValue) == 1 &&
			values.CustomFieldValue[0].(*types.CustomFieldStringValue).Value == "me"
	})
	rig.call("POST", "/stats", params{
		"of": "DC0_H0", "stats": params{"overallCpuUsage": 4711},
	}, nil)
	rig.call("POST", "/property", params{
		"of": "DC0_H0", "property": "runtime.connectionState", "value": "notResponding",
	}, nil)
	watch.until("stats and property", func() bool {
		host := watch.byName("DC0_H0")
		return host["summary.quickStats.overallCpuUsage"] == int32(4711) &&
			host["runtime.connectionState"] == types.HostSystemConnectionStateNotResponding
	})
	if text := rig.tryCall("POST", "/property", params{
		"of": "DC0_H0", "property": "runtime.nonsense", "value": 1,
	}, nil); !strings.Contains(text, "nonsense") {
		t.Errorf("got error %q", text)
	}
}

func TestOutages(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	for how := range strings.SplitSeq("503 reset", " ") {
		rig.call("POST", "/outage", params{"how": how, "length": "1m"}, nil)
		if _, err := methods.GetCurrentTime(ctx, client.Client); err == nil {
			t.Errorf("%s: it answers", how)
		}
	}
	rig.call("POST", "/outage", params{"how": "hang", "length": "200ms"}, nil)
	began := time.Now()
	if _, err := methods.GetCurrentTime(ctx, client.Client); err == nil ||
		time.Since(began) < 150*time.Millisecond {
		t.Errorf("hang: %v after %s", err, time.Since(began))
	}
	rig.call("POST", "/outage", params{"how": ""}, nil)
	if _, err := methods.GetCurrentTime(ctx, client.Client); err != nil {
		t.Error("after the outage the session lives on:", err)
	}
}

func TestARuleDelaysACallUntilItIsCleared(t *testing.T) {
	rig := start(t)
	client := rig.client()
	rig.call("POST", "/rules", params{"method": "CurrentTime", "delay": "1h"}, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := methods.GetCurrentTime(context.Background(), client.Client)
		ended <- err
	}()
	eventually(t, "the call has come", func() bool {
		var counts map[string]int
		rig.call("GET", "/calls", nil, &counts)
		return counts["CurrentTime"] == 1
	})
	for waiting := true; waiting; {
		rig.call("DELETE", "/rules", nil, nil)
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestTheCertificateCanBeTrusted(t *testing.T) {
	rig := start(t)
	data, err := os.ReadFile(rig.server.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	dial := func(name string) error {
		conn, err := tls.Dial("tcp", rig.server.URL.Host, &tls.Config{
			RootCAs: pool, ServerName: name,
		})
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial("localhost"); err != nil {
		t.Error(err)
	}
	if err := dial("vcenter.example.com"); err == nil {
		t.Error("a wrong name was trusted")
	}
	expired := start(t, "--tls-expired", "--hosts", "0")
	data, _ = os.ReadFile(expired.server.Certificate)
	pool.AppendCertsFromPEM(data)
	if _, err := tls.Dial("tcp", expired.server.URL.Host, &tls.Config{RootCAs: pool}); err == nil ||
		!strings.Contains(err.Error(), "expired") {
		t.Errorf("the expired certificate: %v", err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, arguments := range [][]string{
		{"--cert", "x"},
		{"--datastores", "0"},
		{"--hosts", "0", "--standalone-hosts", "0"},
		{"--delay", "x"},
		{"word"},
	} {
		if _, err := parse("vcsim", arguments); err == nil {
			t.Errorf("%v was accepted", arguments)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	rig := start(t, "--datacenters", "2", "--template", "twice")
	if text := rig.tryCall("POST", "/power", params{
		"vm": "twice",
	}, nil); !strings.Contains(text, "/DC0/vm/twice, /DC1/vm/twice") {
		t.Errorf("got error %q", text)
	}
	text := rig.tryCall("POST", "/power", params{"vm": "missing"}, nil)
	if !strings.Contains(text, `no VirtualMachine "missing"`) {
		t.Errorf("got error %q", text)
	}
}
