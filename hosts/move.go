package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
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
}

// MoveAll moves the ephemeral instances away from a drained host: each is removed there and recreated elsewhere from
// its image, with the same name, UUID and spec. It returns as soon as the orders are written. Other instances stay.
//
// A crash at any point is recoverable: the record names the target before anything is claimed; one request adds a claim
// there; one transaction then writes both orders; the new host starts the instance, and the claim on the old one ends,
// when nothing is left there. So any caller of MoveAll, or of an audit's mending, can finish a move that was started.
func (f *Fleet) MoveAll(ctx context.Context, h Host) ([]Moved, error) {
	if !h.Alive {
		return nil, croft.Errorf(croft.Unavailable,
			"move the instances of host %s: it is silent, so its guests may still run; if it is permanently lost, "+
				"`croft host remove --force %s` marks them as lost, so that they can be recreated "+
				"elsewhere", h.Name, h.Name)
	}
	var all []Moved
	for _, st := range h.Instances {
		if st.Instance.State == croft.StateDestroying {
			continue
		}
		m := Moved{Instance: st.Instance, Stays: fixed(st.Instance)}
		if m.Stays == "" && f.Volumes != nil {
			attached, err := f.Volumes.AttachedTo(ctx, st.Instance.ID)
			if err != nil {
				return all, err
			}
			if len(attached) > 0 {
				m.Stays = "volume " + attached[0].Name + " is attached to it, and is here"
			}
		}
		if m.Stays == "" {
			var err error
			m.To, err = f.move(ctx, st)
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

// fixed returns why an instance cannot be moved; empty: it can.
func fixed(inst croft.Instance) string {
	switch inst.State {
	case croft.StateHeld:
		return "its claim is held until " + inst.Expires.Format(time.RFC3339)
	case croft.StateScheduling: // the process that undoes the request expects no order
		return "its hold is being ended"
	}
	if !inst.Spec.Ephemeral {
		return "it is not ephemeral: its disk is here"
	}
	for _, a := range inst.Spec.Affinities {
		if !a.Rule.Soft() {
			return "it is in group " + a.Group + ", whose rule a move might break"
		}
	}
	return ""
}

// move chooses a host for an instance and orders it there.
func (f *Fleet) move(ctx context.Context, st croft.Status) (croft.Host, error) {
	hosts, err := f.Hosts.Hosts(ctx)
	if err != nil {
		return croft.Host{}, err
	}
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
	for rest := f.usable(inst, by, line.sorted(candidates), hosts); len(rest) > 0; {
		to := hosts[hostOf(rest[0])]
		if to.ID == "" { // bound removed it
			rest = rest[1:]
			continue
		}
		inst.PropertiesGeneration = by.filtered.Generation(inst.Spec, to.ID)
		inst.Refused = line.before(to.ID, inst, all, candidates)
		next, err := f.moveTo(ctx, st, inst, rest[0], to.ID)
		switch {
		case err == nil:
			f.Log.Info("instance moves", "instance", inst.ID, "host", inst.Host, "to", to.ID)
			return to, nil
		case errors.Is(err, schedule.ErrStale): // the host may still work
		case !errors.Is(err, croft.NoCapacity) && !errors.Is(err, croft.Unavailable):
			return croft.Host{}, err
		default:
			rest = rest[1:]
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
			return croft.Host{}, err
		}
	}
	if none == nil {
		none = croft.Errorf(croft.NoCapacity, "no other host has room for it")
	}
	return croft.Host{}, none
}

// grounds is the data by which a host is chosen, as read from the records.
type grounds struct {
	filtered croft.FilteredHosts
	measure  topology.Measure
}

// bound removes the hosts that the bounds, filters and distances of an instance do not admit. It returns the instance
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
	var aggregates map[string]croft.Aggregate
	if f.Aggregates != nil && len(names) > 0 {
		slices.Sort(names)
		if aggregates, err = f.Aggregates.Named(ctx, slices.Compact(names)...); err != nil {
			return inst, by, err
		}
	}
	by.measure = topology.NewMeasure(inst.Spec.Near, stated, aggregates, all)
	maps.DeleteFunc(hosts, func(_ croft.HostID, h croft.Host) bool {
		_, far := by.measure.Admit(h)
		return far != nil || topology.AdmitBounds(inst.Spec.In, h, aggregates) != nil ||
			by.filtered.Admit(inst.Spec, h.ID) != nil ||
			slices.ContainsFunc(inst.Spec.Networks, func(n string) bool { return !h.AdmitsTo(n, inst.Project) })
	})
	inst.BasedOn = by.measure.BasedOn(topology.BasedOn(inst.Spec.In, aggregates))
	return inst, by, nil
}

// candidates returns ways to place an instance.
func (f *Fleet) candidates(ctx context.Context, inst croft.Instance) ([]croft.Candidate, error) {
	limit := candidateLimit
	hard := slices.ContainsFunc(inst.Spec.Near, func(n croft.Near) bool { return !n.Soft })
	if hard || inst.Spec.Policy != nil || len(inst.Spec.In) > 0 || inst.Spec.HasPropertyFilters() {
		limit = boundLimit // few of all hosts may be permitted
	}
	return f.Claims.Candidates(ctx, queryOf(inst), limit)
}

// usable returns the candidates on other hosts that accept orders and that bound left, best first: the target of an
// earlier attempt, then the nearest, then the first by the instance's policy, or the one with the most capacity left.
func (f *Fleet) usable(inst croft.Instance, by grounds, candidates []croft.Candidate,
	hosts map[croft.HostID]croft.Host) []croft.Candidate {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c croft.Candidate) bool {
		to := hosts[hostOf(c)]
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
	to croft.HostID) (croft.Instance, error) {
	inst, err := f.take(ctx, inst, to, c)
	if err != nil {
		return inst, err
	}
	want := croft.WantRunning
	if st.Order != nil {
		want = st.Order.Want
	}
	tombstone, order := f.order(inst, inst.Host, croft.WantGone), f.order(inst, to, want)
	order.Generation = tombstone.Generation + 1
	moved, err := f.Instances.Relocate(ctx, inst, tombstone, order)
	switch {
	case errors.Is(err, croft.Conflict):
		return inst, errors.Join(err, f.unclaim(ctx, inst))
	case err != nil:
		return f.unmoved(ctx, inst, to, err)
	}
	return moved, nil
}

// unmoved settles a Relocate that failed for cause: its transaction may have succeeded although the answer was lost, or
// may still succeed.
func (f *Fleet) unmoved(ctx context.Context, inst croft.Instance, to croft.HostID, cause error) (croft.Instance,
	error) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.UndoTimeout)
	defer cancel()
	now, err := f.Instances.Fence(after, inst)
	switch {
	case err != nil:
		return inst, errors.Join(cause, err)
	case now.Host == to && now.Moving == "":
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
func (f *Fleet) take(ctx context.Context, inst croft.Instance, moving croft.HostID,
	c croft.Candidate) (croft.Instance, error) {
	var err error
	for range claimTries {
		var had croft.Claim
		if had, err = f.Claims.ClaimOf(ctx, inst.ID); err != nil {
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
		if err = f.Claims.Reclaim(ctx, had, owner, all); !errors.Is(err, croft.Conflict) {
			return inst, err
		}
	}
	return inst, err
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
	own := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{inst.Host: inst.Spec.Resources}}
	inst, err := f.take(ctx, inst, inst.Moving, own)
	switch {
	case errors.Is(err, croft.NoCapacity):
		return inst,
			fmt.Errorf("host %s has no room for it any more, since others have claimed that meanwhile; move one of them, or destroy one: %w", inst.Host, err)
	case err != nil:
		return inst, fmt.Errorf("claim on its own host: %w", err)
	}
	return inst, nil
}

// EndMove ends an interrupted move: on another host if the instance's host is drained and another one has capacity,
// else where the guest is.
func (f *Fleet) EndMove(ctx context.Context, st croft.Status) error {
	hosts, err := f.Hosts.Hosts(ctx, st.Instance.Host)
	if err != nil {
		return err
	}
	if hosts[st.Instance.Host].Alive && hosts[st.Instance.Host].Drained {
		_, err := f.move(ctx, st)
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
