package system

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
)

// dataLog knows what the guests have written, and so which data each disk may have. A write is a number, which replaces
// all data of the disks of its guest at one moment.
type dataLog struct {
	mu        sync.Mutex
	clock     int
	disks     map[diskID][]diskState // in the order of their times
	writes    map[string][]diskID    // data -> the disks that it was written to
	snapshots map[string]*captured   // by name, which no other snapshot has
	rolling   map[croft.InstanceID][]*captured
	left      map[leftDisk]content // what lost instances left on their hosts
	volumes   map[croft.VolumeID]*volumeFact
	copies    map[diskID]bool                  // made from a backup for a new instance
	backups   map[string]*captured             // by name, which no other backup has
	restoring map[croft.InstanceID][]*captured // backups that may replace the disks of an instance
	saved     map[croft.ImageID]*captured      // images that were saved from instances
	removals  map[string]time.Time             // when the latest removal of a volume with this name was requested
}

// diskID is the UUID of a volume, or of an instance for its own disk.
type diskID string

// content is the data that a disk may have; empty data: nothing was written since it was made.
type content map[string]bool

// diskState is what a disk may have from a time on.
type diskState struct {
	since int
	may   content
}

// captured is a snapshot that was requested.
type captured struct {
	instance    croft.InstanceID
	from, until int // when it was requested, and when it was surely taken; 0: it may be taken now
	rolling     int // requests for a rollback that have not ended
}

type leftDisk struct {
	host     croft.HostID
	instance croft.InstanceID
}

// volumeFact is what a user knows of a volume.
type volumeFact struct {
	name   string
	doomed bool // its removal was requested
}

func newDataLog() *dataLog {
	return &dataLog{disks: map[diskID][]diskState{}, writes: map[string][]diskID{}, snapshots: map[string]*captured{},
		rolling: map[croft.InstanceID][]*captured{}, left: map[leftDisk]content{},
		backups: map[string]*captured{}, restoring: map[croft.InstanceID][]*captured{},
		saved: map[croft.ImageID]*captured{}, volumes: map[croft.VolumeID]*volumeFact{}, copies: map[diskID]bool{},
		removals: map[string]time.Time{}}
}

// may returns what a disk may have now. The caller holds l.mu, as for the next methods.
func (l *dataLog) may(d diskID) content {
	states := l.disks[d]
	if len(states) == 0 {
		return content{"": true}
	}
	return states[len(states)-1].may
}

// set changes what a disk may have from now on.
func (l *dataLog) set(d diskID, may content) {
	l.clock++
	l.disks[d] = append(l.disks[d], diskState{l.clock, may})
}

// allow adds to what a disk may have.
func (l *dataLog) allow(d diskID, more content) {
	may := maps.Clone(l.may(d))
	maps.Copy(may, more)
	l.set(d, may)
}

// captureOf returns what a snapshot may have of a disk.
func (l *dataLog) captureOf(s *captured, d diskID) content {
	may := content{}
	before := content{"": true}
	for _, state := range l.disks[d] {
		switch {
		case state.since <= s.from:
			before = state.may
		case s.until == 0 || state.since <= s.until:
			maps.Copy(may, state.may)
		}
	}
	maps.Copy(may, before)
	return may
}

// lose records that an instance may be lost with its host, and made from its image elsewhere.
func (l *dataLog) lose(inst croft.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := leftDisk{inst.Host, inst.ID}
	if l.left[left] == nil {
		l.left[left] = content{}
	}
	maps.Copy(l.left[left], l.may(diskID(inst.ID)))
	if inst.Storage == "" {
		l.allow(diskID(inst.ID), content{"": true})
	}
}

// replace records that another instance gets the UUID of one. The disk of the earlier one stays if it is kept.
func (l *dataLog) replace(id croft.InstanceID, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept {
		l.allow(diskID(id), content{"": true})
	} else {
		l.set(diskID(id), content{"": true})
	}
}

// write makes a guest of a host write to its disks, if it runs.
func (w *world) write(ctx context.Context, m *machine, id croft.InstanceID) {
	w.noteCopies(ctx)
	l := w.data
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, err := w.store.Volumes.AttachedTo(ctx, id)
	machine, defined := m.hv.Machine(id)
	if err != nil || defined == nil && !w.isShared(machine) && m.isMisjudged() { // its local disk may be replaced
		return
	}
	l.note(id, taken)
	data := strconv.Itoa(l.clock + 1)
	before, unread := m.hv.Disks(ctx, id)
	written, err := m.hv.Write(id, data)
	if err != nil {
		if k := croft.KindOf(err); k != croft.NotFound && k != croft.Conflict {
			w.breach("the guest of %s on host%d cannot write to its disks: %v", id, m.n, err)
		}
		return
	}
	if unread == nil {
		w.guestReads(ctx, m, id, before)
	}
	w.tally.add("a guest wrote to its disks")
	w.tally.say(id, fmt.Sprintf("guest on host%d writes %s to %v", m.n, data, written))
	l.clock++
	for _, v := range written {
		d := diskID(v)
		if v == compute.RootDisk {
			d = diskID(id)
		}
		l.writes[data] = append(l.writes[data], d)
		may := content{data: true}
		for _, s := range slices.Concat(l.rolling[id], l.restoring[id]) { // which may come after this write
			maps.Copy(may, l.captureOf(s, d))
		}
		l.disks[d] = append(l.disks[d], diskState{l.clock, may})
	}
}

