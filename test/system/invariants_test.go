package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
)

// settle ends all faults, restores everything and waits until the invariants hold; remaining violations fail the
// test.
func (w *world) settle() {
	w.calmed.Store(true)
	w.placementDown.Store(false)
	w.placing.Lock()
	w.placement.gate.calm()
	w.placing.Unlock()
	if w.caretaker != nil {
		w.caretaker.calm()
	}
	if g := w.keeping.Load(); g != nil {
		g.calm()
	}
	for _, m := range w.hosts {
		m.wire.Mend()
		m.slow.Store(false)
		m.dead.Store(false)
		m.takeGPU("")
		m.gate.calm()
		m.leave()
		m.boot(0)
	}
	w.takeBack()
	all := w.hosts
	if w.hosts = slices.DeleteFunc(slices.Clone(all),
		func(m *machine) bool { return m.away }); len(w.hosts) < len(all) {
		w.rest(30 * time.Second) // no instance may wait for a forgotten host
		for _, m := range all {
			m.restore()
			m.boot(0)
		}
		w.hosts = all
	}
	unmended := w.unmended()
	for _, v := range unmended {
		w.t.Errorf("the audit is clean: before anybody repaired anything it finds %s", v)
	}
	w.recount(unmended)
	w.rest(restTime)
}

// restTime is how long the world may take to come to rest. It is no performance requirement.
const restTime = 90 * time.Second

// rest waits until the invariants hold, after an operator has repaired the problems that agents do not repair.
func (w *world) rest(most time.Duration) {
	w.t.Helper()
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	repaired, last := false, time.Now()
	for {
		if time.Since(last) > 3*time.Second { // a host that has just returned had not shown what it has
			repaired = false
		}
		var violations []string
		if !repaired { // Placement may be loading its state from etcd
			if err := w.repair(w.t.Context()); err != nil {
				violations = []string{fmt.Sprintf("repair: %v", err)}
			} else {
				repaired, last = true, time.Now()
			}
		}
		if repaired {
			violations = w.violations(w.t.Context())
		}
		if len(violations) == 0 {
			violations = w.audit(w.t.Context())
		}
		if len(violations) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			for _, v := range violations {
				w.t.Error(v)
			}
			w.recount(violations)
			return
		}
	}
}

// operators are the kinds of differences that agents leave to operators: interrupted moves, disks of lost instances,
// and files of volumes that were removed while their host was forgotten.
var operators = []audit.Kind{audit.UnfinishedMove, audit.LeftHere, audit.StrayVolume}

// unmended waits until agents have repaired the problems that are theirs, and returns the rest.
func (w *world) unmended() []string {
	var found []string
	for end := time.Now().Add(60 * time.Second); ; {
		found = nil
		err := w.operate(0, func(o *operator) error {
			report, err := o.Audit(w.t.Context())
			for _, d := range report.Differences {
				if !slices.Contains(operators, d.Kind) && !w.isAway(d) && !w.wasForgotten(d) {
					found = append(found, fmt.Sprintf("%+v", d))
				}
			}
			return err
		})
		if err != nil {
			found = append(found, err.Error())
		}
		if len(found) == 0 || time.Now().After(end) {
			return found
		}
	}
}

