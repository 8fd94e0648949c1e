// Package volumes creates, enlarges, attaches and removes volumes: disks of their own that outlive instances. Each
// request writes its intent into the record of the volume, then claims in Placement, then settles the record, which is
// the order for the host's agent. A process that dies in between leaves a record from which a caretaker undoes the
// request.
package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"

	"croft"
	"croft/schedule"
)

// Store stores the records of volumes. Every change compares the record that it is based on. Conflict: it has changed.
type Store interface {
	// Find returns a project's volume. NotFound.
	Find(ctx context.Context, project croft.Project, name string) (croft.Volume, error)
	// List returns the volumes of a project, by name; with an empty project, all volumes.
	List(ctx context.Context, project croft.Project) ([]croft.Volume, error)
	// AttachedTo returns the volumes that are attached to an instance, and its snapshots, by name.
	AttachedTo(ctx context.Context, id croft.InstanceID) ([]croft.Volume, error)
	// Create writes the record of a volume that is not claimed yet, and charges the project. Conflict: the name is
	// taken. OverQuota. ErrClosed: the host takes no orders.
	Create(ctx context.Context, v croft.Volume) (croft.Volume, error)
	// Enlarge writes the size that a volume is to have, and charges the project. OverQuota.
	Enlarge(ctx context.Context, v croft.Volume, sizeGB int64) (croft.Volume, error)
	// Settle records that the size of a volume is claimed.
	Settle(ctx context.Context, v croft.Volume) (croft.Volume, error)
	// Retire lets a session of this process end, so that a caretaker undoes what was started under it.
	Retire(session string)
	// Fence rewrites an unchanged record and returns it as stored: no pending write that compares it can succeed
	// afterwards. NotFound: it is gone.
	Fence(ctx context.Context, v croft.Volume) (croft.Volume, error)
	// GiveUp ends a request whose size is not claimed, and repays the project.
	GiveUp(ctx context.Context, v croft.Volume) error
	// Attach attaches a volume to an instance whose record has not changed, and whose host then keeps it.
	Attach(ctx context.Context, v croft.Volume, inst croft.Instance) (croft.Volume, error)
	// Keep makes another host the keeper of a volume on shared storage that is attached to none. was is the present
	// one, with its death; without an ID: it was removed from the cloud. Unavailable: one of the two was taken back, or
	// went silent.
	Keep(ctx context.Context, v croft.Volume, was croft.Host, to croft.HostID) (croft.Volume, error)
	// Detach orders that a volume is detached; Detached records that it is.
	Detach(ctx context.Context, v croft.Volume) (croft.Volume, error)
	Detached(ctx context.Context, v croft.Volume) (croft.Volume, error)
	// Condemn orders the removal of a volume; Forget removes its record.
	Condemn(ctx context.Context, v croft.Volume) (croft.Volume, error)
	Forget(ctx context.Context, v croft.Volume) error
	// CreateSnapshot writes the record of a snapshot that is not claimed yet, and charges the project. The instance and
	// its volumes must not have changed. Conflict: the name is taken. OverQuota. ErrClosed: the host is silent.
	CreateSnapshot(ctx context.Context, v croft.Volume, inst croft.Instance, disks []croft.Volume) (croft.Volume, error)
	// Snapshots returns the snapshots of a project's instances, sorted by instance and age, the oldest first.
	Snapshots(ctx context.Context, project croft.Project) ([]croft.Volume, error)
	// FindSnapshot returns a snapshot of an instance. NotFound.
	FindSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error)
	// GiveUpLost removes the name and the charge of a lost snapshot; the rest of its record is an order for its host.
	GiveUpLost(ctx context.Context, v croft.Volume) error
	// RollBack orders that the disks of a snapshot replace the present ones.
	RollBack(ctx context.Context, v croft.Volume, how croft.Rollback) (croft.Volume, error)
}

// Claims is the part of the Placement API that volumes need.
type Claims interface {
	// Candidates returns at most limit ways to satisfy a query.
	Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error)
	// ClaimOf returns the claim of a consumer.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim replaces a consumer's claim by a candidate's. Conflict: the claim differs from had. NoCapacity.
	Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, c croft.Candidate) error
	// Release removes a claim on the hosts that may returns, if may permits that. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
}

// Instances is the read access to instances.
type Instances interface {
	// FindByID returns the instance with this ID. NotFound.
	FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error)
}

