package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// rig is a running simulator with helpers for API clients and the control endpoint.
type rig struct {
	*testing.T
	server *Server
}

func start(t *testing.T, arguments ...string) *rig {
	t.Helper()
	settings, err := parse("vcsim", append([]string{"--state", t.TempDir()}, arguments...))
	if err != nil {
		t.Fatal(err)
	}
	server, err := Start(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return &rig{t, server}
}

func (r *rig) login(user, password string) (*govmomi.Client, error) {
	address := *r.server.URL
	address.User = url.UserPassword(user, password)
	return govmomi.NewClient(context.Background(), &address, true)
}

func (r *rig) client() *govmomi.Client {
	r.Helper()
	client, err := r.login("user", "pass")
	if err != nil {
		r.Fatal(err)
	}
	return client
}

func (r *rig) vm(client *govmomi.Client, name string) *object.VirtualMachine {
	r.Helper()
	finder := find.NewFinder(client.Client)
	vm, err := finder.VirtualMachine(context.Background(), "/*/vm/"+name)
	if err != nil {
		r.Fatal(err)
	}
	return vm
}

func (r *rig) folder(client *govmomi.Client, name string) *object.Folder {
	r.Helper()
	folder, err := find.NewFinder(client.Client).Folder(context.Background(), "/DC0/vm/"+name)
	if err != nil {
		r.Fatal(err)
	}
	return folder
}

// call calls the control endpoint and decodes the result into `into`, which may be nil.
func (r *rig) call(verb, path string, body any, into any) {
	r.Helper()
	if text := r.tryCall(verb, path, body, into); text != "" {
		r.Fatalf("%s %s: %s", verb, path, text)
	}
}

// tryCall calls the control endpoint and returns the error text, or "".
func (r *rig) tryCall(verb, path string, body any, into any) string {
	r.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		r.Fatal(err)
	}
	request, err := http.NewRequest(verb, r.server.ControlURL.String()+path, bytes.NewReader(data))
	if err != nil {
		r.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return string(answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			r.Fatal(err)
		}
	}
	return ""
}

type params map[string]any

func expectFault[F types.BaseMethodFault](t *testing.T, err error) {
	t.Helper()
	var wanted F
	if _, ok := fault.As(err, &wanted); !ok {
		t.Fatalf("expected %T, got %v", wanted, err)
	}
}

func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("timed out waiting for: %s", condition)
}
