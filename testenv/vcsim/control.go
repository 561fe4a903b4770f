package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// Control is the endpoint for tests: HTTP and JSON, on loopback, without a password.
type Control struct {
	Interceptor *Interceptor
	Accounts    *Accounts
	Inventory   *Inventory
	REST        *REST
	Outages     *Outages

	removalMu    sync.Mutex // guards the next three
	removedHosts map[string]*removedHost
	lastBackup   *Backup
	droppedVMs   []*simulator.VirtualMachine // removed by the last restore
}

// emptyRequest is the request type of calls without a body.
type emptyRequest struct{}

// Handler routes the calls; GET / lists them.
func (c *Control) Handler() http.Handler {
	routes := c.routes()
	mux := http.NewServeMux()
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	mux.HandleFunc("GET /{$}", handle(func(emptyRequest) (any, error) {
		return slices.Sorted(maps.Keys(routes)), nil
	}))
	return mux
}

func (c *Control) routes() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"GET /clock": handle(func(emptyRequest) (any, error) {
			return map[string]any{"time": time.Now()}, nil
		}),
		"GET /calls": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Calls.Counts(), nil
		}),
		"DELETE /calls": handle(func(emptyRequest) (any, error) {
			c.Interceptor.Calls.ResetCounts()
			return nil, nil
		}),
		"GET /ledger": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Calls.Ledger(), nil
		}),
		"DELETE /ledger": handle(func(emptyRequest) (any, error) {
			c.Interceptor.Calls.ResetLedger()
			return nil, nil
		}),
		"GET /sessions":         handle(c.sessions),
		"POST /sessions/expire": handle(c.expire),
		"GET /rules": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Rules.List(), nil
		}),
		"POST /rules": handle(func(rule Rule) (any, error) {
			return nil, c.Interceptor.Rules.Add(rule)
		}),
		"DELETE /rules": handle(func(emptyRequest) (any, error) {
			c.Interceptor.Rules.Clear()
			return nil, nil
		}),
		"GET /held": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Rules.Held(), nil
		}),
		"POST /release":  handle(c.release),
		"POST /outage":   handle(c.outage),
		"POST /accounts": handle(c.account),
		"GET /permissions": handle(func(emptyRequest) (any, error) {
			return c.Interceptor.Permissions.List(), nil
		}),
		"POST /permissions": handle(c.permission),
		"DELETE /permissions": handle(func(emptyRequest) (any, error) {
			c.Interceptor.Permissions.Clear()
			return nil, nil
		}),
	}
	maps.Copy(routes, c.inventoryRoutes())
	maps.Copy(routes, c.removalRoutes())
	return routes
}

// removalRoutes returns the calls that remove objects from the inventory and add them again. They
// run one at a time.
func (c *Control) removalRoutes() map[string]http.HandlerFunc {
	c.removedHosts = map[string]*removedHost{}
	routes := map[string]http.HandlerFunc{
		"POST /host/remove": handle(c.removeHost),
		"POST /host/add":    handle(c.addHost),
		"POST /backup":      handle(c.backup),
		"POST /restore":     handle(c.restore),
		"POST /discover":    handle(c.discover),
	}
	for pattern, handler := range routes {
		routes[pattern] = func(w http.ResponseWriter, request *http.Request) {
			c.removalMu.Lock()
			defer c.removalMu.Unlock()
			handler(w, request)
		}
	}
	return routes
}

func (c *Control) sessions(emptyRequest) (any, error) {
	return map[string]any{"soap": c.Interceptor.Sessions.View(), "rest": c.REST.View()}, nil
}

// SessionSelector selects SOAP and REST sessions to end.
type SessionSelector struct {
	All  bool   `json:"all"`
	User string `json:"user"`
	Key  string `json:"key"`
}

func (s SessionSelector) matches(user, key string) bool {
	return s.All || (s.User != "" && s.User == user) || (s.Key != "" && s.Key == key)
}

func (c *Control) expire(selector SessionSelector) (any, error) {
	if selector == (SessionSelector{}) {
		return nil, fmt.Errorf("select sessions by all, user or key")
	}
	soap := c.Interceptor.Sessions.End(func(live types.UserSession) bool {
		return selector.matches(live.UserName, live.Key)
	})
	rest := c.REST.End(func(session RESTSession) bool {
		return selector.matches(session.User, session.Key)
	})
	return map[string]int{"ended": soap + rest}, nil
}

// HeldSelector selects held calls to release: one by its id, those of a method, or all.
type HeldSelector struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
}

func (c *Control) release(selector HeldSelector) (any, error) {
	released := c.Interceptor.Rules.Release(selector.ID, selector.Method)
	return map[string]int{"released": released}, nil
}

// Outage is a time during which the server does not answer.
type Outage struct {
	How    string   `json:"how"` // "503", "reset", "hang"; empty ends it
	Length Duration `json:"length"`
}

func (c *Control) outage(request Outage) (any, error) {
	if !slices.Contains([]string{"", "503", "reset", "hang"}, request.How) {
		return nil, fmt.Errorf(
			"how: unsupported value %q; use 503, reset, hang or an empty string", request.How,
		)
	}
	c.Outages.Begin(request.How, time.Duration(request.Length))
	return nil, nil
}

// Account is an account to create, change or unlock.
type Account struct {
	User     string `json:"user"`
	Password string `json:"password"`
	Unlock   bool   `json:"unlock"`
}

func (c *Control) account(request Account) (any, error) {
	if request.Password != "" {
		c.Accounts.Set(request.User, request.Password)
	}
	if request.Unlock {
		c.Accounts.Unlock(request.User)
	}
	return map[string]bool{"locked": c.Accounts.Locked(request.User)}, nil
}

// handle returns an HTTP handler that decodes a JSON request and encodes the result of act. An
// error is returned as text with status 400.
func handle[Request any](act func(Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if r.Method == http.MethodPost {
			decoder := json.NewDecoder(r.Body)
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&request); err != nil {
				http.Error(
					w, "invalid request body: "+err.Error(), http.StatusBadRequest,
				)
				return
			}
		}
		result, err := act(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	}
}
