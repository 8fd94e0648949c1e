package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/plain"
	"croft/schedule"
)

// Fence ensures that a host is off and declares it dead. Then its instances are lost, as by Forget, and those with the
// restart policy elsewhere are recreated on other hosts. Host.Lost lists them. Confirmed: an operator switched the host
// off; otherwise the fence agent of the settings does. A Fence that was interrupted is finished by another one, or by a
// Watcher. Conflict: the host is alive although it is confirmed to be off, or its fence agent reports it as on.
// Unavailable: it is unknown whether the host is off; nothing has changed.
//
// The record of death exists before the host is switched off, and forbids its agent to start anything. So a host that
// is switched on between the answer of the fence agent and the declaration runs no guest a second time.
func (f *Fleet) Fence(ctx context.Context, idOrName string, confirmed bool) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err == nil {
		err = f.declareDead(ctx, &h, confirmed)
	}
	if err == nil {
		for range rescueTries {
			if h.Lost, err = f.rescue(ctx, h); !errors.Is(err, croft.Conflict) {
				break
			}
		}
	}
	if err != nil {
		return h, fmt.Errorf("fence host %s: %w", cmp.Or(h.Name, idOrName), err)
	}
	return h, nil
}

// rescueTries bounds how often a rescue is repeated because others changed an instance meanwhile, such as a Watcher.
const rescueTries = 4

// declareDead declares a host dead once it is known to be off.
func (f *Fleet) declareDead(ctx context.Context, h *Host, confirmed bool) error {
	switch {
	case h.IsDead() && !h.Alive: // by an interrupted Fence
		return nil
	case confirmed && h.Alive:
		return croft.Errorf(croft.Conflict, "its agent is alive, so it is not off; an agent that dies counts as alive for "+
			"ten seconds")
	case !confirmed:
		if err := f.CanSwitchOff(ctx, h.Host); err != nil {
			return err
		}
	}
	death, err := f.Hosts.BeginDeath(ctx, h.ID)
	if err != nil {
		return err
	}
	how := croft.ConfirmedOff
	if !confirmed {
		how = croft.FencedOff
		if err := f.switchOff(ctx, h.Host); err != nil {
			return errors.Join(err, f.endFence(ctx, h.ID, death))
		}
	}
	if death, err = f.declare(ctx, h.ID, death, how); err != nil {
		return err
	}
	h.Death, h.Alive, h.Drained = &death, false, true
	f.Log.Warn("host declared dead", "host", h.ID, "name", h.Name, "how", string(how))
	return nil
}

// CanSwitchOff returns why the fence agents of the settings cannot switch a host off; nil: they are configured for it.
// Invalid.
func (f *Fleet) CanSwitchOff(ctx context.Context, h croft.Host) error {
	if f.Power == nil {
		return croft.Errorf(croft.Invalid, "no fence agents are configured here (host.fence): switch it off yourself, and "+
			"confirm that with --confirm-off")
	}
	all, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	return f.Power.Knows(NamedAlone(h, maps.Values(all)))
}

// declare declares a host dead that is off. Meanwhile others may have declared the same death, or drained the host.
func (f *Fleet) declare(ctx context.Context, host croft.HostID, begun croft.Death, how croft.FenceResult) (croft.Death,
	error) {
	for range declareTries {
		declared, err := f.Hosts.DeclareDead(ctx, host, begun, how)
		if !errors.Is(err, croft.Conflict) {
			return declared, err
		}
		now, read := f.Hosts.Hosts(ctx, host)
		switch death := now[host].Death; {
		case read != nil:
			return begun, read
		case death == nil || death.CreateRevision != begun.CreateRevision:
			return begun, err
		case !death.Declared.IsZero():
			return *death, nil
		default:
			begun = *death
		}
	}
	return begun, croft.Errorf(croft.Conflict, "others change the host meanwhile; try again")
}

// declareTries bounds how often a declaration is repeated because the record of the death has changed.
const declareTries = 4

// switchOff switches a host off.
func (f *Fleet) switchOff(ctx context.Context, h croft.Host) error {
	all, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	return f.Power.Off(ctx, NamedAlone(h, maps.Values(all)))
}

