package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Frontend handles HTTP before the library does: outages, the session limit, REST counters and
// fault messages.
type Frontend struct {
	Next        http.Handler
	Calls       *Calls
	Rules       *Rules
	Sessions    *Sessions
	REST        *REST
	MaxSessions int
	NewContext  func() *simulator.Context

	Permissions *Permissions
	API         *API
	Tunnel      *Tunnel

	outages Outages
}

// ServeHTTP implements http.Handler.
func (f *Frontend) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if f.outages.serve(w, request) {
		return
	}
	if f.tooManySessions(request) {
		http.Error(
			w, "503 Service Unavailable: out of HTTP sessions", http.StatusServiceUnavailable,
		)
		return
	}
	if !isSOAP(request) {
		f.serveREST(w, request)
		return
	}
	f.Tunnel.stripCertificate(request)
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	method, refs := methodIn(body), referencesIn(body)
	effect := f.effect(method, refs)
	response := &bufferedResponse{ResponseWriter: w, delayed: effect.waits() || effect.Drop}
	f.Next.ServeHTTP(response, request)
	if method != "" && !isReadOnly(method) {
		touch(f.NewContext(), refs...)
	}
	effect.Wait(nil)
	if effect.Drop {
		panic(http.ErrAbortHandler) // makes the server close the connection
	}
	response.finish()
}

func (f *Frontend) serveREST(w http.ResponseWriter, request *http.Request) {
	f.countREST(request)
	if privilege := f.missingPrivilege(request); privilege != "" {
		body := fmt.Sprintf(
			`{"type":%q,"value":{"messages":[{"default_message":%q}]}}`,
			"com.vmware.vapi.std.errors.unauthorized",
			"The account lacks the privilege "+privilege,
		)
		http.Error(w, body, http.StatusForbidden)
		return
	}
	if !f.API.serve(w, request) {
		f.Next.ServeHTTP(w, request)
	}
}

// effect returns what a rule does to the answer. The first reference in a request is the called
// object.
func (f *Frontend) effect(method string, refs []types.ManagedObjectReference) Effect {
	object := ""
	if len(refs) > 0 {
		object = refs[0].Value
	}
	return f.Rules.Take("answer", method, object)
}

// tooManySessions reports whether a request would exceed the session limit; vCenter then returns
// 503 even for RetrieveServiceContent.
func (f *Frontend) tooManySessions(request *http.Request) bool {
	if f.MaxSessions <= 0 {
		return false
	}
	live := f.Sessions.Live()
	if len(live)+len(f.REST.View()) < f.MaxSessions {
		return false
	}
	if request.Header.Get("vmware-api-session-id") != "" {
		return false
	}
	cookie, err := request.Cookie(soap.SessionCookieName)
	if err != nil {
		return true
	}
	for _, session := range live {
		if session.Key == cookie.Value {
			return false
		}
	}
	return true
}

func isSOAP(request *http.Request) bool {
	path := request.URL.Path
	return request.Method == http.MethodPost && !strings.HasPrefix(path, "/rest") &&
		!strings.HasPrefix(path, "/api")
}

func (f *Frontend) countREST(request *http.Request) {
	name, changes := restCall(request)
	f.Calls.Count(name)
	if changes {
		f.Calls.Record(LedgerEntry{
			Time:    time.Now(),
			Method:  name,
			Object:  request.URL.Path,
			Session: request.Header.Get("vmware-api-session-id"),
		})
	}
}

var (
	methodPattern    = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)
	referencePattern = regexp.MustCompile(`type="(\w+)"[^>]*>([\w-]+)<`)
)

func methodIn(body []byte) string {
	if match := methodPattern.FindSubmatch(body); match != nil {
		return string(match[1])
	}
	return ""
}

// referencesIn returns the references in a request; the library may have changed these objects
// silently.
func referencesIn(body []byte) []types.ManagedObjectReference {
	var refs []types.ManagedObjectReference
	for _, match := range referencePattern.FindAllSubmatch(body, -1) {
		refs = append(refs, types.ManagedObjectReference{
			Type: string(match[1]), Value: string(match[2]),
		})
	}
	return refs
}

// bufferedResponse buffers failed answers, to add a message, and delayed ones until they may be
// sent.
type bufferedResponse struct {
	http.ResponseWriter
	delayed bool
	failed  bool
	status  int
	body    bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *bufferedResponse) WriteHeader(status int) {
	a.failed, a.status = status == http.StatusInternalServerError, status
	if !a.failed && !a.delayed {
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (a *bufferedResponse) Write(data []byte) (int, error) {
	if a.failed || a.delayed {
		return a.body.Write(data)
	}
	return a.ResponseWriter.Write(data)
}

func (a *bufferedResponse) finish() {
	body := a.body.Bytes()
	if a.failed {
		a.ResponseWriter.Header().Set("Content-Type", "text/xml; charset=utf-8")
		body = withFaultMessage(body)
	}
	if a.failed || a.delayed {
		a.ResponseWriter.WriteHeader(cmp.Or(a.status, http.StatusOK))
		_, _ = a.ResponseWriter.Write(body)
	}
}

// Outages simulates downtime that keeps the state of the server.
type Outages struct {
	mu   sync.Mutex
	how  string
	done chan struct{}
}

// Begin starts an outage: "503" returns that status, "reset" closes connections, "hang" does not
// answer. An empty value ends it.
func (o *Outages) Begin(how string, length time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done != nil {
		close(o.done)
	}
	o.how, o.done = how, nil
	if how == "" {
		return
	}
	done := make(chan struct{})
	o.done = done
	if length > 0 {
		time.AfterFunc(length, func() { o.end(done) })
	}
}

func (o *Outages) end(done chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done == done {
		close(done)
		o.how, o.done = "", nil
	}
}

// serve handles a request during an outage. Without an outage it returns false.
func (o *Outages) serve(w http.ResponseWriter, request *http.Request) bool {
	o.mu.Lock()
	how, done := o.how, o.done
	o.mu.Unlock()
	switch how {
	case "":
		return false
	case "503":
		http.Error(w, "503 Service Unavailable", http.StatusServiceUnavailable)
		return true
	case "hang":
		select {
		case <-done:
		case <-request.Context().Done():
		}
	}
	panic(http.ErrAbortHandler)
}
