package main

import (
	"maps"
	"sync"
	"time"
)

// Calls counts the calls by method and keeps a ledger of those that change something.
type Calls struct {
	mu       sync.Mutex
	counts   map[string]int
	ledger   []LedgerEntry
	sequence int
}

// LedgerEntry is one changing call.
type LedgerEntry struct {
	Sequence int       `json:"sequence"` // grows by one with each call, also over a reset
	Time     time.Time `json:"time"`     // when its work began: after a delay or a hold
	Method   string    `json:"method"`
	Object   string    `json:"object"`  // such as VirtualMachine:vm-12; of a REST call its path
	Name     string    `json:"name"`    // the object's, when the call came
	NewName  string    `json:"newName"` // what it makes, or the object from now on, is to be called
	Session  string    `json:"session"`
	User     string    `json:"user"`
	// the fault with which our rules refused it, before it could run
	Refused string `json:"refused,omitempty"`
}

// NewCalls has counted nothing.
func NewCalls() *Calls { return &Calls{counts: map[string]int{}} }

// Count adds one call.
func (c *Calls) Count(method string) {
	c.mu.Lock()
	c.counts[method]++
	c.mu.Unlock()
}

// Record writes one changing call down.
func (c *Calls) Record(entry LedgerEntry) {
	c.mu.Lock()
	c.sequence++
	entry.Sequence = c.sequence
	c.ledger = append(c.ledger, entry)
	c.mu.Unlock()
}

// Counts is a copy.
func (c *Calls) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Ledger is a copy.
func (c *Calls) Ledger() []LedgerEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]LedgerEntry{}, c.ledger...)
}

// ResetCounts starts at nothing again.
func (c *Calls) ResetCounts() {
	c.mu.Lock()
	c.counts = map[string]int{}
	c.mu.Unlock()
}

// ResetLedger empties the ledger.
func (c *Calls) ResetLedger() {
	c.mu.Lock()
	c.ledger = nil
	c.mu.Unlock()
}
