package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"time"

	"croft/grid/ipam/setexpr"
)

// Check reads everything below net/, and returns sentences about inconsistencies between files that are valid alone,
// such as a merge of branches leaves. The error is about the first file that cannot be read.
func (n *Net) Check() ([]string, error) {
	if _, err := n.layout(); err != nil {
		return nil, err
	}
	names, err := n.Sets()
	if err != nil {
		return nil, err
	}
	e := n.Evaluator()
	for _, name := range names {
		x, err := setexpr.Parse("@"+name, path.Join(setDir, name), 1)
		if err != nil {
			return nil, err
		}
		if _, err := e.Eval(x); err != nil {
			return nil, err
		}
	}
	n.Notes = append(n.Notes, e.Notes()...)
	if _, err := n.Rules(); err != nil {
		return nil, err
	}
	return n.checkLeases()
}

func (n *Net) checkLeases() ([]string, error) {
	type has struct {
		o    Owner
		pool string
	}
	var found []string
	first := map[has]netip.Addr{}
	for _, l := range n.Sorted() {
		if l.Freed() {
			continue
		}
		p := n.PoolOf(l.Addr)
		if p == nil {
			found = append(found, fmt.Sprintf("%s: %s is in no pool", leasePath(l.Addr), l.Addr))
			continue
		}
		key := has{l.Owner, p.Name}
		if other, twice := first[key]; twice {
			found = append(found, fmt.Sprintf("%s: %s has %s of pool %s already: free one of them", leasePath(l.Addr),
				l.Owner, other, p.Name))
		} else {
			first[key] = l.Addr
		}
		if _, err := n.Grid.NodeOf(l.Owner); err != nil {
			return found, err
		}
	}
	for _, p := range n.Pools {
		never, err := n.misgiven(p)
		if err != nil {
			return found, err
		}
		found = append(found, never...)
	}
	return found, nil
}

// misgiven returns a sentence for each lease of an address that the pool never gives, such as an address that was
// excluded after it was leased.
func (n *Net) misgiven(p *Pool) ([]string, error) {
	leases := n.Leases
	defer func() { n.Leases = leases }()
	n.Leases = map[netip.Addr]Lease{} // whether a pool ever gives an address does not depend on leases
	free, err := n.freeIn(p, Owner{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, a := range slices.SortedFunc(maps.Keys(leases), netip.Addr.Compare) {
		l := leases[a]
		if n.PoolOf(a) != p || !l.Holds(time.Now()) || l.Freed() || free.set.Contains(a) {
			continue
		}
		why := slices.IndexFunc(free.why, func(r reason) bool { return r.set.Contains(a) })
		found = append(found, fmt.Sprintf("%s: %s has %s, which is never given by pool %s: %s", leasePath(a), l.Owner,
			a,
			p.Name, free.why[why].what))
	}
	return found, nil
}