// guestReads checks what a guest read from its disks, before its next write replaces that. The caller holds l.mu.
func (w *world) guestReads(ctx context.Context, m *machine, id croft.InstanceID, disks map[croft.VolumeID]string) {
	inst, err := w.store.Instances.Instance(ctx, id)
	if err != nil || inst.Host != m.id || w.twice(id) || w.byForce(id) {
		return
	}
	for disk, data := range disks {
		may := w.data.may(diskID(disk))
		if disk == compute.RootDisk {
			may = w.data.rootMay(inst)
		}
		if !may.has(data) {
			w.breach("no data is lost: the guest of %s on host%d reads %q from disk %q, which may have %v", id, m.n, data,
				disk, may)
		}
	}
}

// rootMay returns what the own disk of an instance may have.
func (l *dataLog) rootMay(inst croft.Instance) content {
	may := maps.Clone(l.may(diskID(inst.ID)))
	if inst.Spec.Ephemeral { // each move makes its disk from the image
		may[""] = true
	}
	if from := inst.Backup; from != nil && (from.InPlace || from.Error != "") {
		maps.Copy(may, l.restored(inst))
	}
	return may
}

// note reads in the records of an instance's snapshots which ones are taken, and which rollbacks have ended.
func (l *dataLog) note(id croft.InstanceID, attached []croft.Volume) {
	ordered := map[*captured]bool{}
	for _, v := range attached {
		s := l.snapshots[v.Name]
		if v.Snapshot == nil || s == nil {
			continue
		}
		if v.MadeGB > 0 && s.until == 0 {
			s.until = l.clock
		}
		ordered[s] = v.Snapshot.Rollback != ""
	}
	l.rolling[id] = slices.DeleteFunc(l.rolling[id], func(s *captured) bool { return s.rolling == 0 && !ordered[s] })
}

// capture records a request for a snapshot.
func (l *dataLog) capture(name string, id croft.InstanceID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots[name] = &captured{instance: id, from: l.clock}
}

// knows reports whether a user requested a snapshot.
func (l *dataLog) knows(v croft.Volume) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshots[v.Name] != nil
}

// rollBack records a request to roll back to a snapshot; ended is called when the request has ended.
func (l *dataLog) rollBack(v croft.Volume) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.snapshots[v.Name]
	s.rolling++
	l.rolling[s.instance] = append(l.rolling[s.instance], s)
	for _, d := range append([]diskID{diskID(s.instance)}, diskIDs(v.Snapshot.Volumes)...) {
		l.allow(d, l.captureOf(s, d))
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.rolling--
	}
}

func diskIDs(volumes []croft.VolumeID) (all []diskID) {
	for _, v := range volumes {
		all = append(all, diskID(v))
	}
	return all
}

// noDataIsLost: every disk has the data that its guest wrote last, where the records say that the disk is; every
// snapshot has the data of one moment; and the disks of lost instances are where they were lost.
func (w *world) noDataIsLost(ctx context.Context) (bad []string) {
	w.noteBackups(ctx)
	w.noteCopies(ctx)
	l := w.data
	l.mu.Lock()
	defer l.mu.Unlock()
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	guests := map[croft.InstanceID]map[croft.VolumeID]string{}
	for _, st := range all {
		inst := st.Instance
		m := w.machineOrNil(inst.Host)
		if m == nil || inst.State != croft.StateScheduled || w.unbuilt(inst) {
			continue
		}
		disks, err := m.hv.Disks(ctx, inst.ID)
		if err != nil {
			complain("the disks of %s on host%d: %v", inst.ID, m.n, err)
			continue
		}
		guests[inst.ID] = disks
		may := l.rootMay(inst)
		if root := disks[compute.RootDisk]; !may.has(root) && !w.twice(inst.ID) && !w.byForce(inst.ID) {
			complain("the disk of %s on host%d has %q, and may have %v", inst.ID, m.n, root, may)
		}
	}
	volumes, err := w.store.Volumes.List(ctx, "")
	if err != nil {
		complain("cannot list the volumes: %v", err)
	}
	known := map[croft.VolumeID]bool{}
	for _, v := range volumes {
		known[v.ID] = true
		file, where := w.fileOf(v)
		if file == "" || v.MadeGB == 0 || v.Removing {
			continue
		}
		data, here := guests[v.Instance][v.ID]
		if !here {
			if data, err = sim.VolumeContent(file); err != nil {
				complain("volume %s on %s: %v", v.ID, where, err)
				continue
			}
		}
		if may := l.may(diskID(v.ID)); !may.has(data) {
			complain("volume %s on %s has %q, and may have %v", v.ID, where, data, may)
		}
	}
	for id, f := range l.volumes {
		if !f.doomed && !known[id] {
			complain("volume %s (%s) was acknowledged, never removed, and has no record", id, f.name)
		}
	}
	for _, st := range all {
		bad = append(bad, w.snapshotsOf(ctx, st.Instance)...)
	}
	return bad
}

