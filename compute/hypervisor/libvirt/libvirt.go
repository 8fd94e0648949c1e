// Package libvirt runs instances as domains of libvirt's QEMU driver, and is the only package that imports libvirt.
//
// It touches only domains that carry croft's mark. Every call is limited by its context and
// Config.CallTimeout, although libvirt's own calls cannot be cancelled: an unresponsive libvirt costs a
// limited number of goroutines and never blocks a caller. The next call reopens a lost connection, so a
// restart of libvirtd fails at most the calls in flight.
package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
	"croft/compute/hypervisor/libvirt/kvm"
	"croft/compute/hypervisor/libvirt/packetfilter"
	"croft/internal/mailbox"
)

var (
	_ compute.Hypervisor = (*Driver)(nil)
	_ compute.Meters     = (*Driver)(nil)
)

// Values of Config.VirtType.
const (
	VirtAuto = "auto" // kvm if it can run a guest, else qemu
	VirtKVM  = domainxml.VirtKVM
	VirtQEMU = domainxml.VirtQEMU
)

// Config configures the driver. All fields are optional.
type Config struct {
	// URI is the libvirt connection URI (qemu:///system).
	URI string
	// VirtType is auto, kvm or qemu (auto).
	VirtType string
	// Emulated are architectures whose machines are emulated, in addition to the host's own.
	Emulated []croft.Arch
	// ProbeFile caches the result of auto until the next boot; empty: no cache.
	ProbeFile string
	// EmulatorCacheMiB limits the memory of QEMU's emulation for translated code, which is on top of the
	// guest's own and not part of any claim. With the default of 128 a Debian guest of 512 MiB takes 400 MB
	// by the time it has booted; with QEMU's own default of 1024 it takes 650 MB and boots no faster. Values
	// below 64 are slow. Ignored with KVM.
	EmulatorCacheMiB int
	// StopGrace is how long a guest may take to power off before its power is cut (60 s).
	StopGrace time.Duration
	// CallTimeout is the timeout of a single libvirt call (90 s).
	CallTimeout time.Duration
	// AllowSpoofing lets guests send from any address. Otherwise a packet filter prevents it.
	AllowSpoofing bool
	// Partition is the cloud whose packet filter Watch maintains; empty: none.
	Partition croft.PartitionID
	// LeaseDir is the lease directory of libvirt's dnsmasq (/var/lib/libvirt/dnsmasq).
	LeaseDir string
	// TPMDir is the directory in which libvirt keeps the states of emulated TPMs (/var/lib/libvirt/swtpm).
	TPMDir string
	// Log receives reports of domains that are left alone, and reconnections.
	Log *slog.Logger
}

// Driver is one libvirt. It is safe for concurrent use.
type Driver struct {
	config  Config
	log     *slog.Logger
	conn    *connection
	domains *domainReader
	owners  *ownerTable
	network *networking
	readers readers
	changed *mailbox.Boxes[croft.InstanceID]
	virt    func() kvm.Result // probed once

	attached sync.Map // instances with an attached console
	viewed   sync.Map // instances with an attached screen
	merging  sync.Map // layers for which this process started a commit
}

