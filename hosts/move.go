package hosts

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/schedule"
	"croft/schedule/topology"
)

// candidateLimit is the number of candidates that a move requests from Placement.
const candidateLimit = 256

// boundLimit is the same for an instance that is restricted to some hosts.
const boundLimit = 1 << 16

// Moved is the result for one instance of a drained host.
type Moved struct {
	Instance croft.Instance
	To       croft.Host // where it is started; without an ID it stays
	Stays    string     // why it stays
	WithDisk bool       // its disk is copied; else it is recreated from its image
}

// MoveAll moves the instances away from a drained host. An ephemeral one is removed there and recreated elsewhere from
// its image, with the same name, UUID and spec; the others are stopped and started elsewhere with their disks. It
// returns as soon as the orders are written. Instances that cannot be moved stay.
//
// A crash at any point is recoverable: the record names the target before anything is claimed; one request adds a claim
// there; one transaction then writes both orders; the new host starts the instance, and the claim on the old one ends,
// when nothing is left there. So any caller of MoveAll, or of an audit's mending, can finish a move that was started.
func (f *Fleet) MoveAll(ctx context.Context, h Host) ([]Moved, error) {
	if !h.Alive {
		return nil, croft.Errorf(croft.Unavailable,
			"move the instances of host %s: it is silent, so its guests may still run; if it is dead, `croft host "+
				"fence "+
				"%s` says so, and they can be recreated elsewhere", h.Name, h.Name)
	}
	var all []Moved
	for _, st := range h.Instances {
		if st.Instance.State == croft.StateDestroying {
			continue
		}
		m := Moved{Instance: st.Instance, WithDisk: !st.Instance.Spec.Ephemeral || st.Instance.Copying}
		var err error
		if m.Stays, err = f.fixed(ctx, st, m.WithDisk); err != nil {
			return all, err
		}
		if m.Stays == "" && m.WithDisk {
			m.Stays = keepsDisks(h.Host)
		}
		if st.Instance.Copying {
			known, err := f.Hosts.Hosts(ctx, st.Instance.Moving)
			if err != nil {
				return all, err
			}
			m.To = known[st.Instance.Moving]
		} else if m.Stays == "" {
			m.To, err = f.move(ctx, st, m.WithDisk, "")
			switch {
			case errors.Is(err, croft.NoCapacity) || errors.Is(err, croft.Conflict):
				m.Stays = err.Error()
			case err != nil:
				return all, fmt.Errorf("move instance %s: %w", st.Instance.Name, err)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// Move moves an instance with its disk: to the host with this UUID or name or, if it is empty, to a host of the cloud's
// choice. It returns as soon as the orders are written; the agents of both hosts do the rest. If the instance moves
// there already, it returns that. Conflict: it cannot be moved, or moves to another host. NoCapacity: no host has room.
func (f *Fleet) Move(ctx context.Context, st croft.Status, idOrName string) (Moved, error) {
	m := Moved{Instance: st.Instance, WithDisk: true}
	var only croft.Host
	if idOrName != "" {
		var err error
		if only, err = f.Record(ctx, idOrName); err != nil {
			return m, err
		}
	}
	err := f.movable(ctx, st, only)
	if err == nil && st.Instance.Copying {
		known, err := f.Hosts.Hosts(ctx, st.Instance.Moving)
		m.To = known[st.Instance.Moving]
		return m, err
	}
	if err == nil {
		m.To, err = f.move(ctx, st, true, only.ID)
	}
	if err != nil {
		return m, fmt.Errorf("move instance %s: %w", st.Instance.Name, err)
	}
	return m, nil
}

// movable returns why an instance cannot be moved with its disk to a host; without an ID: to any.
func (f *Fleet) movable(ctx context.Context, st croft.Status, only croft.Host) error {
	inst := st.Instance
	switch {
	case inst.Copying && only.ID != "" && only.ID != inst.Moving:
		return croft.Errorf(croft.Conflict, "it is being moved to another host already; wait, or end that with "+
			"--cancel")
	case inst.Copying:
		return nil
	case inst.State != croft.StateScheduled:
		return croft.Errorf(croft.Conflict, "it is %s", inst.State)
	case inst.Host == only.ID:
		return croft.Errorf(croft.Conflict, "it is on host %s already", only.Name)
	case st.Host == nil || !st.Host.Alive:
		return croft.Errorf(croft.Unavailable, "its host is silent, and has its disk")
	case keepsDisks(*st.Host) != "":
		return croft.Errorf(croft.Unavailable, "%s", keepsDisks(*st.Host))
	}
	why, err := f.fixed(ctx, st, true)
	if err == nil && why != "" {
		err = croft.Errorf(croft.Conflict, "%s", why)
	}
	return err
}

// keepsDisks returns why other hosts cannot copy disks from a host; empty: they can.
func keepsDisks(h croft.Host) string {
	switch {
	case !h.Carries:
		return "its disk is here, and the agent of its host is of an older version; upgrade it"
	case h.API == "":
		return "its disk is here, and the agent of its host serves no API from which another host could copy it"
	}
	return ""
}

// EndCopy ends a move with the disk that has not arrived: the instance stays on its host. Conflict: it is not being
// moved, or has just arrived.
func (f *Fleet) EndCopy(ctx context.Context, inst croft.Instance, why string) error {
	if !inst.Copying {
		return croft.Errorf(croft.Conflict, "instance %s is not being moved", inst.Name)
	}
	err := f.Instances.Uncarry(ctx, inst, why)
	if err == nil {
		f.Log.Info("move ended", "instance", inst.ID, "host", inst.Host, "to", inst.Moving, "reason", why)
	}
	return err
}

// fixed returns why an instance cannot be moved, with its disks or without; empty: it can.
func (f *Fleet) fixed(ctx context.Context, st croft.Status, withDisks bool) (string, error) {
	inst := st.Instance
	switch inst.State {
	case croft.StateHeld:
		return "its claim is held until " + inst.Expires.Format(time.RFC3339), nil
	case croft.StateScheduling: // the process that undoes the request expects no order
		return "its hold is being ended", nil
	}
	if inst.Resizing != nil {
		return "it is being resized", nil
	}
	if inst.Spec.Machine.TPM && withDisks {
		return "it has a TPM, whose state is on its host alone: a move does not carry it", nil
	}
	if st.Restoring() && (st.Observation == nil || st.Observation.State != croft.StateFailed) {
		return "it is being restored from backup " + inst.Backup.Name, nil
	}
	for _, a := range inst.Spec.Affinities {
		if !a.Rule.Soft() {
			return "it is in group " + a.Group + ", whose rule a move might break", nil
		}
	}
	if f.Volumes == nil {
		return "", nil
	}
	attached, err := f.Volumes.AttachedTo(ctx, inst.ID)
	if err != nil || len(attached) == 0 {
		return "", err
	}
	for _, v := range attached {
		switch {
		case v.Snapshot != nil:
			return "it has the snapshot " + v.Name + ", which is on its host alone: a move carries no snapshots; " +
				"remove them first (`croft snapshot remove " + inst.Name + " " + v.Name + "`)", nil
		case !withDisks && v.Storage != "":
			return "volume " + v.Name + " is attached to it: detach it first", nil
		case !withDisks:
			return "volume " + v.Name + " is attached to it, and is here", nil
		case !settled(v):
			return "its volume " + v.Name + " is being changed", nil
		}
	}
	return "", nil
}

// move chooses a host for an instance and orders it there, with its disk or from its image; only is the only host that
// may be chosen; empty: any.
func (f *Fleet) move(ctx context.Context, st croft.Status, withDisk bool, only croft.HostID) (croft.Host, error) {
	hosts, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return croft.Host{}, err
	}
	shared, err := f.onShared(ctx, st.Instance)
	if err != nil {
		return croft.Host{}, err
	}
	if lacks := unmounted(shared, hosts[only]); only != "" && lacks != "" {
		return croft.Host{}, croft.Errorf(croft.Conflict, "host %s cannot have it: %s", hosts[only].Name, lacks)
	}
	known := maps.Clone(hosts)
	maps.DeleteFunc(hosts, func(id croft.HostID, h croft.Host) bool {
		return only != "" && id != only || withDisk && !h.Carries || unmounted(shared, h) != ""
	})
	all := maps.Clone(hosts)
	inst, by, err := f.bound(ctx, st.Instance, all, hosts)
	if err != nil {
		return croft.Host{}, err
	}
	line, none := f.line(ctx, inst)
	if none != nil && !errors.Is(none, croft.NoCapacity) {
		return croft.Host{}, none
	}
	candidates, err := f.candidates(ctx, inst)
	if err != nil {
		return croft.Host{}, err
	}
	candidates = line.only(candidates)
	dropped := map[croft.HostID]string{}
	for rest := f.usable(inst, by, line.sorted(candidates), hosts); len(rest) > 0; {
		to := hosts[hostOf(rest[0])]
		if to.ID == "" { // bound removed it
			rest = rest[1:]
			continue
		}
		inst.PropertiesGeneration = by.filtered.Generation(inst.Spec, to.ID)
		inst.Refused = line.before(to.ID, inst, all, candidates)
		next, err := f.moveTo(ctx, st, inst, rest[0], to.ID, withDisk)
		switch {
		case err == nil:
			f.Log.Info("instance moves", "instance", inst.ID, "host", inst.Host, "to", to.ID)
			return to, nil
		case errors.Is(err, schedule.ErrStale): // the host may still work
		case errors.Is(err, croft.NoCapacity):
			dropped[to.ID], rest = err.Error(), rest[1:]
		case !errors.Is(err, croft.Unavailable):
			return croft.Host{}, err
		default:
			dropped[to.ID], rest = schedule.Closed(err), rest[1:]
		}
		if inst, by, err = f.bound(ctx, next, all, hosts); err != nil {
			return croft.Host{}, err
		}
	}
	inst.Refused = st.Instance.Refused
	if inst.Moving != "" {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.UndoTimeout)
		defer cancel()
		if err := f.stay(after, inst); err != nil {
			if errors.Is(err, croft.NoCapacity) { // not that it stays
				err = croft.Errorf(croft.Conflict, "it fits on no other host, and its move is not ended: %v", err)
			}
			return croft.Host{}, err
		}
	}
	if none == nil {
		none = f.unfit(ctx, inst, schedule.Question{Hosts: known, Aggregates: by.aggregates, Filtered: by.filtered,
			Measure: by.measure, Dropped: dropped}, shared, withDisk, only)
	}
	return croft.Host{}, none
}

// unfit returns why an instance can move to no host, or not to the only one. NoCapacity.
func (f *Fleet) unfit(ctx context.Context, inst croft.Instance, q schedule.Question, shared []croft.Volume,
	withDisk bool, only croft.HostID) error {
	why := "it fits on no other host"
	if only != "" {
		why = "that host cannot have it"
	} else if len(shared) > 0 {
		why = "it fits on no other host that mounts the shared storage of its volume " + shared[0].Name
	}
	explained, err := f.explain(ctx, inst, q, withDisk, only)
	if err != nil {
		f.Log.Warn("what hosts lack for an instance is not known", "instance", inst.ID, "err", err)
	}
	if err != nil || len(explained.Rows) == 0 {
		return croft.Errorf(croft.NoCapacity, "%s", why)
	}
	nearest := explained.Rows[0]
	if only == "" {
		why += "; the nearest, " + nearest.Hosts[0]
	}
	return croft.Errorf(croft.NoCapacity, "%s: %s", why, strings.Join(nearest.Missing, ", "))
}

// explain compares the hosts that an instance may move to with its request.
func (f *Fleet) explain(ctx context.Context, inst croft.Instance, q schedule.Question, withDisk bool,
	only croft.HostID) (*schedule.Explanation, error) {
	query, err := schedule.ParseQuery(queryOf(inst))
	if err != nil {
		return nil, fmt.Errorf("read the query of instance %s: %w", inst.Name, err)
	}
	if inst.Storage != "" {
		query = query.Without(croft.DiskGB)
	}
	if f.Volumes != nil {
		attached, err := f.Volumes.AttachedTo(ctx, inst.ID)
		if err != nil {
			return nil, err
		}
		query = query.WithDisks(croft.LocalVolumes(attached))
	}
	if q.Providers, err = f.Claims.Providers(ctx); err != nil {
		return nil, err
	}
	q.Query, q.Spec = query, inst.Spec
	if q.Holders, err = f.holders(ctx, inst); err != nil {
		return nil, err
	}
	q.Providers = slices.DeleteFunc(q.Providers, func(p croft.Provider) bool {
		host := cmp.Or(p.Root, p.ID)
		return host == inst.Host || only != "" && host != only
	})
	for id, h := range q.Hosts {
		_, mounted := h.Mounts(string(inst.Storage))
		switch {
		case withDisk && !h.Carries:
			q.Dropped[id] = "its agent is of an older version, and cannot copy disks"
		case inst.Storage != "" && !mounted:
			q.Dropped[id] = "does not mount the shared storage that has its disk"
		}
		for _, network := range inst.Spec.Networks {
			if !h.AdmitsTo(network, inst.Project) {
				q.Dropped[id] = "does not admit the project to network " + network
			}
		}
	}
	return schedule.Explain(q), nil
}

// grounds is the data by which a host is chosen, as read from the records.
type grounds struct {
	aggregates map[string]croft.Aggregate
	filtered   croft.FilteredHosts
	measure    topology.Measure
	holders    map[croft.HostID]string // which other instance has the chosen address on a host
}

// holders returns which other instances have the chosen address of an instance, by host.
func (f *Fleet) holders(ctx context.Context, inst croft.Instance) (map[croft.HostID]string, error) {
	return schedule.Holders(ctx, inst, f.Instances.AddressHolders, f.Instances.Instance)
}

// bound removes the hosts that do not run machines of an instance's architecture, and the ones that its bounds, filters
// and distances do not admit. It returns the instance
// with the aggregates and distances that were used, and the other data that was used.
func (f *Fleet) bound(ctx context.Context, inst croft.Instance, all, hosts map[croft.HostID]croft.Host) (
	_ croft.Instance, by grounds, err error) {
	if f.Properties != nil && inst.Spec.HasPropertyFilters() {
		if by.filtered, err = f.Properties.FilterHosts(ctx, inst.Spec.Where, inst.Spec.WhereNot, nil); err != nil {
			return inst, by, err
		}
	}
	var stated map[string]croft.Distances
	if f.Distances != nil && len(inst.Spec.Near) > 0 {
		if stated, err = f.Distances.Stated(ctx, inst.Spec.Near[0].Kind()); err != nil { // all have one type
			return inst, by, err
		}
	}
	names := slices.Concat(croft.NamesIn(inst.Spec.In), topology.NamesOf(inst.Spec.Near, stated))
	if f.Aggregates != nil && len(names) > 0 {
		slices.Sort(names)
		if by.aggregates, err = f.Aggregates.Named(ctx, slices.Compact(names)...); err != nil {
			return inst, by, err
		}
	}
	if by.holders, err = f.holders(ctx, inst); err != nil {
		return inst, by, err
	}
	by.measure = topology.NewMeasure(inst.Spec.Near, stated, by.aggregates, all)
	maps.DeleteFunc(hosts, func(_ croft.HostID, h croft.Host) bool {
		_, far := by.measure.Admit(h)
		return far != nil || h.Runs(inst.Spec.Machine.Arch) != nil ||
			topology.AdmitBounds(inst.Spec.In, h, by.aggregates) != nil ||
			by.filtered.Admit(inst.Spec, h.ID) != nil || schedule.GivesAddress(inst.Spec, h, by.holders) != nil ||
			slices.ContainsFunc(inst.Spec.Networks, func(n string) bool { return !h.AdmitsTo(n, inst.Project) })
	})
	inst.BasedOn = by.measure.BasedOn(topology.BasedOn(inst.Spec.In, by.aggregates))
	return inst, by, nil
}

// candidates returns ways to place an instance.
func (f *Fleet) candidates(ctx context.Context, inst croft.Instance) ([]croft.Candidate, error) {
	limit := candidateLimit
	hard := slices.ContainsFunc(inst.Spec.Near, func(n croft.Near) bool { return !n.Soft })
	if hard || inst.Spec.Policy != nil || len(inst.Spec.In) > 0 || inst.Spec.HasPropertyFilters() {
		limit = boundLimit // few of all hosts may be permitted
	}
	query := queryOf(inst)
	if inst.Storage != "" { // it claims its disk already
		q, err := schedule.ParseQuery(query)
		if err != nil {
			return nil, fmt.Errorf("read the query of instance %s: %w", inst.Name, err)
		}
		query = q.Without(croft.DiskGB).Encode()
	}
	all, err := f.Claims.Candidates(ctx, query, limit)
	return slices.DeleteFunc(all, func(c croft.Candidate) bool { return schedule.DiskOutside(c) }), err
}

// usable returns the candidates on other hosts that accept orders and that bound left, best first: the target of an
// earlier attempt, then the nearest, then the first by the instance's policy, or the one with the most capacity left.
func (f *Fleet) usable(inst croft.Instance, by grounds, candidates []croft.Candidate,
	hosts map[croft.HostID]croft.Host) []croft.Candidate {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c croft.Candidate) bool {
		to := hosts[hostOf(c)]
		if _, mounted := to.Mounts(string(inst.Storage)); inst.Storage != "" && !mounted {
			return true
		}
		return to.ID == "" || to.ID == inst.Host || !to.Alive || to.Drained
	})
	slices.SortStableFunc(candidates, func(a, b croft.Candidate) int {
		if before, after := hostOf(a) == inst.Moving, hostOf(b) == inst.Moving; before != after {
			if before {
				return -1
			}
			return 1
		}
		near, _ := by.measure.Admit(hosts[hostOf(a)]) // all remaining ones are admitted
		other, _ := by.measure.Admit(hosts[hostOf(b)])
		if inst.Spec.Policy != nil { // they are in the order of the policy
			return cmp.Compare(near, other)
		}
		return cmp.Or(cmp.Compare(near, other), cmp.Compare(left(b), left(a)))
	})
	return candidates
}