// NamedAlone returns a host without its name if another one of all has the name too: only its UUID then says which
// machine is meant.
func NamedAlone(h croft.Host, all iter.Seq[croft.Host]) croft.Host {
	if _, err := croft.HostCalled(all, h.Name); errors.Is(err, croft.Conflict) {
		h.Name = ""
	}
	return h
}

// endFence undoes the beginning of a fence that failed; a host that was declared dead before stays dead.
func (f *Fleet) endFence(ctx context.Context, host croft.HostID, death croft.Death) error {
	if !death.Declared.IsZero() {
		return nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.UndoTimeout)
	defer cancel()
	return f.Hosts.EndDeath(after, host, death)
}

// TakeBack ends the death of a host: it gets orders again, unless it was drained before the fence. Instances that were
// lost stay lost or elsewhere, and what is left of them on the host stays until RemoveLeftover. Conflict: it was not
// declared dead.
func (f *Fleet) TakeBack(ctx context.Context, idOrName string) (Host, error) {
	h, err := f.find(ctx, idOrName)
	switch {
	case err != nil:
	case h.Death == nil:
		err = croft.Errorf(croft.Conflict, "it was not declared dead")
	default:
		if h.IsDead() { // an interrupted Fence may have left instances on it, whose guests would start
			_, err = f.loseAll(ctx, h, true, false)
		}
		if err == nil {
			err = f.Hosts.EndDeath(ctx, h.ID, *h.Death)
		}
	}
	if err != nil {
		return h, fmt.Errorf("take host %s back: %w", idOrName, err)
	}
	h.Drained, h.Death = h.Death.Drained, nil
	f.Log.Info("host taken back", "host", h.ID, "name", h.Name)
	return h, nil
}

// rescue marks the instances of a dead host as lost, and recreates those with the restart policy elsewhere. It can be
// repeated.
func (f *Fleet) rescue(ctx context.Context, h Host) ([]LostInstance, error) {
	lost, err := f.loseAll(ctx, h, true, true)
	if err != nil {
		return lost, err
	}
	all, err := f.Instances.List(ctx, "")
	if err != nil {
		return lost, err
	}
	for _, st := range all {
		i := slices.IndexFunc(lost, func(l LostInstance) bool { return l.ID == st.Instance.ID })
		if i < 0 {
			continue
		}
		if err := f.recreate(ctx, st.Instance, &lost[i]); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// recreate recreates a lost instance if its restart policy says so, and notes the result.
func (f *Fleet) recreate(ctx context.Context, inst croft.Instance, l *LostInstance) error {
	if inst.State == croft.StateScheduled { // a Watcher was faster
		return f.noteHost(ctx, inst, l)
	}
	if inst.State != croft.StateLost || !inst.Spec.Restart.Elsewhere(inst.Storage != "") || f.Recreator == nil {
		l.Stays = "its restart policy is " + string(cmp.Or(inst.Spec.Restart, croft.RestartOnFailure))
		return nil
	}
	again, err := f.Recreator.Recreate(ctx, inst.Project, string(inst.ID))
	switch {
	case errors.Is(err, croft.Conflict):
		if now, read := f.Instances.Instance(ctx, inst.ID); read == nil && now.State == croft.StateScheduled {
			return f.noteHost(ctx, now, l)
		}
		fallthrough
	case errors.Is(err, croft.NoCapacity), errors.Is(err, croft.NotFound):
		l.Stays = err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("recreate instance %s: %w", inst.Name, err)
	}
	return f.noteHost(ctx, again, l)
}

// noteHost notes the host that an instance was recreated on, and from which backup.
func (f *Fleet) noteHost(ctx context.Context, inst croft.Instance, l *LostInstance) error {
	hosts, err := f.Hosts.Hosts(ctx, inst.Host)
	l.To, l.ToName = inst.Host, cmp.Or(hosts[inst.Host].Name, string(inst.Host))
	if inst.Backup != nil {
		l.Backup = inst.Backup.Name
	}
	return err
}

// Leftover is what a lost instance left on its host.
type Leftover struct {
	Instance croft.InstanceID `json:"instance" format:"uuid"` // UUID of the instance
	Project  croft.Project    `json:"project"`                // the project that it belongs to, or belonged to
	Name     string           `json:"name"`                   // its name in the project
	DiskGB   int64            `json:"disk_gb,omitempty"`      // nominal size of its disk; left out: it was removed
	// Volumes with files here that were attached to it.
	Volumes []croft.VolumeID `json:"volumes,omitempty" format:"uuid"`
	// Where the instance is now: the UUID of its host; empty: it is lost, or was removed.
	Now     croft.HostID `json:"now,omitempty"`
	NowName string       `json:"now_name,omitempty"` // name of that host
	// The state of the instance now, on whichever host it is; empty: it was removed.
	State string `json:"state,omitempty"`
	// When it was lost.
	Since time.Time `json:"since"`
	// The guest here, as the host last saw it since it returned: stopped, or failed with the reason. Empty: not seen.
	Seen croft.State `json:"seen,omitempty"`
	// Why the guest is not off.
	Error string `json:"error,omitempty"`
}

// Leftovers returns what lost instances left on a host, by project and name. Nothing of it is removed before an
// operator says so.
func (f *Fleet) Leftovers(ctx context.Context, host croft.HostID) ([]Leftover, error) {
	orders, err := f.Orders.Leftovers(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("list the leftovers: %w", err)
	}
	all := []Leftover{}
	for _, st := range orders {
		l, err := f.leftover(ctx, st)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Instance, b.Instance))
	})
	return all, nil
}

