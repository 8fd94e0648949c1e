package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/compute/hypervisor/libvirt"
	"croft/compute/hypervisor/sim"
	"croft/compute/image"
	"croft/compute/restic"
	"croft/internal/build"
	"croft/internal/endpoint"
	"croft/mdserver"
	"croft/node/doctor"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// hypervisor is the part of libvirt or its simulation that a host needs.
type hypervisor interface {
	compute.Hypervisor
	// Owner returns the instance that currently has a guest's address. NotFound.
	Owner(ctx context.Context, addr netip.Addr) (croft.InstanceID, error)
	// GuestAddresses returns the ranges of the addresses that a network gives to guests, as FIRST-LAST. NotFound.
	GuestAddresses(ctx context.Context, network string) ([]string, error)
	Close() error
}

// cloud is the part of its cloud that a host needs.
type cloud interface {
	compute.Orders
	compute.Registry
	compute.Records
	compute.Volumes
	compute.Backups
	compute.Copies
	Partition() croft.PartitionID
	// Usable returns why orders are impossible at the moment; nil: they are possible.
	Usable(ctx context.Context) error
	Close() error
}

// host combines the packages that make up one host's agent.
type host struct {
	settings settings.Settings
	servers  settings.Servers
	reach    settings.Reach
	log      *slog.Logger
	dir      *compute.StateDir
	id       croft.HostID
	store    cloud
	hv       hypervisor
	virtType string
	bridge   string // on which guests request metadata; empty: none do
	// this host's address on the network of that bridge; invalid: unknown
	gateway netip.Addr
	// metadata server of this process; nil: none
	server    *mdserver.Server
	vendor    []byte // operator's additions to the cloud-init data of every guest
	trust     *trust.Credentials
	memory    orderMemory
	running   atomic.Pointer[compute.Agent] // nil until the agent starts
	inventory compute.Inventory             // nil until then
	// following tracks which hosts serve the cloud; nil: no host does.
	following func(context.Context) error
}

// openHypervisor opens libvirt, with the guests' networks running, or the simulation. With filtered it maintains
// the packet filter of that cloud's guests.
func (h *host) openHypervisor(ctx context.Context, filtered croft.PartitionID) error {
	s := h.settings
	if s.Hypervisor == "sim" {
		c := s.ForSim()
		c.File, c.Log = filepath.Join(h.dir.Path, "sim.json"), h.log
		hv, err := sim.New(c)
		if err != nil {
			return err
		}
		h.hv, h.virtType = hv, "sim"
		return nil
	}
	if err := checkMachine(runtime.GOARCH); err != nil {
		return err
	}
	c := s.ForLibvirt()
	c.ProbeFile, c.Partition, c.Log = filepath.Join(h.dir.Path, "kvm-probe.json"), filtered, h.log
	hv, err := libvirt.New(c)
	if err != nil {
		return err
	}
	h.hv = hv
	var why string
	h.virtType, why = hv.VirtType()
	if err := h.startNetworks(ctx, hv); err != nil {
		return err
	}
	if err := hv.Filterable(ctx); err != nil {
		return err
	}
	h.log.Info("guests will run as", "host", h.id, "virt_type", h.virtType, "reason", why)
	if s.Network.Name == "" {
		h.bridge = s.Network.Bridge
		return nil
	}
	network, err := hv.Network(ctx, s.Network.Name)
	h.bridge, h.gateway = network.Bridge, network.Gateway
	return err
}

// checkMachine refuses to run guests on hosts of an architecture whose machines croft does not know.
func checkMachine(arch string) error {
	if doctor.RunsGuests(arch) {
		return nil
	}
	return croft.Errorf(croft.Invalid,
		"run guests on this machine: it is %s, and croft's guests are x86_64 and aarch64 machines, so this is not "+
			"supported; use such a machine, or set hypervisor to none to run only the services that all hosts share", arch)
}

