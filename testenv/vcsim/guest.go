package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// toolsOption is the extraConfig key of VMs that have VMware Tools.
const toolsOption = "vcsim.tools"

// startGuest sets the guest information that VMware Tools report, if the VM has them.
func startGuest(ctx *simulator.Context, vmRef types.AnyType) types.BaseMethodFault {
	vm, ok := findVM(ctx, vmRef)
	if !ok || !hasTools(vm) {
		return nil
	}
	address := addressOf(vm)
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "guest", Val: runningGuest(vm, address)},
		{Name: "summary.guest", Val: &types.VirtualMachineGuestSummary{
			GuestId:             vm.Config.GuestId,
			GuestFullName:       vm.Config.GuestFullName,
			HostName:            vm.Name,
			IpAddress:           address,
			ToolsStatus:         types.VirtualMachineToolsStatusToolsOk,
			ToolsRunningStatus:  guestRunning,
			ToolsVersionStatus2: toolsCurrent,
			HwVersion:           vm.Config.Version,
		}},
		{Name: "runtime.bootTime", Val: types.NewTime(time.Now())},
	})
	return nil
}

const (
	guestRunning = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	toolsCurrent = string(types.VirtualMachineToolsVersionStatusGuestToolsCurrent)
)

func runningGuest(vm *simulator.VirtualMachine, address string) *types.GuestInfo {
	return &types.GuestInfo{
		ToolsStatus:         types.VirtualMachineToolsStatusToolsOk,
		ToolsRunningStatus:  guestRunning,
		ToolsVersionStatus2: toolsCurrent,
		ToolsVersion:        "12352",
		GuestId:             vm.Config.GuestId,
		GuestFullName:       vm.Config.GuestFullName,
		GuestFamily:         vm.Guest.GuestFamily,
		GuestState:          string(types.VirtualMachineGuestStateRunning),
		HostName:            vm.Name,
		IpAddress:           address,
		Net: []types.GuestNicInfo{{
			Network: "VM Network", Connected: true, DeviceConfigId: 4000,
			IpAddress: []string{address, "fe80::250:56ff:fe00:" + lastOctets(address)},
		}},
	}
}

// stopGuest clears the guest information of a VM: no addresses and no load.
func stopGuest(ctx *simulator.Context, vmRef types.AnyType) types.BaseMethodFault {
	vm, ok := findVM(ctx, vmRef)
	if !ok {
		return nil
	}
	status := types.VirtualMachineToolsStatusToolsNotInstalled
	if hasTools(vm) {
		status = types.VirtualMachineToolsStatusToolsNotRunning
	}
	notRunning := string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)
	idle := types.VirtualMachineQuickStats{GuestHeartbeatStatus: types.ManagedEntityStatusGray}
	ctx.Map.AtomicUpdate(ctx, vm, []types.PropertyChange{
		{Name: "guest", Val: &types.GuestInfo{
			ToolsStatus:        status,
			ToolsRunningStatus: notRunning,
			ToolsVersion:       vm.Guest.ToolsVersion,
			GuestState:         string(types.VirtualMachineGuestStateNotRunning),
			GuestFamily:        vm.Guest.GuestFamily,
		}},
		{Name: "summary.guest", Val: &types.VirtualMachineGuestSummary{
			ToolsStatus: status, ToolsRunningStatus: notRunning,
		}},
		{Name: "summary.quickStats", Val: idle},
	})
	return nil
}

func hasTools(vm *simulator.VirtualMachine) bool {
	for _, option := range vm.Config.ExtraConfig {
		if value := option.GetOptionValue(); value.Key == toolsOption {
			return value.Value == "true"
		}
	}
	return false
}

// addressOf returns the IP address of a VM, which is the same after each boot.
func addressOf(vm *simulator.VirtualMachine) string {
	number := serialNumber(vm.Self.Value)
	return fmt.Sprintf("10.%d.%d.%d", number>>16&255, number>>8&255, number&255)
}

func lastOctets(address string) string {
	parts := strings.Split(address, ".")
	return parts[2] + parts[3]
}
