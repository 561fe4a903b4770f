package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"

	_ "github.com/vmware/govmomi/cns/simulator"
	_ "github.com/vmware/govmomi/pbm/simulator"
	_ "github.com/vmware/govmomi/sts/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
	_ "github.com/vmware/govmomi/vslm/simulator"
)

// Server is one simulated vCenter with its control endpoint.
type Server struct {
	URL         *url.URL
	ControlURL  *url.URL
	TunnelURL   *url.URL
	Certificate string // file with the certificate for clients to trust

	model   *simulator.Model
	recent  *RecentTasks
	servers []*http.Server
	cancel  context.CancelFunc
	folder  string
}

// Start creates the inventory and starts serving.
func Start(s *Settings) (*Server, error) {
	server := &Server{}
	if err := server.start(s); err != nil {
		server.Close()
		return nil, err
	}
	return server, nil
}

func (v *Server) start(s *Settings) error {
	folder, err := os.MkdirTemp(s.State, "vcsim-")
	if err != nil {
		return err
	}
	v.folder = folder
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	v.URL = &url.URL{Scheme: "https", Host: listener.Addr().String(), Path: "/sdk"}
	shared, err := v.tls(s)
	if err != nil {
		return err
	}
	accounts, login, err := newAccounts(s)
	if err != nil {
		return err
	}
	v.model = simulator.VPX()
	setAbout(&v.model.ServiceContent.About, s.Release, s.InstanceUUID)
	interceptor, inventory, err := v.populate(s)
	if err != nil {
		return err
	}
	if err := v.registerEndpoints(shared, accounts, s); err != nil {
		return err
	}
	vapi, err := NewREST(v.model.Service.ServeMux, login)
	if err != nil {
		return err
	}
	v.interceptEndpoints(interceptor)
	interceptor.Tasks.profiles.registry = v.model.Service.Context.For(pbm.Path).Map
	tunnel, err := v.tunnel(s.Tunnel)
	if err != nil {
		return err
	}
	front := v.frontend(s, interceptor, inventory, vapi, tunnel)
	v.serve(tls.NewListener(listener, shared), front)
	control := &Control{
		Interceptor: interceptor, Accounts: accounts, Inventory: inventory,
		REST: vapi, Outages: &front.outages,
	}
	if err := v.control(s.Control, control.Handler()); err != nil {
		return err
	}
	v.startBackground(s, interceptor, vapi, inventory)
	return nil
}

func (v *Server) frontend(
	s *Settings, interceptor *Interceptor, inventory *Inventory, vapi *REST, tunnel *Tunnel,
) *Frontend {
	mux := v.model.Service.ServeMux
	return &Frontend{
		Next:        mux,
		Calls:       interceptor.Calls,
		Rules:       interceptor.Rules,
		Sessions:    interceptor.Sessions,
		REST:        vapi,
		MaxSessions: s.MaxSessions,
		NewContext:  inventory.context,
		Permissions: interceptor.Permissions,
		API:         &API{Next: mux, Mode: s.REST},
		Tunnel:      tunnel,
	}
}

// InstanceUUID returns about.instanceUuid.
func (v *Server) InstanceUUID() string { return v.model.ServiceContent.About.InstanceUuid }

// tls returns the TLS configuration of this server. The library's server has one for the process.
func (v *Server) tls(s *Settings) (*tls.Config, error) {
	v.Certificate = s.Certificate
	if v.Certificate == "" {
		v.Certificate = s.CertificateOut
	}
	if v.Certificate == "" {
		v.Certificate = filepath.Join(v.folder, "certificate.pem")
	}
	pair, err := certificate(s, v.Certificate)
	// Clients may log in by certificate (LoginExtensionByCertificate). HTTP/1.1 only: outages close
	// connections.
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequestClientCert,
		NextProtos:   []string{"http/1.1"},
	}, err
}

func newAccounts(s *Settings) (*Accounts, *url.Userinfo, error) {
	accounts := NewAccounts(s.LockFailures, s.LockWithin, s.LockFor)
	accounts.Set(s.User, s.Password)
	for _, text := range s.Accounts {
		user, password, ok := strings.Cut(text, ":")
		if !ok {
			return nil, nil, errors.New("--account must have the form user:password")
		}
		accounts.Set(user, password)
	}
	login := url.UserPassword("vcsim-control", rand.Text())
	password, _ := login.Password()
	accounts.Set(login.Username(), password)
	return accounts, login, nil
}

