package compute

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/shirou/gopsutil/v3/disk"

	"croft"
	"croft/hosts/audit"
	"croft/internal/plain"
	"croft/schedule/topology"
)

// setProblem sets a problem of the host in its record; empty: no problem.
func (a *Agent) setProblem(kind problemKind, sentence string) (changed bool) {
	a.introducing.Lock()
	defer a.introducing.Unlock()
	changed = a.problems[kind] != sentence
	a.problems[kind] = sentence
	return changed
}

// introduce writes the host's record. A change of name is logged, and the record keeps the former name.
func (a *Agent) introduce(ctx context.Context) error {
	a.introducing.Lock()
	defer a.introducing.Unlock()
	hosts, err := a.Registry.Hosts(ctx, a.Host.ID)
	if err != nil {
		return err
	}
	me := a.Host
	if before, known := hosts[me.ID]; known {
		me.FormerName, me.GuestAddresses = before.FormerName, before.GuestAddresses
		if before.Name != me.Name {
			me.FormerName = before.Name
			a.Log.Warn("the host has a new name; by its UUID it is the same", "host", me.ID, "name", me.Name, "former",
				before.Name)
		}
	}
	if _, err := topology.Of(me); err != nil {
		me.Problems = append(me.Problems, fmt.Sprintf(
			"%v; until host.location in its settings is of that form, no member of a group that goes by racks, rows "+
				"or sites comes here", err))
	}
	for _, problem := range a.problems {
		if problem != "" {
			me.Problems = append(me.Problems, problem)
		}
	}
	me.Problems, me.Storages = append(me.Problems, a.storageProblems...), a.mounts
	me.Findings = a.findings
	if a.GuestAddresses == nil || a.guestAddresses != nil { // otherwise the ranges could not be read yet
		me.GuestAddresses = a.guestAddresses
	}
	if err := a.Registry.PutHost(ctx, me); err != nil {
		return err
	}
	a.recorded, a.unrecorded = a.problems, false
	return nil
}

// diagnose checks the machine and writes the faults into the host's record. The next sweep writes them if the agent
// does not serve the host yet, or if the record cannot be written.
func (a *Agent) diagnose(ctx context.Context) {
	found := a.Diagnose(ctx)
	if ctx.Err() != nil {
		return // checks that were interrupted say nothing about the machine
	}
	kept := []croft.Finding{} // not nil: the machine was checked
	for _, f := range found[:min(len(found), croft.MaxFindings)] {
		kept = append(kept, croft.Finding{Level: f.Level, Check: plain.Cut(f.Check, longestFinding),
			Found: plain.Cut(f.Found, longestFinding), Do: plain.Cut(f.Do, longestFinding)})
	}
	a.introducing.Lock()
	before := a.findings
	changed := before == nil || !slices.Equal(before, kept)
	a.findings, a.unrecorded = kept, a.unrecorded || changed
	a.introducing.Unlock()
	if !changed {
		return
	}
	for _, f := range kept {
		if slices.ContainsFunc(before, func(b croft.Finding) bool { return b.Check == f.Check && b.Level == f.Level }) {
			continue // only an amount may differ
		}
		a.Log.Warn("a check of the machine found a fault", "host", a.Host.ID, "check", f.Check, "level", f.Level,
			"reason", f.Found, "remedy", f.Do)
	}
	if a.locked.Load() && a.known.Load() {
		if err := a.introduce(ctx); err != nil {
			a.logUnless(ctx, err, "record the faults of the machine")
		}
	}
}

// longestFinding limits a text of a finding, in bytes.
const longestFinding = 512

// examine looks for problems of the host as a whole, logs each once, and keeps it in the host's record while it lasts.
// The next call repairs a record that could not be written.
func (a *Agent) examine(ctx context.Context, claims map[croft.InstanceID]croft.Resources,
	strays []audit.Difference) error {
	for _, found := range []struct {
		kind             problemKind
		sentence, report string
	}{
		{problemShrunk, a.shrunk(claims), "the host offers less than is claimed; its guests are left alone"},
		{problemGuests, strangers(strays), "guests here are not this host's; they are left alone"},
		{problemDisk, a.nearlyFull(ctx), "the disk is nearly full"},
		{problemCutOff, a.cutOff(), "guests have lost their network"},
	} {
		if a.setProblem(found.kind, found.sentence) && found.sentence != "" {
			a.Log.Warn(found.report, "host", a.Host.ID, "reason", found.sentence)
		}
	}
	a.introducing.Lock()
	known := a.problems == a.recorded && !a.unrecorded
	a.introducing.Unlock()
	if changed := a.readGuestAddresses(ctx); known && !changed {
		return nil
	}
	return a.introduce(ctx)
}

