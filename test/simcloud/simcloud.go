// Package simcloud runs whole clouds in the process of a test: a real etcd, a real Placement and real agents; only
// the guests are simulated.
package simcloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/compute/hypervisor/sim"
	"croft/compute/image"
	"croft/compute/pci"
	"croft/compute/restic"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/testing/patient"
	"croft/placement"
	"croft/placementclient"
	"croft/schedule/volumes"
)

// Cloud is a whole cloud in the test's process: a real etcd, a real Placement and agents with simulated guests.
type Cloud struct {
	ForVolumes int64 // DISK_GB of each host besides those for instances
	Dir        string
	Etcd       *etcdserver.Server
	Store      *etcdstore.Store
	Placement  *httptest.Server
	Claims     *placementclient.Client
	Hosts      map[string]*Host
	end        []func()

	// Fault, if not nil, returns the error with which a hypervisor's operation on an instance fails; nil: it succeeds.
	// It is set before hosts are added.
	Fault func(op string, id croft.InstanceID) error

	// Guest, if not nil, is called at the start of every operation of a host's hypervisor, and may fail it.
	Guest func(ctx context.Context, host, op string, id croft.InstanceID) error
	// Orders, if not nil, wraps the orders of a host's agent, and Peers makes its client for the agents of other hosts.
	// They are set before hosts are added.
	Orders func(host string, o compute.Orders) compute.Orders
	Peers  func(host string) *http.Client
	// Backups and Repository, if not nil, likewise wrap the jobs for backups of a host's agent, and its repositories.
	Backups    func(host string, b compute.Backups) compute.Backups
	Repository func(host string, r compute.Repository) compute.Repository

	// Tell, if not nil, adds handlers to the agent's, as the process of a host does.
	Tell func(ctx context.Context, agent *compute.Agent, hv *sim.Hypervisor, mux *http.ServeMux, address string) error
}

// Host is one agent, which can be stopped and restarted.
type Host struct {
	ID         croft.HostID
	places     int64
	archs      []croft.Arch // of its machines
	Hypervisor *sim.Hypervisor
	Agent      *compute.Agent // the latest
	Stop       func()         // nil: not running
}

// New starts an etcd with this configuration and a Placement in dir. Close must be called.
func New(ctx context.Context, dir string, kind etcdserver.Config) (c *Cloud, err error) {
	c = &Cloud{Dir: dir, Hosts: map[string]*Host{}}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	kind.Dir, kind.Listen, kind.Unsynced = filepath.Join(dir, "etcd"), "127.0.0.1:0", true
	c.Etcd, err = etcdserver.Start(ctx, kind)
	if err != nil {
		return c, err
	}
	c.end = append(c.end, c.Etcd.Close)
	config := etcdstore.Config{Endpoints: []string{c.Etcd.Endpoint()}, DialTimeout: patient.Longest, Mint: true}
	if kind.Cert != "" {
		config.Embedded = c.Etcd // called in process, without a client certificate
	}
	c.Store, err = etcdstore.Open(ctx, config)
	if err != nil {
		return c, err
	}
	c.end = append(c.end, func() { _ = c.Store.Close() })
	server, err := placement.New(placement.Config{Store: c.Store.Placement(0), Log: slog.New(slog.DiscardHandler),
		Token: "admin"})
	if err != nil {
		return c, err
	}
	c.Run(ctx, server.Run)
	c.Placement = httptest.NewServer(server.Handler())
	c.end = append(c.end, c.Placement.Close)
	c.Claims, err = placementclient.New(placementclient.Config{Endpoint: c.Placement.URL,
		Auth: placementclient.StaticToken("admin")})
	return c, err
}

// Run runs do until stop is called or the cloud is closed.
func (c *Cloud) Run(ctx context.Context, do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = do(ctx) }) // its effects are checked, not its error
	stop = sync.OnceFunc(func() { cancel(); work.Wait() })
	c.end = append(c.end, stop)
	return stop
}

// Close ends everything in reverse order.
func (c *Cloud) Close() {
	for _, end := range slices.Backward(c.end) {
		end()
	}
}

// AddHost starts an agent with capacity for the given number of instances of one VCPU, 256 MEMORY_MB and 1 DISK_GB. Its
// machines are of these architectures, or else x86_64.
func (c *Cloud) AddHost(ctx context.Context, name string, places int64, archs ...croft.Arch) error {
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hv, err := sim.New(sim.Config{Arch: archs, Fault: func(ctx context.Context, op string, id croft.InstanceID) error {
		if c.Guest != nil {
			if err := c.Guest(ctx, name, op, id); err != nil {
				return err
			}
		}
		return c.guestFault(ctx, name, dir, op, id)
	}})
	if err != nil {
		return err
	}
	c.end = append(c.end, func() { _ = hv.Close() })
	c.Hosts[name] = &Host{ID: croft.NewHostID(), places: places, archs: archs, Hypervisor: hv}
	return c.StartHost(ctx, name)
}

