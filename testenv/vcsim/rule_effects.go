package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Effect is what a rule does to one call.
type Effect struct {
	Fault   types.BaseMethodFault
	Drop    bool
	delay   time.Duration
	hold    *Held
	holdAt  int32 // percentage of the delay at which the call is held
	rules   *Rules
	cleared <-chan struct{}
}

// Held is a call, a task or an answer that waits to be released.
type Held struct {
	ID     int       `json:"id"`
	Method string    `json:"method"`
	Object string    `json:"object"`
	Where  string    `json:"where"`
	At     int32     `json:"at"` // percentage of the delay
	Since  time.Time `json:"since"`

	released chan struct{}
}

// waits reports whether Wait blocks.
func (e Effect) waits() bool { return e.delay > 0 || e.hold != nil }

// progressSteps is the number of progress reports of a waiting task.
const progressSteps = 10

// Wait blocks for the delay and until release, or until the rules are cleared. It calls report with
// the percentage of the delay.
func (e Effect) Wait(report func(percent int32)) { e.advance(0, 100, report) }

// advance blocks for the part of the delay between two percentages. A call is held in the part that
// contains holdAt; 100 belongs to the part that ends there.
func (e Effect) advance(from, to int32, report func(percent int32)) {
	held := e.hold != nil && from <= e.holdAt && (e.holdAt < to || to == 100)
	if !held {
		e.sleep(from, to, report)
		return
	}
	if !e.sleep(from, e.holdAt, report) {
		return
	}
	if report != nil && e.holdAt > 0 {
		report(min(99, e.holdAt))
	}
	if e.waitReleased() {
		e.sleep(e.holdAt, to, report)
	}
}

// waitReleased blocks until release. It returns false if the rules were cleared.
func (e Effect) waitReleased() bool {
	e.rules.addHeld(e.hold)
	defer e.rules.removeHeld(e.hold)
	select {
	case <-e.hold.released:
		return true
	case <-e.cleared:
		return false
	}
}

// sleep blocks for a part of the delay. It returns false if the rules were cleared.
func (e Effect) sleep(from, to int32, report func(percent int32)) bool {
	if e.delay <= 0 || from >= to {
		return true
	}
	length := e.delay * time.Duration(to-from) / 100
	timer := time.NewTimer(length)
	ticker := time.NewTicker(max(e.delay/progressSteps, 20*time.Millisecond))
	defer timer.Stop()
	defer ticker.Stop()
	began := time.Now()
	for {
		select {
		case <-timer.C:
			if report != nil && to < 100 {
				report(to)
			}
			return true
		case <-e.cleared:
			return false
		case <-ticker.C:
			if report != nil {
				report(min(99, from+int32(100*time.Since(began)/e.delay)))
			}
		}
	}
}

func (r *Rules) addHeld(held *Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	held.ID, held.Since = r.last, time.Now()
	r.held[held.ID] = held
}

func (r *Rules) removeHeld(held *Held) {
	r.mu.Lock()
	delete(r.held, held.ID)
	r.mu.Unlock()
}

// Held lists the held calls, the oldest first.
func (r *Rules) Held() []Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []Held{}
	for _, held := range r.held {
		list = append(list, *held)
	}
	slices.SortFunc(list, func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Release releases the held calls with an id or method, or all without either, and returns their
// number.
func (r *Rules) Release(id int, method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	for _, key := range slices.Collect(maps.Keys(r.held)) {
		held := r.held[key]
		if (id != 0 && held.ID != id) || (method != "" && held.Method != method) {
			continue
		}
		delete(r.held, key)
		close(held.released)
		count++
	}
	return count
}
