package schedule

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"croft"
	"croft/schedule/crushmap"
)

// Standing reports whether an instance is on the host where its policy puts it now, and if not, why. The order can be
// recomputed from the map, the policy and the input.
type Standing struct {
	Instance croft.InstanceID  `json:"instance"` // its UUID
	Name     string            `json:"name"`     // name of the instance
	Input    uint32            `json:"input"`    // input x of CRUSH, which is derived from the UUID
	Used     croft.CrushPolicy `json:"used"`     // the policy at the time of the request
	// the current policy; left out: it was removed, and the policy in used applies
	Now *croft.CrushPolicy `json:"now,omitempty"`

	Host   string       `json:"host"`              // name of its host; empty: none yet
	HostID croft.HostID `json:"host_id,omitempty"` // the host's UUID
	// the hosts that were refused when its host was chosen
	Refused []Step `json:"refused"`
	// the hosts in the current order of the policy, up to the one that it would take, and up to the instance's own host
	Trace  []Step `json:"trace"`
	Stands bool   `json:"stands"` // its host is the first one in the trace that is not refused
	Why    string `json:"why"`    // the reason, in one sentence, in both cases
}

// Standing reports whether an instance is on the host where its policy puts it. It changes nothing. NotFound; Invalid:
// no policy chose its host.
func (s *Scheduler) Standing(ctx context.Context, project croft.Project, idOrName string) (*Standing, error) {
	st, err := s.View.Find(ctx, project, idOrName)
	if err != nil {
		return nil, err
	}
	inst := st.Instance
	policy, err := s.PolicyOf(ctx, inst)
	if err != nil {
		return nil, err
	}
	search, err := s.standing(inst, policy)
	if err != nil {
		return nil, err
	}
	o := &snapshot{reading: s.inFlight.read()}
	defer s.inFlight.done(o.reading)
	m, err := s.CrushMap(ctx, search.begun)
	if err != nil {
		return nil, err
	}
	found := &Standing{Instance: inst.ID, Name: inst.Name, Input: crushmap.Input(inst.ID), Used: *inst.Spec.Policy,
		HostID: inst.Host, Host: cmp.Or(m.Hosts[inst.Host].Name, string(inst.Host)), Refused: []Step{}, Trace: []Step{}}
	if now, err := s.Crush.Find(ctx, policy.Name); err == nil {
		found.Now = &now
	}
	for _, r := range inst.Refused {
		found.Refused = append(found.Refused, Step{Host: cmp.Or(m.Hosts[r.Host].Name, string(r.Host)), ID: r.Host,
			Why: r.Why})
	}
	p, err := m.Compile(policy)
	if err != nil {
		found.Why = fmt.Sprintf("its policy can choose no host now: %v", err)
		return found, nil
	}
	if err := search.readBounds(ctx, o); err != nil {
		return nil, err
	}
	if err := search.readMembers(ctx, o); err != nil {
		return nil, err
	}
	if err := search.readHolders(ctx, o); err != nil {
		return nil, err
	}
	o.leave(inst.ID)
	return found, search.follow(ctx, o, m, p, found)
}

// standing prepares the search for the host that an instance would get if it were requested now.
func (s *Scheduler) standing(inst croft.Instance, policy croft.CrushPolicy) (*search, error) {
	text := cmp.Or(inst.Spec.Query, inst.Spec.Resources.String())
	query, err := ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("read the query of instance %s: %w", inst.Name, err)
	}
	inst.Spec.Policy = &policy
	found := s.search(Request{Query: query, InstanceSettings: inst.Spec.InstanceSettings, Policy: &Policy{Order: spread,
		Sample: crushSample, Crush: policy.Name}}, inst)
	return &found, nil
}

// leave removes an instance from the members and seats of a snapshot.
func (o *snapshot) leave(id croft.InstanceID) {
	o.members = slices.DeleteFunc(o.members, func(m croft.GroupMember) bool { return m.Instance == id })
	o.seats = slices.DeleteFunc(o.seats, func(s croft.Seat) bool { return s.Instance == id })
}

// follow records the hosts in the order of the policy, up to the one that it would take, and up to the instance's own
// host, which has room for the instance.
func (s *search) follow(ctx context.Context, o *snapshot, m *crushmap.Map, p *crushmap.Policy, found *Standing) error {
	line := s.line(o, m, p, math.MaxInt)
	own := slices.IndexFunc(line, func(c considered) bool { return c.Host == s.inst.Host })
	taken := -1
	for i, c := range line {
		step := Step{Host: cmp.Or(m.Hosts[c.Host].Name, string(c.Host)), ID: c.Host, Pass: c.Pass, Why: c.why}
		if step.Why == "" && i != own {
			room, err := s.hasRoom(ctx, c.Host)
			if err != nil {
				return err
			}
			if !room {
				step.Why = noRoom
			}
		}
		found.Trace = append(found.Trace, step)
		if step.Why == "" && taken < 0 {
			taken = i
		}
		if taken >= 0 && i >= own {
			break
		}
	}
	found.Stands = taken >= 0 && taken == own
	found.Why = found.sentence(taken, own)
	return nil
}

// hasRoom reports whether Placement has a candidate on a host.
func (s *search) hasRoom(ctx context.Context, host croft.HostID) (bool, error) {
	query := s.asked()
	if at := query.anchor(); at >= 0 && query.Groups[at].InTree == "" {
		query = query.inTree(host)
	}
	all, err := s.Claims.Candidates(ctx, query.Encode(), lastLimit)
	return slices.ContainsFunc(all, func(c croft.Candidate) bool { return hostOf(c) == host }), err
}

// sentence explains why the instance is on its host; taken and own are indexes of the trace, or -1.
func (f *Standing) sentence(taken, own int) string {
	switch {
	case f.HostID == "":
		return "it has no host yet"
	case taken == own && own >= 0:
		return "it stands where its policy puts it"
	case own < 0:
		return "its policy does not choose " + f.Host + " now: the policy or the location of the host was changed"
	case taken < 0 || taken > own:
		return "its policy would not choose " + f.Host + " now: " + f.Trace[own].Why
	}
	first := f.Trace[taken]
	then := "was not refused when it was requested, so hosts, policy or members have changed since"
	for _, r := range f.Refused {
		if r.ID == first.ID {
			then = "was refused when it was requested: " + r.Why
		}
	}
	return fmt.Sprintf("%s comes before %s and would be taken now; it %s", first.Host, f.Host, then)
}
