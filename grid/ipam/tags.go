package ipam

import (
	"maps"
	"net/netip"
	"path"
	"slices"

	"go4.org/netipx"

	"croft"
)

// Facts lists the prefixes that have facts. The facts themselves are read on demand.
func (n *Net) Facts() (*Facts, error) {
	if n.facts != nil {
		return n.facts, nil
	}
	f := &Facts{dir: n.dir, pools: map[netip.Prefix][]string{}, files: map[netip.Prefix]bool{},
		lengths: map[string][]int{}, read: map[netip.Prefix]map[string]any{}}
	all := map[netip.Prefix]bool{}
	for _, p := range n.Pools {
		if len(p.Tags) > 0 {
			f.pools[p.Prefix], all[p.Prefix] = p.Tags, true
		}
	}
	for _, dir := range []string{"net/meta/v4", "net/meta/v6"} {
		entries, err := n.dir.list(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			p, err := filePrefix(dir, e.Name())
			if err != nil {
				return nil, err
			}
			if !e.Type().IsRegular() {
				return nil, croft.Errorf(croft.Invalid, "%s is no file", path.Join(dir, e.Name()))
			}
			f.files[p], all[p] = true, true
		}
	}
	f.stated = slices.SortedFunc(maps.Keys(all), netip.Prefix.Compare)
	lengths := map[string]map[int]bool{"v4": {}, "v6": {}}
	for _, p := range f.stated {
		lengths[family(p.Addr())][p.Bits()] = true
	}
	for name, of := range lengths {
		f.lengths[name] = slices.Sorted(maps.Keys(of))
	}
	n.facts = f
	return f, nil
}

// reserved returns the addresses that facts reserve, so that pools do not give them. It considers the prefixes with
// facts that overlap within.
func (n *Net) reserved(within netip.Prefix) (*netipx.IPSet, error) {
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	var b netipx.IPSetBuilder
	err = f.areas(within, func(r netipx.IPRange, facts map[string]any) {
		if facts[reservedKey] == true {
			b.AddRange(r)
		}
	})
	if err != nil {
		return nil, err
	}
	return b.IPSet()
}

// layout computes the addresses of every tag.
func (n *Net) layout() (*layout, error) {
	if n.tags != nil {
		return n.tags, nil
	}
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	builders := map[string]*netipx.IPSetBuilder{}
	err = f.areas(netip.Prefix{}, func(r netipx.IPRange, facts map[string]any) {
		for _, t := range TagsIn(facts) {
			if builders[t] == nil {
				builders[t] = &netipx.IPSetBuilder{}
			}
			builders[t].AddRange(r)
		}
	})
	if err != nil {
		return nil, err
	}
	n.tags = &layout{map[string]*netipx.IPSet{}}
	for t, b := range builders {
		n.tags.tags[t] = built(b)
	}
	return n.tags, nil
}
