package ipam

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"croft"
)

// Get gives an owner an address of a pool, always the same one: what it has in the pool, else what it freed last while
// that is held, else a free one. With an address in at it gives that one. Errors: NotFound: no pool; NoCapacity;
// Conflict: the address is another's, or never given, or the owner has another one.
func (n *Net) Get(pool string, o Owner, at netip.Addr) (Lease, error) {
	p, err := n.Pool(pool)
	if err != nil {
		return Lease{}, err
	}
	if err := o.check(); err != nil {
		return Lease{}, err
	}
	own, freed := n.ofOwner(p, o)
	if !own.Addr.IsValid() && !at.IsValid() {
		own, _ = n.LeaseOf(pool, o)
	}
	if own.Addr.IsValid() {
		if at.IsValid() && at != own.Addr {
			return Lease{}, croft.Errorf(croft.Conflict, "%s has %s of pool %s already: free it first", o, own.Addr,
				pool)
		}
		return own, nil
	}
	free, err := n.freeIn(p, o)
	if err != nil {
		return Lease{}, err
	}
	a := at
	switch {
	case at.IsValid() && !free.set.Contains(at):
		return Lease{}, whyNot(n, p, at, free)
	case at.IsValid():
	case freed.Addr.IsValid() && free.set.Contains(freed.Addr):
		a = freed.Addr
	default:
		if a = p.choose(free.set, o); !a.IsValid() {
			return Lease{}, free.exhausted(p)
		}
	}
	n.lease(a, o)
	return n.Leases[a], nil
}

// ofOwner returns the owner's lease in a pool, the lowest of several, and the one that it freed last; zero: none.
func (n *Net) ofOwner(p *Pool, o Owner) (own, freed Lease) {
	now := time.Now()
	for _, l := range n.Leases {
		if l.Owner != o || n.PoolOf(l.Addr) != p {
			continue
		}
		switch {
		case !l.Freed():
			if !own.Addr.IsValid() || l.Addr.Less(own.Addr) {
				own = l
			}
		case l.Holds(now) && (l.Until.After(freed.Until) || l.Until.Equal(freed.Until) && l.Addr.Less(freed.Addr)):
			freed = l
		}
	}
	return own, freed
}

// room is what is free of a pool, and why the rest is not.
type room struct {
	set  *netipx.IPSet
	why  []reason
	soon time.Time // when the next held address becomes free; zero: none is held
}

// reason is a number of addresses that are not free. Each address counts for the first of its reasons.
type reason struct {
	count *big.Int
	what  string
	set   *netipx.IPSet
}

// freeIn computes what an owner may get of a pool.
func (n *Net) freeIn(p *Pool, o Owner) (*room, error) {
	r, now := &room{}, time.Now()
	var edges, gateway, nested, leased, held netipx.IPSetBuilder
	whole := netipx.RangeOfPrefix(p.Prefix)
	if p.Prefix.Addr().BitLen()-p.Prefix.Bits() > 1 {
		edges.Add(whole.From()) // the network, or the anycast address of the routers of IPv6
		if p.Prefix.Addr().Is4() {
			edges.Add(whole.To()) // broadcast
		}
	}
	if p.Gateway.IsValid() {
		gateway.Add(p.Gateway)
	}
	for _, inner := range n.Pools {
		if inner.Within == p.Name {
			nested.AddPrefix(inner.Prefix)
		}
	}
	for _, l := range n.Leases {
		switch {
		case !p.Prefix.Contains(l.Addr) || !l.Holds(now) || l.Freed() && l.Owner == o:
		case l.Freed():
			held.Add(l.Addr)
			if r.soon.IsZero() || l.Until.Before(r.soon) {
				r.soon = l.Until
			}
		default:
			leased.Add(l.Addr)
		}
	}
	reserved, err := n.reserved(p.Prefix)
	if err != nil {
		return nil, err
	}
	var rest netipx.IPSetBuilder
	rest.AddPrefix(p.Prefix)
	if r.set, err = rest.IPSet(); err != nil {
		return nil, err
	}
	ends := "network and broadcast"
	if !p.Prefix.Addr().Is4() {
		ends = "for the routers"
	}
	for _, one := range []struct {
		of   *netipx.IPSet
		what string
	}{{built(&edges), ends}, {built(&gateway), "gateway"}, {p.exclude, "excluded"}, {built(&nested), "of pools within"},
		{built(&leased), "leased"}, {built(&held), "held"}, {reserved, "reserved"}} {
		if err := r.take(one.of, one.what); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// built returns the set of a builder to which only valid addresses were added.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	s, err := b.IPSet()
	if err != nil {
		panic(err) // an address that is none was added
	}
	return s
}

// take takes addresses out of what is free, and counts them.
func (r *room) take(of *netipx.IPSet, what string) error {
	var taken, rest netipx.IPSetBuilder
	taken.AddSet(r.set)
	taken.Intersect(of)
	rest.AddSet(r.set)
	rest.RemoveSet(of)
	gone, err := taken.IPSet()
	if err != nil {
		return err
	}
	r.why = append(r.why, reason{Count(gone), what, gone})
	r.set, err = rest.IPSet()
	return err
}

// Count is how many addresses a set has.
func Count(s *netipx.IPSet) *big.Int {
	sum := new(big.Int)
	for _, r := range s.Ranges() {
		size := new(big.Int).Sub(number(r.To()), number(r.From()))
		sum.Add(sum, size.Add(size, big.NewInt(1)))
	}
	return sum
}

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

// choose picks a free address for an owner; the zero Addr: none is free.
func (p *Pool) choose(free *netipx.IPSet, o Owner) netip.Addr {
	ranges := free.Ranges()
	if len(ranges) == 0 {
		return netip.Addr{}
	}
	if p.Strategy != Hash {
		return ranges[0].From()
	}
	begin := p.hashed(o)
	for _, r := range ranges {
		if r.Contains(begin) {
			return begin
		}
		if begin.Less(r.From()) {
			return r.From()
		}
	}
	return ranges[0].From()
}

// hashed is the address that an owner's name leads to: SHA-256 of the job, a blank and the slot, as a number modulo the
// size of the pool, from its first address.
func (p *Pool) hashed(o Owner) netip.Addr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", o.Job, o.Slot))
	base := p.Prefix.Masked().Addr()
	size := new(big.Int).Lsh(big.NewInt(1), uint(base.BitLen()-p.Prefix.Bits()))
	at := new(big.Int).SetBytes(sum[:])
	at.Add(at.Mod(at, size), number(base))
	a, _ := netip.AddrFromSlice(at.FillBytes(make([]byte, base.BitLen()/8)))
	return a
}