// leftover describes what an instance left on a host, according to the host's order and observation.
func (f *Fleet) leftover(ctx context.Context, st croft.Status) (Leftover, error) {
	l := Leftover{Instance: st.Order.Instance, Project: st.Order.Project, Name: st.Order.Name,
		DiskGB:  cmp.Or(st.Order.Spec.Resources[croft.DiskGB], st.Instance.Spec.Resources[croft.DiskGB]),
		Volumes: st.Order.Left, Since: st.Order.Issued}
	if seen := st.Observation; seen != nil && seen.Generation == st.Order.Generation {
		l.Seen, l.Error = seen.State, seen.Error
	}
	if st.Instance.ID == "" {
		return l, nil
	}
	now, err := f.Instances.Find(ctx, st.Instance.Project, string(st.Instance.ID))
	switch {
	case errors.Is(err, croft.NotFound):
		return l, nil
	case err != nil:
		return l, fmt.Errorf("read instance %s: %w", st.Instance.Name, err)
	}
	l.Now, l.State = now.Instance.Host, schedule.Describe(&now)
	l.Project, l.Name = now.Instance.Project, now.Instance.Name
	if now.Host != nil {
		l.NowName = now.Host.Name
	}
	return l, nil
}

// RemoveLeftover orders a host to remove what an instance, given by UUID or name, left on it. NotFound: it left
// nothing. Conflict: several instances of that name did.
func (f *Fleet) RemoveLeftover(ctx context.Context, host croft.HostID, idOrName string) error {
	orders, err := f.Orders.Leftovers(ctx, host)
	if err != nil {
		return fmt.Errorf("remove the leftover of instance %s: %w", idOrName, err)
	}
	id, err := croft.ParseInstanceID(idOrName)
	byID := err == nil
	var found []croft.Order
	var ids []string
	for _, st := range orders {
		if byID && st.Order.Instance == id || !byID && cmp.Or(st.Instance.Name, st.Order.Name) == idOrName {
			found, ids = append(found, *st.Order), append(ids, string(st.Order.Instance))
		}
	}
	switch len(found) {
	case 0:
		return croft.Errorf(croft.NotFound, "instance %s left nothing on the host; `croft host leftover list` shows "+
			"what is there", plain.Line(idOrName))
	case 1:
		return f.Orders.RemoveLeftover(ctx, found[0])
	}
	slices.Sort(ids)
	return croft.Errorf(croft.Conflict, "several instances called %s left something on the host: give the UUID of "+
		"one: %s", plain.Line(idOrName), strings.Join(ids, ", "))
}
