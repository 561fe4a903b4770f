package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
)

// REST accesses the sessions and tags of the library's vAPI endpoint.
type REST struct {
	mux      *http.ServeMux
	login    *url.Userinfo
	sessions map[string]*rest.Session
	lock     sync.Locker
}

// NewREST finds the endpoint in the routes of the service. Its type is not exported, but its fields
// are.
func NewREST(mux *http.ServeMux, login *url.Userinfo) (*REST, error) {
	endpoint, _ := mux.Handler(&http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: rest.Path + "/"},
	})
	lock, ok := endpoint.(sync.Locker)
	if !ok {
		return nil, errors.New("the library has no vAPI endpoint: is vapi/simulator imported?")
	}
	field := reflect.ValueOf(endpoint).Elem().FieldByName("Session")
	sessions, ok := field.Interface().(map[string]*rest.Session)
	if !ok {
		return nil, errors.New("the library's vAPI endpoint has no sessions in its field Session")
	}
	return &REST{mux: mux, login: login, sessions: sessions, lock: lock}, nil
}

// RESTSession is a REST session as the control endpoint shows it.
type RESTSession struct {
	Key        string    `json:"key"`
	User       string    `json:"user"`
	Login      time.Time `json:"login"`
	LastActive time.Time `json:"lastActive"`
}

// View lists the REST sessions of clients, the oldest first.
func (r *REST) View() []RESTSession {
	r.lock.Lock()
	defer r.lock.Unlock()
	views := []RESTSession{}
	for key, session := range r.sessions {
		if session.User != r.login.Username() {
			views = append(views, RESTSession{
				Key:        key,
				User:       session.User,
				Login:      session.Created,
				LastActive: session.LastAccessed,
			})
		}
	}
	slices.SortFunc(views, func(a, b RESTSession) int { return a.Login.Compare(b.Login) })
	return views
}

// UserOf returns the account of a session, or "" if there is no such session.
func (r *REST) UserOf(key string) string {
	r.lock.Lock()
	defer r.lock.Unlock()
	if session := r.sessions[key]; session != nil {
		return session.User
	}
	return ""
}

// End ends the matching REST sessions and returns their number.
func (r *REST) End(match func(RESTSession) bool) int {
	ended := 0
	for _, view := range r.View() {
		if match(view) {
			r.lock.Lock()
			delete(r.sessions, view.Key)
			r.lock.Unlock()
			ended++
		}
	}
	return ended
}

// Sweep ends idle sessions until the context is done.
func (r *REST) Sweep(ctx context.Context, timeout time.Duration) {
	ticker := time.NewTicker(max(timeout/20, 20*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.End(func(session RESTSession) bool { return now.Sub(session.LastActive) > timeout })
		}
	}
}

// Tag attaches a tag to an entity or detaches it. It creates a missing category or tag.
func (r *REST) Tag(entity mo.Reference, category, name string, attach bool) error {
	ctx := context.Background()
	client := r.client()
	if err := client.Login(ctx, r.login); err != nil {
		return err
	}
	defer func() { _ = client.Logout(ctx) }()
	manager := tags.NewManager(client)
	tag, err := ensureTag(ctx, manager, category, name)
	if err != nil {
		return err
	}
	if attach {
		return manager.AttachTag(ctx, tag, entity)
	}
	return manager.DetachTag(ctx, tag, entity)
}

func ensureTag(ctx context.Context, manager *tags.Manager, category, name string) (string, error) {
	if tag, err := manager.GetTagForCategory(ctx, name, category); err == nil {
		return tag.ID, nil
	}
	categoryID, err := ensureCategory(ctx, manager, category)
	if err != nil {
		return "", err
	}
	return manager.CreateTag(ctx, &tags.Tag{Name: name, CategoryID: categoryID})
}

func ensureCategory(ctx context.Context, manager *tags.Manager, name string) (string, error) {
	if category, err := manager.GetCategory(ctx, name); err == nil {
		return category.ID, nil
	}
	return manager.CreateCategory(ctx, &tags.Category{Name: name, Cardinality: "MULTIPLE"})
}

func (r *REST) client() *rest.Client {
	wire := soap.NewClient(&url.URL{Scheme: "http", Host: "vcsim", Path: vim25.Path}, true)
	client := rest.NewClient(&vim25.Client{Client: wire})
	client.Transport = inProcess{r.mux}
	return client
}

// inProcess sends requests to a handler without a network.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	p.handler.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// restCall returns the name of a REST call for counters and ledger, and whether it is mutating.
func restCall(request *http.Request) (name string, changes bool) {
	name = request.Method + " " + request.URL.Path
	action := request.URL.Query().Get("~action")
	if action == "" {
		action = request.URL.Query().Get("action")
	}
	if action != "" {
		name += "?~action=" + action
	}
	asks := strings.HasPrefix(action, "list") || strings.HasPrefix(action, "get") ||
		strings.HasSuffix(request.URL.Path, "/session")
	return name, request.Method != http.MethodGet && !asks
}