// Manager carries out requests for volumes. It keeps no state. All fields are required.
type Manager struct {
	Partition croft.PartitionID
	Store
	Claims    Claims
	Hosts     schedule.Registry
	Instances Instances
	Log       *slog.Logger
}

// undoTime is the timeout of undoing a request that failed.
const undoTime = 5 * time.Second

// candidateLimit is the maximum number of candidates.
const candidateLimit = 1 << 16

// Create creates a volume on a host with room: on the named host, or else on the one with the most room. It returns
// once the volume is ordered; its host makes the file. Conflict: the name is taken. NoCapacity. OverQuota. Invalid.
// NotFound: there is no such host. CreateShared creates one on shared storage.
func (m *Manager) Create(ctx context.Context, project croft.Project, name string, sizeGB int64, hostName string) (
	v croft.Volume, err error) {
	called := ""
	if hostName != "" {
		called = "host " + hostName
	}
	return m.create(ctx, project, name, sizeGB, hostName, called)
}

// CreateNear is like Create, for a volume on the host of an instance of the project, so that it can be attached to it.
// Conflict: the instance has no host, or is being moved.
func (m *Manager) CreateNear(ctx context.Context, project croft.Project, name string, sizeGB int64,
	inst croft.Instance) (v croft.Volume, err error) {
	switch {
	case inst.State != croft.StateScheduled:
		return v, croft.Errorf(croft.Conflict, "create volume %s near instance %s: that is %s", name, inst.Name,
			inst.State)
	case inst.Moving != "":
		return v, croft.Errorf(croft.Conflict, "create volume %s near instance %s: that is being moved to another "+
			"host: "+
			"wait until it has arrived", name, inst.Name)
	}
	return m.create(ctx, project, name, sizeGB, string(inst.Host), "the host of instance "+inst.Name)
}

// create is Create; called says in errors which host was asked for.
func (m *Manager) create(ctx context.Context, project croft.Project, name string, sizeGB int64, hostName,
	called string) (v croft.Volume, err error) {
	if err := errors.Join(schedule.CheckName(name), croft.CheckVolumeSize(sizeGB)); err != nil {
		return v, err
	}
	candidates, err := m.candidates(ctx, sizeGB, hostName)
	if err != nil {
		return v, fmt.Errorf("create volume %s: %w", name, err)
	}
	var places []croft.Volume
	for _, host := range candidates {
		places = append(places, croft.Volume{Host: host})
	}
	if v, err = m.createOn(ctx, project, name, sizeGB, places); err == nil || !errors.Is(err, errNowhere) {
		return v, err
	}
	return v, croft.Errorf(croft.NoCapacity, "create volume %s: %s", name, m.full(ctx, sizeGB, hostName, called))
}

// full returns why no host, or not the named one, can have a new volume.
func (m *Manager) full(ctx context.Context, sizeGB int64, hostName, called string) string {
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil {
		return fmt.Sprintf("no host has taken it, and the reason cannot be read: %v", err)
	}
	if called == "" {
		for _, h := range hosts {
			if closed(h) == "" {
				return fmt.Sprintf("no host that takes orders has DISK_GB:%d left%s", sizeGB, m.only(ctx, "", hosts))
			}
		}
		return "no host takes orders: each is silent, drained or too old for volumes"
	}
	h, _ := croft.HostCalled(maps.Values(hosts), hostName) // it was found before
	if why := closed(h); why != "" {
		return called + " takes no orders: " + why
	}
	return fmt.Sprintf("%s has no DISK_GB:%d left%s", called, sizeGB, m.only(ctx, h.ID, hosts))
}

// closed returns why a host takes no orders about new volumes; empty: it takes them.
func closed(h croft.Host) string {
	switch {
	case !h.Alive:
		return "its agent is not running"
	case h.Drained:
		return "it is drained"
	case !h.Volumes:
		return "its croft is too old for volumes"
	}
	return ""
}

// Errors of createOn.
var (
	errNowhere = croft.Errorf(croft.NoCapacity, "no place has room")
	errClosed  = fmt.Errorf("%w: no host of these takes orders", errNowhere)
)

