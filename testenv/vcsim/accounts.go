package main

import (
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Accounts checks passwords and locks accounts as vCenter's single sign-on does: 5 failures in 180
// s, then the correct password is rejected too until the lock expires.
type Accounts struct {
	maxFailures int
	window      time.Duration
	lockFor     time.Duration
	now         func() time.Time

	mu          sync.Mutex
	password    map[string]string
	failed      map[string][]time.Time
	lockedUntil map[string]time.Time
}

// NewAccounts returns a password store without accounts.
func NewAccounts(failures int, within, locked time.Duration) *Accounts {
	return &Accounts{
		maxFailures: failures, window: within, lockFor: locked, now: time.Now,
		password:    map[string]string{},
		failed:      map[string][]time.Time{},
		lockedUntil: map[string]time.Time{},
	}
}

// Set creates an account or changes its password.
func (a *Accounts) Set(user, password string) {
	a.mu.Lock()
	a.password[user] = password
	a.mu.Unlock()
}

// Unlock unlocks an account and resets its failure count.
func (a *Accounts) Unlock(user string) {
	a.mu.Lock()
	delete(a.failed, user)
	delete(a.lockedUntil, user)
	a.mu.Unlock()
}

// Locked reports whether the account is locked now.
func (a *Accounts) Locked(user string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now().Before(a.lockedUntil[user])
}

// Valid checks one login attempt and counts its failure.
func (a *Accounts) Valid(login *types.Login) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	user, now := login.UserName, a.now()
	if now.Before(a.lockedUntil[user]) {
		return false
	}
	if password, ok := a.password[user]; ok && password == login.Password {
		delete(a.failed, user)
		return true
	}
	recent := []time.Time{now}
	for _, failedAt := range a.failed[user] {
		if now.Sub(failedAt) < a.window {
			recent = append(recent, failedAt)
		}
	}
	a.failed[user] = recent
	if a.maxFailures > 0 && len(recent) >= a.maxFailures {
		a.lockedUntil[user] = now.Add(a.lockFor)
		delete(a.failed, user)
	}
	return false
}
