package compute

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/hosts/audit"
	"croft/internal/mailbox"
)

const (
	here     croft.HostID      = "h"
	home     croft.PartitionID = "p"
	guest    croft.InstanceID  = "6f1cbe4c-5c1e-4d2f-8a3b-0d6a5c1f7e21"
	leftover                   = "leftover" // a file in the instance's directory that only a removal takes away
)

var (
	errPlanned = croft.Errorf(croft.Unavailable, "planned")
	reserved   = netip.MustParseAddr("192.0.2.7")
)

// logbook is a host with at most one instance, in memory. It records calls in order. Planned failures of calls have no
// effect on its state.
type logbook struct {
	t    *testing.T
	mu   sync.Mutex
	dir  string
	fail func(call string) error // nil: nothing fails

	order   *croft.Order
	record  *croft.Instance
	seen    *croft.Observation
	domain  *Domain
	defined Machine
	claimed bool
	boots   croft.Firmware // the only one that boots the disk
	hosts   map[croft.HostID]croft.Host
	told    audit.Evidence // evidence about the host
	claims  map[croft.InstanceID]croft.Resources
	offered []croft.Provider
	others  []Domain       // other domains
	remains []croft.HostID // the former hosts that still have parts of the instance
	slow    time.Duration  // how long each step takes, except observations, which hold a mutex

	words sync.Mutex // held while seen and the lists below change
	calls []string   // reads and steps
	steps []string   // calls that change something
}

func (l *logbook) read(words ...any) error {
	call := strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	l.words.Lock()
	l.calls = append(l.calls, call)
	l.words.Unlock()
	if l.fail != nil {
		return l.fail(call)
	}
	return nil
}

