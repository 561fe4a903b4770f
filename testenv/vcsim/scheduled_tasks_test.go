package main

import (
	"context"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestScheduledTasks(t *testing.T) {
	s, ctx := startCloneRig(t), context.Background()
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	var scheduled struct {
		Ref string `json:"ref"`
	}
	s.call("POST", "/schedule", params{"host": "DC0_H0", "at": at, "name": "patch day"}, &scheduled)
	host, err := find.NewFinder(s.client.Client).HostSystem(ctx, "DC0_C0_H0")
	if err != nil {
		t.Fatal(err)
	}
	manager := *s.client.ServiceContent.ScheduledTaskManager
	spec := &types.ScheduledTaskSpec{
		Name:      "later",
		Enabled:   true,
		Scheduler: &types.OnceTaskScheduler{RunAt: &at},
		Action:    &types.MethodAction{Name: "EnterMaintenanceMode_Task"},
	}
	create := types.CreateScheduledTask{This: manager, Entity: host.Reference(), Spec: spec}
	created, err := methods.CreateScheduledTask(ctx, s.client, &create)
	if err != nil {
		t.Fatal(err)
	}
	_, err = methods.CreateScheduledTask(ctx, s.client, &create)
	expectFault[*types.DuplicateName](t, err)
	of := func(entity *types.ManagedObjectReference) []types.ManagedObjectReference {
		response, err := methods.RetrieveEntityScheduledTask(
			ctx, s.client, &types.RetrieveEntityScheduledTask{This: manager, Entity: entity},
		)
		if err != nil {
			t.Fatal(err)
		}
		return response.Returnval
	}
	ref := host.Reference()
	if all, one := of(nil), of(&ref); len(all) != 2 || len(one) != 1 ||
		one[0] != created.Returnval || all[0].Value != scheduled.Ref {
		t.Errorf("all are %v, of the host %v", all, one)
	}
	var task mo.ScheduledTask
	if err := s.client.RetrieveOne(ctx, created.Returnval, []string{"info"}, &task); err != nil {
		t.Fatal(err)
	}
	action, ok := task.Info.Action.(*types.MethodAction)
	if !ok || action.Name != "EnterMaintenanceMode_Task" || !task.Info.NextRunTime.Equal(at) ||
		task.Info.Entity != ref || task.Info.LastModifiedUser != "user" {
		t.Errorf("got %+v", task.Info)
	}
	if _, err := methods.RemoveScheduledTask(ctx, s.client, &types.RemoveScheduledTask{
		This: created.Returnval,
	}); err != nil {
		t.Fatal(err)
	}
	s.call("POST", "/unschedule", params{"of": scheduled.Ref}, nil)
	if left := of(nil); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
