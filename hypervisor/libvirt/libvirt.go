// Package libvirt runs instances as domains of libvirt's QEMU driver, and is the
// only package that imports libvirt.
//
// It touches the domains that carry croft's mark and no others. Every call is
// bounded by its context and by Config.CallTimeout, although libvirt's own calls
// cannot be cancelled: a libvirt that does not answer costs a bounded number of
// goroutines and never a caller. A lost connection is opened again by the next
// call, so a restart of libvirtd is an error of the calls under way at most.
package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
	"croft/hypervisor/libvirt/kvm"
	"croft/hypervisor/libvirt/packetfilter"
	"croft/internal/mailbox"
)

var (
	_ compute.Hypervisor = (*Driver)(nil)
	_ compute.Meters     = (*Driver)(nil)
)

// The values of Config.VirtType.
const (
	VirtAuto = "auto" // kvm where it runs a guest, qemu elsewhere
	VirtKVM  = "kvm"
	VirtQEMU = "qemu" // emulation
)

// Config says which libvirt to use and how. All of it is optional.
type Config struct {
	// URI names the libvirt to use (qemu:///system).
	URI string
	// VirtType is auto, kvm or qemu (auto).
	VirtType string
	// ProbeFile keeps what auto found out, until the next boot; empty keeps nothing.
	ProbeFile string
	// EmulatorCacheMiB bounds the memory that QEMU's emulation takes for code it
	// has translated, which is on top of the guest's own and which no claim counts.
	// With the default of 128 a Debian guest of 512 MiB takes 400 MB by the time it
	// has booted, with QEMU's own of 1024 650 MB, in the same time. Below 64 it
	// gets slow. Ignored with KVM.
	EmulatorCacheMiB int
	// StopGrace is how long a guest may take to power off before its power is cut (60 s).
	StopGrace time.Duration
	// CallTimeout is the longest that any one libvirt call may take (90 s).
	CallTimeout time.Duration
	// AllowSpoofing leaves guests free to send from addresses that are not theirs.
	// Otherwise a packet filter keeps them from it.
	AllowSpoofing bool
	// Partition is the cloud whose packet filter Watch keeps up; empty: none.
	Partition croft.PartitionID
	// LeaseDir is where libvirt's dnsmasq leaves its leases (/var/lib/libvirt/dnsmasq).
	LeaseDir string
	// Log hears of domains that are reported and not touched, and of reconnections.
	Log *slog.Logger
}

// Driver is one libvirt. It is safe for use by many goroutines at once.
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

	attached sync.Map // instances whose console somebody has
}

// New checks the settings. It does not connect: the first call does.
func New(c Config) (*Driver, error) {
	c.URI = cmp.Or(c.URI, "qemu:///system")
	c.VirtType = cmp.Or(c.VirtType, VirtAuto)
	c.EmulatorCacheMiB = cmp.Or(c.EmulatorCacheMiB, 128)
	c.StopGrace = cmp.Or(c.StopGrace, time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, 90*time.Second)
	c.LeaseDir = cmp.Or(c.LeaseDir, "/var/lib/libvirt/dnsmasq")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	switch c.VirtType {
	case VirtAuto, VirtKVM, VirtQEMU:
	default:
		return nil, croft.Errorf(croft.Invalid, "virt_type is %q: use auto, kvm or qemu", c.VirtType)
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
		onLost: d.owners.invalidate, onDomain: d.noteChange,
	}
	d.network = &networking{
		conn: d.conn, log: c.Log, domains: d.domains,
		addresses: reservations{domains: d.domains, picked: map[string]map[string]netip.Addr{}},
		filter:    filter{off: c.AllowSpoofing, domains: d.domains},
		refresh:   make(chan struct{}, 1),
	}
	return d, nil
}

// noteChange handles an event of a domain.
func (d *Driver) noteChange(dom *libvirt.Domain) {
	d.owners.invalidate()
	if id, ok := instanceOf(dom); ok {
		d.changed.Put(id)
	}
}

// Close ends the connection and waits a while for the calls that are inside libvirt. Later calls are Unavailable.
func (d *Driver) Close() error { return d.conn.close() }

// Collector gives the driver's metrics.
func (d *Driver) Collector() prometheus.Collector { return d.conn.metrics }

// VirtType returns kvm or qemu, as set or as probed, and why.
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

func probe(ctx context.Context, file string) kvm.Result {
	if file == "" {
		return kvm.Probe(ctx)
	}
	return kvm.ProbeOnce(ctx, file)
}

// Filterable returns why this host cannot hold guests to their addresses; nil where it
// can, or need not.
func (d *Driver) Filterable(ctx context.Context) error {
	if d.config.AllowSpoofing {
		return nil
	}
	if err := packetfilter.Supported(ctx); err != nil {
		return croft.Errorf(croft.KindOf(err), "%w; or let guests send from any address (libvirt.allow_spoofing)", err)
	}
	return nil
}

// ProbeKVM tells whether this host's KVM runs a guest, and why it does or not.
func ProbeKVM(ctx context.Context) (usable bool, reason string) {
	r := kvm.Probe(ctx)
	return r.Usable, r.Reason
}

// KVMDeviceProblem says what is wrong with the owner and mode of /dev/kvm and how
// to mend it; nothing where all is well.
func KVMDeviceProblem() string { return kvm.DeviceProblem() }

// Version asks libvirt for its version and its QEMU's, such as "libvirt 9.0.0,
// QEMU 7.2.22". It is how to find out whether libvirt answers at all.
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

// dotted gives libvirt's way of writing versions in the usual one.
func dotted(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000)
}
