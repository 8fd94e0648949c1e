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

// Get leases an address of a pool to an owner. An owner that already has a lease in the pool gets the same address.
// Otherwise it gets the address that it freed last, if that one is still held for it, else a free address. If at is
// valid, Get leases that address. NotFound: there is no such pool. NoCapacity: no address is free. Conflict: at is
// leased to or held for another owner, or the pool never gives it, or the owner has another address.
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

// ofOwner returns the owner's lease in a pool (the lowest address if it has several), and the held lease that it freed
// last. The zero Lease: none.
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

// room is the set of free addresses of a pool, and the reasons why the others are not free.
type room struct {
	set  *netipx.IPSet
	why  []reason
	soon time.Time // when the next held address becomes free; zero: no address is held
}

// reason is a set of addresses that are not free for one reason. An address with several reasons counts for the first.
type reason struct {
	count *big.Int
	what  string
	set   *netipx.IPSet
}

// freeIn computes which addresses of a pool an owner may get. The addresses held for this owner count as free.
func (n *Net) freeIn(p *Pool, o Owner) (*room, error) {
	r, now := &room{}, time.Now()
	var edges, gateway, nested, leased, held netipx.IPSetBuilder
	whole := netipx.RangeOfPrefix(p.Prefix)
	if p.Prefix.Addr().BitLen()-p.Prefix.Bits() > 1 {
		edges.Add(whole.From()) // the IPv4 network address, or the IPv6 subnet-router anycast address
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
		panic(err) // an invalid address was added
	}
	return s
}

// take removes addresses from the free set, and records how many it removed, with the reason.
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

// Count returns the number of addresses in a set.
func Count(s *netipx.IPSet) *big.Int {
	sum := new(big.Int)
	for _, r := range s.Ranges() {
		size := new(big.Int).Sub(number(r.To()), number(r.From()))
		sum.Add(sum, size.Add(size, big.NewInt(1)))
	}
	return sum
}

func number(a netip.Addr) *big.Int { return new(big.Int).SetBytes(a.AsSlice()) }

// choose picks a free address for an owner by the pool's strategy. The zero Addr: no address is free.
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

// hashed returns the address at which the Hash strategy starts its search for an owner. The offset from the pool's
// first address is the SHA-256 of "JOB SLOT" as a number, modulo the size of the pool.
func (p *Pool) hashed(o Owner) netip.Addr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", o.Job, o.Slot))
	base := p.Prefix.Masked().Addr()
	size := new(big.Int).Lsh(big.NewInt(1), uint(base.BitLen()-p.Prefix.Bits()))
	at := new(big.Int).SetBytes(sum[:])
	at.Add(at.Mod(at, size), number(base))
	a, _ := netip.AddrFromSlice(at.FillBytes(make([]byte, base.BitLen()/8)))
	return a
}

// exhausted returns the error for a pool without a free address.
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

// whyNot returns the error that says why an address is not free.
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

// Free ends the leases that chosen selects, and returns them ordered by address. With hold, each address stays held for
// its former owner for the hold time of its pool. Without hold, the addresses are free at once, and chosen addresses
// that were held before become free too. Free also removes the files of all addresses whose hold has ended.
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
			n.todo.remove(leasePath(l.Addr)) // the address is free for all owners now
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
		panic(err) // a struct of two strings always encodes
	}
	n.todo.replace(leasePath(l.Addr), text)
}
