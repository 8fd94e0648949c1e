package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"croft"
	"croft/internal/span"
)

// offer is what there is to choose from, as it was read.
type offer struct {
	reading    *reading
	candidates []croft.Candidate // the best first, as far as the reading goes
	hosts      map[croft.HostID]croft.Host
	read       map[croft.HostID]bool // of hosts, whether they were asked for
	members    []croft.Member        // of the instance's groups
}

// look reads what there is to choose from. Where there is no error, end the reading.
func (a *attempt) look(ctx context.Context, limit int) (o *offer, err error) {
	o = &offer{reading: a.underway.read(), hosts: map[croft.HostID]croft.Host{}, read: map[croft.HostID]bool{}}
	ctx, end := span.Start(ctx, "candidates")
	defer func() {
		if err != nil {
			a.underway.done(o.reading)
		}
		end(err)
	}()
	o.candidates, err = a.Claims.Candidates(ctx, a.query.Encode(), limit)
	if unknown := a.unknownNetwork(ctx, err); unknown != nil {
		err = unknown
	}
	if err != nil || len(o.candidates) == 0 {
		return o, err
	}
	if err = a.readMembers(ctx, o); err != nil {
		return o, err
	}
	o.candidates = o.rank(a)(o.candidates, nil)
	return o, a.readHosts(ctx, o, o.candidates[:min(batch, len(o.candidates))])
}

// batch is of how many candidates the hosts are read at first: nearly always the best
// of them is taken, and those of all would be most of what a request reads.
const batch = 8

// readHosts reads the hosts of candidates, unless they have been.
func (a *attempt) readHosts(ctx context.Context, o *offer, candidates []croft.Candidate) error {
	ids := slices.DeleteFunc(hostsOf(candidates), func(id croft.HostID) bool { return o.read[id] })
	if len(ids) == 0 {
		return nil
	}
	hosts, err := a.View.Hosts(ctx, ids...)
	if err != nil {
		return err
	}
	maps.Copy(o.hosts, hosts)
	for _, id := range ids {
		o.read[id] = true
	}
	return nil
}

// lookAhead begins to look, so that it need not wait for the record to be written:
// nothing is taken by it. Call one of the two: first returns what was found, forget
// ends the looking.
func (a *attempt) lookAhead(ctx context.Context) (first func() (*offer, error), forget func()) {
	ctx, cancel := context.WithCancel(ctx)
	type found struct {
		o   *offer
		err error
	}
	answer := make(chan found, 1)
	looker := *a // the original gets its record meanwhile
	go func() {
		o, err := looker.look(ctx, looker.policy.Sample)
		answer <- found{o, err}
	}()
	first = func() (*offer, error) {
		f := <-answer
		cancel()
		return f.o, f.err
	}
	return first, func() {
		cancel()
		if f := <-answer; f.err == nil {
			a.underway.done(f.o.reading)
		}
	}
}

func (a *attempt) readMembers(ctx context.Context, o *offer) error {
	o.members = nil
	for _, affinity := range a.inst.Spec.Affinities {
		members, err := a.View.Members(ctx, a.inst.Project, affinity.Group)
		if err != nil {
			return err
		}
		o.members = append(o.members, members...)
	}
	return nil
}

func hostsOf(candidates []croft.Candidate) []croft.HostID {
	var ids []croft.HostID
	seen := map[croft.HostID]bool{}
	for _, c := range candidates {
		if id := hostOf(c); id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// usable drops the candidates on hosts that would not act on an order, and remembers
// why, and those on hosts that the rule of a group bars. Conflict: a group goes by
// another rule.
func (a *attempt) usable(o *offer, candidates []croft.Candidate) ([]croft.Candidate, error) {
	var usable []croft.Candidate
	for _, c := range candidates {
		id := hostOf(c)
		host, known := o.hosts[id]
		if why := unusable(host, known); why != nil {
			a.dropped[id] = why.text
			continue
		}
		switch err := admit(a.inst.Spec.Affinities, id, o.members); {
		case errors.Is(err, croft.NoCapacity):
		case err != nil:
			return nil, fmt.Errorf("schedule %s: %w", a.inst.Name, err)
		default:
			usable = append(usable, c)
		}
	}
	return usable, nil
}

// admit tells whether all the groups admit one more member on a host.
func admit(affinities []croft.Affinity, host croft.HostID, members []croft.Member) error {
	for _, affinity := range affinities {
		if err := affinity.Admit(host, members); err != nil {
			return err
		}
	}
	return nil
}

// regroup reads the groups again, since somebody joined one meanwhile, and drops what
// that bars.
func (a *attempt) regroup(ctx context.Context, o *offer, left []croft.Candidate) ([]croft.Candidate, error) {
	a.barred = false
	if err := a.readMembers(ctx, o); err != nil {
		return nil, err
	}
	return a.usable(o, left)
}

// rank is the policy's order, below that which the groups wish for.
func (o *offer) rank(a *attempt) func([]croft.Candidate, []croft.Member) []croft.Candidate {
	return func(candidates []croft.Candidate, underway []croft.Member) []croft.Candidate {
		ranked := a.policy.Order(candidates)
		if affinities := a.inst.Spec.Affinities; len(affinities) > 0 {
			members := slices.Concat(o.members, underway)
			slices.SortStableFunc(ranked, func(x, y croft.Candidate) int {
				return cmp.Compare(strain(affinities, hostOf(x), members), strain(affinities, hostOf(y), members))
			})
		}
		return ranked
	}
}

// strain counts the members of the groups on a host: those to stay away from for, and
// those to be with against it.
func strain(affinities []croft.Affinity, host croft.HostID, members []croft.Member) int {
	n := 0
	for _, affinity := range affinities {
		for _, m := range members {
			switch {
			case m.Group != affinity.Group || m.Host != host:
			case affinity.Rule.Apart():
				n++
			default:
				n--
			}
		}
	}
	return n
}

// CheckAffinities refuses what is no group, or no rule. Invalid.
func CheckAffinities(affinities []croft.Affinity) error {
	for i, a := range affinities {
		switch {
		case !nameForm.MatchString(a.Group):
			return croft.Errorf(croft.Invalid,
				"the group %q: use a to z, 0 to 9 and dashes in between, 63 characters at most", a.Group)
		case !slices.Contains(croft.AffinityRules, a.Rule):
			return croft.Errorf(croft.Invalid, "the group %s: there is no rule %q", a.Group, a.Rule)
		case slices.ContainsFunc(affinities[:i], func(other croft.Affinity) bool { return other.Group == a.Group }):
			return croft.Errorf(croft.Invalid, "the group %s is named twice, and goes by one rule", a.Group)
		}
	}
	if len(affinities) > maxGroups {
		return croft.Errorf(croft.Invalid, "%d groups: an instance is in %d at most", len(affinities), maxGroups)
	}
	return nil
}

// maxGroups is how many groups an instance may be in; each adds to the transaction
// that writes its order, which etcd limits.
const maxGroups = 16
