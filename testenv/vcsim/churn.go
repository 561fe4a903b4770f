package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// churn gives all connected hosts and running VMs new quickStats, and returns how many objects changed. Each number is new altogether, or,
// with a drift, moves by at most that share of the whole.
func churn(ctx *simulator.Context, drift float64) int {
	changed := 0
	for _, entity := range entities(ctx, "HostSystem") {
		host := entity.(*simulator.HostSystem)
		if host.Runtime.ConnectionState == types.HostSystemConnectionStateConnected {
			ctx.Map.AtomicUpdate(ctx, host, hostStats(host, drift))
			changed++
		}
	}
	for _, entity := range entities(ctx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
			ctx.Map.AtomicUpdate(ctx, vm, machineStats(vm, drift))
			changed++
		}
	}
	return changed
}

func hostStats(host *simulator.HostSystem, drift float64) []types.PropertyChange {
	hardware := host.Summary.Hardware
	megahertz := int32(hardware.NumCpuCores) * hardware.CpuMhz
	megabytes := int32(hardware.MemorySize >> 20)
	uptime := int32(0)
	if boot := host.Runtime.BootTime; boot != nil {
		uptime = int32(time.Since(*boot).Seconds())
	}
	stats := host.Summary.QuickStats
	return []types.PropertyChange{
		{Name: "summary.quickStats.overallCpuUsage", Val: moved(stats.OverallCpuUsage, megahertz, drift)},
		{Name: "summary.quickStats.overallMemoryUsage", Val: moved(stats.OverallMemoryUsage, megabytes, drift)},
		{Name: "summary.quickStats.uptime", Val: uptime + 1},
	}
}

func machineStats(vm *simulator.VirtualMachine, drift float64) []types.PropertyChange {
	megahertz := vm.Config.Hardware.NumCPU * 2000
	stats, megabytes := vm.Summary.QuickStats, vm.Config.Hardware.MemoryMB
	return []types.PropertyChange{
		{Name: "summary.quickStats.overallCpuUsage", Val: moved(stats.OverallCpuUsage, megahertz, drift)},
		{Name: "summary.quickStats.overallCpuDemand", Val: moved(stats.OverallCpuDemand, megahertz, drift)},
		{Name: "summary.quickStats.guestMemoryUsage", Val: moved(stats.GuestMemoryUsage, megabytes, drift)},
		{Name: "summary.quickStats.hostMemoryUsage", Val: moved(stats.HostMemoryUsage, megabytes, drift)},
	}
}

// moved is a new number, or the old one a little further.
func moved(old, capacity int32, drift float64) int32 {
	if drift == 0 {
		return share(capacity)
	}
	step := int32(float64(capacity) * drift * (2*rand.Float64() - 1))
	return min(max(1, old+step), capacity)
}

// share is between 10 and 90 hundredths of the whole, and at least 1: vCenter omits what is 0.
func share(capacity int32) int32 { return max(1, int32(float64(capacity)*(0.1+0.8*rand.Float64()))) }

// churning repeats the churn until the context ends.
func churning(ctx context.Context, own *simulator.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			churn(own, 0)
		}
	}
}
