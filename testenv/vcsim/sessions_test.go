package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

var user = url.UserPassword("user", "pass")

type sessionList struct {
	SOAP []SessionView `json:"soap"`
	REST []RESTSession `json:"rest"`
}

func (r *rig) sessions() sessionList {
	r.Helper()
	var list sessionList
	r.call("GET", "/sessions", nil, &list)
	return list
}

func TestReadsNeedALiveSession(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	root := client.ServiceContent.RootFolder
	var folder mo.Folder
	read := func() error { return client.RetrieveOne(ctx, root, []string{"name"}, &folder) }
	if err := read(); err != nil {
		t.Fatal(err)
	}
	rig.call("POST", "/sessions/expire", params{"all": true}, nil)
	err := read()
	expectFault[*types.NotAuthenticated](t, err)
	if want := "The session is not authenticated."; soap.ToSoapFault(err).String != want {
		t.Fatalf("got fault %q", soap.ToSoapFault(err).String)
	}
	if _, err := methods.GetServiceContent(ctx, client.Client); err != nil {
		t.Fatal("the service content is for everyone:", err)
	}
	active, err := session.NewManager(client.Client).UserSession(ctx)
	if err != nil || active != nil {
		t.Fatalf("without a session currentSession is unset, not %v, %v", active, err)
	}
}

func TestSessionsEndByUserAndByKey(t *testing.T) {
	rig := start(t, "--account", "other:secret")
	rig.client()
	if _, err := rig.login("other", "secret"); err != nil {
		t.Fatal(err)
	}
	if live := rig.sessions().SOAP; len(live) != 2 || live[0].User != "user" ||
		live[1].User != "other" {
		t.Fatalf("sessions: %+v", live)
	}
	rig.call("POST", "/sessions/expire", params{"user": "other"}, nil)
	live := rig.sessions().SOAP
	if len(live) != 1 || live[0].User != "user" {
		t.Fatalf("sessions: %+v", live)
	}
	rig.call("POST", "/sessions/expire", params{"key": live[0].Key}, nil)
	if live := rig.sessions().SOAP; len(live) != 0 {
		t.Fatalf("sessions: %+v", live)
	}
}

func TestAnEndedSessionReleasesItsObjects(t *testing.T) {
	rig := start(t)
	client, ctx := rig.client(), context.Background()
	if _, err := view.NewManager(client.Client).CreateContainerView(
		ctx, client.ServiceContent.RootFolder, []string{"HostSystem"}, true,
	); err != nil {
		t.Fatal(err)
	}
	watch := watchFor(rig, client, "HostSystem", "name")
	watch.next()
	ended := make(chan error, 1)
	go func() {
		_, err := watch.wait(nil)
		ended <- err
	}()
	eventually(t, "the open call is shown", func() bool {
		return rig.sessions().SOAP[0].Waiting == 1
	})
	if live := rig.sessions().SOAP[0]; len(live.Filters) != 1 || len(live.Views) != 2 {
		t.Fatalf("session: %+v", live)
	}
	rig.call("POST", "/sessions/expire", params{"all": true}, nil)
	expectFault[*types.NotAuthenticated](t, <-ended)
	if err := client.Login(ctx, user); err != nil {
		t.Fatal(err)
	}
	if live := rig.sessions().SOAP; len(live) != 1 || len(live[0].Filters)+len(live[0].Views) != 0 {
		t.Fatalf("sessions: %+v", live)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	rig := start(t, "--session-timeout", "300ms")
	client := rig.client()
	eventually(t, "the idle session ends", func() bool { return len(rig.sessions().SOAP) == 0 })
	_, err := methods.GetCurrentTime(context.Background(), client.Client)
	expectFault[*types.NotAuthenticated](t, err)
}

func TestLoginOnALiveSession(t *testing.T) {
	rig := start(t)
	client := rig.client()
	if err := client.Login(context.Background(), user); err != nil {
		t.Fatal(err)
	}
	if live := rig.sessions().SOAP; len(live) != 1 {
		t.Fatalf("the old session stays: %+v", live)
	}
	strict := start(t, "--relogin=false")
	err := strict.client().Login(context.Background(), user)
	expectFault[*types.InvalidLogin](t, err)
}

func TestTooManySessions(t *testing.T) {
	rig := start(t, "--max-sessions", "2")
	first := rig.client()
	rig.client()
	if _, err := rig.login("user", "pass"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Fatalf("the third login gave %v", err)
	}
	if _, err := methods.GetCurrentTime(context.Background(), first.Client); err != nil {
		t.Fatal("a client with a session must keep it:", err)
	}
	if err := first.Logout(context.Background()); err != nil {
		t.Fatal(err)
	}
	rig.client()
}

func TestRESTSessionsAreListedAndEnded(t *testing.T) {
	rig := start(t)
	ctx := context.Background()
	vapi := rest.NewClient(rig.client().Client)
	if err := vapi.Login(ctx, user); err != nil {
		t.Fatal(err)
	}
	if list := rig.sessions().REST; len(list) != 1 || list[0].User != "user" {
		t.Fatalf("REST sessions: %+v", list)
	}
	rig.call("POST", "/sessions/expire", params{"all": true}, nil)
	request := vapi.Resource("/com/vmware/cis/tagging/tag").Request(http.MethodGet)
	if err := vapi.Do(ctx, request, nil); err == nil {
		t.Fatal("an ended REST session still reads")
	}
}

func TestLogoutReleasesAllObjects(t *testing.T) {
	rig := start(t)
	if err := rig.client().Logout(context.Background()); err != nil {
		t.Fatal(err)
	}
	if list := rig.sessions(); len(list.SOAP)+len(list.REST) != 0 {
		t.Fatalf("sessions: %+v", list)
	}
}
