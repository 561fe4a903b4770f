package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// Inventory creates and changes the objects of the simulated vCenter through the library's
// in-process client.
type Inventory struct {
	simCtx *simulator.Context
	client *vim25.Client
}

// NewInventory returns the inventory of a service.
func NewInventory(service *simulator.Service) (*Inventory, error) {
	client, err := vim25.NewClient(context.Background(), service)
	return &Inventory{simCtx: service.Context, client: client}, err
}

// context returns a new context. The library's locks are per context and do not exclude callers
// that share one.
func (i *Inventory) context() *simulator.Context {
	ctx := *i.simCtx
	return &ctx
}

// Populate creates what the flags specify, after the library has created datacenters, clusters,
// hosts, datastores and VMs.
func (i *Inventory) Populate(s *Settings) error {
	i.renameHosts(s.HostNames, s.HostPattern)
	steps := []func(*Settings) error{
		i.createFolders, i.createTemplates, i.createNodes, i.configureVMs, i.configureHosts,
		i.createDisks,
	}
	for _, step := range steps {
		if err := step(s); err != nil {
			return err
		}
	}
	churn(i.context(), 0)
	return nil
}

func (i *Inventory) renameHosts(names []string, pattern string) {
	for number, entity := range entities(i.simCtx, "HostSystem") {
		host := entity.(*simulator.HostSystem)
		switch {
		case number < len(names):
			i.renameHost(host, names[number])
		case pattern != "":
			i.renameHost(host, fmt.Sprintf(pattern, number))
		}
	}
}

// renameHost renames a host, and the ComputeResource of a standalone host.
func (i *Inventory) renameHost(host *simulator.HostSystem, name string) {
	ctx := i.context()
	ctx.Map.AtomicUpdate(ctx, host, []types.PropertyChange{
		{Name: "name", Val: name}, {Name: "summary.config.name", Val: name},
	})
	if host.Parent.Type == "ComputeResource" {
		ctx.Map.AtomicUpdate(ctx, ctx.Map.Get(*host.Parent), []types.PropertyChange{
			{Name: "name", Val: name},
		})
	}
}

func (i *Inventory) createFolders(s *Settings) error {
	for _, entity := range entities(i.simCtx, "Datacenter") {
		for _, name := range s.Folders {
			folder := object.NewFolder(i.client, entity.(*simulator.Datacenter).VmFolder)
			if _, err := folder.CreateFolder(context.Background(), name); err != nil {
				return fmt.Errorf("folder %s: %w", name, err)
			}
		}
	}
	return nil
}

func (i *Inventory) createTemplates(s *Settings) error {
	for _, datacenter := range entities(i.simCtx, "Datacenter") {
		for _, name := range s.Templates {
			request := VMSpec{
				Name:       name,
				Datacenter: nameOf(datacenter),
				Template:   true,
				Annotation: "a template of the simulator",
			}
			if _, err := i.CreateVM(request); err != nil {
				return fmt.Errorf("template %s: %w", name, err)
			}
		}
	}
	return nil
}

func (i *Inventory) createNodes(s *Settings) error {
	for _, text := range s.Nodes {
		name, uuid, _ := strings.Cut(text, "=")
		request := VMSpec{
			Name:     name,
			UUID:     uuid,
			On:       !slices.Contains(s.PoweredOff, name),
			CPUs:     4,
			MemoryMB: 8192,
			GuestID:  "ubuntu64Guest",
		}
		request.WithoutTools = slices.Contains(s.WithoutTools, name)
		if _, err := i.CreateVM(request); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// configureVMs applies the flags for VMware Tools, power and GPUs.
func (i *Inventory) configureVMs(s *Settings) error {
	for _, entity := range entities(i.simCtx, "VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		if vm.Config.Template || slices.Contains(s.WithoutTools, vm.Name) {
			continue
		}
		i.installTools(vm)
	}
	for _, name := range s.PoweredOff {
		vm, err := lookup(i.simCtx, "VirtualMachine", name)
		if err != nil {
			return err
		}
		state := vm.(*simulator.VirtualMachine).Runtime.PowerState
		if state == types.VirtualMachinePowerStatePoweredOn {
			if err := i.Power(vm.Reference(), false); err != nil {
				return err
			}
		}
	}
	for _, text := range s.GPUVMs {
		name, kind, given := strings.Cut(text, "=")
		if !given {
			kind = "vgpu"
		}
		if err := i.AddGPU(name, kind); err != nil {
			return fmt.Errorf("--gpu-vm %s: %w", text, err)
		}
	}
	return nil
}

func (i *Inventory) configureHosts(s *Settings) error {
	for _, text := range s.GPUHosts {
		name, kind, given := strings.Cut(text, "=")
		if !given {
			kind = "shared"
		}
		host, err := lookup(i.simCtx, "HostSystem", name)
		if err != nil {
			return err
		}
		setGPUs(i.context(), host.(*simulator.HostSystem), kind, 2)
	}
	return nil
}
