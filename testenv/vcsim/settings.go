package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Settings are the values of the command line flags.
type Settings struct {
	Listen, Control string

	Datacenters, Clusters, ClusterHosts, StandaloneHosts, VMs, Datastores, FCDs int

	HostNames    []string
	HostPattern  string
	Nodes        []string // name or name=bios-uuid
	Templates    []string
	Folders      []string
	FCDNames     []string // name or name=id
	GPUHosts     []string // host, host=shared or host=direct
	GPUVMs       []string // vm=vgpu, vm=passthrough or vm=dynamic
	WithoutTools []string
	PoweredOff   []string

	User, Password string
	Accounts       []string // user:password
	LockFailures   int
	LockWithin     time.Duration
	LockFor        time.Duration
	MaxSessions    int
	SessionTimeout time.Duration
	Relogin        bool

	Certificate, Key, CertificateOut string
	TLSNames                         []string
	TLSExpired                       bool

	Delays []string // method=duration
	Churn  time.Duration
	State  string

	Release      string
	InstanceUUID string // of the vCenter; random if empty

	ClonesVisible string // early or late
	REST          string // api, both or rest
	Tunnel        string // address of the SDK tunnel proxy
	PageObjects   int    // objects in one answer of RetrievePropertiesEx

	TasksKept time.Duration // retention after the end of a task
}

// parse parses the command line. VCSIM_PASSWORD sets the password without showing it in the process
// list.
func parse(name string, arguments []string) (*Settings, error) {
	s := &Settings{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	s.addInventoryFlags(flags)
	s.addAccessFlags(flags)
	flags.StringVar(
		&s.Listen, "listen", "127.0.0.1:0",
		"address of the vCenter; port 0 selects a free port",
	)
	flags.StringVar(
		&s.Control, "control", "127.0.0.1:0",
		"address of the control endpoint; keep it on loopback",
	)
	flags.Var(
		(*stringList)(&s.Delays), "delay",
		"`method=duration`: delay the task of a _Task method, or the call of another method",
	)
	flags.DurationVar(
		&s.Churn, "churn", 0,
		"interval of new quickStats for all hosts and running VMs; 0 disables it",
	)
	flags.DurationVar(&s.TasksKept, "tasks-kept", 10*time.Minute, "retention of finished tasks")
	flags.StringVar(&s.Release, "release", "8.0.3", "reported vCenter `version`: 8.0.3 or 6.5.0")
	s.addBehaviourFlags(flags)
	flags.StringVar(
		&s.State, "state", "",
		"folder for datastores and generated files; temporary by default",
	)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; all arguments are flags", flags.Arg(0))
	}
	s.Password = cmp.Or(s.Password, os.Getenv("VCSIM_PASSWORD"), "pass")
	return s, s.check()
}

func (s *Settings) addInventoryFlags(flags *flag.FlagSet) {
	flags.IntVar(&s.Datacenters, "datacenters", 1, "number of datacenters")
	flags.IntVar(&s.Clusters, "clusters", 1, "number of clusters in each datacenter")
	flags.IntVar(&s.ClusterHosts, "hosts", 3, "number of hosts in each cluster")
	flags.IntVar(
		&s.StandaloneHosts, "standalone-hosts", 1,
		"number of hosts outside clusters in each datacenter",
	)
	flags.IntVar(&s.VMs, "vms", 2, "number of VMs in each cluster and on each standalone host")
	flags.IntVar(&s.Datastores, "datastores", 1, "number of datastores in each datacenter")
	flags.IntVar(
		&s.FCDs, "fcds", 0,
		"number of First Class Disks, spread over the datastores, named pvc-<uuid>",
	)
	flags.Var(
		(*stringList)(&s.HostNames), "host-name",
		"`name` of a host, in order of creation; repeatable or comma-separated",
	)
	flags.StringVar(
		&s.HostPattern, "host-pattern", "",
		"`pattern` for the names of the other hosts, such as esxi-%04d.rainpole.com",
	)
	flags.Var(
		(*stringList)(&s.Nodes), "node",
		"`name[=bios-uuid]` of a running VM with Tools that is a Kubernetes node",
	)
	flags.Var((*stringList)(&s.Templates), "template", "`name` of a template in every datacenter")
	flags.Var(
		(*stringList)(&s.Folders), "folder",
		"`name` of a VM folder in every datacenter, such as vm-operator",
	)
	flags.Var(
		(*stringList)(&s.FCDNames), "fcd",
		"`name[=id]` of a First Class Disk on the first datastore",
	)
	flags.Var((*stringList)(&s.GPUHosts), "gpu-host", "`host[=shared|direct]` with two GPUs")
	flags.Var((*stringList)(&s.GPUVMs), "gpu-vm", "`vm[=vgpu|passthrough|dynamic]` with a GPU")
	flags.Var(
		(*stringList)(&s.WithoutTools), "without-tools",
		"`vm` without VMware Tools; all others have them",
	)
	flags.Var((*stringList)(&s.PoweredOff), "powered-off", "`vm` that is powered off")
}

