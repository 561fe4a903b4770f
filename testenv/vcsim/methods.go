package main

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// readOnlyPrefixes are the prefixes of methods that do not change the inventory.
var readOnlyPrefixes = []string{
	"Retrieve", "Query", "Find", "List", "Fetch", "Get", "Search", "Browse", "Read", "Validate",
	"Check", "Estimate", "Continue",
	"WaitFor", "CancelWaitFor", "Login", "Logout", "Current", "Acquire", "Has", "Pbm", "CnsQuery",
}

var readOnlyMethods = map[string]bool{
	"CreateFilter":             true,
	"DestroyPropertyFilter":    true,
	"CreatePropertyCollector":  true,
	"DestroyPropertyCollector": true,
	"CreateContainerView":      true,
	"CreateListView":           true,
	"ModifyListView":           true,
	"ResetListView":            true,
	"DestroyView":              true,
	"CreateCollectorForTasks":  true,
	"CreateCollectorForEvents": true,
	"DestroyCollector":         true,
	"ResetCollector":           true,
	"RewindCollector":          true,
	"SetCollectorPageSize":     true,
	"SessionIsActive":          true,
	"CloneSession":             true,
	"TerminateSession":         true,
	"ImpersonateUser":          true,
	"SetLocale":                true,
	"RefreshStorageInfo":       true,
	"RefreshDatastore":         true,
}

// isReadOnly reports whether a method does not change the inventory. Unknown methods count as
// mutating.
func isReadOnly(method string) bool {
	if readOnlyMethods[method] {
		return true
	}
	for _, prefix := range readOnlyPrefixes {
		if strings.HasPrefix(strings.TrimPrefix(method, "Vslm"), prefix) {
			return true
		}
	}
	return false
}

var anonymousMethods = map[string]bool{
	"Login":                       true,
	"LoginByToken":                true,
	"LoginBySSPI":                 true,
	"LoginExtensionByCertificate": true,
	"CloneSession":                true,
	"RetrieveServiceContent":      true,
	"RetrieveInternalContent":     true,
	"PbmRetrieveServiceContent":   true,
	"List":                        true, "GetTrustedCertificates": true,
}

// allowsAnonymous reports whether a call needs no session: calls to log in, and reads of the
// ServiceInstance and the SessionManager, by which clients check their session.
func allowsAnonymous(method *simulator.Method) bool {
	switch req := method.Body.(type) {
	case *types.RetrieveProperties:
		return areAllPublic(req.SpecSet)
	case *types.RetrievePropertiesEx:
		return areAllPublic(req.SpecSet)
	}
	return anonymousMethods[method.Name] ||
		(method.Name == "Fetch" && isPublic(fetchTarget(method.Body)))
}

func areAllPublic(specs []types.PropertyFilterSpec) bool {
	for _, spec := range specs {
		for _, object := range spec.ObjectSet {
			if !isPublic(object.Obj) || len(object.SelectSet) > 0 {
				return false
			}
		}
	}
	return true
}

func isPublic(ref types.ManagedObjectReference) bool {
	return ref.Type == "ServiceInstance" || ref.Type == "SessionManager"
}
