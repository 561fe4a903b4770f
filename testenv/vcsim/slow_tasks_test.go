package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// controlTask returns the newest task with this descriptionId, as a client reads it.
func (r *rig) controlTask(descriptionID string) types.TaskInfo {
	r.Helper()
	client, ctx := r.client(), context.Background()
	defer func() { _ = client.Logout(ctx) }()
	var manager mo.TaskManager
	if err := client.RetrieveOne(
		ctx, *client.ServiceContent.TaskManager, []string{"recentTask"}, &manager,
	); err != nil {
		r.Fatal(err)
	}
	var newest types.TaskInfo
	for _, ref := range manager.RecentTask {
		var task mo.Task
		if err := client.RetrieveOne(ctx, ref, []string{"info"}, &task); err != nil {
			r.Fatal(err)
		}
		if task.Info.DescriptionId == descriptionID {
			newest = task.Info
		}
	}
	return newest
}

func TestAHostEntersMaintenanceSlowly(t *testing.T) {
	rig := start(t, "--hosts", "1")
	hosts, ctx := rig.hosts(), context.Background()
	began, done := time.Now(), make(chan string)
	go func() {
		done <- rig.tryCall("POST", "/host", params{
			"host": hosts[0].Name, "maintenance": true, "length": 1,
		}, nil)
	}()
	eventually(t, "the task runs", func() bool {
		task := rig.controlTask("HostSystem.enterMaintenanceMode")
		return task.State == types.TaskInfoStateRunning && *task.Entity == hosts[0].Self
	})
	var host mo.HostSystem
	err := rig.client().RetrieveOne(ctx, hosts[0].Self, []string{"runtime"}, &host)
	if err != nil || host.Runtime.InMaintenanceMode {
		t.Errorf("the host is in maintenance before the task ends: %v", err)
	}
	if text := <-done; text != "" || time.Since(began) < time.Second {
		t.Errorf("it took %s: %s", time.Since(began), text)
	}
	err = rig.client().RetrieveOne(ctx, hosts[0].Self, []string{"runtime"}, &host)
	if err != nil || !host.Runtime.InMaintenanceMode {
		t.Errorf("the host is not in maintenance: %v", err)
	}
	began = time.Now()
	rig.call("POST", "/host", params{"host": hosts[0].Name, "maintenance": false}, nil)
	if time.Since(began) > time.Second {
		t.Errorf("to leave maintenance took %s", time.Since(began))
	}
}

func TestAVMMovesSlowly(t *testing.T) {
	rig := start(t, "--hosts", "2", "--standalone-hosts", "0", "--vms", "1")
	hosts := rig.hosts()
	vm := rig.onlyVM()
	target := hosts[0].Name
	if vm.Host == target {
		target = hosts[1].Name
	}
	began, done := time.Now(), make(chan string)
	go func() {
		done <- rig.tryCall("POST", "/move", params{
			"vm": vm.Name, "host": target, "length": 0.5,
		}, nil)
	}()
	eventually(t, "the task runs", func() bool {
		task := rig.controlTask("VirtualMachine.relocate")
		return task.State == types.TaskInfoStateRunning && task.EntityName == vm.Name
	})
	if text := <-done; text != "" || time.Since(began) < 500*time.Millisecond {
		t.Errorf("it took %s: %s", time.Since(began), text)
	}
	if moved := rig.onlyVM(); moved.Host != target {
		t.Errorf("the VM is on %s, expected %s", moved.Host, target)
	}
}

func (r *rig) onlyVM() VMView {
	r.Helper()
	var views []VMView
	r.call("GET", "/vms", nil, &views)
	if len(views) != 1 {
		r.Fatalf("there are %d VMs", len(views))
	}
	return views[0]
}

func (r *rig) hosts() []mo.HostSystem {
	r.Helper()
	client, ctx := r.client(), context.Background()
	container, err := view.NewManager(client.Client).CreateContainerView(
		ctx, client.ServiceContent.RootFolder, []string{"HostSystem"}, true,
	)
	if err != nil {
		r.Fatal(err)
	}
	var hosts []mo.HostSystem
	if err := container.Retrieve(ctx, []string{"HostSystem"}, []string{"name"}, &hosts); err != nil {
		r.Fatal(err)
	}
	return hosts
}
