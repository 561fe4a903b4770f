package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
)

var insecure = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

// rest calls the REST endpoint and returns the status and the decoded body.
func (r *rig) rest(verb, path, token string, body any) (int, any) {
	r.Helper()
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	address := &url.URL{Scheme: "https", Host: r.server.URL.Host}
	request, err := http.NewRequest(verb, address.String()+path, bytes.NewReader(data))
	if err != nil {
		r.Fatal(err)
	}
	if token == "" {
		request.SetBasicAuth("user", "pass")
	}
	request.Header.Set(restSessionKey, token)
	response, err := insecure.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	var answer any
	_ = json.Unmarshal(text, &answer)
	return response.StatusCode, answer
}

func (r *rig) hostRef(name string) string {
	r.Helper()
	var list []map[string]string
	r.call("GET", "/entities", nil, &list)
	for _, entity := range list {
		if entity["type"] == "HostSystem" && entity["name"] == name {
			return entity["ref"]
		}
	}
	r.Fatalf("there is no host %s", name)
	return ""
}

func TestTagsAreServedUnderAPI(t *testing.T) {
	rig := start(t)
	rig.call("POST", "/tag", params{"of": "DC0_H0", "category": "zone", "tag": "a"}, nil)
	status, token := rig.rest("POST", "/api/session", "", nil)
	key, _ := token.(string)
	if status != http.StatusCreated || key == "" {
		t.Fatalf("a login gives %d %v", status, token)
	}
	objects := params{"object_ids": []params{{"id": rig.hostRef("DC0_H0"), "type": "HostSystem"}}}
	status, answer := rig.rest(
		"POST",
		"/api/cis/tagging/tag-association?action=list-attached-tags-on-objects",
		key,
		objects,
	)
	rows, _ := answer.([]any)
	if status != http.StatusOK || len(rows) != 1 {
		t.Fatalf("the tags are %d %v", status, answer)
	}
	id := rows[0].(map[string]any)["tag_ids"].([]any)[0].(string)
	status, answer = rig.rest("GET", "/api/cis/tagging/tag/"+id, key, nil)
	tag, _ := answer.(map[string]any)
	if status != http.StatusOK || tag["name"] != "a" {
		t.Fatalf("the tag is %d %v", status, answer)
	}
	status, answer = rig.rest(
		"GET", "/api/cis/tagging/category/"+tag["category_id"].(string), key, nil,
	)
	if category, _ := answer.(map[string]any); status != http.StatusOK ||
		category["name"] != "zone" {
		t.Fatalf("the category is %d %v", status, answer)
	}
	status, answer = rig.rest("GET", "/api/cis/tagging/tag/urn:none", key, nil)
	if failure, _ := answer.(map[string]any); status != http.StatusNotFound ||
		failure["error_type"] != "NOT_FOUND" {
		t.Errorf("a tag that does not exist: %d %v", status, answer)
	}
	status, answer = rig.rest("POST", "/api/cis/tagging/tag", key, params{
		"name": "b", "category_id": tag["category_id"],
	})
	if newTag, _ := answer.(string); status != http.StatusCreated || newTag == "" {
		t.Errorf("a new tag: %d %v", status, answer)
	}
	if status, _ := rig.rest("DELETE", "/api/session", key, nil); status != http.StatusNoContent {
		t.Errorf("a logout gives %d", status)
	}
	if status, answer := rig.rest(
		"GET", "/api/cis/tagging/tag/"+id, key, nil,
	); status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d %v", status, answer)
	}
}

func TestARESTEndpointCanBeMissing(t *testing.T) {
	for mode, wanted := range map[string][2]int{"both": {201, 200}, "api": {201, 404}, "rest": {
		404, 200,
	}} {
		rig := start(t, "--hosts", "1", "--rest", mode)
		api, _ := rig.rest("POST", apiSession, "", nil)
		legacy, _ := rig.rest("POST", legacySession, "", nil)
		if api != wanted[0] || legacy != wanted[1] {
			t.Errorf("--rest %s: /api %d, /rest %d", mode, api, legacy)
		}
	}
	if _, err := parse("vcsim", []string{"--rest", "none"}); err == nil {
		t.Error("--rest none was accepted")
	}
}

func TestTagsNeedAPermission(t *testing.T) {
	rig := start(t)
	_, token := rig.rest("POST", "/api/session", "", nil)
	rig.call("POST", "/permissions", params{
		"user": "user", "privileges": []string{"Global.LogEvent"},
	}, nil)
	path := "/api/cis/tagging/tag"
	if status, _ := rig.rest("GET", path, token.(string), nil); status != http.StatusOK {
		t.Errorf("with a role that reads: %d", status)
	}
	if status, _ := rig.rest("POST", path, token.(string), params{
		"name": "x", "category_id": "y",
	}); status != http.StatusForbidden {
		t.Errorf("making a tag: %d", status)
	}
	rig.call("POST", "/permissions", params{"user": "user", "privileges": []string{}}, nil)
	if status, _ := rig.rest("GET", path, token.(string), nil); status != http.StatusForbidden {
		t.Errorf("without access: %d", status)
	}
}
