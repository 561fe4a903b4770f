package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// churn gives all connected hosts and running VMs new quickStats, and tells how many objects changed.
func churn(ctx *simulator.Context) int {
	changed := 0
	for _, entity := range entities(ctx, "HostSystem") {
		host := entity.(*simulator.HostSystem)
		if host.Runtime.ConnectionState == types.HostSystemConnectionStateConnected {
			ctx.Map.AtomicUpdate(ctx, host, hostStats(host))
			changed++
		}
	}
	for _, entity := range entities(ctx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			ctx.Map.AtomicUpdate(ctx, vm, machineStats(vm))
			changed++
		}
	}
	return changed
}

func hostStats(host *simulator.HostSystem) []types.PropertyChange {
	hardware := host.Summary.Hardware
	megahertz := int32(hardware.NumCpuCores) * hardware.CpuMhz
	megabytes := int32(hardware.MemorySize >> 20)
	uptime := int32(0)
	if boot := host.Runtime.BootTime; boot != nil {
		uptime = int32(time.Since(*boot).Seconds())
	}
	return []types.PropertyChange{
		{Name: "summary.quickStats.overallCpuUsage", Val: share(megahertz)},
		{Name: "summary.quickStats.overallMemoryUsage", Val: share(megabytes)},
		{Name: "summary.quickStats.uptime", Val: uptime + 1},
	}
}

func machineStats(vm *simulator.VirtualMachine) []types.PropertyChange {
	megahertz := vm.Config.Hardware.NumCPU * 2000
	return []types.PropertyChange{
		{Name: "summary.quickStats.overallCpuUsage", Val: share(megahertz)},
		{Name: "summary.quickStats.overallCpuDemand", Val: share(megahertz)},
		{Name: "summary.quickStats.guestMemoryUsage", Val: share(vm.Config.Hardware.MemoryMB)},
		{Name: "summary.quickStats.hostMemoryUsage", Val: share(vm.Config.Hardware.MemoryMB)},
	}
}

// share is between 10 and 90 hundredths of the whole, and at least 1: vCenter omits what is 0.
func share(whole int32) int32 { return max(1, int32(float64(whole)*(0.1+0.8*rand.Float64()))) }

// churning repeats the churn until the context ends.
func churning(ctx context.Context, own *simulator.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			churn(own)
		}
	}
}