// moveTo performs the steps of a move. NoCapacity or Unavailable: this candidate is unusable; the returned record is
// the current one.
func (f *Fleet) moveTo(ctx context.Context, st croft.Status, inst croft.Instance, c croft.Candidate,
	to croft.HostID, withDisk bool) (croft.Instance, error) {
	inst, err := f.take(ctx, inst, to, schedule.WithDisk(c, inst))
	if err != nil {
		return inst, err
	}
	want := croft.WantRunning
	if st.Order != nil {
		want = st.Order.Want
	}
	var moved croft.Instance
	if withDisk {
		moved, err = f.carry(ctx, inst, to, want)
	} else {
		tombstone, order := f.order(inst, inst.Host, croft.WantGone), f.order(inst, to, want)
		order.Generation = tombstone.Generation + 1
		order.Backup = nil // only the former host has restored it
		moved, err = f.Instances.Relocate(ctx, inst, tombstone, order)
	}
	switch {
	case errors.Is(err, croft.Conflict):
		return inst, errors.Join(err, f.unclaim(ctx, inst))
	case err != nil:
		return f.unmoved(ctx, inst, to, err)
	}
	return moved, nil
}

// carry orders an instance to move with its disk.
func (f *Fleet) carry(ctx context.Context, inst croft.Instance, to croft.HostID, want croft.Want) (croft.Instance,
	error) {
	leaving, arriving := f.order(inst, inst.Host, croft.WantLeaving), f.order(inst, to, croft.WantArriving)
	arriving.Generation = leaving.Generation + 1
	key := rand.Text()
	leaving.Move = &croft.Move{Host: to, Then: want, Key: key, Volumes: inst.Volumes}
	arriving.Move = &croft.Move{Host: inst.Host, Then: want, Key: key, Volumes: inst.Volumes}
	arriving.MovedFrom, arriving.LeftBefore = "", nil
	return f.Instances.Carry(ctx, inst, leaving, arriving)
}

