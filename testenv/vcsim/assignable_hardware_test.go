package main

import (
	"context"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestAssignableHardware(t *testing.T) {
	ctx := context.Background()
	s := startCloneRig(t, "--gpu-host", "DC0_H0=direct", "--gpu-host", "DC0_C0_H0=shared")
	s.call("POST", "/gpu", params{"vm": "DC0_H0_VM0", "kind": "dynamic"}, nil)
	offered := func(name string) ([]types.VirtualMachineDynamicPassthroughInfo, mo.HostSystem) {
		host, err := find.NewFinder(s.client.Client).HostSystem(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		var seen mo.HostSystem
		paths := []string{
			"configManager.assignableHardwareManager",
			"config.assignableHardwareConfig",
			"config.assignableHardwareBinding",
		}
		if err := s.client.RetrieveOne(ctx, host.Reference(), paths, &seen); err != nil {
			t.Fatal(err)
		}
		res, err := methods.RetrieveDynamicPassthroughInfo(
			ctx,
			s.client,
			&types.RetrieveDynamicPassthroughInfo{
				This: *seen.ConfigManager.AssignableHardwareManager,
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		return res.Returnval, seen
	}
	direct, host := offered("DC0_H0")
	if len(direct) != 2 || direct[0].VendorId != nvidia || direct[0].DeviceName != gpuDevice ||
		host.Config.AssignableHardwareConfig == nil {
		t.Errorf("the host offers %+v", direct)
	}
	if bound := host.Config.AssignableHardwareBinding; len(bound) != 1 ||
		bound[0].Vm != s.vm(s.client, "DC0_H0_VM0").Reference() {
		t.Errorf("bound: %+v", bound)
	}
	s.call("POST", "/power", params{"vm": "DC0_H0_VM0", "on": false}, nil)
	if _, host := offered("DC0_H0"); len(host.Config.AssignableHardwareBinding) != 0 {
		t.Errorf("a VM that is off has %+v", host.Config.AssignableHardwareBinding)
	}
	if shared, _ := offered("DC0_C0_H0"); len(shared) != 0 {
		t.Errorf("what carries vGPUs does not pass through: %+v", shared)
	}
}
