package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// churn sets new quickStats on all connected hosts and running VMs and returns the number of
// changed objects. Values are random; with a drift, each value changes by at most that fraction of
// the capacity.
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
			ctx.Map.AtomicUpdate(ctx, vm, vmStats(vm, drift))
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
		{
			Name: "summary.quickStats.overallCpuUsage",
			Val:  nextUsage(stats.OverallCpuUsage, megahertz, drift),
		},
		{
			Name: "summary.quickStats.overallMemoryUsage",
			Val:  nextUsage(stats.OverallMemoryUsage, megabytes, drift),
		},
		{Name: "summary.quickStats.uptime", Val: uptime + 1},
	}
}

func vmStats(vm *simulator.VirtualMachine, drift float64) []types.PropertyChange {
	megahertz := vm.Config.Hardware.NumCPU * 2000
	stats, megabytes := vm.Summary.QuickStats, vm.Config.Hardware.MemoryMB
	return []types.PropertyChange{
		{
			Name: "summary.quickStats.overallCpuUsage",
			Val:  nextUsage(stats.OverallCpuUsage, megahertz, drift),
		},
		{
			Name: "summary.quickStats.overallCpuDemand",
			Val:  nextUsage(stats.OverallCpuDemand, megahertz, drift),
		},
		{
			Name: "summary.quickStats.guestMemoryUsage",
			Val:  nextUsage(stats.GuestMemoryUsage, megabytes, drift),
		},
		{
			Name: "summary.quickStats.hostMemoryUsage",
			Val:  nextUsage(stats.HostMemoryUsage, megabytes, drift),
		},
	}
}

// nextUsage returns a random usage, or the previous one changed by at most the drift.
func nextUsage(old, capacity int32, drift float64) int32 {
	if drift == 0 {
		return randomUsage(capacity)
	}
	step := int32(float64(capacity) * drift * (2*rand.Float64() - 1))
	return min(max(1, old+step), capacity)
}

// randomUsage returns 10 % to 90 % of the capacity, and at least 1: vCenter omits values of 0.
func randomUsage(capacity int32) int32 {
	return max(1, int32(float64(capacity)*(0.1+0.8*rand.Float64())))
}

// churnPeriodically calls churn at each interval until the context is done.
func churnPeriodically(ctx context.Context, simCtx *simulator.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			churn(simCtx, 0)
		}
	}
}
