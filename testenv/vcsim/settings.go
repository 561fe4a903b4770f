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

// Settings is what the command line asks for.
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
	InstanceUUID string // of the vCenter; a random one when empty

	ClonesVisible string // early or late
	REST          string // api, both or rest
	Tunnel        string // address of the SDK tunnel's proxy
	PageObjects   int    // limit of objects in one answer of RetrievePropertiesEx

	TasksKept time.Duration // after their end
}

// parse reads the command line; the password may also come from VCSIM_PASSWORD, which no process
// list shows.
func parse(name string, arguments []string) (*Settings, error) {
	s := &Settings{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	s.addInventoryFlags(flags)
	s.addAccessFlags(flags)
	flags.StringVar(
		&s.Listen, "listen", "127.0.0.1:0", "address of the vCenter; port 0 is a free one",
	)
	flags.StringVar(
		&s.Control,
		"control",
		"127.0.0.1:0",
		"address of the control endpoint; keep it on loopback",
	)
	flags.Var(
		(*stringList)(&s.Delays),
		"delay",
		"`method=duration`: delay the task of a method that ends in _Task, or the answer of another",
	)
	flags.DurationVar(
		&s.Churn,
		"churn",
		0,
		"give all hosts and running VMs new quickStats this often; 0 is never",
	)
	flags.DurationVar(
		&s.TasksKept,
		"tasks-kept",
		10*time.Minute,
		"time for which a task that has ended is still known",
	)
	flags.StringVar(
		&s.Release, "release", "8.0.3", "`version` that it calls itself: 8.0.3 or 6.5.0",
	)
	s.addBehaviourFlags(flags)
	flags.StringVar(
		&s.State,
		"state",
		"",
		"folder for datastores and generated files; a temporary one by default",
	)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag; all arguments begin with --", flags.Arg(0))
	}
	s.Password = cmp.Or(s.Password, os.Getenv("VCSIM_PASSWORD"), "pass")
	return s, s.check()
}

func (s *Settings) addInventoryFlags(flags *flag.FlagSet) {
	flags.IntVar(&s.Datacenters, "datacenters", 1, "number of datacenters")
	flags.IntVar(&s.Clusters, "clusters", 1, "number of clusters in each datacenter")
	flags.IntVar(&s.ClusterHosts, "hosts", 3, "number of hosts in each cluster")
	flags.IntVar(
		&s.StandaloneHosts,
		"standalone-hosts",
		1,
		"number of hosts outside clusters in each datacenter",
	)
	flags.IntVar(&s.VMs, "vms", 2, "number of VMs in each cluster and on each standalone host")
	flags.IntVar(&s.Datastores, "datastores", 1, "number of datastores in each datacenter")
	flags.IntVar(
		&s.FCDs,
		"fcds",
		0,
		"number of First Class Disks, spread over the datastores, named pvc-<uuid>",
	)
	flags.Var(
		(*stringList)(&s.HostNames),
		"host-name",
		"`name` of a host, in the order in which they are made; repeat, or commas between",
	)
	flags.StringVar(
		&s.HostPattern,
		"host-pattern",
		"",
		"`pattern` for the names of further hosts, such as esxi-%04d.rainpole.com",
	)
	flags.Var(
		(*stringList)(&s.Nodes),
		"node",
		"`name[=bios-uuid]` of a VM that stands for a Kubernetes node; it has Tools and runs",
	)
	flags.Var(
		(*stringList)(&s.Templates), "template", "`name` of a template, made in every datacenter",
	)
	flags.Var(
		(*stringList)(&s.Folders),
		"folder",
		"`name` of a VM folder, made in every datacenter, such as vm-operator",
	)
	flags.Var(
		(*stringList)(&s.FCDNames),
		"fcd",
		"`name[=id]` of a First Class Disk on the first datastore",
	)
	flags.Var((*stringList)(&s.GPUHosts), "gpu-host", "`host[=shared|direct]` that has two GPUs")
	flags.Var((*stringList)(&s.GPUVMs), "gpu-vm", "`vm[=vgpu|passthrough|dynamic]` that has a GPU")
	flags.Var(
		(*stringList)(&s.WithoutTools),
		"without-tools",
		"`vm` without VMware Tools; all others have them",
	)
	flags.Var((*stringList)(&s.PoweredOff), "powered-off", "`vm` that does not run")
}

