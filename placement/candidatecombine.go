package placement

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// product calls use with every way to pick one of each list, until it returns false.
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

// combine joins one option of each group, in all ways that are allowed.
func (s *search) combine(ctx context.Context, options [][]option) error {
	n := 0
	product(options, func(pick []option) bool {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return false
		}
		if s.isolated(pick) && s.rooted(pick) {
			s.add(candidate{consolidate(pick), pick})
		}
		return !s.full()
	})
	if ctx.Err() != nil {
		return unavailable(ctx.Err())
	}
	return nil
}

func (s *search) add(c candidate) {
	if !fit(c.parts) || !s.req.nested && !oneOfEachTree(c.parts) {
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

// isolated tells whether no two single groups share a provider, where that is asked.
func (s *search) isolated(pick []option) bool {
	if !s.req.isolate {
		return true
	}
	used := map[*provider]bool{}
	for i, o := range pick {
		if s.groups[i].single() {
			if used[o.providers[0]] {
				return false
			}
			used[o.providers[0]] = true
		}
	}
	return true
}

// rooted tells whether, for each same_subtree, one provider is above all the others.
func (s *search) rooted(pick []option) bool {
	for _, suffixes := range s.req.subtrees {
		var involved []*provider
		for i, o := range pick {
			if slices.Contains(suffixes, s.groups[i].suffix) {
				involved = append(involved, o.providers...)
			}
		}
		top := func(p *provider) bool {
			return !slices.ContainsFunc(involved, func(q *provider) bool { return !p.above(q) })
		}
		if len(involved) > 0 && !slices.ContainsFunc(involved, top) {
			return false
		}
	}
	return true
}

// above tells whether p is q or an ancestor of it.
func (p *provider) above(q *provider) bool {
	for ; q != nil; q = q.up {
		if p == q {
			return true
		}
	}
	return false
}

// consolidate adds up what several groups take of one class from one provider.
func consolidate(pick []option) []part {
	if len(pick) == 1 {
		return pick[0].parts
	}
	var out []part
	for _, o := range pick {
		for _, x := range o.parts {
			at := slices.IndexFunc(out, func(y part) bool { return x.p == y.p && x.class == y.class })
			switch {
			case at < 0:
				out = append(out, x)
			case out[at].n > math.MaxInt64-x.n:
				out[at].n = math.MaxInt64
			default:
				out[at].n += x.n
			}
		}
	}
	return out
}

// fit tells whether every provider has all that is taken from it at once.
func fit(parts []part) bool {
	for _, x := range parts {
		i := x.p.inventory(x.class)
		if x.n > i.maxUnit || x.p.used(x.class)+x.n > i.capacity() {
			return false
		}
	}
	return true
}

// oneOfEachTree tells whether no two providers are of one tree: what versions
// before 1.29 can be told.
func oneOfEachTree(parts []part) bool {
	for i, x := range parts {
		for _, y := range parts[:i] {
			if x.p != y.p && x.p.root == y.p.root {
				return false
			}
		}
	}
	return true
}

// key is the same for candidates that are the same to the client.
func (s *search) key(c candidate) string {
	var items []string
	for _, x := range c.parts {
		items = append(items, x.p.uuid+" "+strconv.Itoa(int(x.class))+" "+strconv.FormatInt(x.n, 10))
	}
	slices.Sort(items)
	for i, o := range c.options {
		uuids := make([]string, len(o.providers))
		for j, p := range o.providers {
			uuids[j] = p.uuid
		}
		slices.Sort(uuids)
		items = append(items, s.groups[i].suffix+"="+strings.Join(uuids, ","))
	}
	return strings.Join(items, ";")
}