// readGuestAddresses reads which addresses the host gives to guests, and reports whether they changed. If they cannot
// be read, it keeps the former ones until the next sweep.
func (a *Agent) readGuestAddresses(ctx context.Context) (changed bool) {
	if a.GuestAddresses == nil {
		return false
	}
	now, err := a.GuestAddresses(ctx)
	if err != nil {
		a.Log.Warn("the addresses for guests cannot be read; the record of the host keeps the former ones", "host",
			a.Host.ID, "err", err)
		return false
	}
	a.introducing.Lock()
	defer a.introducing.Unlock()
	changed = !slices.Equal(now, a.guestAddresses)
	a.guestAddresses = append([]string{}, now...)
	return changed
}

// littleDisk is the free space, in bytes, below which the instances' disk counts as nearly full.
const littleDisk = 1 << 30

// nearlyFull describes the problem that the instances' disk is nearly full; empty: it is not. The sentence omits the
// exact amount, so that the record does not change with every block.
func (a *Agent) nearlyFull(ctx context.Context) string {
	usage, err := disk.UsageWithContext(ctx, a.Dir)
	if err != nil || usage.Free >= littleDisk {
		return "" // operations that need the disk report the error
	}
	return fmt.Sprintf("less than 1 GiB is free on the disk of %s: when the disk is full, guests that write are "+
		"paused, and new ones cannot be built; make room there", a.Dir)
}

// cutOff describes the running guests that have lost their network.
func (a *Agent) cutOff() string {
	hv, ok := a.Hypervisor.(Bridged)
	if !ok {
		return ""
	}
	cut := hv.CutOff()
	if len(cut) == 0 {
		return ""
	}
	sentence := fmt.Sprintf("instance %s is cut off from its network, which was stopped: start it again (virsh "+
		"net-start), and its guests are attached to it", cut[0])
	if len(cut) > 1 {
		sentence += fmt.Sprintf(" (and %d more instances)", len(cut)-1)
	}
	return sentence
}

// shrunk describes the resource classes of which more is claimed than the host offers.
func (a *Agent) shrunk(claims map[croft.InstanceID]croft.Resources) string {
	used := croft.Resources{}
	for _, claim := range claims {
		for class, amount := range claim {
			used[class] += amount
		}
	}
	var short []string
	offered := a.offered().Inventories
	for class, amount := range used {
		if capacity := offered[class].Capacity(); amount > capacity {
			short = append(short, fmt.Sprintf("%d of %s are claimed and %d offered", amount, class, capacity))
		}
	}
	if len(short) == 0 {
		return ""
	}
	slices.Sort(short)
	return "it has become smaller than its use: " + strings.Join(short, ", ") +
		"; nothing new comes here until that is less, and its guests stay as they are"
}

// problemKind is a kind of problem of a host; the record contains at most one problem of each kind.
type problemKind int

const (
	problemName   problemKind = iota // another host has its name
	problemShrunk                    // the host offers less than is claimed
	problemGuests                    // guests run here that do not belong to this host
	problemDisk                      // its disk is nearly full
	problemCutOff                    // running guests have lost their network
	problemPCI                       // PCI devices that the settings select are not offered
	problemKinds
)

// troubles holds the latest reasons why the agent cannot work.
type troubles struct {
	lock       atomic.Pointer[string] // why the agent may not serve its host
	known      atomic.Pointer[error]  // why the host is not registered yet
	hypervisor atomic.Pointer[error]  // the result of the last request to the hypervisor
}

// strangers describes the guests on this host that have no owner or belong to another host.
func strangers(strays []audit.Difference) string {
	if len(strays) == 0 {
		return ""
	}
	sentence := fmt.Sprintf("%s: %s", strays[0].Instance, strays[0].Cause)
	if len(strays) > 1 {
		sentence += fmt.Sprintf(" (and %d more)", len(strays)-1)
	}
	return sentence
}