func (s *Settings) addAccessFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.User, "user", "user", "name of the account")
	flags.StringVar(
		&s.Password, "password", "",
		"password of the account; prefer VCSIM_PASSWORD (default \"pass\")",
	)
	flags.Var((*stringList)(&s.Accounts), "account", "`user:password` of an additional account")
	flags.IntVar(
		&s.LockFailures, "lockout-failures", 5,
		"failed logins that lock an account; 0 disables locking",
	)
	flags.DurationVar(
		&s.LockWithin, "lockout-within", 180*time.Second, "time window for counting failed logins",
	)
	flags.DurationVar(&s.LockFor, "lockout-for", 300*time.Second, "duration of a lock")
	flags.IntVar(
		&s.MaxSessions, "max-sessions", 2000,
		"maximum number of sessions; more get HTTP 503; 0 means no limit",
	)
	flags.DurationVar(
		&s.SessionTimeout, "session-timeout", 30*time.Minute,
		"idle timeout of sessions; 0 disables it",
	)
	flags.BoolVar(
		&s.Relogin, "relogin", true,
		"start a new session at Login on a live one; otherwise return InvalidLogin",
	)
	flags.StringVar(
		&s.Certificate, "cert", "",
		"`file` with the TLS certificate; self-signed by default",
	)
	flags.StringVar(&s.Key, "key", "", "`file` with the key of the TLS certificate")
	flags.StringVar(
		&s.CertificateOut, "cert-out", "",
		"output `file` for the self-signed certificate",
	)
	flags.Var(
		(*stringList)(&s.TLSNames), "tls-name",
		"`name` or address in a self-signed certificate (default localhost and loopback)",
	)
	flags.BoolVar(
		&s.TLSExpired, "tls-expired", false,
		"generate an expired self-signed certificate",
	)
}

func (s *Settings) addBehaviourFlags(flags *flag.FlagSet) {
	flags.StringVar(
		&s.InstanceUUID, "instance-uuid", "",
		"about.instanceUuid of the vCenter; random by default",
	)
	flags.StringVar(
		&s.ClonesVisible, "clones-visible", clonesEarly,
		"visibility of the VM of a running clone: `early` (at 30 %) or late (at the end)",
	)
	flags.StringVar(
		&s.REST, "rest", restBoth,
		"REST endpoints: `both`, api or rest; a disabled one returns 404",
	)
	flags.StringVar(
		&s.Tunnel, "tunnel", "127.0.0.1:0",
		"address of the HTTP proxy for sdkTunnel:8089; port 80 of a real vCenter",
	)
	flags.IntVar(
		&s.PageObjects, "page-objects", 100,
		"maximum objects in one answer of RetrievePropertiesEx; 0 means no limit",
	)
}

func (s *Settings) check() error {
	if err := checkRelease(s.Release); err != nil {
		return err
	}
	if s.ClonesVisible != clonesEarly && s.ClonesVisible != clonesLate {
		return fmt.Errorf(
			"--clones-visible: unsupported value %q; use early or late", s.ClonesVisible,
		)
	}
	if !slices.Contains([]string{restBoth, restAPI, restLegacy}, s.REST) {
		return fmt.Errorf("--rest: unsupported value %q; use both, api or rest", s.REST)
	}
	if _, err := uuid.Parse(s.InstanceUUID); s.InstanceUUID != "" && err != nil {
		return fmt.Errorf("--instance-uuid %s: %w", s.InstanceUUID, err)
	}
	if (s.Certificate == "") != (s.Key == "") {
		return fmt.Errorf("--cert and --key must be set together")
	}
	if s.Datastores < 1 || s.Datacenters < 1 {
		return fmt.Errorf("--datacenters and --datastores must be at least 1")
	}
	if s.ClusterHosts == 0 {
		s.Clusters = 0 // a cluster without hosts cannot run VMs
	}
	if s.Clusters*s.ClusterHosts+s.StandaloneHosts < 1 {
		return fmt.Errorf(
			"at least one host is required: see --hosts, --clusters and --standalone-hosts",
		)
	}
	_, err := s.rules()
	return err
}

// rules returns the rules for --delay.
func (s *Settings) rules() ([]Rule, error) {
	var rules []Rule
	for _, text := range s.Delays {
		method, length, _ := strings.Cut(text, "=")
		delay, err := time.ParseDuration(length)
		if err != nil {
			return nil, fmt.Errorf("--delay %s: must have the form CloneVM_Task=8s", text)
		}
		rules = append(rules, delayRule(method, delay))
	}
	return rules, nil
}

func delayRule(method string, delay time.Duration) Rule {
	where := "call"
	if strings.HasSuffix(method, "_Task") {
		where = "task"
	}
	return Rule{Method: method, Where: where, Delay: Duration(delay)}
}

// stringList is a flag that can be repeated and takes comma-separated values.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, ",") }

func (l *stringList) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}
