package main

import (
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	// coalesceDelay is the time to wait for further changes, so that they share one answer.
	coalesceDelay = 5 * time.Millisecond
	// pageObjects is vCenter's own limit of objects in one answer of WaitForUpdatesEx.
	pageObjects = 100
)

// Collector answers WaitForUpdatesEx in place of the library's collector.
//
// Why not the library's? It reads the whole inventory again for every single update, so 1,000 hosts
// that change together take minutes; two sessions on the default collector take each other's
// updates; the request of a disconnected client consumes the updates; any version is accepted; and
// changes that the library makes silently (host.vm, childEntity, maintenance mode) are never
// reported. How does this one work? Each change is recorded; the recorded objects are read again
// and compared with the values sent last.
type Collector struct {
	simulator.PropertyCollector

	shared *SharedState // set only in the collector of the registry; see sharedState

	// mu guards the fields below. It is never held while an object is read.
	mu       sync.Mutex
	listener *changeListener
	filters  []*Filter
	pending  pendingChanges
	wake     chan struct{}
	waiter   chan types.BaseMethodFault
	closed   types.BaseMethodFault
	version  int
	unacked  *types.UpdateSet // sent, and not yet acknowledged by a call with its version
	// unackedVersion is the version that a client repeats if it did not receive that answer.
	unackedVersion string
	pages          []types.UpdateSet
	truncated      string // version of the last answer that is followed by more pages

	readMu sync.Mutex // one reader at a time: it owns the state of the filters
}

// CreateFilter adds a filter. Like vCenter it rejects properties that do not exist.
func (c *Collector) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	filter := newFilter(c, req)
	if fault := filter.validate(ctx); fault != nil {
		return &methods.CreateFilterBody{Fault_: simulator.Fault("", fault)}
	}
	ref := ctx.Session.Put(filter).Reference()
	c.mu.Lock()
	c.filters = append(c.filters, filter)
	c.Filter = append(c.Filter, ref)
	c.listen(ctx)
	c.notify()
	c.mu.Unlock()
	return &methods.CreateFilterBody{Res: &types.CreateFilterResponse{Returnval: ref}}
}

// CreatePropertyCollector adds a collector to the session.
func (c *Collector) CreatePropertyCollector(
	ctx *simulator.Context, _ *types.CreatePropertyCollector,
) soap.HasFault {
	collector := &Collector{}
	collector.Self.Type = "PropertyCollector"
	return &methods.CreatePropertyCollectorBody{
		Res: &types.CreatePropertyCollectorResponse{
			Returnval: ctx.Session.Put(collector).Reference(),
		},
	}
}

// DestroyPropertyCollector ends the collector, its filters and the calls that wait on it.
func (c *Collector) DestroyPropertyCollector(
	ctx *simulator.Context, req *types.DestroyPropertyCollector,
) soap.HasFault {
	c.mu.Lock()
	filters := c.filters
	c.mu.Unlock()
	c.close(ctx, &types.RequestCanceled{})
	for _, filter := range filters {
		ctx.Session.Remove(ctx, filter.Self)
	}
	ctx.Session.Remove(ctx, req.This)
	return &methods.DestroyPropertyCollectorBody{Res: &types.DestroyPropertyCollectorResponse{}}
}

// CancelWaitForUpdates ends the waiting call with RequestCanceled.
func (c *Collector) CancelWaitForUpdates(*types.CancelWaitForUpdates) soap.HasFault {
	c.mu.Lock()
	c.cancelWaiter(&types.RequestCanceled{})
	c.mu.Unlock()
	return &methods.CancelWaitForUpdatesBody{Res: &types.CancelWaitForUpdatesResponse{}}
}

// WaitForUpdatesEx returns the changes since a version; an empty version requests all objects.
func (c *Collector) WaitForUpdatesEx(
	ctx *simulator.Context, req *types.WaitForUpdatesEx,
) soap.HasFault {
	set, fault := c.wait(ctx, req.Version, limits(req.Options))
	if fault != nil {
		return &methods.WaitForUpdatesExBody{Fault_: simulator.Fault("", fault)}
	}
	return &methods.WaitForUpdatesExBody{Res: &types.WaitForUpdatesExResponse{Returnval: set}}
}

