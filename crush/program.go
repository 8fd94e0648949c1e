package crush

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Program is a compiled map. It is immutable, and any number of Mappers may use it concurrently.
type Program struct {
	tunables Tunables
	buckets  []node // by -1-ID; missing ones have type 0
	rules    map[int][]Step
	names    map[string]int // rule IDs by name
	devices  int            // upper bound of device IDs, exclusive
}

// node is a bucket with its items as columns.
type node struct {
	items   []int32  // padded with zeros to a multiple of lanes
	weights []uint32 // one per item, not padded
	kind    Type
}

// Compile checks a map and converts it to a Program. The error lists all errors of the map.
func Compile(m *Map) (*Program, error) {
	if errs := m.Check(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p := &Program{tunables: m.Tunables, rules: map[int][]Step{}, names: map[string]int{}}
	classes := map[ID]string{}
	for _, d := range m.Devices {
		classes[d.ID] = d.Class
		p.devices = max(p.devices, int(d.ID)+1)
	}
	c := &compiling{of: map[ID]*Bucket{}, classes: classes, p: p}
	for i := range m.Buckets {
		c.of[m.Buckets[i].ID] = &m.Buckets[i]
	}
	// Children come before their parents, because the weight of a shadow is the sum of its children's shadows.
	for _, b := range slices.SortedStableFunc(slices.Values(m.Buckets), func(x, y Bucket) int {
		return cmp.Compare(x.Type, y.Type)
	}) {
		c.add(b.ID, b.Type, b.Items)
		for _, s := range b.Shadows {
			if err := c.addShadow(&b, s); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range m.Rules {
		p.names[r.Name] = r.ID
		p.rules[r.ID] = slices.Clone(r.Steps)
		for i, s := range r.Steps {
			if s.Op == Take && s.Class != "" {
				p.rules[r.ID][i] = Step{Op: Take, Item: c.shadow(s.Item, s.Class)}
			}
		}
	}
	return p, nil
}

type compiling struct {
	p       *Program
	of      map[ID]*Bucket
	classes map[ID]string
}

func (c *compiling) add(id ID, kind Type, items []Item) {
	at := int(-1 - id)
	if at >= len(c.p.buckets) {
		c.p.buckets = append(c.p.buckets, make([]node, at+1-len(c.p.buckets))...)
	}
	padded := (len(items) + lanes - 1) / lanes * lanes
	n := node{kind: kind, items: make([]int32, padded), weights: make([]uint32, len(items))}
	for i, it := range items {
		n.items[i], n.weights[i] = int32(it.ID), uint32(it.Weight)
	}
	c.p.buckets[at] = n
}

// addShadow adds a bucket with only its devices of a class, and the shadows of its child buckets, even empty ones.
func (c *compiling) addShadow(b *Bucket, s Shadow) error {
	var items []Item
	for _, it := range b.Items {
		if it.ID >= 0 {
			if c.classes[it.ID] == s.Class {
				items = append(items, it)
			}
			continue
		}
		child := c.shadow(it.ID, s.Class)
		if child == 0 {
			return fmt.Errorf("bucket %s has an ID for its devices of class %s, and bucket %s in it has none", b.Name,
				s.Class, c.of[it.ID].Name)
		}
		var sum Weight
		for _, w := range c.p.buckets[-1-child].weights {
			sum += Weight(w)
		}
		items = append(items, Item{child, sum})
	}
	c.add(s.ID, b.Type, items)
	return nil
}

// shadow returns the ID of a bucket's shadow for a class; 0: it has none.
func (c *compiling) shadow(id ID, class string) ID {
	for _, s := range c.of[id].Shadows {
		if s.Class == class {
			return s.ID
		}
	}
	return 0
}

// Rule returns the ID of the rule with a name.
func (p *Program) Rule(name string) (id int, ok bool) {
	id, ok = p.names[name]
	return id, ok
}

// Devices returns the highest device ID plus 1.
func (p *Program) Devices() int { return p.devices }

// bucket returns the bucket with an ID; nil: none exists.
func (p *Program) bucket(id ID) *node {
	if at := int(-1 - id); at >= 0 && at < len(p.buckets) && p.buckets[at].kind != 0 {
		return &p.buckets[at]
	}
	return nil
}
