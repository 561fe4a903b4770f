package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Rule delays, fails or holds the next calls of a method, or drops their answers.
type Rule struct {
	Method string `json:"method"` // "*" matches every method
	// Object is a reference such as vm-12. Empty matches every object.
	Object string `json:"object,omitempty"`
	Count  int    `json:"count"` // number of calls; 0 means all
	// Where is one of ruleStages: "call" before the work, "task" in the started task, "answer"
	// after the work.
	Where  string          `json:"where"`
	Fault  string          `json:"fault,omitempty"`  // such as NoPermission; empty: no fault
	Fields json.RawMessage `json:"fields,omitempty"` // fields of the fault, by their wire names
	Delay  Duration        `json:"delay,omitempty"`
	Hold   bool            `json:"hold,omitempty"` // wait until released
	// At is the progress of a task, in percent, at which Hold applies: 100 by default, 0 without a
	// delay.
	At *int32 `json:"at,omitempty"`
	// Drop closes the connection instead of answering. It requires "answer".
	Drop bool `json:"drop,omitempty"`
}

// Duration is a time.Duration that JSON writes as "1.5s".
type Duration time.Duration

// UnmarshalJSON reads "1.5s", or a number of seconds.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var seconds float64
	if json.Unmarshal(data, &seconds) == nil {
		*d = Duration(seconds * float64(time.Second))
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// MarshalJSON writes "1.5s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Rules is the list of active rules; the first match applies.
type Rules struct {
	mu      sync.Mutex
	rules   []*Rule
	held    map[int]*Held
	last    int           // id of the last held call
	cleared chan struct{} // closed by Clear to end all delays and holds
}

// NewRules returns an empty list.
func NewRules() *Rules { return &Rules{held: map[int]*Held{}, cleared: make(chan struct{})} }

// Add validates a rule and appends it.
func (r *Rules) Add(rule Rule) error {
	if rule.Method == "" {
		return fmt.Errorf("method is required: a name such as CloneVM_Task, or * for all")
	}
	if rule.Where == "" {
		rule.Where = "call"
	}
	if !slices.Contains(ruleStages, rule.Where) {
		return fmt.Errorf(
			"where: unsupported value %q; use one of %s",
			rule.Where,
			strings.Join(ruleStages, ", "),
		)
	}
	if err := rule.checkHold(); err != nil {
		return err
	}
	if rule.Where == "task" && rule.Method != "*" && !strings.HasSuffix(rule.Method, "_Task") {
		return fmt.Errorf("%s starts no task; only methods that end in _Task do", rule.Method)
	}
	if rule.Drop && rule.Where != "answer" {
		return fmt.Errorf(
			"drop requires where=answer; use an outage to reject calls",
		)
	}
	if rule.Fault != "" && (rule.Where == "answer" || rule.Where == "page") {
		return fmt.Errorf(
			"fault requires where=call or where=task; an answer can be delayed or held",
		)
	}
	if _, err := rule.fault(); err != nil {
		return err
	}
	r.mu.Lock()
	r.rules = append(r.rules, &rule)
	r.mu.Unlock()
	return nil
}

// ruleStages are the values of Rule.Where. A page is one of several answers for a large result: of
// RetrievePropertiesEx and ContinueRetrievePropertiesEx, and of the first WaitForUpdatesEx calls of
// a filter.
var ruleStages = []string{"call", "task", "answer", "page"}

// internalStage is where delayInternal applies: in a task that the control endpoint starts, to which
// the rules of tests do not apply.
const internalStage = "internal"

// delayInternal sets how long the next task of the control endpoint takes, with that method and
// object.
func (r *Rules) delayInternal(method string, object types.ManagedObjectReference, length Duration) {
	if length <= 0 {
		return
	}
	r.mu.Lock()
	r.rules = append(r.rules, &Rule{
		Method: method, Object: object.Value, Count: 1, Where: internalStage, Delay: length,
	})
	r.mu.Unlock()
}

func (r *Rule) checkHold() error {
	if r.At == nil {
		return nil
	}
	if !r.Hold || r.Where != "task" {
		return fmt.Errorf(
			"at is the progress of a held task: it requires hold and where=task",
		)
	}
	if *r.At < 0 || *r.At > 100 {
		return fmt.Errorf("at: %d is not a percentage from 0 to 100", *r.At)
	}
	return nil
}

// holdAt returns the progress, in percent, at which a call is held. Without a delay it is held
// before its work begins.
func (r *Rule) holdAt() int32 {
	switch {
	case r.At != nil:
		return *r.At
	case r.Delay > 0:
		return 100
	}
	return 0
}

// List returns the remaining rules.
func (r *Rules) List() []Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := []Rule{}
	for _, rule := range r.rules {
		left = append(left, *rule)
	}
	return left
}

// Clear removes all rules and ends all delays and holds.
func (r *Rules) Clear() {
	r.mu.Lock()
	r.rules = nil
	close(r.cleared)
	r.cleared = make(chan struct{})
	r.mu.Unlock()
}

// Take applies the first matching rule once and returns its effect.
func (r *Rules) Take(where, method, object string) Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rule := range r.rules {
		if rule.Where != where || (rule.Method != "*" && rule.Method != method) ||
			(rule.Object != "" && rule.Object != object) {
			continue
		}
		if rule.Count > 0 {
			if rule.Count--; rule.Count == 0 {
				r.rules = append(r.rules[:i:i], r.rules[i+1:]...)
			}
		}
		fault, _ := rule.fault()
		effect := Effect{
			Fault:   fault,
			Drop:    rule.Drop,
			delay:   time.Duration(rule.Delay),
			rules:   r,
			cleared: r.cleared,
		}
		if rule.Hold {
			effect.holdAt = rule.holdAt()
			effect.hold = &Held{
				Method:   method,
				Object:   object,
				Where:    where,
				At:       effect.holdAt,
				released: make(chan struct{}),
			}
		}
		return effect
	}
	return Effect{}
}

func (r *Rule) fault() (types.BaseMethodFault, error) {
	if r.Fault == "" {
		return nil, nil
	}
	kind, ok := types.TypeFunc()(r.Fault)
	if !ok {
		return nil, fmt.Errorf(
			"unknown fault %q; use a name of the vSphere API such as NoPermission",
			r.Fault,
		)
	}
	fault, ok := reflect.New(kind).Interface().(types.BaseMethodFault)
	if !ok {
		return nil, fmt.Errorf("%s is a type but not a fault", r.Fault)
	}
	if len(r.Fields) > 0 {
		if err := json.Unmarshal(r.Fields, fault); err != nil {
			return nil, fmt.Errorf("fields of %s: %w", r.Fault, err)
		}
	}
	return fault, nil
}
