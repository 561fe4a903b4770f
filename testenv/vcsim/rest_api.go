package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Values of --rest.
const (
	restBoth   = "both"
	restAPI    = "api"
	restLegacy = "rest"
)

const (
	apiSession     = "/api/session"
	apiTagging     = "/api/cis/tagging/"
	legacySession  = "/rest/com/vmware/cis/session"
	legacyTagging  = "/rest/com/vmware/cis/tagging/"
	restSessionKey = "vmware-api-session-id"
)

// API serves sessions and tags under /api; the library has them under /rest only.
//
// How do they differ? vCenter has /api since 7.0 U2 and no /rest since 9. Under /api a response is
// the value itself and not an object with the field "value"; an id is part of the path without
// "id:"; an action is the parameter "action" and not "~action"; a spec is the body itself; the
// status is 201 for created objects and 204 without a body; an error has "error_type".
type API struct {
	Next http.Handler // of /rest
	Mode string
}

// serve handles a REST request. It returns false if the library has to handle it.
func (a *API) serve(w http.ResponseWriter, request *http.Request) bool {
	path := request.URL.Path
	isAPI, isLegacy := strings.HasPrefix(path, "/api/"), strings.HasPrefix(path, "/rest/")
	if (isAPI && a.Mode == restLegacy) || (isLegacy && a.Mode == restAPI) {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return true
	}
	legacy, ok := legacyPath(path)
	if !ok {
		return false
	}
	a.translate(w, request, legacy)
	return true
}

// legacyPath returns the path under /rest for a path under /api.
func legacyPath(path string) (string, bool) {
	if path == apiSession {
		return legacySession, true
	}
	resourcePath, ok := strings.CutPrefix(path, apiTagging)
	if !ok {
		return "", false
	}
	if resource, id, hasID := strings.Cut(resourcePath, "/"); hasID {
		return legacyTagging + resource + "/id:" + id, true
	}
	return legacyTagging + resourcePath, true
}

func (a *API) translate(w http.ResponseWriter, request *http.Request, path string) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	inner := request.Clone(request.Context())
	inner.URL.Path, inner.URL.RawPath, inner.RequestURI = path, "", ""
	query := inner.URL.Query()
	action := query.Get("action")
	if query.Del("action"); action != "" {
		query.Set("~action", action)
	}
	inner.URL.RawQuery = query.Encode()
	inner.Body = io.NopCloser(bytes.NewReader(wrapBody(request.Method, path, action, body)))
	// Return the token in the body instead of a cookie.
	inner.Header.Set("vmware-use-header-authn", "true")
	recorder := httptest.NewRecorder()
	a.Next.ServeHTTP(recorder, inner)
	writeAPIResponse(w, request.Method, action, recorder)
}

// wrapBody returns a body in the form that /rest expects.
func wrapBody(verb, path, action string, body []byte) []byte {
	name := map[string]string{http.MethodPost: "create_spec", http.MethodPatch: "update_spec"}[verb]
	if name == "" || action != "" || path == legacySession || len(body) == 0 {
		return body
	}
	return []byte(`{"` + name + `":` + string(body) + `}`)
}

func writeAPIResponse(
	w http.ResponseWriter, verb, action string, recorder *httptest.ResponseRecorder,
) {
	status := recorder.Code
	var legacy struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(recorder.Body.Bytes(), &legacy) // all fields stay empty without a body
	w.Header().Set("Content-Type", "application/json")
	switch {
	case status >= http.StatusBadRequest:
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"error_type": errorType(status, legacy.Type), "messages": []any{},
		})
	case len(legacy.Value) == 0:
		w.WriteHeader(http.StatusNoContent)
	case verb == http.MethodPost && action == "":
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(legacy.Value)
	default:
		w.WriteHeader(status)
		_, _ = w.Write(legacy.Value)
	}
}

// errorType returns the name of an error, such as NOT_FOUND for
// com.vmware.vapi.std.errors.not_found.
func errorType(status int, legacy string) string {
	if legacy != "" {
		return strings.ToUpper(legacy[strings.LastIndex(legacy, ".")+1:])
	}
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "UNAUTHORIZED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	}
	return "ERROR"
}

// missingPrivilege returns the privilege that an account lacks for a tagging call, or "". Reading
// requires System.Read on the root folder, which every role includes.
func (f *Frontend) missingPrivilege(request *http.Request) string {
	user := f.REST.UserOf(request.Header.Get(restSessionKey))
	if user == "" || !strings.Contains(request.URL.Path, "/cis/tagging/") {
		return ""
	}
	privilege := "System.Read"
	if name, changes := restCall(request); changes {
		privilege = "InventoryService.Tagging.CreateTag"
		if strings.Contains(name, "/tag-association") {
			privilege = "InventoryService.Tagging.AttachTag"
		}
	}
	if f.Permissions.Has(user, f.Permissions.root, privilege) {
		return ""
	}
	return privilege
}
