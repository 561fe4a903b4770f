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

// releases are those that the simulator can call itself. What it does is the same for all; a client
// sees only the names.
var releases = map[string]struct{ build, api string }{
	"8.0.3": {"24022515", "8.0.3.0"},
	"6.5.0": {"5973321", "6.5"}, // the library's own default: older than what is in support
}

// checkRelease refuses a release that is not known.
func checkRelease(version string) error {
	if _, ok := releases[version]; !ok {
		return fmt.Errorf(
			"--release %s is not known; there are %s",
			version,
			strings.Join(slices.Sorted(maps.Keys(releases)), ", "),
		)
	}
	return nil
}

// setAbout sets the release that the vCenter reports, and with it what /sdk/vimServiceVersions.xml
// offers as the newest version, and the instanceUuid. A real vCenter has one from its installation
// on; the library gives the same one to every simulator.
func setAbout(about *types.AboutInfo, version, instanceUUID string) {
	release := releases[version]
	about.InstanceUuid = cmp.Or(instanceUUID, uuid.NewString())
	about.Version, about.Build, about.ApiVersion = version, release.build, release.api
	about.FullName = fmt.Sprintf("%s %s build-%s", about.Name, version, release.build)
}