// unmoved settles a Relocate or Carry that failed for cause: its transaction may have succeeded although the answer was
// lost, or may still succeed.
func (f *Fleet) unmoved(ctx context.Context, inst croft.Instance, to croft.HostID, cause error) (croft.Instance,
	error) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.UndoTimeout)
	defer cancel()
	now, err := f.Instances.Fence(after, inst)
	switch {
	case err != nil:
		return inst, errors.Join(cause, err)
	case now.Host == to && now.Moving == "", now.Copying && now.Moving == to:
		return now, nil
	case !now.Same(inst): // in particular, an instance that is to be destroyed must not be moved
		changed := croft.Errorf(croft.Conflict, "instance %s was changed by another request while it was being moved",
			inst.ID)
		return inst, errors.Join(changed, f.unclaim(ctx, inst))
	}
	return now, cause
}

// claimTries bounds how often a claim is retried because it changed meanwhile.
const claimTries = 4

// take makes an instance claim the allocations of a candidate, in addition to its claims on hosts where it may still
// have a guest, once its record says that it moves there; moving is empty if the claim belongs where the guest is.
//
// The order of steps keeps claim and record consistent: read the claim, then write the record by comparison, then
// replace the claim by comparison with the one that was read. A concurrent caller, however long it is delayed between
// two steps, finds that one of the two changed: it never changes the claim of a record that changed since its write.
//
// The volumes of the instance claim on the same hosts. Their claims are read before the record of the instance is
// written, too.
func (f *Fleet) take(ctx context.Context, inst croft.Instance, moving croft.HostID,
	c croft.Candidate) (croft.Instance, error) {
	var err error
	for range claimTries {
		var had croft.Claim
		if had, err = f.Claims.ClaimOf(ctx, inst.ID); err != nil {
			return inst, err
		}
		var disks []volumeClaim
		if disks, err = f.volumeClaims(ctx, inst, hostOf(c)); err != nil {
			return inst, err
		}
		if inst, err = f.Instances.SetMoving(ctx, inst, moving); err != nil {
			return inst, err
		}
		owner := croft.Owner{Partition: f.Partition, Project: inst.Project}
		var all croft.Candidate
		if all, err = f.withRemains(ctx, inst, had, c); err != nil {
			return inst, err
		}
		err = f.Claims.Reclaim(ctx, had, owner, all)
		if errors.Is(err, croft.NoCapacity) && len(all.Allocations) > len(c.Allocations) {
			if err = f.takeAlone(ctx, had, owner, c, all, err); err == nil {
				all = c
			}
		}
		if err == nil {
			inst.Volumes, err = f.takeVolumes(ctx, inst, disks, all)
		}
		if !errors.Is(err, croft.Conflict) {
			return inst, err
		}
	}
	return inst, err
}

