package main

import (
	"strings"
	"unicode/utf8"

	"github.com/vmware/govmomi/vim25/types"
)

// longestName is vCenter's limit for the names of entities.
const longestName = 80

// nameLength counts a name as vCenter stores it: %, / and \ become %25, %2f and %5c.
func nameLength(name string) int {
	return utf8.RuneCountInString(name) + 2*strings.Count(name, "%") +
		2*strings.Count(name, "/") + 2*strings.Count(name, `\`)
}

// checkName is the fault for a call that would give an entity a name that vCenter refuses, else
// nil.
func checkName(body types.AnyType) types.BaseMethodFault {
	name, named := newName(body)
	if !named || (name != "" && nameLength(name) <= longestName) {
		return nil
	}
	return &types.InvalidName{Name: name}
}

// newName is the name that a call gives to an entity, if it gives one.
func newName(body types.AnyType) (string, bool) {
	switch req := body.(type) {
	case *types.CreateFolder:
		return req.Name, true
	case *types.CreateDatacenter:
		return req.Name, true
	case *types.CreateCluster:
		return req.Name, true
	case *types.CreateClusterEx:
		return req.Name, true
	case *types.CreateStoragePod:
		return req.Name, true
	case *types.CreateResourcePool:
		return req.Name, true
	case *types.CreateVApp:
		return req.Name, true
	case *types.CreateVM_Task:
		return req.Config.Name, true
	case *types.CloneVM_Task:
		return req.Name, true
	case *types.Rename_Task:
		return req.NewName, true
	case *types.RenameDatastore:
		return req.NewName, true
	case *types.RegisterVM_Task:
		return req.Name, req.Name != ""
	case *types.ReconfigVM_Task:
		return req.Spec.Name, req.Spec.Name != ""
	}
	return "", false
}
