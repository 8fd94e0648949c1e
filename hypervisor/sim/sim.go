// Package sim is a hypervisor whose instances exist only in memory: it boots
// nothing, so the whole control plane can be tried and tested on any machine. It
// keeps the same contract as the real one; with a file to keep its instances in,
// they outlive the agent as real guests do.
package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/mailbox"
	"croft/internal/turns"
)

var (
	_ compute.Hypervisor = (*Hypervisor)(nil)
	_ compute.Meters     = (*Hypervisor)(nil)
)

// The operations that a Fault is asked about.
const (
	OpList   = "list"
	OpGet    = "get"
	OpDefine = "define"
	OpMark   = "mark"
	OpStart  = "start"
	OpStop   = "stop"
	OpRemove = "remove"
)

// Config says how the simulated guests behave. All of it is optional.
type Config struct {
	// Boot is how long a guest takes from its start to its address; 0 is at once.
	Boot time.Duration
	// Shutdown is how long a guest takes to power off when asked to.
	Shutdown time.Duration
	// StopGrace is how long Stop waits for that before it cuts the power (30 s).
	StopGrace time.Duration
	// File keeps the instances over a restart; empty keeps them in memory only.
	File string
	// Subnet is where addresses come from (10.0.0.0/8).
	Subnet netip.Prefix
	// Fault is called at the start of every operation: it may take its time, and
	// what it returns fails the operation. id is empty for OpList.
	Fault func(ctx context.Context, op string, id croft.InstanceID) error
	// Late, if given, makes calls as libvirt's: it is called before an operation takes
	// effect, with the operation's turn among those about the instance, and may take its
	// time. The operation takes effect afterwards, whether its caller is still there or
	// not. id is empty for OpList.
	Late func(op string, id croft.InstanceID)
	// Log hears of what cannot be returned to a caller.
	Log *slog.Logger
}

// Hypervisor is a host of simulated guests. Close it to end its timers.
type Hypervisor struct {
	config  Config
	changed mailbox.Boxes[croft.InstanceID]
	turns   turns.Turns[croft.InstanceID]
	late    sync.WaitGroup // calls, some of which nobody waits for any more

	mu     sync.Mutex
	guests map[croft.InstanceID]*guest
	used   map[netip.Addr]croft.InstanceID
	closed bool
}

// guest is one instance. Its fields are guarded by the hypervisor's mutex.
type guest struct {
	Machine compute.Machine `json:"machine"`
	Power   compute.Power   `json:"power"`
	Crashed bool            `json:"crashed,omitempty"`
	Halted  bool            `json:"halted,omitempty"`
	Started int64           `json:"started,omitempty"`
	Booted  time.Time       `json:"booted,omitzero"` // when it has or had its address
	Address netip.Addr      `json:"address"`

	timer   *time.Timer // announces the address while the guest boots
	button  *time.Timer // powers the guest off, once that is asked of it
	console *console    // who is attached, if anybody
}

// New reads the instances that File keeps, if any; those that were on still are.
func New(c Config) (*Hypervisor, error) {
	c.StopGrace = cmp.Or(c.StopGrace, 30*time.Second)
	c.Subnet = cmp.Or(c.Subnet, netip.MustParsePrefix("10.0.0.0/8")).Masked()
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if !c.Subnet.Addr().Is4() || c.Subnet.Bits() > 30 {
		return nil,
			croft.Errorf(croft.Invalid,
				"simulated guests cannot have addresses from %s: name an IPv4 network of 4 addresses or more", c.Subnet)
	}
	h := &Hypervisor{config: c, guests: map[croft.InstanceID]*guest{}, used: map[netip.Addr]croft.InstanceID{}}
	if err := h.load(); err != nil {
		return nil, err
	}
	return h, nil
}

// Close waits for the calls that are late and ends the boots that are under way; nothing
// else of h may be used after it.
func (h *Hypervisor) Close() error {
	h.late.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, g := range h.guests {
		g.endTimers()
		g.hangUp()
	}
	return nil
}