// takeAlone claims a candidate without what withRemains added to it, if that is on hosts that offer less than is
// claimed from them: OpenStack's Placement refuses to write such an allocation, even the present one. Such a host gets
// nothing new, so the room of the guest there is unlikely to be given to others before the guest has left. Otherwise it
// returns refused.
func (f *Fleet) takeAlone(ctx context.Context, had croft.Claim, owner croft.Owner, c, all croft.Candidate,
	refused error) error {
	providers, err := f.Claims.Providers(ctx)
	if err != nil {
		return err
	}
	full := map[croft.HostID]bool{}
	for _, p := range providers {
		for class := range had.Allocations[p.ID] {
			full[p.ID] = full[p.ID] || p.Used[class] > p.Inventories[class].Capacity()
		}
	}
	for host := range all.Allocations {
		if _, wanted := c.Allocations[host]; !wanted && !full[host] {
			return refused
		}
	}
	return f.Claims.Reclaim(ctx, had, owner, c)
}

// withRemains adds to a candidate the instance's claims on hosts where its guest is, or may still be: the host reserves
// room for it until nothing is left there, and then its agent releases the claim. The agent of an older version does
// not do that, so on its host the claim ends with the move.
func (f *Fleet) withRemains(ctx context.Context, inst croft.Instance, had croft.Claim,
	c croft.Candidate) (croft.Candidate, error) {
	all := croft.Candidate{Allocations: maps.Clone(c.Allocations)}
	was := slices.DeleteFunc(append(inst.Former(), inst.Host), func(host croft.HostID) bool {
		_, has := had.Allocations[host]
		_, wanted := c.Allocations[host]
		return !has || wanted
	})
	if len(was) == 0 {
		return all, nil
	}
	hosts, err := f.Hosts.Hosts(ctx, was...)
	if err != nil {
		return all, err
	}
	for _, host := range was {
		remains := host == inst.Host
		if !remains {
			if remains, err = f.Orders.Remains(ctx, host, inst.ID); err != nil {
				return all, err
			}
		}
		if remains && (hosts[host].Vacates || !hosts[host].Alive) {
			all.Allocations[host] = had.Allocations[host]
		}
	}
	return all, nil
}

