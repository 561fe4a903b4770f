package main

import (
	"context"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

func TestDefaultReleaseIsCurrent(t *testing.T) {
	about := start(t).client().ServiceContent.About
	if about.FullName != "VMware vCenter Server 8.0.3 build-24022515" || about.Version != "8.0.3" ||
		about.ApiVersion != "8.0.3.0" {
		t.Errorf(
			"got %s, version %s, API %s",
			about.FullName,
			about.Version,
			about.ApiVersion,
		)
	}
}

func TestAClientThatAsksGetsTheVersionOfTheRelease(t *testing.T) {
	for release, wanted := range map[string]string{"8.0.3": "8.0.3.0", "6.5.0": "6.5"} {
		r := start(t, "--release", release)
		client, err := vim25.NewClient(context.Background(), soap.NewClient(r.server.URL, true))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.UseServiceVersion(); err != nil || client.Version != wanted {
			t.Errorf("of %s a client uses %s, %v", release, client.Version, err)
		}
	}
}

func TestUnknownReleaseIsRejected(t *testing.T) {
	_, err := parse("vcsim", []string{"--release", "9.9.9"})
	if err == nil || !strings.Contains(err.Error(), "use one of 6.5.0, 8.0.3") {
		t.Errorf("got error %v", err)
	}
}

func TestEachVCenterHasItsInstanceUuid(t *testing.T) {
	uuid := func(r *rig) string { return r.client().ServiceContent.About.InstanceUuid }
	first, second := start(t, "--hosts", "1"), start(t, "--hosts", "1")
	if uuid(first) == uuid(second) || uuid(first) != uuid(first) {
		t.Errorf("two vCenters have %s and %s", uuid(first), uuid(second))
	}
	const wanted = "4f0c6b2e-0000-4000-8000-00000000000a"
	if got := uuid(start(t, "--hosts", "1", "--instance-uuid", wanted)); got != wanted {
		t.Errorf("got %s", got)
	}
	if _, err := parse("vcsim", []string{"--instance-uuid", "nonsense"}); err == nil {
		t.Error("nonsense was accepted")
	}
}