// New checks the settings. It does not connect: the first call does.
func New(c Config) (*Driver, error) {
	c.URI = cmp.Or(c.URI, "qemu:///system")
	c.VirtType = cmp.Or(c.VirtType, VirtAuto)
	c.EmulatorCacheMiB = cmp.Or(c.EmulatorCacheMiB, 128)
	c.StopGrace = cmp.Or(c.StopGrace, time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, 90*time.Second)
	c.LeaseDir = cmp.Or(c.LeaseDir, "/var/lib/libvirt/dnsmasq")
	c.TPMDir = cmp.Or(c.TPMDir, "/var/lib/libvirt/swtpm")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	switch c.VirtType {
	case VirtAuto, VirtKVM, VirtQEMU:
	default:
		return nil, croft.Errorf(croft.Invalid, "virt_type is %q: use auto, kvm or qemu", c.VirtType)
	}
	for _, arch := range c.Emulated {
		if err := arch.Check(); err != nil {
			return nil, fmt.Errorf("libvirt.emulated_architectures: %w", err)
		}
	}
	if c.EmulatorCacheMiB < 0 || c.StopGrace < 0 || c.CallTimeout < 0 {
		return nil, croft.Errorf(croft.Invalid, "libvirt: sizes and durations of the settings cannot be negative")
	}
	d := &Driver{
		config: c, log: c.Log,
		domains: &domainReader{log: c.Log, reported: map[croft.InstanceID]bool{}},
		owners:  &ownerTable{},
		changed: &mailbox.Boxes[croft.InstanceID]{},
		virt:    sync.OnceValue(func() kvm.Result { return probe(context.Background(), c.ProbeFile) }),
	}
	slots := make(chan struct{}, maxCalls)
	d.conn = &connection{
		uri: c.URI, timeout: c.CallTimeout, slots: slots, metrics: newMetrics(slots),
		onLost: d.owners.invalidate, onDomain: d.noteChange, onNetwork: func() { d.network.wake() },
	}
	d.network = &networking{
		conn: d.conn, log: c.Log, domains: d.domains,
		addresses: reservations{domains: d.domains, picked: map[string]map[string]netip.Addr{}},
		filter:    filter{off: c.AllowSpoofing, domains: d.domains},
		refresh:   make(chan struct{}, 1),
	}
	return d, nil
}

// noteChange handles a domain event.
func (d *Driver) noteChange(dom *libvirt.Domain) {
	d.owners.invalidate()
	if id, ok := instanceOf(dom); ok {
		d.changed.Put(id)
	}
}

// Close ends the connection and waits for a limited time for calls inside libvirt. Later calls return Unavailable.
func (d *Driver) Close() error { return d.conn.close() }

// Collector returns the driver's metrics.
func (d *Driver) Collector() prometheus.Collector { return d.conn.metrics }

// VirtType returns kvm or qemu, as configured or as probed, and why.
func (d *Driver) VirtType() (virt, reason string) {
	if d.config.VirtType != VirtAuto {
		return d.config.VirtType, "the setting virt_type says so"
	}
	r := d.virt()
	if r.Usable {
		return VirtKVM, r.Reason
	}
	return VirtQEMU, r.Reason
}

// virtOf returns the VirtType of machines of an architecture: KVM runs only machines of the host's architecture.
func (d *Driver) virtOf(arch croft.Arch) string {
	if arch.Known() != Native() {
		return VirtQEMU
	}
	virt, _ := d.VirtType()
	return virt
}

// Native returns the architecture of this host; empty: croft knows no machines of it.
func Native() croft.Arch {
	return map[string]croft.Arch{"amd64": croft.ArchX86, "arm64": croft.ArchAArch64}[runtime.GOARCH]
}

// archs returns the architectures whose machines the host may run.
func (d *Driver) archs() []croft.Arch {
	all := []croft.Arch{Native()}
	for _, arch := range d.config.Emulated {
		if !slices.Contains(all, arch.Known()) {
			all = append(all, arch.Known())
		}
	}
	return all
}

func probe(ctx context.Context, file string) kvm.Result {
	if file == "" {
		return kvm.Probe(ctx)
	}
	return kvm.ProbeOnce(ctx, file)
}

// Filterable returns why this host cannot restrict guests to their addresses; nil: it can, or need not.
func (d *Driver) Filterable(ctx context.Context) error {
	if d.config.AllowSpoofing {
		return nil
	}
	if err := packetfilter.Supported(ctx); err != nil {
		return croft.Errorf(croft.KindOf(err), "%w; or let guests send from any address (libvirt.allow_spoofing)", err)
	}
	return nil
}

// ProbeKVM reports whether this host's KVM runs a guest, and why or why not.
func ProbeKVM(ctx context.Context) (usable bool, reason string) {
	r := kvm.Probe(ctx)
	return r.Usable, r.Reason
}