// unclaim moves the claim back to where the guest is, for an instance that changed while it was being moved, unless the
// change was another move or the removal.
func (f *Fleet) unclaim(ctx context.Context, inst croft.Instance) error {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.UndoTimeout)
	defer cancel()
	now, err := f.Instances.Instance(after, inst.ID)
	switch {
	case errors.Is(err, croft.NotFound):
		return f.releaseUnused(after, inst.ID, inst.Places()...)
	case err != nil:
		return err
	case now.State == croft.StateDestroying:
		return nil // its host releases the claim, on any host
	case now.Host != inst.Host || now.Moving != "" && now.Moving != inst.Moving:
		return nil // another move is responsible for it and its claim
	}
	return f.stay(after, now)
}

// Reclaim replaces the claims of an instance by one on its own host, with the amounts that it was created with.
// NoCapacity: others have claimed that room meanwhile.
func (f *Fleet) Reclaim(ctx context.Context, inst croft.Instance) error {
	_, err := f.reclaim(ctx, inst)
	return err
}

// reclaim is Reclaim, and returns the current record.
func (f *Fleet) reclaim(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if inst.Copying { // it has to keep its claim on the target
		return inst, croft.Errorf(croft.Conflict, "instance %s is being moved; wait, or end that first", inst.Name)
	}
	own := croft.Candidate{Allocations: inst.AllocationsOn(inst.Host)}
	inst, err := f.take(ctx, inst, inst.Moving, own)
	switch {
	case errors.Is(err, croft.NoCapacity):
		return inst,
			fmt.Errorf("host %s has no room for it any more, since others have claimed that meanwhile; move one of "+
				"them, or destroy one: %w", inst.Host, err)
	case err != nil:
		return inst, fmt.Errorf("claim on its own host: %w", err)
	}
	return inst, nil
}

