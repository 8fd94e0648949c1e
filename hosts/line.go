package hosts

import (
	"cmp"
	"context"
	"slices"

	"croft"
)

// line is a list of hosts in the order of an instance's policy; nil: no policy chose the instance's host.
type line []croft.HostID

// line returns the hosts in the current order of an instance's policy. With the same input, the first usable one is the
// host that its request would get if the hosts before it were out.
func (f *Fleet) line(ctx context.Context, inst croft.Instance) (line, error) {
	if f.Chooser == nil || inst.Spec.Policy == nil {
		return nil, nil
	}
	all, err := f.Chooser.Order(ctx, inst)
	return append(line{}, all...), err // never nil
}

// only returns the candidates on hosts in the line.
func (l line) only(candidates []croft.Candidate) []croft.Candidate {
	if l == nil {
		return candidates
	}
	at := l.positions()
	return slices.DeleteFunc(slices.Clone(candidates), func(c croft.Candidate) bool {
		_, chosen := at[hostOf(c)]
		return !chosen
	})
}

func (l line) positions() map[croft.HostID]int {
	at := map[croft.HostID]int{}
	for i, host := range l {
		at[host] = i
	}
	return at
}

// sorted returns candidates in the order of the line, keeping the order of candidates on the same host.
func (l line) sorted(candidates []croft.Candidate) []croft.Candidate {
	if l == nil {
		return candidates
	}
	at := l.positions()
	return slices.SortedStableFunc(slices.Values(candidates), func(a, b croft.Candidate) int {
		return cmp.Compare(at[hostOf(a)], at[hostOf(b)])
	})
}

// before returns the hosts of the line that come before the target of a move, and why each is not used. It returns at
// most MaxRefusals.
func (l line) before(to croft.HostID, inst croft.Instance, hosts map[croft.HostID]croft.Host,
	candidates []croft.Candidate) (all []croft.Refusal) {
	for _, id := range l {
		if id == to || len(all) == croft.MaxRefusals {
			break
		}
		r := croft.Refusal{Host: id}
		switch h := hosts[id]; {
		case id == inst.Host:
			r.Why = "it was moved away from there"
		case h.ID == "":
			r.Why = "it was forgotten"
		case !h.Alive:
			r.Why = "its agent is not running"
		case h.Drained:
			r.Why = "it is drained"
		case h.Runs(inst.Spec.Machine.Arch) != nil:
			r.Why = h.Runs(inst.Spec.Machine.Arch).Error()
		case slices.ContainsFunc(candidates, func(c croft.Candidate) bool { return hostOf(c) == id }):
			r.Why = "its request bars it, or others took its room"
		default:
			r.Why = "it has no room"
		}
		all = append(all, r)
	}
	return all
}
