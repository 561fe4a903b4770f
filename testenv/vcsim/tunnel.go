package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// Tunnel is the SDK tunnel: an HTTP proxy, on port 80 of a real vCenter, that connects CONNECT
// sdkTunnel:8089 to the SDK.
//
// Why is it needed? Port 443 of a vCenter is a reverse proxy that terminates TLS, so the service
// behind it does not receive client certificates. LoginExtensionByCertificate therefore works only
// through the tunnel; elsewhere it fails with NoClientCertificate. (VMware's guide for extensions;
// govmomi's soap.Client.Tunnel does so.)
type Tunnel struct {
	target string // address of the vCenter

	mu      sync.Mutex
	sources map[string]bool // source addresses of the connections through the tunnel
}

// tunnelHost is the host that clients request from the proxy.
const tunnelHost = "sdkTunnel:8089"

// tunnel starts the proxy.
func (v *Server) tunnel(address string) (*Tunnel, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	tunnel := &Tunnel{target: v.URL.Host, sources: map[string]bool{}}
	v.TunnelURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	v.serve(listener, tunnel)
	return tunnel, nil
}

// ServeHTTP implements http.Handler.
func (t *Tunnel) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect || request.Host != tunnelHost {
		http.Error(w, "this proxy connects to "+tunnelHost+" only", http.StatusForbidden)
		return
	}
	server, err := net.Dial("tcp", t.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	source := server.LocalAddr().String()
	t.track(source, true)
	w.WriteHeader(http.StatusOK)
	// The client may send its TLS handshake as soon as it has the header, before the hijack: the
	// server has then read its first bytes into the buffer.
	client, buffer, err := w.(http.Hijacker).Hijack()
	if err != nil {
		_ = server.Close()
		t.track(source, false)
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	go func() {
		_, _ = io.Copy(server, buffer)
		_ = server.Close()
		_ = client.Close()
		t.track(source, false)
	}()
}

func (t *Tunnel) track(source string, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if open {
		t.sources[source] = true
	} else {
		delete(t.sources, source)
	}
}

// stripCertificate removes the client certificate from a request that did not use the tunnel.
func (t *Tunnel) stripCertificate(request *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if request.TLS != nil && !t.sources[request.RemoteAddr] {
		state := *request.TLS
		state.PeerCertificates = nil
		request.TLS = &state
	}
}