// archs returns the architectures of the host's machines for its record. It logs each configured architecture that
// libvirt lacks. Invalid: the host runs no machines.
func (h *host) archs(f compute.Facts) ([]croft.Arch, error) {
	all := f.Archs()
	if len(all) == 0 {
		return nil, croft.Errorf(croft.Invalid, "libvirt runs no machines here: %s; then restart libvirtd",
			doctor.InstallMachines(libvirt.Native()))
	}
	if h.settings.Hypervisor == "libvirt" {
		for _, arch := range h.settings.Libvirt.EmulatedArchitectures {
			if !slices.Contains(all, arch.Known()) {
				h.log.Warn("libvirt runs no machines of an architecture in libvirt.emulated_architectures",
					"host", h.id, "arch", arch, "remedy", doctor.InstallMachines(arch))
			}
		}
	}
	if slices.Equal(all, []croft.Arch{croft.ArchX86}) {
		return nil, nil // as in the records of older versions
	}
	return all, nil
}

// closeHypervisor closes the connection of openHypervisor, which may have failed halfway.
func (h *host) closeHypervisor() {
	if h.hv == nil {
		return
	}
	if err := h.hv.Close(); err != nil {
		h.log.Warn("the hypervisor's connection did not close", "host", h.id, "err", err)
	}
}

// images returns the source of disks; simulated guests have none.
func (h *host) images() (compute.ImageStore, error) {
	if h.settings.Hypervisor == "sim" {
		return sim.Images{Kept: &sim.Kept{}, Dir: filepath.Join(h.dir.Path, "images")}, nil
	}
	c, err := h.settings.ForImages()
	if err != nil {
		return nil, err
	}
	c.Dir, c.Log = image.CacheDir(h.dir.Path), h.log
	return image.New(c)
}

// copies returns the files of images of the cloud's catalog.
func (h *host) copies() (compute.CopyFiles, error) {
	c, err := h.settings.ForImages()
	if err != nil {
		return nil, err
	}
	files, err := image.NewCopies(catalogDir(h.dir.Path), c.MaxBytes)
	if err == nil && h.settings.Hypervisor == "sim" {
		return sim.CopyFiles{CopyFiles: files}, nil
	}
	return files, err
}

// catalogDir returns the directory of the files of images of the cloud's catalog, in a state directory.
func catalogDir(stateDir string) string { return filepath.Join(stateDir, "catalog") }

// startAgent starts the agent and its HTTP API. ready is called once the host accepts orders.
func (h *host) startAgent(ctx context.Context, p *Parts, ready func()) error {
	s := h.settings
	l, err := Listen(ctx, h.servers.API, "api.listen")
	if err != nil {
		return err
	}
	l, scheme := h.trust.Listener(l, h.trust.IsJoined() || h.servers.Beyond(h.servers.API))
	agent, me, err := h.agent(ctx, scheme, l.Addr(), p.Self.traces)
	if err != nil {
		_ = l.Close()
		return err
	}
	h.running.Store(agent)
	p.Self.OfStore(h.store)
	p.Self.Counts(agent, agent.Images, agent.Inventory, agent.Hypervisor)
	p.Self.Checks.Add("agent", agent.Ready)
	p.Self.Checks.Add("hypervisor", agent.HypervisorReady)
	api := &compute.API{Agent: agent, Token: me.Token}
	if scheme == "https" {
		api.Caller = hostOfCaller
	}
	mux := http.NewServeMux()
	mux.Handle("/", api.Handler())
	p.Self.Serves(mux, h.servers.API)
	p.Start(ctx, "the agent's API", func(ctx context.Context) error {
		defer api.Wait()
		return Serve(ctx, l, CalledAt(s.ServedNames(h.reach.Placement.Endpoint), h.servers.API, mux))
	})
	p.Start(ctx, "the agent", func(ctx context.Context) error {
		return agent.Run(ctx, func() {
			h.log.Info("the host takes orders", "host", h.id, "name", me.Name, "api", me.API)
			ready()
		})
	})
	return nil
}

