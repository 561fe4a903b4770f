package main

import (
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

func TestAnAccountIsLockedAndUnlocked(t *testing.T) {
	now := time.Unix(1000, 0)
	accounts := NewAccounts(5, 180*time.Second, 300*time.Second)
	accounts.now = func() time.Time { return now }
	accounts.Set("me", "right")
	try := func(password string) bool {
		return accounts.Valid(&types.Login{UserName: "me", Password: password})
	}

	for range 4 {
		try("wrong")
	}
	if !try("right") {
		t.Fatal("four failures must not lock")
	}
	for range 4 {
		try("wrong")
	}
	now = now.Add(181 * time.Second)
	try("wrong")
	if !try("right") {
		t.Fatal("old failures must not count")
	}
	for range 5 {
		try("wrong")
	}
	if try("right") || !accounts.Locked("me") {
		t.Fatal("five failures must lock even for the right password")
	}
	now = now.Add(301 * time.Second)
	if !try("right") {
		t.Fatal("the lock must pass")
	}
}

func TestLockoutOverTheWire(t *testing.T) {
	rig := start(t, "--lockout-failures", "3")
	for range 3 {
		_, err := rig.login("user", "wrong")
		expectFault[*types.InvalidLogin](t, err)
	}
	_, err := rig.login("user", "pass")
	expectFault[*types.InvalidLogin](t, err)
	rig.call("POST", "/accounts", params{"user": "user", "unlock": true}, nil)
	rig.client()
	rig.call("POST", "/accounts", params{"user": "user", "password": "new"}, nil)
	_, err = rig.login("user", "pass")
	expectFault[*types.InvalidLogin](t, err)
	if _, err = rig.login("user", "new"); err != nil {
		t.Fatal(err)
	}
}
