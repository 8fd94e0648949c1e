package ledger

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// product calls use with every way to pick one element of each list, until use returns false.
func product[T any](lists [][]T, use func([]T) bool) {
	pick := make([]T, len(lists))
	var step func(i int) bool
	step = func(i int) bool {
		if i == len(lists) {
			return use(slices.Clone(pick))
		}
		for _, v := range lists[i] {
			pick[i] = v
			if !step(i + 1) {
				return false
			}
		}
		return true
	}
	step(0)
}

// combine joins one option of each group, in all permitted ways.
func (s *search) combine(ctx context.Context, options [][]Option) error {
	n := 0
	product(options, func(pick []Option) bool {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return false
		}
		if s.isolated(pick) && s.rooted(pick) {
			s.add(Candidate{consolidate(pick), pick})
		}
		return !s.full()
	})
	if ctx.Err() != nil {
		return unavailable(ctx.Err())
	}
	return nil
}

func (s *search) add(c Candidate) {
	if !fit(c.Portions) || !s.req.Nested && !oneOfEachTree(c.Portions) {
		return
	}
	if s.seen != nil {
		key := s.key(c)
		if s.seen[key] {
			return
		}
		s.seen[key] = true
	}
	s.found = append(s.found, c)
}

// isolated reports whether no provider serves two groups for which Single is true, if the request asks for that.
func (s *search) isolated(pick []Option) bool {
	if !s.req.Isolate {
		return true
	}
	used := map[*Provider]bool{}
	for i, o := range pick {
		if s.groups[i].Single() {
			if used[o.Providers[0]] {
				return false
			}
			used[o.Providers[0]] = true
		}
	}
	return true
}

// rooted reports whether, for each same_subtree, one provider is an ancestor of all the others.
func (s *search) rooted(pick []Option) bool {
	for _, suffixes := range s.req.Subtrees {
		var involved []*Provider
		for i, o := range pick {
			if slices.Contains(suffixes, s.groups[i].Suffix) {
				involved = append(involved, o.Providers...)
			}
		}
		top := func(p *Provider) bool {
			return !slices.ContainsFunc(involved, func(q *Provider) bool { return !p.above(q) })
		}
		if len(involved) > 0 && !slices.ContainsFunc(involved, top) {
			return false
		}
	}
	return true
}

// above reports whether p is q or an ancestor of q.
func (p *Provider) above(q *Provider) bool {
	for ; q != nil; q = q.up {
		if p == q {
			return true
		}
	}
	return false
}

// consolidate sums the portions of each class and provider.
func consolidate(pick []Option) []Portion {
	if len(pick) == 1 {
		return pick[0].Portions
	}
	var out []Portion
	for _, o := range pick {
		for _, x := range o.Portions {
			at := slices.IndexFunc(out, func(y Portion) bool { return x.Provider == y.Provider && x.Class == y.Class })
			switch {
			case at < 0:
				out = append(out, x)
			case out[at].N > math.MaxInt64-x.N:
				out[at].N = math.MaxInt64
			default:
				out[at].N += x.N
			}
		}
	}
	return out
}

// fit reports whether every provider has enough for the sum of its portions.
func fit(portions []Portion) bool {
	for _, x := range portions {
		i := x.Provider.Inventory(x.Class)
		if x.N > i.MaxUnit || x.Provider.Used(x.Class)+x.N > i.Capacity() {
			return false
		}
	}
	return true
}

// oneOfEachTree reports whether no two providers belong to the same tree.
func oneOfEachTree(portions []Portion) bool {
	for i, x := range portions {
		for _, y := range portions[:i] {
			if x.Provider != y.Provider && x.Provider.root == y.Provider.root {
				return false
			}
		}
	}
	return true
}

// key returns a key that is equal for candidates that look the same to a client.
func (s *search) key(c Candidate) string {
	var items []string
	for _, x := range c.Portions {
		items = append(items, x.Provider.UUID+" "+strconv.Itoa(int(x.Class))+" "+strconv.FormatInt(x.N, 10))
	}
	slices.Sort(items)
	for i, o := range c.Options {
		uuids := make([]string, len(o.Providers))
		for j, p := range o.Providers {
			uuids[j] = p.UUID
		}
		slices.Sort(uuids)
		items = append(items, s.groups[i].Suffix+"="+strings.Join(uuids, ","))
	}
	return strings.Join(items, ";")
}
