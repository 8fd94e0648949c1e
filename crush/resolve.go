package crush

import (
	"math"
	"slices"
	"strconv"
)

// resolve assigns IDs to the buckets without one, and replaces names by IDs.
func (t *parser) resolve() error {
	t.free = -1
	for i := range t.m.Buckets {
		if b := &t.m.Buckets[i]; b.ID == 0 {
			b.ID = t.freeID()
			t.ids[b.Name] = b.ID
		}
	}
	of := map[ID]int{}
	for i, b := range t.m.Buckets {
		of[b.ID] = i
	}
	order := make([]int, len(t.m.Buckets)) // children first: an item without a weight gets the weight of its bucket
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(t.m.Buckets[a].Type) - int(t.m.Buckets[b].Type) })
	for _, i := range order {
		if err := t.resolveItems(i, of); err != nil {
			return err
		}
	}
	for _, take := range t.takes {
		t.line = take.line
		id, ok := t.ids[take.name]
		if !ok {
			return t.wrong("rule %s takes %q, which does not exist", t.m.Rules[take.rule].Name, take.name)
		}
		s := &t.m.Rules[take.rule].Steps[take.step]
		s.Item, s.Class = id, take.class
		if take.class != "" && id < 0 {
			t.shade(of[id], take.class, of)
		}
	}
	return nil
}

func (t *parser) resolveItems(i int, of map[ID]int) error {
	b, next := &t.m.Buckets[i], 0
	placed := map[int]Item{}
	for _, it := range t.items[i] {
		t.line = it.line
		id, ok := t.ids[it.name]
		if !ok {
			return t.wrong("bucket %s contains %q, which does not exist", b.Name, it.name)
		}
		weight := One
		if id < 0 {
			weight = t.m.Buckets[of[id]].Weight()
		}
		if it.weight != "" {
			f, err := strconv.ParseFloat(it.weight, 64)
			if err != nil || !(f >= 0) || f >= math.MaxUint16 {
				return t.wrong("item %s of bucket %s: the weight %s is not from 0 to 65535", it.name, b.Name, it.weight)
			}
			weight = WeightOf(f)
		}
		at := it.at
		if at < 0 {
			for at = next; ; at++ {
				if _, taken := placed[at]; !taken {
					break
				}
			}
			next = at
		}
		if _, taken := placed[at]; taken || at >= len(t.items[i]) {
			return t.wrong("item %s of bucket %s: the position %d is taken, or beyond the last", it.name, b.Name, at)
		}
		placed[at] = Item{id, weight}
	}
	for at := range len(placed) {
		b.Items = append(b.Items, placed[at])
	}
	return nil
}

// shade assigns IDs to a bucket, and to all buckets below it, for their devices of a class.
func (t *parser) shade(i int, class string, of map[ID]int) {
	b := &t.m.Buckets[i]
	if !slices.ContainsFunc(b.Shadows, func(s Shadow) bool { return s.Class == class }) {
		b.Shadows = append(b.Shadows, Shadow{class, t.freeID()})
	}
	for _, it := range b.Items {
		if at, ok := of[it.ID]; ok && t.m.Buckets[at].Type < b.Type {
			t.shade(at, class, of)
		}
	}
}

func (t *parser) freeID() ID {
	for t.used[t.free] {
		t.free--
	}
	t.used[t.free] = true
	return t.free
}
