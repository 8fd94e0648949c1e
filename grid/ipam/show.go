package ipam

import (
	"math/big"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// About is everything that is known about an address.
type About struct {
	Address  string         `json:"address"`
	Pool     string         `json:"pool,omitempty"`
	State    string         `json:"state"` // free, leased, held, never (given by its pool), or outside (of all pools)
	Owner    *Owner         `json:"owner,omitempty"`
	Until    string         `json:"until,omitempty"` // the end of the hold, if the address is held
	Node     string         `json:"node,omitempty"`  // the path of the node that the owner is placed on
	Gateway  string         `json:"gateway,omitempty"`
	Prefixes []string       `json:"prefixes,omitempty"` // the prefixes with facts that contain it, shortest first
	Tags     []string       `json:"tags,omitempty"`
	Sets     []string       `json:"sets,omitempty"`
	Facts    map[string]any `json:"facts,omitempty"` // merged from all prefixes
}

// The states of an address.
const (
	Free    = "free"
	Leased  = "leased"
	Held    = "held"
	Never   = "never"
	Outside = "outside"
)

// About returns everything that is known about an address.
func (n *Net) About(a netip.Addr) (*About, error) {
	about, err := n.brief(a)
	if err != nil {
		return nil, err
	}
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Covering(netip.PrefixFrom(a, a.BitLen())) {
		about.Prefixes = append(about.Prefixes, p.String())
	}
	names, err := n.Sets()
	if err != nil {
		return nil, err
	}
	e := n.Evaluator()
	for _, name := range names {
		x, err := n.Set(name)
		if err != nil {
			return nil, err
		}
		s, err := e.Eval(x)
		if err != nil {
			return nil, err
		}
		if s.Contains(a) {
			about.Sets = append(about.Sets, name)
		}
	}
	if about.State != Free {
		return about, nil
	}
	free, err := n.freeIn(n.PoolOf(a), Owner{})
	if err == nil && !free.set.Contains(a) {
		about.State = Never
	}
	return about, err
}

// brief returns the part of About for a list: without prefixes and sets. Its state is Free even for an address that the
// pool never gives.
func (n *Net) brief(a netip.Addr) (*About, error) {
	about := &About{Address: a.String(), State: Outside}
	if p := n.PoolOf(a); p != nil {
		about.Pool, about.State = p.Name, Free
		if p.Gateway.IsValid() {
			about.Gateway = p.Gateway.String()
		}
	}
	if l, ok := n.Leases[a]; ok && l.Holds(time.Now()) {
		about.State, about.Owner = Leased, &l.Owner
		if l.Freed() {
			about.State, about.Until = Held, l.Until.UTC().Format(time.RFC3339)
		} else {
			var err error
			if about.Node, err = n.Grid.NodeOf(l.Owner); err != nil {
				return nil, err
			}
		}
	}
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	about.Facts, err = f.Of(netip.PrefixFrom(a, a.BitLen()))
	about.Tags = TagsIn(about.Facts)
	return about, err
}

// Find lists the known addresses in a set, in order: leased and held ones, and those with a file of their own facts.
func (n *Net) Find(s *netipx.IPSet) ([]*About, error) {
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	now := time.Now()
	for a, l := range n.Leases {
		if l.Holds(now) && s.Contains(a) {
			all = append(all, a)
		}
	}
	var stated []netip.Prefix
	for p := range f.files {
		if p.IsSingleIP() && s.Contains(p.Addr()) {
			all, stated = append(all, p.Addr()), append(stated, p)
		}
	}
	if err := f.load(stated); err != nil {
		return nil, err
	}
	slices.SortFunc(all, netip.Addr.Compare)
	found := []*About{}
	for _, a := range slices.Compact(all) {
		about, err := n.brief(a)
		if err != nil {
			return nil, err
		}
		found = append(found, about)
	}
	return found, nil
}

// Usage counts the addresses of a pool by state.
type Usage struct {
	Pool   string   `json:"pool"`
	Prefix string   `json:"prefix"`
	Size   *big.Int `json:"size"`
	Free   *big.Int `json:"free"`
	Leased *big.Int `json:"leased"`
	Held   *big.Int `json:"held"`
}

// Usage counts the addresses of a pool.
func (n *Net) Usage(p *Pool) (Usage, error) {
	free, err := n.freeIn(p, Owner{})
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Pool: p.Name, Prefix: p.Prefix.String(), Free: Count(free.set),
		Size: new(big.Int).Lsh(big.NewInt(1), uint(p.Prefix.Addr().BitLen()-p.Prefix.Bits()))}
	for _, why := range free.why {
		switch why.what {
		case Leased:
			u.Leased = why.count
		case Held:
			u.Held = why.count
		}
	}
	return u, nil
}