func (l *logbook) step(words ...any) error {
	l.words.Lock()
	l.steps = append(l.steps, strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
	l.words.Unlock()
	if words[0] != "observe" {
		time.Sleep(l.slow)
	}
	return l.read(words...)
}

func (l *logbook) has(file string) bool {
	_, err := os.Stat(filepath.Join(l.dir, string(guest), file))
	return err == nil
}

// gone fails the test if parts of the instance exist that must be removed before the given step.
func (l *logbook) gone(now string) {
	l.t.Helper()
	if l.domain != nil || l.has("") {
		l.t.Errorf("at %s there is the domain %v, or its files: %v", now, l.domain, l.has(""))
	}
}

// end describes the state after all passes.
func (l *logbook) end() string {
	s := fmt.Sprintf("an order: %v, claim: %v, files: %v, old files: %v, metadata disk: %v", l.order != nil, l.claimed,
		l.has(""), l.has(leftover), l.has(seedFile))
	if d := l.domain; d != nil {
		s += fmt.Sprintf(", a domain of generation %d, %s, started for %d", d.Generation, d.Power, d.Started)
	}
	if l.seen != nil {
		s += ", told " + string(l.seen.State)
	}
	return s
}

// agent returns the agent of the host, which serves it.
func (l *logbook) agent() *Agent {
	a := &Agent{Config: Config{Host: croft.Host{ID: here, Name: "one"}, Partition: home, Dir: l.dir,
		Orders: logOrders{logbook: l}, Records: logRecords{logbook: l}, Inventory: logInventory{logbook: l},
		Hypervisor: logHypervisor{logbook: l}, Registry: logRegistry{logbook: l}, Images: logImages{logbook: l},
		NICs: []NIC{{Network: "default"}},
		Log:  slog.New(slog.DiscardHandler)},
		builds:     make(chan struct{}, 1),
		instances:  instances{all: map[croft.InstanceID]*memory{}, awaited: map[croft.InstanceID]bool{}},
		samples:    newSamples(""),
		agentTurns: newAgentTurns(),
		reporters:  mailbox.New[croft.InstanceID]()}
	a.metrics = newMetrics(a.builds, &a.locked, &a.known, a.instances.states)
	a.caretaker = &audit.Caretaker{Host: here, Records: a.Records, Inventory: a.Inventory, Log: a.Log}
	a.locked.Store(true)
	a.workers.Do = a.pass
	return a
}

type (
	allOrders      = Orders // types with other names, because the fields would have the names of methods
	allHosts       = Registry
	allHypervisors = Hypervisor

	logOrders struct {
		allOrders // nil, like the next: methods that are not defined here are never called
		*logbook
	}
	logRecords struct {
		*logbook
	}
	logRegistry struct {
		allHosts
		*logbook
	}
	logInventory struct {
		*logbook
	}
	logHypervisor struct {
		allHypervisors
		*logbook
	}
	logImages struct {
		ImageStore // nil
		*logbook
	}
	logSeeds struct {
		*logbook
		source croft.Metadata
	}
)

func (l logOrders) Order(_ context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error) {
	if err := l.read("order"); err != nil {
		return croft.Order{}, err
	}
	if l.order == nil || host != here || id != guest {
		return croft.Order{}, croft.Errorf(croft.NotFound, "no order")
	}
	return *l.order, nil
}

func (l logOrders) Remains(_ context.Context, host croft.HostID, _ croft.InstanceID) (bool, error) {
	return slices.Contains(l.remains, host), l.read("remains", host)
}

// HandOver finds no order to leave on the former hosts.
func (l logOrders) HandOver(context.Context, croft.Order) error { return l.read("hand over") }

func (l logOrders) Observed(context.Context, croft.HostID, croft.InstanceID) (croft.Observation, error) {
	if err := l.read("observed"); err != nil {
		return croft.Observation{}, err
	}
	if l.seen == nil {
		return croft.Observation{}, croft.Errorf(croft.NotFound, "no observation")
	}
	return *l.seen, nil
}

func (l logOrders) Observe(_ context.Context, o croft.Observation) error {
	words := []any{"observe", o.State}
	if o.Ended != "" {
		words = append(words, "by", o.Ended)
	}
	for _, a := range o.Addresses {
		words = append(words, "at", a)
	}
	if o.Error != "" {
		words = append(words, "since", o.Error)
	}
	if err := l.step(words...); err != nil {
		return err
	}
	if o.Host != here || o.Instance != guest || o.Generation != l.order.Generation || o.Updated.IsZero() ||
		o.MAC != guest.MAC(0).String() {
		l.t.Errorf("observed %+v of order %+v", o, l.order)
	}
	l.words.Lock()
	defer l.words.Unlock()
	l.seen = &o
	return nil
}

func (l logOrders) Forget(context.Context, croft.Order) error {
	l.gone("forget")
	if l.claimed && (l.record == nil || l.record.Host == here) {
		l.t.Error("forgotten before its claim is back")
	}
	if err := l.step("forget"); err != nil {
		return err
	}
	l.words.Lock()
	defer l.words.Unlock()
	l.order, l.seen = nil, nil
	return nil
}

func (l logRecords) Instance(context.Context, croft.InstanceID) (croft.Instance, error) {
	if err := l.read("record"); err != nil {
		return croft.Instance{}, err
	}
	if l.record == nil {
		return croft.Instance{}, croft.Errorf(croft.NotFound, "no record")
	}
	return *l.record, nil
}

func (l logRecords) HostEvidence(_ context.Context, _ croft.HostID, more ...croft.InstanceID) (audit.Evidence, error) {
	slices.Sort(more)
	err := l.read("evidence", more)
	e := l.told
	e.Only, e.Claims, e.Contents = here, map[croft.HostID]map[croft.InstanceID]croft.Resources{},
		map[croft.HostID]audit.Contents{}
	return e, err
}

func (l logRecords) Drop(_ context.Context, d audit.Difference) error { return l.step("drop", d.Kind) }

func (l logRegistry) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return l.hosts, l.read("hosts")
}

func (l logRegistry) PutHost(_ context.Context, h croft.Host) error {
	if err := l.step("put", h.Name, "formerly", h.FormerName, h.Problems); err != nil {
		return err
	}
	if l.hosts == nil {
		l.hosts = map[croft.HostID]croft.Host{}
	}
	l.hosts[h.ID] = h
	return nil
}

func (l logInventory) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	err := l.read("claims")
	if err == nil && l.claims == nil {
		err = croft.Errorf(croft.NotFound, "no provider")
	}
	return l.claims, err
}

func (l logInventory) EnsureProvider(_ context.Context, p croft.Provider) error {
	l.offered = append(l.offered, p)
	return l.step("offer", p.Name)
}

func (l logInventory) Release(ctx context.Context, _ croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	l.gone("release")
	if err := l.step("release", on); err != nil {
		return err
	}
	l.claimed = false
	return nil
}