// agent builds the agent. scheme and at describe the address of its API.
func (h *host) agent(ctx context.Context, scheme string, at net.Addr, traces trace.TracerProvider) (*compute.Agent,
	croft.Host, error) {
	s := h.settings
	instances := filepath.Join(h.dir.Path, "instances")
	if err := os.MkdirAll(instances, 0o711); err != nil {
		return nil, croft.Host{}, fmt.Errorf("make the directory of the instances: %w", err)
	}
	facts, err := compute.ReadFacts(ctx, h.dir.Path, compute.UsedBytes(instances)+
		compute.UsedBytes(image.CacheDir(h.dir.Path))+compute.UsedBytes(catalogDir(h.dir.Path)))
	if err != nil {
		return nil, croft.Host{}, err
	}
	if err := CheckReserves(&s, facts); err != nil {
		return nil, croft.Host{}, err
	}
	if facts.Machines, err = h.hv.Machines(ctx); err != nil {
		return nil, croft.Host{}, err
	}
	archs, err := h.archs(facts)
	if err != nil {
		return nil, croft.Host{}, err
	}
	me := croft.Host{
		ID: h.id, Name: cmp.Or(s.Host.Name, facts.Name), Location: s.Host.Location, Version: build.Version,
		VirtType:  h.virtType,
		NoSetUp:   h.settings.Hypervisor == "sim",
		Addresses: endpoint.OwnAddresses(),
		API:       apiURL(scheme, at, slices.Concat(h.reach.Joined.Endpoints(h.dir.Path), h.reach.Etcd.Endpoints)),
		Token:     newToken(),
		Place:     fingerprint(h.dir.Path),
		Networks:  s.NetworkProjects(),
		Boot:      bootOf(),
		Arch:      archs,
	}
	c := s.ForAgent()
	if s.Network.Name != "" {
		c.GuestAddresses = func(ctx context.Context) ([]string, error) {
			return h.hv.GuestAddresses(ctx, s.Network.Name)
		}
	}
	if c.PCI, err = s.ForPCI(); err != nil {
		return nil, me, err
	}
	if c.Images, err = h.images(); err != nil {
		return nil, me, err
	}
	if h.inventory, err = h.openInventory(); err != nil {
		return nil, me, err
	}
	if c.Seeds, err = h.seeds(); err != nil {
		return nil, me, err
	}
	c.Host, c.Partition, c.Dir = me, h.store.Partition(), instances
	c.Provider = s.ForProvider().Provider(me, c.Partition, facts)
	c.Orders, c.Registry, c.Records, c.Inventory, c.Hypervisor = h.orders(), h.store, h.store, h.inventory, h.hv
	c.Volumes, c.Copies = h.store, h.store
	if c.CopyFiles, err = h.copies(); err != nil {
		return nil, me, err
	}
	if missing := restic.Missing(); len(missing) > 0 {
		h.log.Info("this host makes no backups: programs are missing", "missing", missing)
	} else if c.Key, err = backup.OpenHostKey(filepath.Join(h.dir.Path, "backup.key")); err != nil {
		return nil, me, err
	} else {
		c.Backups, c.Repository = h.store, restic.Engine{Cache: filepath.Join(h.dir.Path, "restic")}
		me.BackupKey = c.Key.Public()
		c.Host = me
	}
	if direct, is := h.store.(etcdCloud); is { // behind a gate, its own caretaker has these
		c.Shared, c.Storages = direct, direct.Store.Storages
		if claims, is := h.inventory.(requestClaims); is {
			c.VolumeRequests = volumeRequests(direct.Store, claims, h.log)
			c.Resizes = resizes(direct.Store, claims, h.log)
			c.Catalog = catalog(direct.Store, claims, h.log)
		}
	}
	if len(c.SharedDirs) > 0 && c.Storages == nil {
		return nil, me, croft.Errorf(croft.Invalid, "storage.shared: a host of a cloud with trust: strict cannot "+
			"use shared "+
			"storage, because the gate lets no host share what others use; remove the setting")
	}
	c.Diagnose = h.diagnose()
	c.UsageFile = filepath.Join(h.dir.Path, "usage.json.gz")
	c.Announce = expiryHook(s.Expiry.Hook)
	c.Peers = h.peers
	c.Log, c.Traces = h.log, traces
	agent, err := compute.New(c)
	return agent, me, err
}

// peers returns a client for the agent of another host, which has to show that host's certificate. Over plain HTTP no
// certificate is shown on either side, as in clouds on one machine and those with --insecure.
func (h *host) peers(other croft.Host) (*http.Client, error) {
	switch {
	case !endpoint.IsTLS(other.API):
		if h.trust.Has(pki.Hosts) && !endpoint.IsLoopback(other.API) {
			return nil, croft.Errorf(croft.Invalid, "host %s serves its API without TLS: disks are copied only over "+
				"TLS",
				other.Name)
		}
		return endpoint.AgentClient(nil), nil
	case !h.trust.Has(pki.Hosts):
		return nil, croft.Errorf(croft.Invalid, "this host has no certificate to show to host %s", other.Name)
	}
	return endpoint.AgentClient(h.trust.Files(pki.Hosts).Client(h.trust.Partition, pki.HostOnly(other.ID))), nil
}