// createOn creates a volume at the first of these places, of which each has a Host and perhaps a Storage, that has room
// for it; errNowhere: none has; errClosed: because no host takes orders.
func (m *Manager) createOn(ctx context.Context, project croft.Project, name string, sizeGB int64,
	places []croft.Volume) (v croft.Volume, err error) {
	none := errClosed
	for _, at := range places {
		v = croft.Volume{ID: croft.NewVolumeID(), Project: project, Name: name, Host: at.Host, Storage: at.Storage,
			SizeGB: sizeGB, Created: time.Now().UTC()}
		if v, err = m.Store.Create(ctx, v); err == nil {
			if v, err = m.claim(ctx, v); err == nil {
				m.Log.Info("volume ordered", "volume", v.ID, "project", project, "name", name, "host", v.Host)
				return v, nil
			}
		}
		if !errors.Is(err, croft.NoCapacity) && !errors.Is(err, schedule.ErrClosed) {
			return v, fmt.Errorf("create volume %s: %w", name, err)
		}
		if !errors.Is(err, schedule.ErrClosed) {
			none = errNowhere
		}
	}
	return v, none
}

// only describes how much room a provider has for disks; without an ID, the host of these with the most that takes
// orders. Empty: that is unknown.
func (m *Manager) only(ctx context.Context, provider croft.HostID, hosts map[croft.HostID]croft.Host) string {
	left, err := m.left(ctx, provider, hosts)
	switch {
	case err != nil:
		return ""
	case provider == "":
		return fmt.Sprintf("; the most is %d", left)
	}
	return fmt.Sprintf(", only %d", left)
}

// left returns how many GiB of disks a provider has left; without an ID, the host of these with the most that takes
// orders.
func (m *Manager) left(ctx context.Context, provider croft.HostID,
	hosts map[croft.HostID]croft.Host) (most int64, err error) {
	all, err := m.Claims.Candidates(ctx, "resources="+croft.Resources{croft.DiskGB: 1}.String(), candidateLimit)
	for _, c := range all {
		for id := range c.Allocations {
			if s := c.Summaries[id]; id == provider || provider == "" && closed(hosts[id]) == "" {
				most = max(most, s.Capacity[croft.DiskGB]-s.Used[croft.DiskGB])
			}
		}
	}
	return most, err
}

