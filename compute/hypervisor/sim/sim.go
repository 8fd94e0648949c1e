// Package sim is a hypervisor whose instances exist only in memory: it boots nothing, so the whole control
// plane can be tried and tested on any machine. It fulfils the same contract as the real driver; with a file
// to store its instances, they survive a restart of the agent as real guests do.
package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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

// Operations passed to Fault.
const (
	OpList   = "list"
	OpGet    = "get"
	OpDefine = "define"
	OpMark   = "mark"
	OpEject  = "eject"
	OpStart  = "start"
	OpStop   = "stop"
	OpRemove = "remove"
	OpAttach = "attach"
	OpDetach = "detach"
	OpGrow   = "grow"
	OpResize = "resize"
	OpGive   = "give"

	OpPutOver  = "put over"
	OpThaw     = "thaw"
	OpMerge    = "merge"
	OpRedefine = "redefine"

	OpExec = "run a command in"
)

// Config configures the simulated guests. All fields are optional.
type Config struct {
	// Boot is the time from a guest's start until it has its address; 0: immediate.
	Boot time.Duration
	// Shutdown is the time a guest takes to power off on request.
	Shutdown time.Duration
	// StopGrace is how long Stop waits for the guest before it cuts the power (30 s).
	StopGrace time.Duration
	// File stores the instances across restarts; empty: in memory only.
	File string
	// Subnet is the pool of addresses (10.0.0.0/8).
	Subnet netip.Prefix
	// Arch are the architectures of the machines (x86_64).
	Arch []croft.Arch
	// Fault is called at the start of every operation. It may block; its error fails the operation. id is
	// empty for OpList.
	Fault func(ctx context.Context, op string, id croft.InstanceID) error
	// Late, if set, makes calls asynchronous like libvirt's: it is called before an operation takes effect,
	// while the operation holds its place in the instance's queue, and may block. The operation then takes
	// effect even if its caller has gone. id is empty for OpList.
	Late func(op string, id croft.InstanceID)
	// Log receives errors that cannot be returned to a caller.
	Log *slog.Logger
}

// Hypervisor is a host of simulated guests. Close ends its timers.
type Hypervisor struct {
	config  Config
	changed mailbox.Boxes[croft.InstanceID]
	turns   turns.Turns[croft.InstanceID]
	late    sync.WaitGroup // calls, including those whose callers have gone

	mu     sync.Mutex
	guests map[croft.InstanceID]*guest
	used   map[netip.Addr]croft.InstanceID
	closed bool
	// PCI devices of machines that are not croft's
	foreign map[string]string
}

// guest is one instance. The hypervisor's mutex guards its fields.
type guest struct {
	Machine compute.Machine `json:"machine"`
	Power   compute.Power   `json:"power"`
	Crashed bool            `json:"crashed,omitempty"`
	Halted  bool            `json:"halted,omitempty"`
	Started int64           `json:"started,omitempty"`
	Booted  time.Time       `json:"booted,omitzero"` // when it gets or got its address
	Address netip.Addr      `json:"address"`
	// volumes that the guest does not release
	Clinging bool `json:"clinging,omitempty"`
	// the guest has an agent that freezes and thaws its file systems, and runs commands
	Answers bool `json:"answers,omitempty"`

	timer   *time.Timer // announces the address; nil: it is announced, or the guest is off
	button  *time.Timer // powers the guest off after a request
	console *console    // the attached client, if any
	screen  *console    // likewise

	runs        int64             // how often it was started by this process
	processes   map[int64]process // of the present run, by their numbers
	lastProcess int64
}

// New loads the instances from File, if set; running instances are still running.
func New(c Config) (*Hypervisor, error) {
	c.StopGrace = cmp.Or(c.StopGrace, 30*time.Second)
	c.Subnet = cmp.Or(c.Subnet, netip.MustParsePrefix("10.0.0.0/8")).Masked()
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if len(c.Arch) == 0 {
		c.Arch = []croft.Arch{croft.ArchX86}
	}
	for _, arch := range c.Arch {
		if err := arch.Check(); err != nil {
			return nil, fmt.Errorf("sim.architectures: %w", err)
		}
	}
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

// Close waits for late calls and cancels boots in progress; h must not be used afterwards.
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

// List returns all instances, sorted by ID.
func (h *Hypervisor) List(ctx context.Context) ([]compute.Domain, error) {
	return call(ctx, h, OpList, "", func() ([]compute.Domain, error) {
		list := make([]compute.Domain, 0, len(h.guests))
		for _, id := range slices.Sorted(maps.Keys(h.guests)) {
			list = append(list, h.guests[id].domain())
		}
		return list, nil
	})
}

// Get returns one instance; NotFound if it does not exist.
func (h *Hypervisor) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return call(ctx, h, OpGet, id, func() (compute.Domain, error) {
		g, err := h.find(id)
		if err != nil {
			return compute.Domain{}, err
		}
		return g.domain(), nil
	})
}