func (l logHypervisor) Get(context.Context, croft.InstanceID) (Domain, error) {
	if err := l.read("domain"); err != nil {
		return Domain{}, err
	}
	if l.domain == nil {
		return Domain{}, croft.Errorf(croft.NotFound, "no domain")
	}
	return *l.domain, nil
}

func (l logHypervisor) List(context.Context) ([]Domain, error) {
	all := slices.Clone(l.others)
	if l.domain != nil {
		all = append(all, *l.domain)
	}
	return all, l.read("list")
}

func (l logHypervisor) Define(_ context.Context, m Machine) error {
	if err := l.step("define"); err != nil {
		return err
	}
	if l.domain == nil {
		l.domain = &Domain{ID: m.ID, Power: PowerOff, Reserved: []netip.Addr{reserved}}
	}
	l.domain.CD = m.CD != ""
	l.domain.Partition, l.domain.Generation, l.defined = m.Partition, m.Generation, m
	l.domain.Name = m.Ordered.Name
	return nil
}

func (l logHypervisor) Mark(_ context.Context, _ croft.InstanceID, m Ordered) error {
	if err := l.step("mark", m.Generation); err != nil {
		return err
	}
	l.domain.Ordered = m
	if l.domain.Power != PowerOff {
		l.domain.Started = m.Generation
	}
	return nil
}

func (l logHypervisor) Start(context.Context, croft.InstanceID) error {
	if err := l.step("start"); err != nil {
		return err
	}
	l.domain.Power, l.domain.Started, l.domain.Addresses = PowerOn, l.domain.Generation, []netip.Addr{reserved}
	return nil
}

func (l logHypervisor) Eject(context.Context, croft.InstanceID) error {
	if l.has(cdFile) {
		l.t.Error("the file of the CD is there when it is ejected for good")
	}
	if err := l.step("eject"); err != nil {
		return err
	}
	l.domain.CD = false
	return nil
}

func (l logHypervisor) Stop(context.Context, croft.InstanceID) error {
	if err := l.step("stop"); err != nil {
		return err
	}
	l.domain.Power, l.domain.Started, l.domain.Addresses = PowerOff, 0, nil
	return nil
}

func (logHypervisor) Tops(context.Context, croft.InstanceID) (map[croft.VolumeID]string, error) {
	return nil, nil // there are no snapshots
}

func (l logHypervisor) Remove(context.Context, croft.InstanceID) error {
	if err := l.step("remove"); err != nil {
		return err
	}
	l.domain = nil
	return nil
}

func (l logImages) Fetch(_ context.Context, _ string, progress func(croft.Progress)) (CachedImage, error) {
	progress(croft.Progress{Done: 1, Total: 2})
	return CachedImage{Path: "/image"}, l.step("fetch")
}

func (l logImages) FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (CachedImage, error) {
	return l.Fetch(ctx, ref, progress)
}

func (l logImages) Volume(_ context.Context, file string, sizeGB int64) error {
	if err := l.step("empty disk", sizeGB); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}

func (l logImages) CD(_ context.Context, _ CachedImage, file string) error {
	if err := l.step("cd"); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}

func (logImages) Enlarge(context.Context, string, int64) error { return nil }

func (l logImages) Disk(_ context.Context, img CachedImage, dir string, sizeGB int64) ([]Layer, error) {
	if err := l.step("disk", sizeGB); err != nil {
		return nil, err
	}
	if l.domain != nil && (l.has(leftover) || l.domain.Power != PowerOff) {
		l.t.Error("the new disk is made beside the old one, or while it is in use")
	}
	path := filepath.Join(dir, "disk")
	return []Layer{{Path: path}, {Path: img.Path}}, os.WriteFile(path, nil, 0o600)
}

func (l logSeeds) Source(croft.Order) (croft.Metadata, error) { return l.source, l.read("source") }

func (l logSeeds) WriteSeed(_ context.Context, w io.Writer, _ croft.Order) error {
	if _, err := io.WriteString(w, "seed"); err != nil {
		return err
	}
	return l.step("seed")
}

// Below is called of the disk of an instance without snapshots.
func (l logImages) Below(string) (string, error) { return "", nil }

func (l logImages) OnlyFirmware([]Layer) (croft.Firmware, error) { return l.boots, nil }