// StartHost starts a host's agent and returns once it takes orders.
func (c *Cloud) StartHost(ctx context.Context, name string) error {
	h := c.Hosts[name]
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	api := httptest.NewUnstartedServer(nil)
	me := croft.Host{ID: h.ID, Name: name, VirtType: "sim", API: "http://" + api.Listener.Addr().String(),
		Token: "secret", Arch: h.archs}
	traits, err := h.Hypervisor.Machines(ctx)
	if err != nil {
		return err
	}
	var orders compute.Orders = c.Store.Orders
	if c.Orders != nil {
		orders = c.Orders(name, orders)
	}
	var peers func(croft.Host) (*http.Client, error)
	if c.Peers != nil {
		peers = func(croft.Host) (*http.Client, error) { return c.Peers(name), nil }
	}
	var shared []compute.SharedDir
	if path := filepath.Join(c.Dir, "shared"); c.isMounted(path) {
		shared = append(shared, compute.SharedDir{Name: "nfs1", Path: path})
	}
	var devices pci.Source
	if path := filepath.Join(c.Dir, name+".sysfs"); c.isMounted(path) {
		selectors, err := pci.ParseSelectors([]string{"10de:2230"})
		if err != nil {
			return err
		}
		devices = pci.Source{Root: path, Selectors: selectors}
	}
	var jobs compute.Backups = c.Store.Backups
	if c.Backups != nil {
		jobs = c.Backups(name, jobs)
	}
	var repository compute.Repository = restic.Engine{Cache: filepath.Join(c.Dir, name+".restic")}
	if c.Repository != nil {
		repository = c.Repository(name, repository)
	}
	key, err := backup.OpenHostKey(filepath.Join(c.Dir, name+".backup-key"))
	if err != nil {
		return err
	}
	if len(restic.Missing()) == 0 {
		me.BackupKey = key.Public()
	}
	copies, err := image.NewCopies(filepath.Join(c.Dir, name+"-catalog"), 0)
	if err != nil {
		return err
	}
	files := sim.CopyFiles{CopyFiles: copies}
	agent, err := compute.New(compute.Config{
		Storages: c.Store.Storages, SharedDirs: shared, PCI: devices,
		Host: me, Partition: c.Store.Partition(), Dir: filepath.Join(c.Dir, name), Log: slog.New(slog.DiscardHandler),
		Provider: croft.Provider{ID: h.ID, Name: name, Inventories: map[croft.ResourceClass]croft.Inventory{
			croft.VCPU: inv(h.places), croft.MemoryMB: inv(256 * h.places), croft.DiskGB: inv(h.places + c.ForVolumes),
		}, Traits: traits},
		Orders: orders, Peers: peers, Registry: c.Store.Registry, Records: c.Store.Records, Volumes: c.Store.Volumes,
		Backups: jobs, Key: key, Repository: repository,
		Copies: c.Store.Images, CopyFiles: files,
		Shared: c.Store.Turn,
		VolumeRequests: &volumes.Manager{Partition: c.Store.Partition(), Store: c.Store.Volumes, Claims: c.Claims,
			Hosts: c.Store.Registry, Instances: c.Store.Instances, Log: slog.New(slog.DiscardHandler)},
		Inventory:  c.Claims,
		Hypervisor: h.Hypervisor,
		Images:     sim.Images{Fault: imageFault, Kept: &sim.Kept{}},
		NICs:       []compute.NIC{{Network: "default"}},
		UsageEvery: 100 * time.Millisecond,
		Diagnose:   c.diagnosis(name),
		GuestAddresses: func(ctx context.Context) ([]string, error) {
			return h.Hypervisor.GuestAddresses(ctx, "default")
		},
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", (&compute.API{Agent: agent, Token: me.Token}).Handler())
	if c.Tell != nil {
		if err := c.Tell(ctx, agent, h.Hypervisor, mux, api.Listener.Addr().String()); err != nil {
			return err
		}
	}
	api.Config.Handler = mux
	api.Start()
	h.Agent = agent
	ready := make(chan struct{})
	stop := c.Run(ctx, func(ctx context.Context) error { return agent.Run(ctx, func() { close(ready) }) })
	h.Stop = func() { stop(); api.CloseClientConnections(); api.Close() }
	c.end = append(c.end, h.Stop)
	<-ready
	return c.await(ctx, h.ID, func(now croft.Host) bool { return now.Alive && len(now.Storages) == len(shared) })
}

// diagnosis returns the check of a host's machine, which finds what NAME.findings in the directory of the cloud says
// when the host is added; nil: there is no such file.
func (c *Cloud) diagnosis(name string) func(context.Context) []croft.Finding {
	text, err := os.ReadFile(filepath.Join(c.Dir, name+".findings"))
	if err != nil {
		return nil
	}
	return func(context.Context) (found []croft.Finding) {
		if err := json.Unmarshal(text, &found); err != nil {
			panic(fmt.Sprintf("the findings of host %s: %v", name, err))
		}
		return found
	}
}

// isMounted reports whether the directory of the shared storage exists; a test makes it before it adds hosts.
func (c *Cloud) isMounted(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// StopHost stops a host's agent and returns once the cloud sees it.
func (c *Cloud) StopHost(ctx context.Context, name string) error {
	c.Hosts[name].Stop()
	return c.await(ctx, c.Hosts[name].ID, func(now croft.Host) bool { return !now.Alive })
}

// Resize restarts a host's agent with capacity for another number of instances.
func (c *Cloud) Resize(ctx context.Context, name string, places int64) error {
	if err := c.StopHost(ctx, name); err != nil {
		return err
	}
	c.Hosts[name].places = places
	return c.StartHost(ctx, name)
}

// LikeOpenStack makes the cloud's client of Placement get the answers of OpenStack's Placement, which ignores the
// preference of croft's clients for claims on hosts that became smaller than their use. It is called before hosts are
// added.
func (c *Cloud) LikeOpenStack() (err error) {
	c.Claims, err = placementclient.New(placementclient.Config{Endpoint: c.Placement.URL,
		Auth: placementclient.StaticToken("admin"), Transport: plain{http.DefaultTransport}})
	return err
}

// plain sends requests without preferences.
type plain struct{ http.RoundTripper }

func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Prefer")
	return p.RoundTripper.RoundTrip(r)
}

// await returns once a host is as wanted.
func (c *Cloud) await(ctx context.Context, id croft.HostID, wanted func(croft.Host) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := c.Store.Instances.WatchInstances(ctx, func() {
		if hosts, err := c.Store.Registry.Hosts(ctx, id); err == nil && wanted(hosts[id]) {
			cancel()
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Report reports the result of a guest's cloud-init to its host, once the guest exists.
func (c *Cloud) Report(ctx context.Context, name string, told croft.CloudInit) error {
	ctx, cancel := context.WithTimeout(ctx, patient.Longest)
	defer cancel()
	var done atomic.Bool
	err := c.Store.Instances.WatchInstances(ctx, func() {
		st, err := c.Store.Instances.Find(ctx, croft.DefaultProject, name)
		if err != nil || st.Observation == nil || st.Observation.State != croft.StateRunning {
			return
		}
		for _, h := range c.Hosts {
			if h.ID == st.Instance.Host && h.Agent.Reports().CloudInit(ctx, st.Instance.ID, told) == nil {
				done.Store(true)
				cancel()
			}
		}
	})
	if done.Load() {
		return nil
	}
	return fmt.Errorf("the guest of %s cannot report: %w", name, err)
}

// busyImages holds the references of busy images that were requested once and refused.
var busyImages sync.Map

// imageFault makes images fail by their names: broken ones always, busy ones at first; slow ones never arrive.
func imageFault(ctx context.Context, ref string) error {
	switch {
	case strings.Contains(ref, "busy"):
		if _, asked := busyImages.LoadOrStore(ref, true); !asked {
			return croft.Errorf(croft.Unavailable, "image %s: the host is busy", ref)
		}
	case strings.Contains(ref, "broken"):
		return croft.Errorf(croft.Invalid, "image %s: the checksum is wrong", ref)
	case strings.Contains(ref, "slow"):
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// guestFault lets guests of specially named images print a word and die at their start, or have an agent.
func (c *Cloud) guestFault(ctx context.Context, host, dir, op string, id croft.InstanceID) error {
	if c.Fault != nil {
		if err := c.Fault(op, id); err != nil {
			return err
		}
	}
	if op != sim.OpStart {
		return nil
	}
	inst, err := c.Store.Instances.Instance(ctx, id)
	if err == nil && strings.Contains(inst.Spec.Image, "agent") {
		return c.Hosts[host].Hypervisor.Answer(id, true)
	}
	if err != nil || !strings.Contains(inst.Spec.Image, "dies") {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, string(id), "console.log"), []byte("kernel panic\n"), 0o600); err != nil {
		return err
	}
	return errors.New("the guest died as it started")
}

// Left lists all that is left of instances: records, orders, claims, domains.
func (c *Cloud) Left(ctx context.Context) ([]string, error) {
	var found []string
	all, err := c.Store.Instances.List(ctx, "")
	for _, st := range all {
		found = append(found, "record of "+st.Instance.Name)
	}
	for name, h := range c.Hosts {
		claims, listed := c.Claims.Claims(ctx, h.ID)
		err = errors.Join(err, listed)
		for id := range claims {
			found = append(found, fmt.Sprintf("claim of %s on %s", id, name))
		}
		domains, listed := h.Hypervisor.List(ctx)
		err = errors.Join(err, listed)
		for _, d := range domains {
			found = append(found, fmt.Sprintf("domain of %s on %s", d.ID, name))
		}
	}
	return found, err
}