// List returns all instances, by ID.
func (h *Hypervisor) List(ctx context.Context) ([]compute.Domain, error) {
	return call(ctx, h, OpList, "", func() ([]compute.Domain, error) {
		list := make([]compute.Domain, 0, len(h.guests))
		for _, id := range slices.Sorted(maps.Keys(h.guests)) {
			list = append(list, h.guests[id].domain())
		}
		return list, nil
	})
}

// Get returns one instance; NotFound where there is none.
func (h *Hypervisor) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return call(ctx, h, OpGet, id, func() (compute.Domain, error) {
		g, err := h.find(id)
		if err != nil {
			return compute.Domain{}, err
		}
		return g.domain(), nil
	})
}

// Machine returns what was defined for an instance; NotFound where there is none.
func (h *Hypervisor) Machine(id croft.InstanceID) (compute.Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return compute.Machine{}, err
	}
	return g.Machine, nil
}

// Watch calls wake with every instance whose power or address changed.
func (h *Hypervisor) Watch(ctx context.Context, wake func(croft.InstanceID)) error {
	box, leave := h.changed.Join()
	defer leave()
	h.mu.Lock()
	box.Put(slices.Collect(maps.Keys(h.guests))...)
	h.mu.Unlock()
	return box.Run(ctx, wake)
}

// Owner returns the instance that has this address and is on; NotFound where there is none.
func (h *Hypervisor) Owner(_ context.Context, addr netip.Addr) (croft.InstanceID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.guests[h.used[addr.Unmap()]]; g != nil && slices.Contains(g.domain().Addresses, addr.Unmap()) {
		return g.Machine.ID, nil
	}
	return "", croft.Errorf(croft.NotFound, "no instance on this host has the address %s", addr)
}

// find wants h.mu held.
func (h *Hypervisor) find(id croft.InstanceID) (*guest, error) {
	if g, ok := h.guests[id]; ok {
		return g, nil
	}
	return nil, croft.Errorf(croft.NotFound, "instance %s is not defined on this host", id)
}

func (g *guest) domain() compute.Domain {
	d := compute.Domain{
		ID: g.Machine.ID, Partition: g.Machine.Partition, Generation: g.Machine.Generation,
		Power: g.Power, Started: g.Started, Crashed: g.Crashed, Halted: g.Halted,
	}
	if len(g.Machine.NICs) > 0 {
		d.Reserved = []netip.Addr{g.Address}
	}
	if g.Power != compute.PowerOff && len(g.Machine.NICs) > 0 && !time.Now().Before(g.Booted) {
		d.Addresses = []netip.Addr{g.Address}
	}
	return d
}

// endTimers ends a boot and a shutdown that are under way.
func (g *guest) endTimers() {
	for _, timer := range []**time.Timer{&g.timer, &g.button} {
		if *timer != nil {
			(*timer).Stop()
			*timer = nil
		}
	}
}

// lend gives id an address: always the same one while no other instance has it.
// It wants h.mu held.
func (h *Hypervisor) lend(id croft.InstanceID) (netip.Addr, error) {
	sum := sha256.Sum256([]byte(id))
	size := uint64(1) << (32 - h.config.Subnet.Bits())
	first := h.config.Subnet.Addr().As4()
	base, start := binary.BigEndian.Uint32(first[:]), binary.BigEndian.Uint64(sum[:])
	for n := range min(size-3, 1<<16) {
		// Not the network's, the gateway's and the broadcast address.
		host := 2 + (start%(size-3)+n)%(size-3)
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], base+uint32(host))
		addr := netip.AddrFrom4(b)
		if _, taken := h.used[addr]; !taken {
			h.used[addr] = id
			return addr, nil
		}
	}
	return netip.Addr{}, croft.Errorf(croft.NoCapacity, "no address is left in %s for instance %s", h.config.Subnet, id)
}
