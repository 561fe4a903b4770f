package main

import (
	"context"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

func (r *rig) held() []Held {
	r.Helper()
	var list []Held
	r.call("GET", "/held", nil, &list)
	return list
}

func (r *rig) ledger() []LedgerEntry {
	r.Helper()
	var ledger []LedgerEntry
	r.call("GET", "/ledger", nil, &ledger)
	return ledger
}

func TestACallIsHeldBeforeOrAfterItsWork(t *testing.T) {
	for where, done := range map[string]int{"call": 0, "answer": 1} {
		s := startCloneRig(t)
		s.call("POST", "/rules", params{
			"method": "CreateFolder", "where": where, "hold": true, "count": 1,
		}, nil)
		ended := make(chan error, 1)
		go func() {
			_, err := s.folder.CreateFolder(context.Background(), "group")
			ended <- err
		}()
		eventually(t, "the call is held", func() bool { return len(s.held()) == 1 })
		if held := s.held()[0]; held.Where != where || held.Method != "CreateFolder" ||
			held.Object != s.folder.Reference().Value {
			t.Errorf("held is %+v", held)
		}
		if got := len(s.ledger()); got != done {
			t.Errorf("%s: %d calls ran while it was held", where, got)
		}
		select {
		case err := <-ended:
			t.Errorf("%s: it was answered: %v", where, err)
		default:
		}
		s.call("POST", "/release", params{"method": "CreateFolder"}, nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		entry := s.ledger()[0]
		if entry.NewName != "group" || entry.Name != "vm-operator" || entry.Sequence != 1 ||
			len(s.held()) != 0 {
			t.Errorf("the ledger has %+v", entry)
		}
	}
}

func TestAHeldCallRunsThoughItsSenderIsGone(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/rules", params{"method": "CreateFolder", "hold": true, "count": 1}, nil)
	ctx, hangUp := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := s.folder.CreateFolder(ctx, "group")
		ended <- err
	}()
	eventually(t, "the call is held", func() bool { return len(s.held()) == 1 })
	hangUp()
	if err := <-ended; err == nil {
		t.Error("the sender was answered")
	}
	s.call("POST", "/release", params{"id": s.held()[0].ID}, nil)
	eventually(t, "the call has run", func() bool { return len(s.ledger()) == 1 })
}

func TestAnAnswerIsLost(t *testing.T) {
	s := startCloneRig(t)
	s.call("POST", "/rules", params{
		"method": "CreateFolder", "where": "answer", "drop": true, "count": 1,
	}, nil)
	if _, err := s.folder.CreateFolder(context.Background(), "group"); err == nil {
		t.Fatal("it was answered")
	}
	_, err := s.folder.CreateFolder(context.Background(), "group")
	expectFault[*types.DuplicateName](t, err)
}

func TestInvalidRulesAreRejected(t *testing.T) {
	rig := start(t)
	for _, rule := range []params{
		{"method": "CreateFolder", "drop": true},
		{"method": "CreateFolder", "where": "answer", "fault": "NoPermission"},
		{"method": "CreateFolder", "where": "task", "hold": true},
		{"method": "CreateFolder", "where": "later"},
	} {
		if text := rig.tryCall("POST", "/rules", rule, nil); text == "" {
			t.Errorf("%v was accepted", rule)
		}
	}
}

func TestFaultsInsideTheTask(t *testing.T) {
	s := startCloneRig(t)
	for fault, fields := range map[string]params{
		"NoPermission":               {"privilegeId": "VirtualMachine.Provisioning.DeployTemplate"},
		"InsufficientResourcesFault": {},
		"NoDiskSpace":                {"datastore": "LocalDS_0"},
		"DuplicateName":              {"name": "x"}, "InvalidState": {},
	} {
		s.call("POST", "/rules", params{
			"method": "CloneVM_Task",
			"where":  "task",
			"fault":  fault,
			"fields": fields,
			"count":  1,
		}, nil)
		info, err := s.clone("x", nil).WaitForResult(context.Background(), nil)
		if err == nil || faultName(info.Error.Fault.(types.BaseMethodFault)) != fault {
			t.Errorf("%s: %v", fault, err)
		}
		if refused, ok := info.Error.Fault.(*types.NoPermission); ok &&
			!strings.HasPrefix(refused.PrivilegeId, "VirtualMachine.") {
			t.Errorf("the privilege is %q", refused.PrivilegeId)
		}
	}
	if counts := s.counts(); len(counts.Clones) != 0 ||
		counts.Folders["/DC0/vm/vm-operator"].Now != 0 {
		t.Errorf("left: %+v", counts)
	}
}
