package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// defaultCollector is the reference value of the default collector of every session.
const defaultCollector = "propertyCollector"

// Sessions tracks the objects of each session and ends sessions like vCenter, with their filters,
// views and open calls.
type Sessions struct {
	ctx *simulator.Context // the context of the simulator itself

	mu      sync.Mutex
	tracked map[string]*simulator.Session
}

// NewSessions returns the sessions of a simulator.
func NewSessions(ctx *simulator.Context) *Sessions {
	return &Sessions{ctx: ctx, tracked: map[string]*simulator.Session{}}
}

// SessionView is a session as the control endpoint shows it.
type SessionView struct {
	Key        string    `json:"key"`
	User       string    `json:"user"`
	Address    string    `json:"address"`
	Agent      string    `json:"agent"`
	Login      time.Time `json:"login"`
	LastActive time.Time `json:"lastActive"`
	Filters    []string  `json:"filters"`
	Collectors []string  `json:"collectors"`
	Views      []string  `json:"views"`
	Waiting    int       `json:"waiting"` // open WaitForUpdatesEx calls
}

// Track stores the session of a call, to find its objects later.
func (s *Sessions) Track(session *simulator.Session) {
	s.mu.Lock()
	s.tracked[session.Key] = session
	s.mu.Unlock()
}

// Live lists the sessions that are logged in.
func (s *Sessions) Live() []types.UserSession {
	manager := s.ctx.Session.Get(s.ctx.Map.SessionManager().Reference()).(*simulator.SessionManager)
	return manager.SessionList
}

// View lists the sessions with their objects, the oldest first.
func (s *Sessions) View() []SessionView {
	views := []SessionView{}
	for _, live := range s.Live() {
		view := SessionView{
			Key: live.Key, User: live.UserName, Address: live.IpAddress, Agent: live.UserAgent,
			Login: live.LoginTime, LastActive: live.LastActiveTime,
			Filters: []string{}, Collectors: []string{}, Views: []string{},
		}
		s.describe(&view)
		views = append(views, view)
	}
	slices.SortFunc(views, func(a, b SessionView) int { return a.Login.Compare(b.Login) })
	return views
}

func (s *Sessions) describe(view *SessionView) {
	for _, object := range s.objects(view.Key) {
		ref := object.Reference()
		switch object := object.(type) {
		case *Filter:
			view.Filters = append(view.Filters, ref.Value)
		case *Collector:
			if ref.Value != defaultCollector {
				view.Collectors = append(view.Collectors, ref.Value)
			}
			if object.isWaiting() {
				view.Waiting++
			}
		case *simulator.ContainerView, *simulator.ListView:
			view.Views = append(view.Views, ref.Value)
		}
	}
}

// End ends the matching sessions and returns their number.
func (s *Sessions) End(match func(types.UserSession) bool) int {
	var keys []string
	for _, live := range s.Live() {
		if match(live) {
			keys = append(keys, live.Key)
		}
	}
	for _, key := range keys {
		s.ctx.Map.SessionManager().TerminateSession(s.ctx, &types.TerminateSession{
			SessionId: []string{key},
		})
		s.Release(key)
	}
	return len(keys)
}

// Release removes the objects of an ended session; its waiting calls return NotAuthenticated.
func (s *Sessions) Release(key string) {
	objects := s.objects(key)
	s.mu.Lock()
	delete(s.tracked, key)
	s.mu.Unlock()
	for _, object := range objects {
		switch object := object.(type) {
		case *Collector:
			object.close(s.ctx, &types.NotAuthenticated{})
		case simulator.RegisterObject:
			s.ctx.Map.RemoveHandler(object)
		}
	}
}

// Sweep ends sessions that are idle for longer than the timeout, until the context is done.
func (s *Sessions) Sweep(ctx context.Context, timeout time.Duration) {
	ticker := time.NewTicker(max(timeout/20, 20*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.End(func(live types.UserSession) bool {
				return now.Sub(live.LastActiveTime) > timeout && !s.isWaiting(live.Key)
			})
		}
	}
}

// Refresh makes all collectors compare all objects with the values sent last.
func (s *Sessions) Refresh() {
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(s.tracked))
	s.mu.Unlock()
	for _, key := range keys {
		for _, object := range s.objects(key) {
			if collector, ok := object.(*Collector); ok {
				collector.recordChange(func(m *pendingChanges) { m.all = true })
			}
		}
	}
}

func (s *Sessions) objects(key string) []mo.Reference {
	s.mu.Lock()
	session := s.tracked[key]
	s.mu.Unlock()
	if session == nil {
		return nil
	}
	return session.Registry.AllReference("")
}

func (s *Sessions) isWaiting(key string) bool {
	for _, object := range s.objects(key) {
		if collector, ok := object.(*Collector); ok && collector.isWaiting() {
			return true
		}
	}
	return false
}