// Machine returns the definition of an instance; NotFound if it does not exist.
func (h *Hypervisor) Machine(id croft.InstanceID) (compute.Machine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err != nil {
		return compute.Machine{}, err
	}
	return g.Machine, nil
}

// Machines returns all traits of the architectures: a simulated guest is a machine of any kind.
func (h *Hypervisor) Machines(context.Context) ([]croft.Trait, error) {
	all := croft.MachineTraits(h.config.Arch...)
	if slices.Contains(h.config.Arch, croft.ArchX86) {
		all = append(all, croft.TraitX86)
	}
	return all, nil
}

// Watch calls wake for every instance whose power or address changed.
func (h *Hypervisor) Watch(ctx context.Context, wake func(croft.InstanceID)) error {
	box, leave := h.changed.Join()
	defer leave()
	h.mu.Lock()
	box.Put(slices.Collect(maps.Keys(h.guests))...)
	h.mu.Unlock()
	return box.Run(ctx, wake)
}

// Owner returns the instance that has this address and is on; NotFound if none exists.
func (h *Hypervisor) Owner(_ context.Context, addr netip.Addr) (croft.InstanceID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.guests[h.used[addr.Unmap()]]; g != nil && slices.Contains(g.domain().Addresses, addr.Unmap()) {
		return g.Machine.ID, nil
	}
	return "", croft.Errorf(croft.NotFound, "no instance on this host has the address %s", addr)
}

// find returns a guest. The caller holds h.mu.
func (h *Hypervisor) find(id croft.InstanceID) (*guest, error) {
	if g, ok := h.guests[id]; ok {
		return g, nil
	}
	return nil, croft.Errorf(croft.NotFound, "instance %s is not defined on this host", id)
}

func (g *guest) domain() compute.Domain {
	d := compute.Domain{
		ID: g.Machine.ID, Partition: g.Machine.Partition, Ordered: g.Machine.Ordered,
		Power: g.Power, Started: g.Started, Crashed: g.Crashed, Halted: g.Halted, PCI: g.Machine.PCI,
		CD: g.Machine.CD != "",
	}
	if len(g.Machine.NICs) > 0 {
		d.Reserved = []netip.Addr{g.Address}
	}
	if g.Power != compute.PowerOff && len(g.Machine.NICs) > 0 && g.timer == nil {
		d.Addresses = []netip.Addr{g.Address}
	}
	return d
}

// endTimers cancels a boot or shutdown in progress.
func (g *guest) endTimers() {
	for _, timer := range []**time.Timer{&g.timer, &g.button} {
		if *timer != nil {
			(*timer).Stop()
			*timer = nil
		}
	}
}

// GuestAddresses returns the range of the addresses of guests, which is the same on each network.
func (h *Hypervisor) GuestAddresses(context.Context, string) ([]string, error) {
	first, last := h.guestRange()
	return []string{first.String() + "-" + last.String()}, nil
}

// guestRange returns the first and the last address of guests: all except the network, gateway and broadcast addresses.
func (h *Hypervisor) guestRange() (first, last netip.Addr) {
	b := h.config.Subnet.Addr().As4()
	base := binary.BigEndian.Uint32(b[:])
	binary.BigEndian.PutUint32(b[:], base+uint32(uint64(1)<<(32-h.config.Subnet.Bits())-2))
	return h.config.Subnet.Addr().Next().Next(), netip.AddrFrom4(b)
}

// lend assigns an address to a machine: the chosen one, or always the same one unless another instance has it. The
// caller holds h.mu.
func (h *Hypervisor) lend(m compute.Machine) (netip.Addr, error) {
	id := m.ID
	for _, nic := range m.NICs {
		addr, err := netip.ParseAddr(nic.Address)
		if err != nil {
			continue
		}
		first, last := h.guestRange()
		if _, taken := h.used[addr]; taken || addr.Less(first) || last.Less(addr) {
			return netip.Addr{}, croft.Errorf(croft.Conflict, "the address %s is not free on the network %q of its "+
				"host: another guest has it, or the network does not give it: free it, and the instance starts, or "+
				"remove the instance and ask for another address", addr, nic.Network)
		}
		h.used[addr] = id
		return addr, nil
	}
	sum := sha256.Sum256([]byte(id))
	size := uint64(1) << (32 - h.config.Subnet.Bits())
	first := h.config.Subnet.Addr().As4()
	base, start := binary.BigEndian.Uint32(first[:]), binary.BigEndian.Uint64(sum[:])
	for n := range min(size-3, 1<<16) {
		// Skip the network, gateway and broadcast addresses.
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