// exhausted is the error for a pool without a free address.
func (r *room) exhausted(p *Pool) error {
	size := new(big.Int).Lsh(big.NewInt(1), uint(p.Prefix.Addr().BitLen()-p.Prefix.Bits()))
	var parts []string
	for _, why := range r.why {
		if why.count.Sign() > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", why.count, why.what))
		}
	}
	soon := ""
	if !r.soon.IsZero() {
		soon = fmt.Sprintf("; the next held one becomes free at %s", r.soon.UTC().Format(time.RFC3339))
	}
	return croft.Errorf(croft.NoCapacity, "pool %s has no free address: of the %s in %s are %s%s", p.Name, size,
		p.Prefix,
		strings.Join(parts, ", "), soon)
}

// whyNot is the error for an address that is not free.
func whyNot(n *Net, p *Pool, a netip.Addr, r *room) error {
	if !p.Prefix.Contains(a) {
		return croft.Errorf(croft.Conflict, "%s is not in pool %s, which is %s", a, p.Name, p.Prefix)
	}
	if l, ok := n.Leases[a]; ok && l.Freed() {
		return croft.Errorf(croft.Conflict, "%s is held for its former owner %s until %s", a, l.Owner,
			l.Until.UTC().Format(time.RFC3339))
	} else if ok {
		return croft.Errorf(croft.Conflict, "%s is leased to %s", a, l.Owner)
	}
	at := slices.IndexFunc(r.why, func(why reason) bool { return why.set.Contains(a) })
	return croft.Errorf(croft.Conflict, "%s is never given by pool %s: %s", a, p.Name, r.why[at].what)
}

// Free ends leases: of an address, or of an owner, in one pool or in all of them. The addresses are held as their pools
// say, or not at all. It returns what was freed, in order; nothing if nothing was leased.
func (n *Net) Free(chosen func(l Lease) bool, hold bool) []Lease {
	now := time.Now().UTC().Truncate(time.Second)
	var freed []Lease
	for _, l := range n.Sorted() {
		switch {
		case !l.Freed() && chosen(l):
			freed = append(freed, l)
			n.end(l, now, hold)
		case l.Freed() && (!l.Holds(now) || !hold && chosen(l)):
			delete(n.Leases, l.Addr)
			n.todo.remove(leasePath(l.Addr)) // nobody is held off any more
		}
	}
	return freed
}

// end ends one lease.
func (n *Net) end(l Lease, now time.Time, hold bool) {
	n.shared = shared{}
	how := DefaultHold
	if p := n.PoolOf(l.Addr); p != nil {
		how = p.Hold
	}
	if !hold || how == 0 {
		delete(n.Leases, l.Addr)
		n.todo.remove(leasePath(l.Addr))
		return
	}
	l.Until = now.Add(how)
	n.Leases[l.Addr] = l
	text, err := inYAML(freedFile{l.Owner.String(), l.Until.Format(time.RFC3339)})
	if err != nil {
		panic(err) // two texts have a form
	}
	n.todo.replace(leasePath(l.Addr), text)
}
