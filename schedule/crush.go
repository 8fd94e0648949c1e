package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"croft"
	"croft/schedule/crushmap"
)

// choosePolicy copies the current version of the CRUSH policy that a request names into its record. NotFound: no policy
// has this name, or no host is in a location that the policy uses. Invalid: the policy can choose no host.
func (s *Scheduler) choosePolicy(ctx context.Context, policy *Policy, inst *croft.Instance) error {
	if policy.Crush == "" {
		return nil
	}
	stored, err := s.Crush.Find(ctx, policy.Crush)
	if err != nil {
		return err
	}
	m, err := s.CrushMap(ctx, time.Time{})
	if err != nil {
		return err
	}
	if _, err := m.Compile(stored); err != nil {
		if m, fresh := s.CrushMap(ctx, time.Now()); fresh == nil { // the location may be new
			_, err = m.Compile(stored)
		}
		if errors.Is(err, croft.NotFound) { // hide locations from tenants
			return croft.Errorf(croft.NotFound, "policy %s uses a location that no host is in any more; "+
				"`croft policy check "+
				"%[1]s` says which", stored.Name)
		}
		if err != nil {
			return err
		}
	}
	inst.Spec.Policy = &stored
	return nil
}

// readInOrder reads candidates on the first admissible hosts in the order of the request's policy. limit is how many of
// these hosts Placement is asked about; beyond mostNarrow it is asked about all hosts.
func (s *search) readInOrder(ctx context.Context, o *snapshot, limit int) error {
	after := time.Time{}
	if limit > s.policy.Sample { // the first hosts of the map, which may be older than the request, have no room
		after = s.begun
	}
	m, err := s.CrushMap(ctx, after)
	if err != nil {
		return err
	}
	p, err := m.Compile(*s.inst.Spec.Policy)
	if err != nil {
		return err
	}
	if err := s.readMembers(ctx, o); err != nil {
		return err
	}
	at := s.query.anchor()
	narrow := limit <= mostNarrow && at >= 0 && s.query.Groups[at].InTree == ""
	if !narrow {
		limit = len(m.Hosts)
	}
	o.line = s.line(o, m, p, limit)
	o.position = map[croft.HostID]int{}
	var hosts []croft.HostID
	for i, c := range o.line {
		if c.why == "" {
			o.position[c.Host] = i
			hosts = append(hosts, c.Host)
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	if narrow {
		if len(hosts) >= limit {
			o.seen = limit // there may be more candidates
		}
		o.candidates, err = s.oneByOne(ctx, hosts)
		return err
	}
	all, err := s.Claims.Candidates(ctx, s.asked().Encode(), lastLimit)
	o.candidates = slices.DeleteFunc(all, func(c croft.Candidate) bool {
		_, chosen := o.position[hostOf(c)]
		return !chosen
	})
	return err
}

// line returns the hosts of a policy in its order, up to limit admissible ones. Preferences of groups, and distances,
// take precedence over the policy.
func (s *search) line(o *snapshot, m *crushmap.Map, p *crushmap.Policy, limit int) (line []considered) {
	spec := s.inst.Spec
	wishes := len(spec.Affinities)+len(spec.Near) > 0
	free := 0
	p.Order(s.inst.ID, func(c crushmap.Choice) bool {
		one := considered{c, s.refusal(o, m.Hosts[c.Host])}
		if one.why == "" {
			free++
		}
		line = append(line, one)
		return free >= limit && !wishes
	})
	if !wishes {
		return line
	}
	n := count(spec.Affinities, m.Hosts, o.members)
	of := map[croft.HostID]wish{}
	for _, c := range line {
		of[c.Host] = wishOf(spec, c.Host, m.Hosts, o.measure, n)
	}
	slices.SortStableFunc(line, func(x, y considered) int { return of[x.Host].compare(of[y.Host]) })
	for i, c := range line {
		if c.why == "" {
			if limit--; limit == 0 {
				return line[:i+1]
			}
		}
	}
	return line
}

// refusal returns the reason why a host is barred, regardless of its free capacity; empty: it is not.
func (s *search) refusal(o *snapshot, host croft.Host) string {
	if why := unusable(host, host.ID != ""); why != nil {
		return why.text
	}
	err := cmp.Or(host.Runs(s.inst.Spec.Machine.Arch), s.connects(o, host), s.within(o, host))
	if err == nil {
		err = admit(s.inst.Spec, host, o.measure, o.members, o.seats)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// noRoom is the reason for refusing a host on which Placement returned no candidate.
const noRoom = "it has no room"

// refusals returns the hosts that the policy put before the chosen host, each with the reason why it was not taken.
func (s *search) refusals(o *snapshot, taken croft.HostID) (all []croft.Refusal) {
	for _, c := range o.line {
		if c.Host == taken || len(all) == croft.MaxRefusals {
			break
		}
		all = append(all, croft.Refusal{Host: c.Host, Why: s.why(o, c)})
	}
	return all
}

// why returns the reason why a host of the line was not taken.
func (s *search) why(o *snapshot, c considered) string {
	switch dropped := s.dropped[c.Host]; {
	case c.why != "":
		return c.why
	case dropped != "":
		return dropped
	case slices.ContainsFunc(o.candidates, func(x croft.Candidate) bool { return hostOf(x) == c.Host }):
		return "it had room, and others took it or a rule of a group barred it"
	}
	return noRoom
}

// byPosition orders candidates by the policy. Hosts that concurrent requests are filling come last.
func (o *snapshot) byPosition(x, y croft.Candidate) int {
	if full, other := freeAfter(x) < 0, freeAfter(y) < 0; full != other {
		if full {
			return 1
		}
		return -1
	}
	return o.position[hostOf(x)] - o.position[hostOf(y)]
}

// PolicyOf returns the current policy of an instance, or, if the policy was removed, its version at the time the host
// was chosen.
func (s *Scheduler) PolicyOf(ctx context.Context, inst croft.Instance) (croft.CrushPolicy, error) {
	if inst.Spec.Policy == nil {
		return croft.CrushPolicy{}, croft.Errorf(croft.Invalid, "no policy chose the host of instance %s", inst.Name)
	}
	now, err := s.Crush.Find(ctx, inst.Spec.Policy.Name)
	if errors.Is(err, croft.NotFound) {
		return *inst.Spec.Policy, nil
	}
	return now, err
}

// Order returns the target hosts for moving an instance, in the order of its policy. NoCapacity: the policy currently
// gives no host.
func (s *Scheduler) Order(ctx context.Context, inst croft.Instance) (hosts []croft.HostID, err error) {
	policy, err := s.PolicyOf(ctx, inst)
	if err != nil {
		return nil, err
	}
	m, err := s.CrushMap(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	p, err := m.Compile(policy)
	switch {
	case errors.Is(err, croft.NotFound) || errors.Is(err, croft.Invalid):
		return nil, croft.Errorf(croft.NoCapacity, "%w", err)
	case err != nil:
		return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
	}
	p.Order(inst.ID, func(c crushmap.Choice) bool {
		hosts = append(hosts, c.Host)
		return false
	})
	return hosts, nil
}

// chosen returns the hosts that the request's policy can choose; nil: all hosts.
func (s *search) chosen(ctx context.Context) (map[croft.HostID]bool, error) {
	if s.inst.Spec.Policy == nil {
		return nil, nil
	}
	m, err := s.CrushMap(ctx, s.begun)
	if err != nil {
		return nil, err
	}
	p, err := m.Compile(*s.inst.Spec.Policy)
	if err != nil {
		return nil, err
	}
	all := map[croft.HostID]bool{}
	p.Order(s.inst.ID, func(c crushmap.Choice) bool {
		all[c.Host] = true
		return false
	})
	return all, nil
}

// addTrace adds the CRUSH policy of the request, if it has one, to an explanation, with the hosts of a snapshot in the
// policy's order. Each host without a usable candidate gets a reason for its refusal.
func (s *search) addTrace(e *Explanation, o *snapshot, usable []croft.Candidate) {
	if s.inst.Spec.Policy == nil {
		return
	}
	fits := map[croft.HostID]bool{}
	for _, c := range usable {
		fits[hostOf(c)] = true
	}
	names := s.maps.names()
	e.Policy, e.Trace = s.inst.Spec.Policy, []Step{}
	for _, c := range o.line {
		step := Step{Host: names(c.Host), ID: c.Host, Pass: c.Pass}
		if !fits[c.Host] {
			step.Why = s.why(o, c)
		}
		e.Trace = append(e.Trace, step)
	}
}