// WaitForUpdates is the older method without limits.
func (c *Collector) WaitForUpdates(
	ctx *simulator.Context, req *types.WaitForUpdates,
) soap.HasFault {
	set, fault := c.wait(ctx, req.Version, limits(nil))
	if fault != nil {
		return &methods.WaitForUpdatesBody{Fault_: simulator.Fault("", fault)}
	}
	return &methods.WaitForUpdatesBody{Res: &types.WaitForUpdatesResponse{Returnval: *set}}
}

// CheckForUpdates returns the changes without waiting.
func (c *Collector) CheckForUpdates(
	ctx *simulator.Context, req *types.CheckForUpdates,
) soap.HasFault {
	limit := limits(nil)
	limit.wait = 0
	set, fault := c.wait(ctx, req.Version, limit)
	if fault != nil {
		return &methods.CheckForUpdatesBody{Fault_: simulator.Fault("", fault)}
	}
	return &methods.CheckForUpdatesBody{Res: &types.CheckForUpdatesResponse{Returnval: set}}
}

type limit struct {
	wait    time.Duration // negative: no limit
	objects int
}

func limits(options *types.WaitOptions) limit {
	limit := limit{wait: -1, objects: pageObjects}
	if options == nil {
		return limit
	}
	if seconds := options.MaxWaitSeconds; seconds != nil {
		limit.wait = time.Duration(*seconds) * time.Second
	}
	if max := int(options.MaxObjectUpdates); max > 0 && max < limit.objects {
		limit.objects = max
	}
	return limit
}

func (c *Collector) wait(
	ctx *simulator.Context, version string, limit limit,
) (*types.UpdateSet, types.BaseMethodFault) {
	cancelled, fault := c.startWait(ctx, version)
	if fault != nil {
		return nil, fault
	}
	defer c.endWait(cancelled)
	var deadline <-chan time.Time
	if limit.wait > 0 {
		timer := time.NewTimer(limit.wait)
		defer timer.Stop()
		deadline = timer.C
	}
	for {
		if set, fault := c.next(ctx, version, limit.objects, cancelled); set != nil ||
			fault != nil {
			if c.isPage(version, set) {
				sharedState(ctx).delayPage(ctx, "WaitForUpdatesEx")
			}
			return set, fault
		}
		if limit.wait == 0 {
			return nil, nil
		}
		select {
		case fault := <-cancelled:
			return nil, fault
		case <-deadline:
			return nil, nil
		case <-c.wake:
			c.coalesce()
		}
	}
}

// isPage reports whether an answer is part of a load that takes several answers: the first one, a
// truncated one, or the one that follows a truncated one.
func (c *Collector) isPage(version string, set *types.UpdateSet) bool {
	if set == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := isSet(set.Truncated)
	page := more || version == "" || version == c.truncated
	if more {
		c.truncated = set.Version
	}
	return page
}

// coalesce waits briefly for further changes, unless the only watched object is one such as a task.
func (c *Collector) coalesce() {
	c.mu.Lock()
	single := len(c.filters) == 1 && len(c.filters[0].Spec.ObjectSet) == 1 &&
		len(c.filters[0].traversed) == 0
	c.mu.Unlock()
	if !single {
		time.Sleep(coalesceDelay)
	}
}

// startWait replaces the waiting call: a client that calls again has abandoned the earlier call.
func (c *Collector) startWait(
	ctx *simulator.Context, version string,
) (chan types.BaseMethodFault, types.BaseMethodFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, c.closed
	}
	current := strconv.Itoa(c.version)
	switch {
	case version == "":
		c.restart(ctx)
	case version == current:
		c.unacked = nil
	case c.unacked != nil && version == c.unackedVersion:
	default:
		return nil, &types.InvalidCollectorVersion{}
	}
	c.cancelWaiter(&types.RequestCanceled{})
	c.waiter = make(chan types.BaseMethodFault, 1)
	return c.waiter, nil
}

