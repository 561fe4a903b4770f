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
	Gate      *Gate
	Accounts  *Accounts
	Inventory *Inventory
	REST      *REST
	Outages   *Outages

	removing     sync.Mutex // one change of the next three at a time
	removedHosts map[string]*removedHost
	saved        *Backup
	dropped      []*simulator.VirtualMachine // by the last restore
}

// nothing is the body of calls that need none.
type nothing struct{}

// Handler routes the calls; GET / lists them.
func (c *Control) Handler() http.Handler {
	routes := c.routes()
	mux := http.NewServeMux()
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	mux.HandleFunc("GET /{$}", reply(func(nothing) (any, error) { return slices.Sorted(maps.Keys(routes)), nil }))
	return mux
}

func (c *Control) routes() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"GET /clock":            reply(func(nothing) (any, error) { return map[string]any{"time": time.Now()}, nil }),
		"GET /calls":            reply(func(nothing) (any, error) { return c.Gate.Calls.Counts(), nil }),
		"DELETE /calls":         reply(func(nothing) (any, error) { c.Gate.Calls.ResetCounts(); return nil, nil }),
		"GET /ledger":           reply(func(nothing) (any, error) { return c.Gate.Calls.Ledger(), nil }),
		"DELETE /ledger":        reply(func(nothing) (any, error) { c.Gate.Calls.ResetLedger(); return nil, nil }),
		"GET /sessions":         reply(c.sessions),
		"POST /sessions/expire": reply(c.expire),
		"GET /rules":            reply(func(nothing) (any, error) { return c.Gate.Rules.List(), nil }),
		"POST /rules":           reply(func(rule Rule) (any, error) { return nil, c.Gate.Rules.Add(rule) }),
		"DELETE /rules":         reply(func(nothing) (any, error) { c.Gate.Rules.Clear(); return nil, nil }),
		"GET /held":             reply(func(nothing) (any, error) { return c.Gate.Rules.Held(), nil }),
		"POST /release":         reply(c.release),
		"POST /outage":          reply(c.outage),
		"POST /accounts":        reply(c.account),
		"GET /permissions":      reply(func(nothing) (any, error) { return c.Gate.Permissions.List(), nil }),
		"POST /permissions":     reply(c.permission),
		"DELETE /permissions":   reply(func(nothing) (any, error) { c.Gate.Permissions.Clear(); return nil, nil }),
	}
	maps.Copy(routes, c.inventoryRoutes())
	maps.Copy(routes, c.removalRoutes())
	return routes
}

// removalRoutes are the calls that take objects out of the inventory and put them back, one at a time.
func (c *Control) removalRoutes() map[string]http.HandlerFunc {
	c.removedHosts = map[string]*removedHost{}
	routes := map[string]http.HandlerFunc{
		"POST /host/remove": reply(c.removeHost),
		"POST /host/add":    reply(c.addHost),
		"POST /backup":      reply(c.backup),
		"POST /restore":     reply(c.restore),
		"POST /discover":    reply(c.discover),
	}
	for pattern, handler := range routes {
		routes[pattern] = func(w http.ResponseWriter, request *http.Request) {
			c.removing.Lock()
			defer c.removing.Unlock()
			handler(w, request)
		}
	}
	return routes
}

func (c *Control) sessions(nothing) (any, error) {
	return map[string]any{"soap": c.Gate.Sessions.View(), "rest": c.REST.View()}, nil
}

// Expiry selects the sessions that end; SOAP and REST sessions alike.
type Expiry struct {
	All  bool   `json:"all"`
	User string `json:"user"`
	Key  string `json:"key"`
}

func (e Expiry) fits(user, key string) bool {
	return e.All || (e.User != "" && e.User == user) || (e.Key != "" && e.Key == key)
}

func (c *Control) expire(selector Expiry) (any, error) {
	if selector == (Expiry{}) {
		return nil, fmt.Errorf("say which sessions: all, user or key")
	}
	soap := c.Gate.Sessions.End(func(live types.UserSession) bool { return selector.fits(live.UserName, live.Key) })
	rest := c.REST.End(func(session RESTSession) bool { return selector.fits(session.User, session.Key) })
	return map[string]int{"ended": soap + rest}, nil
}

// Release selects what is released: one by its id, those of a method, or all.
type Release struct {
	ID     int    `json:"id"`
	Method string `json:"method"`
}

func (c *Control) release(selector Release) (any, error) {
	return map[string]int{"released": c.Gate.Rules.Release(selector.ID, selector.Method)}, nil
}

// Outage is a time during which the server does not answer.
type Outage struct {
	How    string   `json:"how"` // "503", "reset", "hang"; empty ends it
	Length Duration `json:"length"`
}

func (c *Control) outage(request Outage) (any, error) {
	if !slices.Contains([]string{"", "503", "reset", "hang"}, request.How) {
		return nil, fmt.Errorf("how is %q, and can be 503, reset, hang or empty", request.How)
	}
	c.Outages.Begin(request.How, time.Duration(request.Length))
	return nil, nil
}

// Account is an account to be made, changed or unlocked.
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

// reply turns a function of a JSON body into a handler; its error is the answer's text, with status 400.
func reply[Request any](act func(Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if r.Method == http.MethodPost {
			decoder := json.NewDecoder(r.Body)
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&request); err != nil {
				http.Error(w, "the body is not what is expected here: "+err.Error(), http.StatusBadRequest)
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
