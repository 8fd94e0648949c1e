package ipam

import (
	"net/netip"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
	"croft/internal/wording"
)

// Put writes a new pool. Conflict: a pool of this name exists, or the prefix overlaps that of another pool.
func (n *Net) Put(p *Pool) error {
	exclude := p.Exclude
	p.Exclude = nil
	p.file = poolPath(p.Name)
	if err := CheckName(p.Name); err != nil {
		return err
	}
	for _, text := range exclude {
		if err := p.addExclude(text); err != nil {
			return err
		}
	}
	if err := p.check(); err != nil {
		return err
	}
	if _, err := n.Pool(p.Name); err == nil {
		return croft.Errorf(croft.Conflict, "there is a pool %s already: change its file, %s", p.Name, p.file)
	}
	n.Pools = append(n.Pools, p)
	if err := n.checkPools(); err != nil {
		return err
	}
	f := poolFile{Prefix: p.Prefix.String(), Exclude: exclude, Tags: p.Tags, Strategy: p.Strategy, Within: p.Within}
	if p.Gateway.IsValid() {
		f.Gateway = p.Gateway.String()
	}
	if p.Hold != DefaultHold {
		f.Hold = wording.ForPrograms(p.Hold)
	}
	text, err := inYAML(f)
	n.todo.replace(p.file, text)
	return err
}

// checkPools sorts the pools by name, and checks how their prefixes nest.
func (n *Net) checkPools() error {
	slices.SortFunc(n.Pools, func(a, b *Pool) int { return strings.Compare(a.Name, b.Name) })
	byPlace := slices.Clone(n.Pools)
	slices.SortFunc(byPlace, func(a, b *Pool) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	var around []*Pool // a stack: each pool contains the next one
	for _, p := range byPlace {
		for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(p.Prefix) {
			around = around[:len(around)-1]
		}
		outer := ""
		if len(around) > 0 {
			outer = around[len(around)-1].Name
		}
		if err := n.checkNesting(p, outer); err != nil {
			return err
		}
		around = append(around, p)
	}
	return nil
}

// checkNesting checks a pool against outer, the smallest pool that contains its prefix; empty: no pool does.
func (n *Net) checkNesting(p *Pool, outer string) error {
	if p.Within == outer {
		if outer == "" {
			return nil
		}
		o, err := n.Pool(outer)
		if err == nil && o.Prefix == p.Prefix {
			return croft.Errorf(croft.Conflict, "%s: the pools %s and %s have the same prefix, %s", p.file, o.Name,
				p.Name,
				p.Prefix)
		}
		return err
	}
	if p.Within != "" {
		if _, err := n.Pool(p.Within); err != nil {
			return croft.Errorf(croft.Invalid, "%s: within: %w", p.file, err)
		}
		if outer == "" {
			return croft.Errorf(croft.Invalid, "%s: %s is not within the pool %s", p.file, p.Prefix, p.Within)
		}
		return croft.Errorf(croft.Conflict, "%s: the next pool that has %s is %s, not %s: write within: %s", p.file,
			p.Prefix, outer, p.Within, outer)
	}
	return croft.Errorf(croft.Conflict,
		"%s: the prefix %s overlaps the prefix of the pool %s: if it is part of that pool, write within: "+
			"%s", p.file, p.Prefix, outer, outer)
}

// Pool returns a pool by its name. NotFound.
func (n *Net) Pool(name string) (*Pool, error) {
	var names []string
	for _, p := range n.Pools {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	hint := nearest.Hint(name, names)
	if hint == "" && len(names) == 0 {
		hint = "; there are none yet: croft ip add NAME PREFIX makes one"
	}
	return nil, croft.Errorf(croft.NotFound, "there is no pool %q%s", name, hint)
}

// PoolOf returns the smallest pool that contains an address; nil: no pool does.
func (n *Net) PoolOf(a netip.Addr) *Pool {
	var best *Pool
	for _, p := range n.Pools {
		if p.Prefix.Contains(a) && (best == nil || p.Prefix.Bits() > best.Prefix.Bits()) {
			best = p
		}
	}
	return best
}