func (c *Collector) endWait(waiter chan types.BaseMethodFault) {
	c.mu.Lock()
	if c.waiter == waiter {
		c.waiter = nil
	}
	c.mu.Unlock()
}

// restart discards what was sent; the next answer has all objects.
func (c *Collector) restart(ctx *simulator.Context) {
	c.listen(ctx)
	c.unacked, c.pages, c.pending = nil, nil, pendingChanges{}
	for _, filter := range c.filters {
		filter.initial = true
	}
}

func (c *Collector) next(
	ctx *simulator.Context, version string, objects int, waiter chan types.BaseMethodFault,
) (*types.UpdateSet, types.BaseMethodFault) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	if c.waiter != waiter {
		c.mu.Unlock()
		return nil, <-waiter // the call that replaced this one sent the fault
	}
	if c.unacked != nil {
		defer c.mu.Unlock()
		return c.unacked, nil
	}
	changed, filters := c.pending, append([]*Filter{}, c.filters...)
	ready := len(c.pages) > 0
	if !ready {
		c.pending = pendingChanges{}
	}
	c.mu.Unlock()
	var filterUpdates []types.PropertyFilterUpdate
	if !ready {
		for _, filter := range filters {
			if updates := filter.refresh(ctx, &changed); len(updates) > 0 {
				filterUpdates = append(filterUpdates, types.PropertyFilterUpdate{
					Filter: filter.Self, ObjectSet: updates,
				})
			}
		}
	}
	return c.send(version, filterUpdates, objects), nil
}

func (c *Collector) send(
	version string, updates []types.PropertyFilterUpdate, objects int,
) *types.UpdateSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages = append(c.pages, paginate(updates, objects)...)
	if len(c.pages) == 0 && version != "" {
		return nil
	}
	set := types.UpdateSet{}
	if len(c.pages) > 0 {
		set = c.pages[0]
		c.pages = c.pages[1:]
	}
	c.version++
	set.Version = strconv.Itoa(c.version)
	c.unacked, c.unackedVersion = &set, version
	return &set
}

// recordChange records a change. It is called with the lock of the object held and must not read
// any object.
func (c *Collector) recordChange(apply func(*pendingChanges)) {
	c.mu.Lock()
	apply(&c.pending)
	c.notify()
	c.mu.Unlock()
}

func (c *Collector) notify() {
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Collector) cancelWaiter(fault types.BaseMethodFault) {
	if c.waiter != nil {
		c.waiter <- fault
		c.waiter = nil
	}
}

func (c *Collector) listen(ctx *simulator.Context) {
	c.notify()
	if c.listener == nil {
		c.listener = newChangeListener(c)
		ctx.Map.AddHandler(c.listener)
	}
}

// close ends the collector; waiting calls return the fault.
func (c *Collector) close(ctx *simulator.Context, fault types.BaseMethodFault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		ctx.Map.RemoveHandler(c.listener)
		c.listener = nil
	}
	c.closed, c.filters, c.Filter = fault, nil, nil
	c.cancelWaiter(fault)
}

// isWaiting reports whether a call waits for updates.
func (c *Collector) isWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiter != nil
}

// paginate splits updates into answers of at most the given number of objects; all but the last are
// truncated.
func paginate(updates []types.PropertyFilterUpdate, objects int) []types.UpdateSet {
	var pages []types.UpdateSet
	room := 0
	for _, update := range updates {
		for rest := update.ObjectSet; len(rest) > 0; {
			if room == 0 {
				pages = append(pages, types.UpdateSet{Truncated: types.NewBool(true)})
				room = objects
			}
			take := min(room, len(rest))
			last := &pages[len(pages)-1]
			last.FilterSet = append(last.FilterSet, types.PropertyFilterUpdate{
				Filter: update.Filter, ObjectSet: rest[:take],
			})
			rest, room = rest[take:], room-take
		}
	}
	if len(pages) > 0 {
		pages[len(pages)-1].Truncated = nil
	}
	return pages
}