// EndMove ends an interrupted move: on another host if the instance's host is drained and another one has capacity,
// else where the guest is.
//
// A move with the disk is ended only if its target is silent or forgotten: it stays, and is not tried elsewhere.
func (f *Fleet) EndMove(ctx context.Context, st croft.Status) error {
	hosts, err := f.Hosts.Hosts(ctx, st.Instance.Host, st.Instance.Moving)
	if err != nil {
		return err
	}
	if st.Instance.Copying {
		if hosts[st.Instance.Moving].Alive {
			return croft.Errorf(croft.Conflict, "its target is alive again")
		}
		return f.EndCopy(ctx, st.Instance, "the host that it was moving to went silent")
	}
	if hosts[st.Instance.Host].Alive && hosts[st.Instance.Host].Drained {
		_, err := f.move(ctx, st, !st.Instance.Spec.Ephemeral, "")
		if !errors.Is(err, croft.NoCapacity) {
			return err
		}
		return nil // it stays
	}
	return f.stay(ctx, st.Instance)
}

// stay cancels a move: the claim returns to where the guest is.
func (f *Fleet) stay(ctx context.Context, inst croft.Instance) error {
	inst, err := f.reclaim(ctx, inst)
	if err != nil || inst.Moving == "" {
		return err
	}
	_, err = f.Instances.SetMoving(ctx, inst, "")
	return err
}

// queryOf returns the Placement query that an instance was created with.
func queryOf(inst croft.Instance) string {
	if inst.Spec.Query != "" {
		return inst.Spec.Query
	}
	query := url.Values{"resources": {inst.Spec.Resources.String()}}
	for _, name := range inst.Spec.Networks {
		if name != croft.DefaultNetworks {
			query.Add("required", string(croft.NetworkTrait(name)))
		}
	}
	return query.Encode()
}

// hostOf returns the host of a candidate: the provider of its VCPU.
func hostOf(c croft.Candidate) croft.HostID {
	for id, amounts := range c.Allocations {
		if amounts[croft.VCPU] > 0 {
			return id
		}
	}
	return ""
}

// left returns the free fraction of the scarcest class after a candidate was claimed.
func left(c croft.Candidate) float64 {
	least := 1.0
	for id, amounts := range c.Allocations {
		for class, amount := range amounts {
			if capacity := c.Summaries[id].Capacity[class]; capacity > 0 {
				least = min(least, float64(capacity-c.Summaries[id].Used[class]-amount)/float64(capacity))
			}
		}
	}
	return least
}
