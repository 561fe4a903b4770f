package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// RecentTasks replaces the library's TaskManager, which lists the last 200 tasks. vCenter lists the
// running tasks and those that ended in the last 10 minutes.
type RecentTasks struct {
	*simulator.TaskManager

	keep  time.Duration // after the end of a task
	mu    sync.Mutex    // guards the fields below; readers hold the lock of the TaskManager
	tasks []types.ManagedObjectReference
	ended map[types.ManagedObjectReference]time.Time
}

// NewRecentTasks replaces the TaskManager in the registry.
func NewRecentTasks(
	ctx *simulator.Context, manager types.ManagedObjectReference, keep time.Duration,
) *RecentTasks {
	library := ctx.Map.Get(manager).(*simulator.TaskManager)
	recent := &RecentTasks{
		TaskManager: library,
		keep:        keep,
		ended:       map[types.ManagedObjectReference]time.Time{},
	}
	// Put would otherwise make the new object the listener.
	ctx.Map.AddHandler(library)
	ctx.Map.Put(recent)
	return recent
}

// Get returns the object that clients read; it is a hook of the library.
func (r *RecentTasks) Get() mo.Reference {
	view := r.TaskManager.TaskManager
	r.mu.Lock()
	view.RecentTask = slices.Clone(r.tasks)
	r.mu.Unlock()
	return &view
}

// Add adds a task to the list.
func (r *RecentTasks) Add(ctx *simulator.Context, task types.ManagedObjectReference) {
	r.mu.Lock()
	r.tasks = append(r.tasks, task)
	r.mu.Unlock()
	r.notify(ctx)
}

// End records when a task ended.
func (r *RecentTasks) End(task types.ManagedObjectReference, at time.Time) {
	r.mu.Lock()
	r.ended[task] = at
	r.mu.Unlock()
}

// ExpireLoop removes tasks after their retention time until the context is done.
func (r *RecentTasks) ExpireLoop(ctx context.Context, newContext func() *simulator.Context) {
	ticker := time.NewTicker(max(r.keep/20, 20*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.expire(newContext(), now)
		}
	}
}

func (r *RecentTasks) expire(ctx *simulator.Context, now time.Time) {
	isExpired := func(task types.ManagedObjectReference) bool {
		at, ended := r.ended[task]
		return ended && now.Sub(at) > r.keep
	}
	r.mu.Lock()
	expired := slices.DeleteFunc(
		slices.Clone(r.tasks),
		func(task types.ManagedObjectReference) bool { return !isExpired(task) },
	)
	r.tasks = slices.DeleteFunc(r.tasks, isExpired)
	for _, task := range expired {
		delete(r.ended, task)
	}
	r.mu.Unlock()
	for _, task := range expired {
		ctx.Map.Remove(ctx, task)
	}
	if len(expired) > 0 {
		r.notify(ctx)
	}
}

// Clear removes all tasks, including running ones.
func (r *RecentTasks) Clear(ctx *simulator.Context) {
	r.mu.Lock()
	tasks := r.tasks
	r.tasks, r.ended = nil, map[types.ManagedObjectReference]time.Time{}
	r.mu.Unlock()
	for _, task := range tasks {
		ctx.Map.Remove(ctx, task)
	}
	r.notify(ctx)
}

func (r *RecentTasks) notify(ctx *simulator.Context) {
	ctx.Map.AtomicUpdate(ctx, r, []types.PropertyChange{})
}
