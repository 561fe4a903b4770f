package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"testing"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func (r *rig) withCertificate() *vim25.Client {
	r.Helper()
	settings, err := parse("vcsim", nil)
	if err != nil {
		r.Fatal(err)
	}
	pair, err := certificate(settings, r.TempDir()+"/client.pem")
	if err != nil {
		r.Fatal(err)
	}
	address := *r.server.URL
	address.RawQuery = url.Values{"GOVMOMI_TUNNEL_PROXY_PORT": {r.server.TunnelURL.Port()}}.Encode()
	wire := soap.NewClient(&address, true)
	wire.SetCertificate(pair)
	client, err := vim25.NewClient(context.Background(), wire)
	if err != nil {
		r.Fatal(err)
	}
	return client
}

func TestACertificateCountsThroughTheTunnelOnly(t *testing.T) {
	rig, ctx := start(t), context.Background()
	client := rig.withCertificate()
	_, err := methods.LoginExtensionByCertificate(ctx, client, &types.LoginExtensionByCertificate{
		This: *client.ServiceContent.SessionManager, ExtensionKey: "com.example.operator",
	})
	expectFault[*types.NoClientCertificate](t, err)
	if err := session.NewManager(client).LoginExtensionByCertificate(
		ctx, "com.example.operator",
	); err != nil {
		t.Fatal(err)
	}
	if live := rig.sessions().SOAP; len(live) != 1 || live[0].User != "com.example.operator" {
		t.Errorf("sessions: %+v", live)
	}
	// The session is valid without the tunnel.
	if _, err := methods.GetCurrentTime(ctx, client); err != nil {
		t.Error(err)
	}
}

// TestTheTunnelLosesNoBytes opens many connections: one byte of the TLS handshake was lost when it
// arrived before the proxy had hijacked its connection.
func TestTheTunnelLosesNoBytes(t *testing.T) {
	rig := start(t)
	transport := &http.Transport{
		Proxy:             http.ProxyURL(rig.server.TunnelURL),
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	client := &http.Client{Transport: transport}
	for range 100 {
		response, err := client.Get("https://" + tunnelHost + "/sdk/vimServiceVersions.xml")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
}

func TestTheTunnelLeadsToTheSDKOnly(t *testing.T) {
	rig := start(t)
	transport := &http.Transport{
		Proxy:           http.ProxyURL(rig.server.TunnelURL),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	client := &http.Client{Transport: transport}
	if _, err := client.Get("https://elsewhere:443/"); err == nil {
		t.Error("the tunnel leads elsewhere")
	}
	response, err := client.Get("https://" + tunnelHost + "/sdk/vimServiceVersions.xml")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the SDK answers %s", response.Status)
	}
}