// hostOfCaller returns the host whose certificate a request shows; empty: none.
func hostOfCaller(r *http.Request) croft.HostID {
	id, shown := pki.Caller(r)
	if !shown || id.Kind != pki.Host && id.Kind != pki.Member {
		return ""
	}
	return croft.HostID(id.ID)
}

// openInventory returns the service in which the host's capacity is claimed: the gate, or Placement itself.
func (h *host) openInventory() (compute.Inventory, error) {
	if behind, ok := h.store.(compute.Inventory); ok {
		return behind, nil
	}
	return h.reach.Placement.Client()
}

// CheckReserves refuses reserves that exceed what the host has. Invalid.
func CheckReserves(s *settings.Settings, f compute.Facts) error {
	for _, r := range []struct {
		setting         string
		reserved, total int64
	}{
		{"offer.reserved_vcpus", s.Offer.ReservedVCPUs, int64(f.CPUs)},
		{"offer.reserved_memory_mib", s.Offer.ReservedMemoryMiB, f.MemoryMiB},
		{"offer.reserved_disk_gib", s.Offer.ReservedDiskGiB, f.DiskGiB},
	} {
		if r.reserved > r.total {
			return croft.Errorf(croft.Invalid, "%s is %d and this host has %d: reserve less", r.setting, r.reserved,
				r.total)
		}
	}
	return nil
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// apiURL returns the URL of the API for other machines: its address or, if it listens on all, the address by which this
// host reaches etcd.
func apiURL(scheme string, at net.Addr, endpoints []string) string {
	ap, err := netip.ParseAddrPort(at.String())
	if err != nil || !ap.Addr().IsUnspecified() {
		return scheme + "://" + at.String()
	}
	return scheme + "://" + netip.AddrPortFrom(settings.AddressTowards(endpoints), ap.Port()).String()
}

// runHost adds the parts of one host to the running ones and waits for the end.
func runHost(ctx context.Context, p *Parts, h *host, ready func()) (err error) {
	if h.id, err = h.dir.HostID(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, p.End()) // the agent ends before its hypervisor closes
		h.closeHypervisor()
	}()
	if err := h.openHypervisor(ctx, h.store.Partition()); err != nil {
		return unlessStopped(ctx, err)
	}
	if err := h.startMetadata(ctx, p); err != nil {
		return unlessStopped(ctx, err)
	}
	if err := h.startAgent(ctx, p, ready); err != nil {
		return unlessStopped(ctx, err)
	}
	if h.following != nil {
		p.Start(ctx, "keeping up with the members of etcd", h.following)
	}
	return p.Wait(ctx)
}

// machineFiles differ between any two machines. On a copy of a machine's disk only the second may differ.
var machineFiles = []string{"/etc/machine-id", "/sys/class/dmi/id/product_uuid"}

// fingerprint identifies a state directory on this machine: copies of the directory differ, as far as the machine
// can tell, and it survives a reboot.
func fingerprint(dir string) string {
	sum := sha256.New()
	for _, name := range machineFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			text = nil // a missing file distinguishes nothing
		}
		fmt.Fprintln(sum, strings.TrimSpace(string(text)))
	}
	fmt.Fprintln(sum, dir)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// bootOf identifies the running system: all agents on one machine get the same value, and a copy of the machine gets
// another.
func bootOf() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:8])
}

// startNetworks starts the networks of libvirt that guests may name, and checks the bridges: a missing bridge
// must fail the start, not the first guest that names it.
func (h *host) startNetworks(ctx context.Context, hv *libvirt.Driver) error {
	if bridge := h.settings.Network.Bridge; bridge != "" {
		if err := hv.Bridge(bridge); err != nil {
			return fmt.Errorf("network.bridge: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.settings.Networks)) {
		n := h.settings.Networks[name]
		var err error
		if n.Network != "" {
			_, err = hv.Network(ctx, n.Network)
		} else {
			err = hv.Bridge(n.Bridge)
		}
		if err != nil {
			return fmt.Errorf("networks.%s: %w", name, err)
		}
	}
	return nil
}