// populate creates the service, installs the interceptor and the replaced managers, and creates the
// inventory.
func (v *Server) populate(s *Settings) (*Interceptor, *Inventory, error) {
	model := v.model
	model.Datacenter, model.Portgroup = 0, 0
	if err := inFolder(v.folder, model.Create); err != nil {
		return nil, nil, err
	}
	simCtx := model.Service.Context
	permissions := NewPermissions(simCtx, model.ServiceContent.RootFolder)
	rules := NewRules()
	collector := &Collector{shared: &SharedState{
		permissions: permissions, rules: rules, pageObjects: s.PageObjects,
	}}
	collector.Self = types.ManagedObjectReference{
		Type: "PropertyCollector", Value: defaultCollector,
	}
	simCtx.Map.Put(collector)
	v.recent = NewRecentTasks(simCtx, *model.ServiceContent.TaskManager, s.TasksKept)
	NewFolders(simCtx)
	NewScheduledTasks(simCtx, *model.ServiceContent.ScheduledTaskManager)
	tasks := NewTasks(simCtx, NewVMCounter(simCtx), v.recent, s.ClonesVisible == clonesEarly)
	interceptor := &Interceptor{
		Calls:       NewCalls(),
		Rules:       rules,
		Sessions:    NewSessions(simCtx),
		Tasks:       tasks,
		Permissions: permissions,
		Relogin:     s.Relogin,
	}
	permissions.onChange = interceptor.Sessions.Refresh
	NewAuthorization(
		simCtx, *model.ServiceContent.AuthorizationManager, permissions, interceptor.Sessions,
	)
	simCtx.Map.Handler = interceptor.Intercept
	model.Datacenter, model.Cluster, model.ClusterHost = s.Datacenters, s.Clusters, s.ClusterHosts
	model.Host, model.Machine, model.Datastore = s.StandaloneHosts, s.VMs, s.Datastores
	if err := model.CreateInfrastructure(simCtx); err != nil {
		return nil, nil, err
	}
	inventory, err := NewInventory(model.Service)
	if err != nil {
		return nil, nil, err
	}
	delays, err := s.rules()
	for _, rule := range delays {
		err = errors.Join(err, interceptor.Rules.Add(rule))
	}
	return interceptor, inventory, errors.Join(err, inventory.Populate(s))
}

// inFolder makes the library create its datastore folder in the given one, which only TMPDIR
// controls.
func inFolder(folder string, create func() error) error {
	previous, wasSet := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", folder); err != nil {
		return err
	}
	err := create()
	if wasSet {
		return errors.Join(err, os.Setenv("TMPDIR", previous))
	}
	return errors.Join(err, os.Unsetenv("TMPDIR"))
}

// registerEndpoints makes the library register its endpoints. The library does so only when it
// starts a server, which is closed at once; ours serves the same routes under its own address.
func (v *Server) registerEndpoints(shared *tls.Config, accounts *Accounts, s *Settings) error {
	service := v.model.Service
	service.RegisterEndpoints = true
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.User(s.User)}
	service.NewServer().Close()
	service.Listen = &url.URL{
		Scheme: "https", Host: v.URL.Host, Path: v.URL.Path, User: url.User(s.User),
	}
	manager := service.Context.Map.SessionManager()
	manager.ServiceHostName = v.URL.Host
	manager.TLS = func() *tls.Config { return shared }
	manager.ValidLogin = accounts.Valid
	for _, option := range service.Context.Map.OptionManager().Setting {
		value := option.GetOptionValue()
		if address, err := url.Parse(asString(value.Value)); err == nil &&
			strings.HasSuffix(value.Key, ".uri") {
			address.Scheme, address.Host = "https", v.URL.Host
			value.Value = address.String()
		}
		if value.Key == "vcsim.server.url" {
			value.Value = v.URL.String()
		}
	}
	return nil
}

func asString(value types.AnyType) string {
	s, _ := value.(string)
	return s
}

// interceptEndpoints installs the interceptor on the other SOAP endpoints.
func (v *Server) interceptEndpoints(interceptor *Interceptor) {
	for _, path := range []string{pbm.Path, vslm.Path, cns.Path} {
		if registry := v.model.Service.Context.For(path).Map; registry != nil {
			registry.Handler = interceptor.Intercept
		}
	}
}

func (v *Server) serve(listener net.Listener, handler http.Handler) {
	// Errors are discarded: tests disconnect and reject the certificate on purpose.
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	v.servers = append(v.servers, server)
	go func() { _ = server.Serve(listener) }()
}

func (v *Server) control(address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	v.ControlURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	v.serve(listener, handler)
	return nil
}

func (v *Server) startBackground(
	s *Settings, interceptor *Interceptor, vapi *REST, inventory *Inventory,
) {
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	if s.SessionTimeout > 0 {
		go interceptor.Sessions.Sweep(ctx, s.SessionTimeout)
		go vapi.Sweep(ctx, s.SessionTimeout)
	}
	go v.recent.ExpireLoop(ctx, inventory.context)
	if s.Churn > 0 {
		go churnPeriodically(ctx, inventory.context(), s.Churn)
	}
}

// Close stops the servers and removes the files.
func (v *Server) Close() {
	if v.cancel != nil {
		v.cancel()
	}
	for _, server := range v.servers {
		_ = server.Close()
	}
	if v.folder != "" {
		_ = os.RemoveAll(v.folder)
	}
}
