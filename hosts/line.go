package hosts

import (
	"cmp"
	"context"
	"slices"

	"croft"
)

// line has hosts in the order in which the policy of an instance gives them; nil: no policy chose its host.
type line []croft.HostID

// line asks for the hosts that the policy of an instance gives now. With the same input, the first one that may be
// taken is the one that its request would take if the hosts before it were out.
func (f *Fleet) line(ctx context.Context, inst croft.Instance) (line, error) {
	if f.Chooser == nil || inst.Spec.Policy == nil {
		return nil, nil
	}
	all, err := f.Chooser.Order(ctx, inst)
	return append(line{}, all...), err // never nil
}

// only returns the candidates on hosts of the line.
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

// sorted returns candidates in the order of the line, and those of one host as they were.
func (l line) sorted(candidates []croft.Candidate) []croft.Candidate {
	if l == nil {
		return candidates
	}
	at := l.positions()
	return slices.SortedStableFunc(slices.Values(candidates), func(a, b croft.Candidate) int {
		return cmp.Compare(at[hostOf(a)], at[hostOf(b)])
	})
}

// before returns the first hosts of the line that come before one to which an instance moves, and why each is not
// taken.
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
		case slices.ContainsFunc(candidates, func(c croft.Candidate) bool { return hostOf(c) == id }):
			r.Why = "its request bars it, or others took its room"
		default:
			r.Why = "it has no room"
		}
		all = append(all, r)
	}
	return all
}
