package main

import (
	"strings"
	"unicode/utf8"

	"github.com/vmware/govmomi/vim25/types"
)

// longestName is vCenter's limit for entity names.
const longestName = 80

// nameLength returns the length of a name as vCenter stores it: %, / and \ become %25, %2f and %5c.
func nameLength(name string) int {
	return utf8.RuneCountInString(name) + 2*strings.Count(name, "%") +
		2*strings.Count(name, "/") + 2*strings.Count(name, `\`)
}

// checkName returns InvalidName for a call that sets an entity name that vCenter rejects.
func checkName(body types.AnyType) types.BaseMethodFault {
	name, named := newName(body)
	if !named || (name != "" && nameLength(name) <= longestName) {
		return nil
	}
	return &types.InvalidName{Name: name}
}

// newName returns the entity name that a call sets, if any.
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