// snapshotsOf compares the snapshots of an instance with what was written when they were taken.
func (w *world) snapshotsOf(ctx context.Context, inst croft.Instance) (bad []string) {
	l := w.data
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	attached, err := w.store.Volumes.AttachedTo(ctx, inst.ID)
	if err != nil {
		return []string{err.Error()}
	}
	m := w.machineOrNil(inst.Host)
	for _, v := range attached {
		s := l.snapshots[v.Name]
		if v.Snapshot == nil || v.State() != croft.SnapshotReady || s == nil || m == nil || w.twice(inst.ID) {
			continue
		}
		root := ""
		for i, disk := range append([]croft.VolumeID{compute.RootDisk}, v.Snapshot.Volumes...) {
			d := diskID(disk)
			if i == 0 {
				d = diskID(inst.ID)
			}
			data, err := m.hv.Below(inst.ID, disk, "disk."+string(v.ID)+".qcow2")
			may := maps.Clone(l.captureOf(s, d))
			if inst.Spec.Ephemeral && i == 0 {
				may[""] = true
			}
			switch {
			case err != nil:
				complain("snapshot %s of disk %s: %v", v.ID, d, err)
			case !may.has(data):
				complain("snapshot %s of disk %s has %q, and may have %v", v.ID, d, data, may)
			case i == 0:
				root = data
			case root != data && (slices.Contains(l.writes[root], d) && number(data) < number(root) ||
				slices.Contains(l.writes[data], diskID(inst.ID)) && number(data) > number(root)):
				complain("snapshot %s has %q of the disk and %q of volume %s, which is no one moment", v.ID, root, data,
					disk)
			}
		}
	}
	return bad
}

func number(data string) int {
	n, _ := strconv.Atoi(data)
	return n
}

// leftData checks the data that a lost instance left on a host, before an operator has it removed. Disks on shared
// storage are not left there: they may have been removed since.
func (w *world) leftData(m *machine, id croft.InstanceID) (bad string) {
	l := w.data
	l.mu.Lock()
	defer l.mu.Unlock()
	may := l.left[leftDisk{m.id, id}]
	machine, err := m.hv.Machine(id)
	if err != nil || w.isShared(machine) || slices.ContainsFunc(machine.Volumes, w.hasShared) {
		return ""
	}
	disks, err := m.hv.Disks(context.WithValue(w.t.Context(), looking{}, true), id)
	if croft.KindOf(err) == croft.NotFound || may == nil || w.twice(id) {
		return "" // it was never built, or was removed before
	}
	if err != nil {
		o, failed := w.store.Orders.Order(w.t.Context(), m.id, id)
		if croft.KindOf(failed) == croft.NotFound || failed == nil && o.Want == croft.WantGone {
			return "" // another operator has it removed at this moment
		}
	}
	if root := disks[compute.RootDisk]; err != nil || !may.has(root) && root != "" && l.restoring[id] == nil {
		return fmt.Sprintf("%s left a disk with %q on host%d, which may have %v: %v", id, root, m.n, may, err)
	}
	return ""
}

// fileOf returns the file of a volume, and where that is; empty: on a host that is away.
func (w *world) fileOf(v croft.Volume) (file, where string) {
	if v.Storage != "" {
		return filepath.Join(w.sharedDir(), "volumes", string(v.ID), "disk.qcow2"), storageName
	}
	if m := w.machineOrNil(v.Host); m != nil {
		return m.volumeFile(v.ID), fmt.Sprintf("host%d", m.n)
	}
	return "", ""
}

func (m *machine) volumeFile(id croft.VolumeID) string {
	return filepath.Join(m.dir, "volumes", string(id), "disk.qcow2")
}

// machineOrNil returns the machine of a host that is not away; nil: none.
func (w *world) machineOrNil(id croft.HostID) *machine {
	for _, m := range w.hosts {
		if m.id == id {
			return m
		}
	}
	return nil
}
