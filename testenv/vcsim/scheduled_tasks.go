package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// ScheduledTasks is the ScheduledTaskManager, which the library lacks. It stores scheduled tasks
// and does not run them.
type ScheduledTasks struct {
	mo.ScheduledTaskManager

	last atomic.Int64
}

// NewScheduledTasks adds the manager to the registry.
func NewScheduledTasks(ctx *simulator.Context, self types.ManagedObjectReference) *ScheduledTasks {
	manager := &ScheduledTasks{}
	manager.Self = self
	ctx.Map.Put(manager)
	return manager
}

// ScheduledTask is a scheduled task of the manager.
type ScheduledTask struct {
	mo.ScheduledTask

	manager *ScheduledTasks
}

// CreateScheduledTask validates and adds a scheduled task.
func (m *ScheduledTasks) CreateScheduledTask(
	ctx *simulator.Context, req *types.CreateScheduledTask,
) soap.HasFault {
	body := &methods.CreateScheduledTaskBody{}
	spec := req.Spec.GetScheduledTaskSpec()
	if ctx.Map.Get(req.Entity) == nil {
		body.Fault_ = simulator.Fault("", &types.ManagedObjectNotFound{Obj: req.Entity})
		return body
	}
	if fault := m.check(ctx, spec); fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	task := m.add(ctx, req.Entity, *spec)
	body.Res = &types.CreateScheduledTaskResponse{Returnval: task.Self}
	return body
}

func (m *ScheduledTasks) check(
	ctx *simulator.Context, spec *types.ScheduledTaskSpec,
) types.BaseMethodFault {
	if spec.Name == "" || nameLength(spec.Name) > longestName {
		return &types.InvalidName{Name: spec.Name}
	}
	if once, ok := spec.Scheduler.(*types.OnceTaskScheduler); ok && once.RunAt != nil &&
		once.RunAt.Before(time.Now()) {
		return &types.InvalidArgument{InvalidProperty: "spec.scheduler.runAt"}
	}
	for _, other := range m.ScheduledTask {
		if task, ok := ctx.Map.Get(other).(*ScheduledTask); ok && task.Info.Name == spec.Name {
			return &types.DuplicateName{Name: spec.Name, Object: other}
		}
	}
	return nil
}

func (m *ScheduledTasks) add(
	ctx *simulator.Context, entity types.ManagedObjectReference, spec types.ScheduledTaskSpec,
) *ScheduledTask {
	task := &ScheduledTask{manager: m}
	task.Self = types.ManagedObjectReference{
		Type: "ScheduledTask", Value: fmt.Sprint("schedule-", m.last.Add(1)),
	}
	task.Info = types.ScheduledTaskInfo{
		ScheduledTaskSpec: spec,
		ScheduledTask:     task.Self,
		Entity:            entity,
		TaskObject:        entity,
		State:             types.TaskInfoStateQueued,
		LastModifiedTime:  time.Now(),
		LastModifiedUser:  "vcsim",
		NextRunTime:       nextRun(spec.Scheduler),
	}
	if ctx.Session != nil {
		task.Info.LastModifiedUser = cmp.Or(ctx.Session.UserName, task.Info.LastModifiedUser)
	}
	ctx.Map.Put(task)
	ctx.Map.AtomicUpdate(ctx, m, []types.PropertyChange{
		{Name: "scheduledTask", Val: append(slices.Clone(m.ScheduledTask), task.Self)},
	})
	return task
}

// nextRun returns the next run of a task that runs once.
func nextRun(scheduler types.BaseTaskScheduler) *time.Time {
	if once, ok := scheduler.(*types.OnceTaskScheduler); ok {
		return once.RunAt
	}
	return nil
}

// RetrieveEntityScheduledTask lists the scheduled tasks of an entity, or all.
func (m *ScheduledTasks) RetrieveEntityScheduledTask(
	ctx *simulator.Context, req *types.RetrieveEntityScheduledTask,
) soap.HasFault {
	res := &types.RetrieveEntityScheduledTaskResponse{}
	for _, ref := range m.ScheduledTask {
		task, ok := ctx.Map.Get(ref).(*ScheduledTask)
		if ok && (req.Entity == nil || *req.Entity == task.Info.Entity) {
			res.Returnval = append(res.Returnval, ref)
		}
	}
	return &methods.RetrieveEntityScheduledTaskBody{Res: res}
}

// RemoveScheduledTask removes the scheduled task.
func (t *ScheduledTask) RemoveScheduledTask(
	ctx *simulator.Context, _ *types.RemoveScheduledTask,
) soap.HasFault {
	remaining := slices.DeleteFunc(
		slices.Clone(t.manager.ScheduledTask),
		func(ref types.ManagedObjectReference) bool { return ref == t.Self },
	)
	ctx.Map.AtomicUpdate(ctx, t.manager, []types.PropertyChange{
		{Name: "scheduledTask", Val: remaining},
	})
	ctx.Map.Remove(ctx, t.Self)
	return &methods.RemoveScheduledTaskBody{Res: &types.RemoveScheduledTaskResponse{}}
}

// Schedule describes a scheduled task to create; empty fields get defaults.
type Schedule struct {
	Host     string    `json:"host"`
	Name     string    `json:"name"`
	At       time.Time `json:"at"`
	Method   string    `json:"method"`   // EnterMaintenanceMode_Task by default
	Disabled bool      `json:"disabled"` // exists, but is not enabled
}

func (c *Control) schedule(request Schedule) (any, error) {
	host, err := lookup(c.Inventory.simCtx, "HostSystem", request.Host)
	if err != nil {
		return nil, err
	}
	if request.At.IsZero() {
		return nil, fmt.Errorf("at is required: a time such as 2030-01-31T22:00:00Z")
	}
	spec := types.ScheduledTaskSpec{
		Name:      cmp.Or(request.Name, "maintenance of "+nameOf(host)),
		Enabled:   !request.Disabled,
		Scheduler: &types.OnceTaskScheduler{RunAt: &request.At},
		Action: &types.MethodAction{
			Name:     cmp.Or(request.Method, "EnterMaintenanceMode_Task"),
			Argument: []types.MethodActionArgument{{Value: int32(0)}, {Value: false}},
		},
	}
	manager := c.Inventory.simCtx.Map.Get(
		*c.Inventory.client.ServiceContent.ScheduledTaskManager,
	).(*ScheduledTasks)
	return map[string]string{
		"ref": manager.add(c.Inventory.context(), host.Reference(), spec).Self.Value,
	}, nil
}

func (c *Control) unschedule(request Target) (any, error) {
	ctx := c.Inventory.context()
	task, ok := ctx.Map.Get(types.ManagedObjectReference{
		Type: "ScheduledTask", Value: request.Of,
	}).(*ScheduledTask)
	if !ok {
		return nil, fmt.Errorf(
			"scheduled task %q not found; use a reference such as schedule-1", request.Of,
		)
	}
	task.RemoveScheduledTask(ctx, nil)
	return nil, nil
}
