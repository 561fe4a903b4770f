package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vim25/types"
)

// releases are the vCenter releases that the simulator can report. Its behaviour is the same for
// all.
var releases = map[string]struct{ build, api string }{
	"8.0.3": {"24022515", "8.0.3.0"},
	"6.5.0": {"5973321", "6.5"}, // the library's default, which is out of support
}

// checkRelease returns an error for an unknown release.
func checkRelease(version string) error {
	if _, ok := releases[version]; !ok {
		return fmt.Errorf(
			"--release: unknown release %s; use one of %s",
			version,
			strings.Join(slices.Sorted(maps.Keys(releases)), ", "),
		)
	}
	return nil
}

// setAbout sets the reported release, which is also the newest version in
// /sdk/vimServiceVersions.xml, and the instanceUuid. The library gives every simulator the same
// instanceUuid.
func setAbout(about *types.AboutInfo, version, instanceUUID string) {
	release := releases[version]
	about.InstanceUuid = cmp.Or(instanceUUID, uuid.NewString())
	about.Version, about.Build, about.ApiVersion = version, release.build, release.api
	about.FullName = fmt.Sprintf("%s %s build-%s", about.Name, version, release.build)
}