func (s *Settings) addAccessFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.User, "user", "user", "name of the account")
	flags.StringVar(
		&s.Password, "password", "", "its password; better in VCSIM_PASSWORD (default \"pass\")",
	)
	flags.Var((*stringList)(&s.Accounts), "account", "`user:password` of a further account")
	flags.IntVar(
		&s.LockFailures,
		"lockout-failures",
		5,
		"wrong passwords after which an account is locked; 0 is never",
	)
	flags.DurationVar(&s.LockWithin, "lockout-within", 180*time.Second, "time in which those count")
	flags.DurationVar(
		&s.LockFor, "lockout-for", 300*time.Second, "time for which the account stays locked",
	)
	flags.IntVar(
		&s.MaxSessions,
		"max-sessions",
		2000,
		"sessions after which new ones get HTTP 503; 0 is no limit",
	)
	flags.DurationVar(
		&s.SessionTimeout,
		"session-timeout",
		30*time.Minute,
		"idle time after which a session ends; 0 is never",
	)
	flags.BoolVar(
		&s.Relogin,
		"relogin",
		true,
		"let Login on a live session begin a new one; false answers InvalidLogin",
	)
	flags.StringVar(
		&s.Certificate, "cert", "", "`file` with the TLS certificate; self-signed when not given",
	)
	flags.StringVar(&s.Key, "key", "", "`file` with its key")
	flags.StringVar(
		&s.CertificateOut,
		"cert-out",
		"",
		"`file` to which a self-signed certificate is written, to be trusted by clients",
	)
	flags.Var(
		(*stringList)(&s.TLSNames),
		"tls-name",
		"`name` or address in a self-signed certificate instead of localhost and the loopback addresses",
	)
	flags.BoolVar(
		&s.TLSExpired, "tls-expired", false, "let a self-signed certificate be out of date",
	)
}

func (s *Settings) addBehaviourFlags(flags *flag.FlagSet) {
	flags.StringVar(
		&s.InstanceUUID,
		"instance-uuid",
		"",
		"about.instanceUuid of the vCenter; random at each start by default",
	)
	flags.StringVar(
		&s.ClonesVisible,
		"clones-visible",
		clonesEarly,
		"when the VM of a delayed clone becomes visible: `early` (at 30 %) or late (when its task ends)",
	)
	flags.StringVar(
		&s.REST,
		"rest",
		restBoth,
		"REST endpoints that are served: `both`, api or rest; the other one answers 404",
	)
	flags.StringVar(
		&s.Tunnel,
		"tunnel",
		"127.0.0.1:0",
		"address of the HTTP proxy that leads to sdkTunnel:8089, port 80 of a real vCenter",
	)
	flags.IntVar(
		&s.PageObjects,
		"page-objects",
		100,
		"largest number of objects in one answer of RetrievePropertiesEx; 0 is no limit",
	)
}

func (s *Settings) check() error {
	if err := checkRelease(s.Release); err != nil {
		return err
	}
	if s.ClonesVisible != clonesEarly && s.ClonesVisible != clonesLate {
		return fmt.Errorf("--clones-visible is %q, and can be early or late", s.ClonesVisible)
	}
	if !slices.Contains([]string{restBoth, restAPI, restLegacy}, s.REST) {
		return fmt.Errorf("--rest is %q, and can be both, api or rest", s.REST)
	}
	if _, err := uuid.Parse(s.InstanceUUID); s.InstanceUUID != "" && err != nil {
		return fmt.Errorf("--instance-uuid %s: %w", s.InstanceUUID, err)
	}
	if (s.Certificate == "") != (s.Key == "") {
		return fmt.Errorf("--cert and --key belong together; one of them is missing")
	}
	if s.Datastores < 1 || s.Datacenters < 1 {
		return fmt.Errorf("--datacenters and --datastores must be at least 1")
	}
	if s.ClusterHosts == 0 {
		s.Clusters = 0 // a cluster without hosts has no place for its VMs
	}
	if s.Clusters*s.ClusterHosts+s.StandaloneHosts < 1 {
		return fmt.Errorf(
			"there must be at least one host: see --hosts, --clusters and --standalone-hosts",
		)
	}
	_, err := s.rules()
	return err
}

// rules are the delays of the command line.
func (s *Settings) rules() ([]Rule, error) {
	var rules []Rule
	for _, text := range s.Delays {
		method, length, _ := strings.Cut(text, "=")
		delay, err := time.ParseDuration(length)
		if err != nil {
			return nil, fmt.Errorf("--delay %s: the format is CloneVM_Task=8s", text)
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

// stringList is a flag that may be repeated and may hold commas.
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