// Version returns the versions of libvirt and its QEMU, such as "libvirt 9.0.0, QEMU 7.2.22". It also checks
// that libvirt answers at all.
func (d *Driver) Version(ctx context.Context) (string, error) {
	return call(ctx, d.conn, task{verb: "ask libvirt for its version"}, func(c *libvirt.Connect) (string, error) {
		lib, err := c.GetLibVersion()
		if err != nil {
			return "", err
		}
		qemu, err := c.GetVersion()
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("libvirt %s, QEMU %s", dotted(lib), dotted(qemu)), nil
	})
}

// dotted converts libvirt's version number to the usual notation.
func dotted(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000)
}

// readers caches which user a connection's QEMU runs as.
type readers struct{ known atomic.Pointer[readersOf] }

type readersOf struct {
	conn *libvirt.Connect
	virt string
	text string
}

// of returns the owner and group, as a libvirt label, of files that many guests read and none may write: this
// process's user and the group of libvirt's QEMU. Empty: libvirt runs QEMU as its own user.
func (r *readers) of(c *libvirt.Connect, virt string) (string, error) {
	if k := r.known.Load(); k != nil && k.conn == c && k.virt == virt {
		return k.text, nil
	}
	capabilities, err := c.GetCapabilities()
	if err != nil {
		return "", err
	}
	text, err := parseReaders(capabilities, virt, os.Getuid())
	if err == nil {
		r.known.Store(&readersOf{conn: c, virt: virt, text: text})
	}
	return text, err
}

func parseReaders(capabilities, virt string, owner int) (string, error) {
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(capabilities); err != nil {
		return "", fmt.Errorf("read the capabilities of libvirt: %w", err)
	}
	for _, model := range caps.Host.SecModel {
		for _, label := range model.Labels {
			_, group, ok := strings.Cut(label.Value, ":")
			if model.Name == "dac" && label.Type == virt && ok {
				return fmt.Sprintf("+%d:%s", owner, group), nil
			}
		}
	}
	return "", nil
}

// Network returns a network of libvirt, and starts it if it is inactive. A missing default network is
// defined; any other missing network is NotFound.
func (d *Driver) Network(ctx context.Context, name string) (Network, error) {
	return call(ctx, d.conn, task{verb: "start the network", object: strconv.Quote(name)},
		func(c *libvirt.Connect) (Network, error) {
			return ensureNetwork(c, name)
		})
}

// GuestAddresses returns the ranges of the addresses that a network gives to guests, as FIRST-LAST. NotFound.
func (d *Driver) GuestAddresses(ctx context.Context, network string) ([]string, error) {
	return call(ctx, d.conn, task{verb: "look at the addresses of the network", object: strconv.Quote(network)},
		func(c *libvirt.Connect) ([]string, error) { return d.network.addresses.ranges(c, network) })
}

// FindNetwork describes a network of libvirt as Network does, and reports whether it is active. It does not
// start or define anything. NotFound: libvirt has no such network.
func (d *Driver) FindNetwork(ctx context.Context, name string) (n Network, active bool, err error) {
	type found struct {
		network Network
		active  bool
	}
	f, err := call(ctx, d.conn, task{verb: "look at the network", object: strconv.Quote(name)},
		func(c *libvirt.Connect) (found, error) {
			var f found
			n, err := c.LookupNetworkByName(name)
			if err != nil {
				return f, err
			}
			defer n.Free()
			if f.active, err = n.IsActive(); err != nil {
				return f, err
			}
			text, err := n.GetXMLDesc(0)
			if err != nil {
				return f, err
			}
			f.network, err = parseNetwork(text)
			return f, err
		})
	return f.network, f.active, err
}

// Bridge prepares a host bridge for guests. NotFound: there is no bridge of that name. Invalid: it is not a bridge, or
// its guests cannot be filtered.
func (d *Driver) Bridge(name string) error { return d.network.bridge(name) }
