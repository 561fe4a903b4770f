package main

import (
	"maps"
	"sync"
	"time"
)

// Calls counts calls by method and keeps a ledger of the mutating ones.
type Calls struct {
	mu       sync.Mutex
	counts   map[string]int
	ledger   []LedgerEntry
	sequence int
}

// LedgerEntry is one mutating call.
type LedgerEntry struct {
	// Sequence increases by one with each call. A reset does not restart it.
	Sequence int       `json:"sequence"`
	Time     time.Time `json:"time"` // when its work began, after any delay or hold
	Method   string    `json:"method"`
	Object   string    `json:"object"`  // such as VirtualMachine:vm-12; the path of a REST call
	Name     string    `json:"name"`    // the object's name when the call arrived
	NewName  string    `json:"newName"` // name of the created or renamed object
	Session  string    `json:"session"`
	User     string    `json:"user"`
	// Refused is the fault of a call that the simulator rejected before it ran.
	Refused string `json:"refused,omitempty"`
}

// NewCalls returns counters at zero and an empty ledger.
func NewCalls() *Calls { return &Calls{counts: map[string]int{}} }

// Count counts one call of a method.
func (c *Calls) Count(method string) {
	c.mu.Lock()
	c.counts[method]++
	c.mu.Unlock()
}

// Record appends a mutating call to the ledger.
func (c *Calls) Record(entry LedgerEntry) {
	c.mu.Lock()
	c.sequence++
	entry.Sequence = c.sequence
	c.ledger = append(c.ledger, entry)
	c.mu.Unlock()
}

// Counts returns a copy of the counters.
func (c *Calls) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Ledger returns a copy of the ledger.
func (c *Calls) Ledger() []LedgerEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]LedgerEntry{}, c.ledger...)
}

// ResetCounts sets all counters to zero.
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