// candidates returns the hosts with room that take orders about volumes, the best first.
func (m *Manager) candidates(ctx context.Context, sizeGB int64, host string) ([]croft.HostID, error) {
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{"resources": {croft.Resources{croft.DiskGB: sizeGB}.String()}}
	if host != "" {
		h, err := croft.HostCalled(maps.Values(hosts), host)
		if err != nil {
			return nil, err
		}
		query.Set("in_tree", string(h.ID))
	}
	all, err := m.Claims.Candidates(ctx, query.Encode(), candidateLimit)
	if err != nil {
		return nil, err
	}
	var ids []croft.HostID
	for _, c := range schedule.Spread.Order(all) {
		for id := range c.Allocations {
			if len(c.Allocations) == 1 && closed(hosts[id]) == "" {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// owner returns to whom the claim of a volume is charged.
func (m *Manager) owner(v croft.Volume) croft.Owner {
	return croft.Owner{Partition: m.Partition, Project: v.Project, Type: croft.VolumeConsumerType}
}

func amount(v croft.Volume, sizeGB int64) croft.Candidate {
	return croft.Candidate{Allocations: map[croft.HostID]croft.Resources{v.Provider(): {croft.DiskGB: sizeGB}}}
}

// resized returns a claim with another amount of the provider of a volume. A former host may still have a copy of it.
func resized(had croft.Claim, v croft.Volume, sizeGB int64) croft.Candidate {
	next := amount(v, sizeGB)
	for host, amounts := range had.Allocations {
		if host != v.Provider() {
			next.Allocations[host] = amounts
		}
	}
	return next
}

// claim claims the size of a volume whose record names it, and settles the record. After an error the request is
// undone, unless a store does not answer: then a caretaker undoes it.
func (m *Manager) claim(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	err := m.reserve(ctx, v)
	if err == nil {
		var settled croft.Volume
		if settled, err = m.Settle(ctx, v); err == nil {
			return settled, nil
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	settled, undo := m.undo(after, v)
	if undo == nil && settled.ClaimedGB == v.SizeGB { // the answer to Settle was lost
		return settled, nil
	}
	return v, errors.Join(err, undo)
}

// reserve claims the size of a volume whose record names it.
func (m *Manager) reserve(ctx context.Context, v croft.Volume) error {
	had, err := m.Claims.ClaimOf(ctx, v.ID.Consumer())
	if err == nil {
		err = m.Claims.Reclaim(ctx, had, m.owner(v), resized(had, v, v.SizeGB))
	}
	if croft.KindOf(err) == croft.Conflict { // the error of Placement names the host
		err = croft.Errorf(croft.Conflict, "others changed its claim, or claimed on its host, all the while: try again")
	}
	return err
}

// Begin implements schedule.Volumes.
func (m *Manager) Begin(ctx context.Context, host croft.HostID, disks []croft.Volume) (begun []croft.Volume,
	err error) {
	for _, v := range disks {
		if v.ID != "" {
			v, err = m.beginMove(ctx, v, host)
			begun = append(begun, v)
		} else {
			v.ID, v.Host = croft.NewVolumeID(), host
			if v, err = m.Store.Create(ctx, v); err == nil {
				begun = append(begun, v)
				err = m.reserve(ctx, v)
			}
		}
		if err != nil {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			return nil, errors.Join(fmt.Errorf("create volume %s: %w", v.Name, err), m.Cancel(after, begun))
		}
	}
	return begun, nil
}

// Cancel implements schedule.Volumes.
func (m *Manager) Cancel(ctx context.Context, begun []croft.Volume) error {
	var all error
	for _, v := range begun {
		var err error
		if v.ClaimedGB > 0 {
			err = m.endMove(ctx, v)
		} else {
			_, err = m.undo(ctx, v)
		}
		all = errors.Join(all, err)
	}
	return all
}

// beginMove makes a volume of a lost instance claim its size on another host. Its record names the lost host until the
// transaction of the instance's order; if this process dies before, a caretaker restores the claim there with Return.
func (m *Manager) beginMove(ctx context.Context, v croft.Volume, to croft.HostID) (croft.Volume, error) {
	had, err := m.Claims.ClaimOf(ctx, v.ID.Consumer())
	if err != nil {
		return v, err
	}
	if v, err = m.Fence(ctx, v); err != nil {
		return v, err
	}
	if v.Removing || v.Detaching || v.Instance == "" || v.ClaimedGB < v.SizeGB {
		return v, croft.Errorf(croft.Conflict, "it is being changed: try again")
	}
	there := v
	there.Host = to
	return v, m.Claims.Reclaim(ctx, had, m.owner(v), amount(there, v.ClaimedGB))
}

// endMove makes a volume claim its size on its host again, unless its record has moved.
func (m *Manager) endMove(ctx context.Context, v croft.Volume) error {
	had, err := m.Claims.ClaimOf(ctx, v.ID.Consumer())
	if err != nil {
		return err
	}
	now, err := m.Fence(ctx, v)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if err == nil {
		err = m.claimHome(ctx, had, now)
	}
	if errors.Is(err, croft.NoCapacity) || errors.Is(err, croft.NotFound) { // the lost host is not offered
		return nil
	}
	return err
}

// claimHome makes a volume claim its size on its own provider alone. Where that is not possible, it claims elsewhere no
// longer, and the error says why it does not claim at home.
func (m *Manager) claimHome(ctx context.Context, had croft.Claim, v croft.Volume) error {
	err := m.Claims.Reclaim(ctx, had, m.owner(v), amount(v, v.ClaimedGB))
	if !errors.Is(err, croft.NoCapacity) && !errors.Is(err, croft.NotFound) {
		return err
	}
	var elsewhere []croft.HostID
	for provider := range had.Allocations {
		if provider != v.Provider() {
			elsewhere = append(elsewhere, provider)
		}
	}
	if len(elsewhere) == 0 {
		return err
	}
	if failed := m.Claims.Release(ctx, v.ID.Consumer(), croft.On(elsewhere...)); failed != nil {
		return failed
	}
	return err
}

// Return implements audit.Volumes.
func (m *Manager) Return(ctx context.Context, id croft.InstanceID) error {
	attached, err := m.AttachedTo(ctx, id)
	if err != nil {
		return err
	}
	for _, v := range attached {
		if v.Storage != "" || v.Snapshot != nil || v.Removing || v.ClaimedGB < v.SizeGB {
			continue
		}
		if err := m.endMove(ctx, v); err != nil {
			return fmt.Errorf("return the claim of volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// Undo implements audit.Volumes.
func (m *Manager) Undo(ctx context.Context, v croft.Volume) error {
	if v.Removing && v.ClaimedGB >= v.SizeGB && v.Storage != "" {
		_, err := m.kept(ctx, v) // which removes the file
		return err
	}
	if v.Removing && v.ClaimedGB >= v.SizeGB {
		gone, err := m.forgotten(ctx, v.Host)
		if err != nil || !gone {
			return err
		}
		return m.end(ctx, v)
	}
	_, err := m.undo(ctx, v)
	return err
}

// forgotten reports whether a host is not on record, and so has no provider either.
func (m *Manager) forgotten(ctx context.Context, host croft.HostID) (bool, error) {
	hosts, err := m.Hosts.Hosts(ctx, host)
	return err == nil && hosts[host].ID == "", err
}

// undo gives up the size that a request asked for, with its claim. The claim is read first, then the record is fenced,
// so that a suspended process that continues later changes neither. It returns the record as it is then; a request that
// was settled stays. What it cannot give up is left to a caretaker.
func (m *Manager) undo(ctx context.Context, v croft.Volume) (now croft.Volume, err error) {
	defer func() {
		if err != nil {
			m.Retire(v.Session)
		}
	}()
	pending := func(ctx context.Context) (_ []croft.HostID, err error) {
		now, err = m.Fence(ctx, v)
		if err == nil && (now.ClaimedGB >= now.SizeGB || now.Session != v.Session) {
			err = errSettled
		}
		return []croft.HostID{v.Provider()}, err
	}
	if v.ClaimedGB == 0 {
		err = m.Claims.Release(ctx, v.ID.Consumer(), pending)
	} else {
		var had croft.Claim
		if had, err = m.Claims.ClaimOf(ctx, v.ID.Consumer()); err == nil {
			_, err = pending(ctx)
		}
		gone := false // with the host and its provider: a pending change of the claim fails without another
		if err == nil && len(had.Allocations) == 0 && v.Storage == "" {
			gone, err = m.forgotten(ctx, v.Host)
		}
		if err == nil && !gone { // also if the amounts are the same: a pending change of the claim must fail
			claim := resized(had, v, v.ClaimedGB)
			err = m.Claims.Reclaim(ctx, had, m.owner(v), claim)
			if errors.Is(err, croft.NoCapacity) && had.Covers(claim) {
				m.Log.Warn(v.Noun()+" claims more than its size: Placement refuses to change the claim", v.Noun(), v.ID,
					"host", v.Host, "err", err)
				err = nil
			}
		}
	}
	switch {
	case errors.Is(err, errSettled), errors.Is(err, croft.NotFound):
		return now, nil
	case err != nil:
		return now, fmt.Errorf("give up the request for %s %s: %w", v.Noun(), v.Name, err)
	}
	if err := m.GiveUp(ctx, now); err != nil && !errors.Is(err, croft.Conflict) {
		return now, err
	}
	m.Log.Info("request for a "+v.Noun()+" undone", v.Noun(), v.ID, "host", v.Host)
	return now, nil
}

var errSettled = errors.New("the request was settled")

// Reclaim implements audit.Volumes.
func (m *Manager) Reclaim(ctx context.Context, v croft.Volume) error {
	had, err := m.Claims.ClaimOf(ctx, v.ID.Consumer())
	if err != nil {
		return err
	}
	if v, err = m.Fence(ctx, v); err != nil {
		return err
	}
	if v.Snapshot != nil && v.Snapshot.Lost {
		return m.Claims.Release(ctx, v.ID.Consumer(), croft.On())
	}
	if v.Removing || v.ClaimedGB < v.SizeGB {
		return croft.Errorf(croft.Conflict, "%s %s is being changed", v.Noun(), v.Name)
	}
	if err := m.resting(ctx, v); err != nil {
		return err
	}
	return m.claimHome(ctx, had, v)
}

// change finds a volume and changes it, again after a concurrent change.
func (m *Manager) change(ctx context.Context, verb string, project croft.Project, name string,
	do func(croft.Volume) (croft.Volume, error)) (croft.Volume, error) {
	return changeFound(verb+" volume "+name, func() (croft.Volume, error) { return m.Find(ctx, project, name) },
		func(v croft.Volume) (croft.Volume, error) {
			if err := m.resting(ctx, v); err != nil {
				return v, err
			}
			return do(v)
		})
}

// resting returns a Conflict if the instance of a volume is being moved: its record moves along. A move that starts
// later rewrites the record, so that a change that is based on v fails.
func (m *Manager) resting(ctx context.Context, v croft.Volume) error {
	if v.Instance == "" {
		return nil
	}
	st, err := m.Instances.FindByID(ctx, v.Instance)
	switch {
	case errors.Is(err, croft.NotFound):
		return nil
	case err == nil && st.Instance.Moving != "":
		return croft.Errorf(croft.Conflict, "its instance %s is being moved to another host: wait until it has arrived",
			st.Instance.Name)
	}
	return err
}

// changeFound finds a volume or a snapshot and changes it, again after a concurrent change.
func changeFound(what string, find func() (croft.Volume, error), do func(croft.Volume) (croft.Volume, error)) (
	v croft.Volume, err error) {
	for range tries {
		if v, err = find(); err != nil {
			return v, err
		}
		switch {
		case v.Snapshot != nil && v.Snapshot.Lost:
			return v, croft.Errorf(croft.Conflict, "%s: it is lost with its host; `croft snapshot remove` removes it "+
				"from the "+
				"list", what)
		case v.Removing:
			return v, croft.Errorf(croft.Conflict, "%s: it is being removed", what)
		case v.ClaimedGB == 0:
			return v, croft.Errorf(croft.Conflict, "%s: the request for it has not ended; try again, or remove the "+
				"%s", what,
				v.Noun())
		case v.ClaimedGB < v.SizeGB:
			return v, croft.Errorf(croft.Conflict, "%s: another request is about to change its size; try again", what)
		}
		next, err := do(v)
		if err == nil {
			return next, nil
		}
		now, look := find()
		if croft.KindOf(err) != croft.Conflict || look != nil || now.Revision == v.Revision {
			return v, fmt.Errorf("%s: %w", what, err)
		}
	}
	return v, croft.Errorf(croft.Conflict, "%s: it is changed all the while; try again", what)
}

// tries bounds how often a change is tried again because the record changed meanwhile.
const tries = 5

// Grow makes a volume larger, whether it is attached or not. It returns once that is ordered. Invalid: it would become
// smaller. NoCapacity: its host has no room. OverQuota. Conflict: another request changes it.
func (m *Manager) Grow(ctx context.Context, project croft.Project, name string, sizeGB int64) (croft.Volume, error) {
	if err := croft.CheckVolumeSize(sizeGB); err != nil {
		return croft.Volume{}, err
	}
	return m.change(ctx, "grow", project, name, func(v croft.Volume) (croft.Volume, error) {
		switch {
		case sizeGB < v.SizeGB:
			return v, croft.Errorf(croft.Invalid, "it has %d GiB, and a volume does not shrink: create a smaller one "+
				"and "+
				"copy the data", v.SizeGB)
		}
		v, err := m.kept(ctx, v)
		if err != nil || sizeGB == v.SizeGB {
			return v, err
		}
		if err := cmp.Or(m.reachable(ctx, v), m.uncaptured(ctx, v), m.notLost(ctx, v)); err != nil {
			return v, err
		}
		if v, err = m.Enlarge(ctx, v, sizeGB); err != nil {
			return v, err
		}
		if v, err = m.claim(ctx, v); errors.Is(err, croft.NoCapacity) {
			provider := "host"
			if v.Storage != "" {
				provider = "shared storage"
			}
			err = croft.Errorf(croft.NoCapacity, "its %s has no room for %d GiB%s; it keeps its size", provider, sizeGB,
				m.most(ctx, v))
		}
		return v, err
	})
}

// most describes up to which size a volume can grow that has claimed its present one. Empty: that is unknown.
func (m *Manager) most(ctx context.Context, v croft.Volume) string {
	left, err := m.left(ctx, v.Provider(), nil)
	now, read := m.Claims.ClaimOf(ctx, v.ID.Consumer())
	if err != nil || read != nil {
		return ""
	}
	return fmt.Sprintf(": the most that fits is %d", left+now.Allocations[v.Provider()][croft.DiskGB])
}

// reachable returns why the host of a volume carries out no orders. Unavailable.
func (m *Manager) reachable(ctx context.Context, v croft.Volume) error {
	hosts, err := m.Hosts.Hosts(ctx, v.Host)
	switch {
	case err != nil:
		return err
	case hosts[v.Host].ID == "":
		return croft.Errorf(croft.Unavailable, "it is lost: its host was removed from the cloud")
	case !hosts[v.Host].Alive:
		return croft.Errorf(croft.Unavailable, "its host is silent")
	}
	return nil
}

// Attach attaches a volume to an instance of its project on its host or, if it is on shared storage, on any host that
// mounts that. It returns once that is ordered. A volume that is attached to the instance already is no error.
// Conflict: it is attached to another one, is not made yet, or is not on the host of the instance.
func (m *Manager) Attach(ctx context.Context, project croft.Project, name string, inst croft.Instance) (croft.Volume,
	error) {
	return m.change(ctx, "attach", project, name, func(v croft.Volume) (croft.Volume, error) {
		v, err := m.endDetach(ctx, v)
		if err != nil {
			return v, err
		}
		switch err := m.free(ctx, v, inst.ID); {
		case err != nil:
			return v, err
		case v.Instance == inst.ID:
			return v, nil
		case inst.Project != v.Project:
			return v, croft.Errorf(croft.Conflict, "instance %s is in another project", inst.Name)
		case inst.State != croft.StateScheduled:
			return v, croft.Errorf(croft.Conflict, "instance %s is %s", inst.Name, inst.State)
		case v.Storage != "" && inst.Moving != "":
			return v, croft.Errorf(croft.Conflict, "instance %s is being moved to another host: wait until it has arrived",
				inst.Name)
		case v.Storage == "" && (inst.Host != v.Host || inst.Moving != ""):
			return v, croft.Errorf(croft.Conflict, "it is not on the host of instance %s: create the instance with "+
				"--volume %s, and it is placed where the volume is", inst.Name, v.Name)
		}
		_, attached, err := m.disksOf(ctx, inst.ID)
		if err == nil && len(attached) >= croft.MaxAttached {
			err = croft.Errorf(croft.Conflict, "instance %s has %d volumes, and may not have more", inst.Name,
				len(attached))
		}
		if err == nil {
			v, err = m.keptFor(ctx, v, inst)
		}
		if err != nil {
			return v, err
		}
		return m.Store.Attach(ctx, v, inst)
	})
}

// free returns why a volume cannot be attached to an instance.
func (m *Manager) free(ctx context.Context, v croft.Volume, to croft.InstanceID) error {
	switch {
	case v.Instance == to && v.Detaching:
		return croft.Errorf(croft.Conflict, "it is being detached from the instance")
	case v.Instance != "" && v.Instance != to:
		return croft.Errorf(croft.Conflict, "it is attached to instance %s: detach it there first",
			m.nameOf(ctx, v.Instance))
	case v.MadeGB == 0 && v.Error != "":
		return croft.Errorf(croft.Conflict, "its host has not made it: %s", v.Error)
	case v.MadeGB == 0:
		return croft.Errorf(croft.Conflict, "its host has not made it yet: try again")
	}
	return nil
}

// nameOf returns the name of an instance, for messages.
func (m *Manager) nameOf(ctx context.Context, id croft.InstanceID) string {
	st, err := m.Instances.FindByID(ctx, id)
	if err != nil {
		return string(id)
	}
	return st.Instance.Name
}

// Detach detaches a volume from its instance. It returns once that is ordered; the host of a running guest waits until
// the guest releases the volume. A volume that is not attached is no error.
func (m *Manager) Detach(ctx context.Context, project croft.Project, name string) (croft.Volume, error) {
	return m.change(ctx, "detach", project, name, func(v croft.Volume) (croft.Volume, error) {
		if v.Instance == "" {
			return v, nil
		}
		idle, err := m.isIdle(ctx, v)
		switch {
		case err != nil:
			return v, err
		case idle:
			return m.Detached(ctx, v)
		case v.Detaching:
			return v, nil
		}
		if err := m.uncaptured(ctx, v); err != nil {
			return v, err
		}
		return m.Store.Detach(ctx, v)
	})
}

// isIdle reports whether no agent has an order about the instance of a volume, so that nothing uses the volume.
func (m *Manager) isIdle(ctx context.Context, v croft.Volume) (bool, error) {
	hosts, err := m.Hosts.Hosts(ctx, v.Host)
	if err != nil {
		return false, err
	}
	st, err := m.Instances.FindByID(ctx, v.Instance)
	gone := errors.Is(err, croft.NotFound) || err == nil && slices.Contains([]croft.State{croft.StateLost,
		croft.StateHeld}, st.Instance.State)
	if err != nil && !gone {
		return false, err
	}
	return gone || hosts[v.Host].ID == "", nil
}

// endDetach ends the detachment of a volume whose host was to do it, and was declared dead or removed before.
func (m *Manager) endDetach(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	if !v.Detaching {
		return v, nil
	}
	idle, err := m.isIdle(ctx, v)
	if err == nil && idle {
		return m.Detached(ctx, v)
	}
	return v, err
}

// Remove removes a volume with its data. It returns once that is ordered. Conflict: it is attached.
func (m *Manager) Remove(ctx context.Context, project croft.Project, name string) (croft.Volume, error) {
	if v, ended, err := m.endBegun(ctx, func() (croft.Volume, error) { return m.Find(ctx, project, name) }); ended {
		return v, err
	}
	return m.change(ctx, "remove", project, name, func(v croft.Volume) (croft.Volume, error) {
		v, err := m.endDetach(ctx, v)
		if err != nil {
			return v, err
		}
		if v.Instance != "" {
			return v, croft.Errorf(croft.Conflict, "it is attached to instance %s: detach it first",
				m.nameOf(ctx, v.Instance))
		}
		return m.condemn(ctx, v)
	})
}

// endBegun does what a removal does at once: it ends the request for a volume or a snapshot that is not claimed yet,
// also if that request goes on, which then fails, and the record of a lost snapshot. False: there is no such thing to
// end.
func (m *Manager) endBegun(ctx context.Context, find func() (croft.Volume, error)) (v croft.Volume, ended bool,
	err error) {
	if v, err = find(); err != nil {
		return v, false, err
	}
	switch {
	case v.ClaimedGB == 0 && v.SizeGB > 0 && (v.Snapshot == nil || v.Snapshot.Backup == ""):
		now, err := m.undo(ctx, v)
		return now, err != nil || now.ClaimedGB == 0, err // otherwise it was settled meanwhile
	case v.Snapshot != nil && v.Snapshot.Lost:
		return v, true, m.giveUpLost(ctx, v)
	case v.Removing && v.Storage != "":
		now, err := m.kept(ctx, v)
		return now, true, err
	}
	return v, v.Removing, nil
}

// condemn orders the removal of a volume or a snapshot.
func (m *Manager) condemn(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	v, err := m.kept(ctx, v)
	if err != nil {
		return v, err
	}
	hosts, err := m.Hosts.Hosts(ctx, v.Host)
	if err != nil {
		return v, err
	}
	v, err = m.Condemn(ctx, v)
	if err != nil || hosts[v.Host].ID != "" {
		return v, err
	}
	return v, m.end(ctx, v)
}

// end removes the claim and the record of a volume that is to be removed and whose host was forgotten, so no agent acts
// on the order. The file, if the host ever returns, stays there until an operator removes it.
func (m *Manager) end(ctx context.Context, v croft.Volume) error {
	if err := m.Claims.Release(ctx, v.ID.Consumer(), croft.On()); err != nil {
		return err
	}
	return m.Forget(ctx, v)
}

// ForRequest returns the named volumes for a request for an instance, which may be attached to that instance only.
// Conflict: one is attached to another instance, or not made yet, or they are on different hosts.
func (m *Manager) ForRequest(ctx context.Context, project croft.Project, names []string) (all []croft.Volume,
	err error) {
	if len(names) > croft.MaxAttached {
		return nil, croft.Errorf(croft.Invalid, "an instance may have %d volumes at most", croft.MaxAttached)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, croft.Errorf(croft.Invalid, "volume %s is named twice", name)
		}
		v, err := m.change(ctx, "attach", project, name, func(v croft.Volume) (croft.Volume, error) {
			if err := m.free(ctx, v, ""); err != nil {
				return v, err
			}
			return m.kept(ctx, v)
		})
		if err != nil {
			return nil, err
		}
		if local := croft.LocalVolumes(all); v.Storage == "" && len(local) > 0 && v.Host != local[0].Host {
			return nil, croft.Errorf(croft.Conflict, "volumes %s and %s are on different hosts, so no instance can "+
				"have both",
				local[0].Name, v.Name)
		}
		all = append(all, v)
	}
	return all, nil
}