// violations lists the invariants that do not hold at rest.
func (w *world) violations(ctx context.Context) []string {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{fmt.Sprintf("cannot list: %v", err)}
	}
	known := map[croft.InstanceID]croft.Status{}
	names := map[string]croft.InstanceID{}
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	for _, st := range all {
		known[st.Instance.ID] = st
		if other, twice := names[st.Instance.Name]; twice {
			complain("%s and %s have one name", other, st.Instance.ID)
		}
		names[st.Instance.Name] = st.Instance.ID
		bad = append(bad, w.unsettled(st)...)
	}
	bad = append(bad, crowdedRacks(all)...)
	for _, i := range invariants {
		for _, v := range i.broken(w, ctx) {
			complain("%s: %s", i.name, v)
		}
	}
	for _, m := range w.hosts {
		bad = append(bad, m.leftFiles(ctx, known)...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, f := range w.facts {
		_, exists := known[id]
		switch {
		case w.reused[id]:
		case f.destroyed && exists:
			complain("%s was destroyed and is there", id)
		case f.refused && exists:
			complain("%s was refused and is there", id)
		case f.created && (!w.doomed[id] || w.isProtected(id, f)) && !exists:
			complain("%s was acknowledged, never destroyed, and is gone", id)
		}
	}
	return append(bad, w.broken...)
}

// rackRule is the rule of the group that some instances are in.
const rackRule croft.AffinityRule = "at-most-2-per-rack"

// crowdedRacks lists members of the group without a seat, members that share a seat, and invalid seats.
func crowdedRacks(all []croft.Status) []string {
	var bad []string
	holders := map[croft.Seat]croft.InstanceID{}
	for _, st := range all {
		inst := st.Instance
		if len(inst.Spec.Affinities) != len(inst.Seats) && inst.State != croft.StateLost {
			bad = append(bad, fmt.Sprintf("%s is in the groups %v with the seats %v", inst.ID, inst.Spec.Affinities,
				inst.Seats))
		}
		for _, seat := range inst.Seats {
			if other, taken := holders[seat]; taken || seat.Number < 1 || seat.Number > 2 {
				bad = append(bad, fmt.Sprintf("%s and %q have the seat %v", inst.ID, other, seat))
			}
			holders[seat] = inst.ID
		}
	}
	return bad
}

// unsettled describes the difference between an instance's observation and its wanted state.
func (w *world) unsettled(st croft.Status) []string {
	if st.Instance.State == croft.StateHeld && st.Order == nil && st.Observation == nil && st.Instance.Generation == 0 {
		return nil
	}
	if st.Instance.State != croft.StateScheduled || st.Order == nil {
		return []string{fmt.Sprintf("%s is %s", st.Instance.ID, st.Instance.State)}
	}
	want := map[croft.Want]croft.State{croft.WantRunning: croft.StateRunning,
		croft.WantStopped: croft.StateStopped}[st.Order.Want]
	if st.Instance.Spec.Image == missing {
		want = croft.StateFailed
	} else if w.unbuilt(st.Instance) { // its image was removed before it had a disk, or is lost
		return nil
	}
	if st.Observation == nil || st.Observation.State != want || st.Observation.Generation != st.Order.Generation {
		return []string{fmt.Sprintf("%s is wanted %s and observed %+v", st.Instance.ID, st.Order.Want, st.Observation)}
	}
	return nil
}

// leftFiles lists the files on a host that belong to nothing there.
func (m *machine) leftFiles(ctx context.Context, known map[croft.InstanceID]croft.Status) (bad []string) {
	names := func(dir string) (all []string) {
		files, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			bad = append(bad, fmt.Sprintf("host%d: cannot list files: %v", m.n, err))
		}
		for _, f := range files {
			all = append(all, f.Name())
		}
		return all
	}
	volumes := map[string]bool{}
	for _, v := range m.records(ctx) {
		volumes[string(v.ID)] = true
	}
	for _, name := range names(m.dir) {
		st, is := known[croft.InstanceID(name)]
		if name != "volumes" && (!is || st.Instance.Host != m.id || !m.w.mayHaveFiles(st)) {
			bad = append(bad, fmt.Sprintf("host%d: files of %s, which is not here", m.n, name))
		}
	}
	for _, name := range names(filepath.Join(m.dir, "volumes")) {
		if !volumes[name] {
			bad = append(bad, fmt.Sprintf("host%d: files of volume %s, which is not here", m.n, name))
		}
	}
	return bad
}

func idsOf(domains []compute.Domain) []croft.InstanceID {
	var ids []croft.InstanceID
	for _, d := range domains {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

// watchful checks during the run for states that must never occur, even for a moment.
func (w *world) watchful(ctx context.Context, hosts []*machine) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	// Hosts are read one after the other, and a guest may move between two reads. So a disk that is open twice is a
	// breach only if the next look finds it open twice, too.
	before := map[diskID]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		open := map[diskID][]string{} // -> by which guests
		for _, m := range hosts {
			bad := m.look(context.WithValue(ctx, looking{}, true), open)
			for _, b := range bad {
				w.breach("%s", b)
			}
		}
		twice := map[diskID]bool{}
		for disk, by := range open {
			if len(by) > 1 && before[disk] {
				w.breach("no disk is open twice: %s is open in %d guests: %v", disk, len(by), by)
			}
			twice[disk] = len(by) > 1
		}
		before = twice
	}
}

// look adds the disks that the guests of a host have open, and returns why they use more than the host has.
func (m *machine) look(ctx context.Context, open map[diskID][]string) (bad []string) {
	domains, err := m.hv.List(ctx)
	if err != nil {
		return nil
	}
	bad = append(sharedGPUs(m.n, domains), sharedAddresses(m.n, domains)...)
	var cpus, memory int64
	for _, d := range domains {
		machine, err := m.hv.Machine(d.ID)
		if err != nil || d.Power == compute.PowerOff || m.w.twice(d.ID) {
			continue
		}
		by := fmt.Sprintf("%s on host%d", d.ID, m.n)
		if m.w.isShared(machine) || !m.isMisjudged() {
			open[diskID(d.ID)] = append(open[diskID(d.ID)], by)
		}
		for _, v := range machine.Volumes {
			if m.w.hasShared(v) || !m.isMisjudged() { // otherwise another file of it may have been restored elsewhere
				open[diskID(v.ID)] = append(open[diskID(v.ID)], by)
			}
		}
		if !m.w.byForce(d.ID) {
			cpus, memory = cpus+machine.VCPUs, memory+machine.MemoryMiB
		}
	}
	if cpus > hostCPUs || memory > hostMemory {
		bad = append(bad, fmt.Sprintf("nothing is claimed twice: host%d has %d processors and %d MiB, and its "+
			"guests use %d and %d", m.n, hostCPUs, hostMemory, cpus, memory))
	}
	return bad
}

// twice reports UUIDs given to a second instance while the first one's guest may run on a silent host.
func (w *world) twice(id croft.InstanceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reused[id]
}

// byForce reports instances that were destroyed by force, or may have been.
func (w *world) byForce(id croft.InstanceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forced[id]
}

func (w *world) breach(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if !slices.ContainsFunc(w.broken, func(known string) bool { return strings.HasSuffix(known, text) }) {
		w.broken = append(w.broken, time.Now().Format(etcdtest.Clock)+" "+text)
	}
}

// recount logs the history of the instances that a violation names: writes, and actions of processes.
func (w *world) recount(violations []string) {
	if len(violations) == 0 {
		return
	}
	told := map[string]bool{}
	for _, m := range w.hosts {
		told[string(m.id)] = true
		w.t.Logf("host%d is %s", m.n, m.id)
	}
	for _, id := range identifiers.FindAllString(strings.Join(violations, " "), -1) {
		if told[id] {
			continue
		}
		told[id] = true
		lines := append(w.history.About(id), w.tally.about(croft.InstanceID(id))...)
		slices.Sort(lines)
		w.t.Logf("history of %s:\n%s", id, strings.Join(lines, "\n"))
	}
}

var identifiers = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// outcomes counts the results of requests.
func (w *world) outcomes() (created, refused, destroyed int) {
	for _, f := range w.facts {
		switch {
		case f.created:
			created++
		case f.refused:
			refused++
		}
		if f.destroyed {
			destroyed++
		}
	}
	return created, refused, destroyed
}
