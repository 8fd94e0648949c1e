package ipam

import (
	"maps"
	"net/netip"
	"path"
	"slices"

	"croft"
	"croft/grid/ipam/nft"
)

// Net is a snapshot of a directory. Pools and leases are read at once, the rest on demand. Net collects changes, and
// Dir.Change writes them.
type Net struct {
	Pools  []*Pool // sorted by name
	Leases map[netip.Addr]Lease
	Grid   Grid     // where jobs run; NewGrid reads it from the same directory
	Notes  []string // sentences about likely mistakes

	dir   *Dir
	facts *Facts
	tags  *layout
	todo  changes

	shared shared
}

// Read reads pools and leases. Invalid: the error names the file and line of the mistake.
func (d *Dir) Read() (*Net, error) {
	d.forget() // a checkout may have replaced directories since the last read
	n := &Net{dir: d, todo: changes{dir: d}, Leases: map[netip.Addr]Lease{}, Grid: NewGrid(d)}
	pools, err := d.list(poolDir)
	if err != nil {
		return nil, err
	}
	for _, e := range pools {
		name, err := named(poolDir, e.Name(), yamlEnding)
		if err != nil {
			return nil, err
		}
		p, notes, err := d.readPool(name)
		if err != nil {
			return nil, err
		}
		n.Pools, n.Notes = append(n.Pools, p), append(n.Notes, notes...)
	}
	if err := n.checkPools(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"net/lease/v4", "net/lease/v6"} {
		if err := n.readLeases(dir); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *Net) readLeases(dir string) error {
	all, err := n.dir.list(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		a, err := fileAddr(dir, e.Name())
		if err != nil {
			return err
		}
		l, err := n.dir.readLease(a)
		if croft.KindOf(err) == croft.NotFound {
			continue // the address was freed since it was listed
		} else if err != nil {
			return err
		}
		n.Leases[a] = l
	}
	return nil
}

// shared caches results that many queries use. A change of a lease clears it.
type shared struct {
	placed map[string][]netip.Addr
	rules  []nft.Rule
	owned  map[Owner][]netip.Addr
	nodes  []string
}

// LeaseOf returns the lease of an owner in a pool, the lowest address if it has several. If it has none in the pool
// itself, LeaseOf looks in the pools nested in it. ok reports whether the owner has a lease.
func (n *Net) LeaseOf(pool string, o Owner) (l Lease, ok bool) {
	if n.shared.owned == nil {
		n.shared.owned = map[Owner][]netip.Addr{}
		for _, l := range n.Sorted() {
			if !l.Freed() {
				n.shared.owned[l.Owner] = append(n.shared.owned[l.Owner], l.Addr)
			}
		}
	}
	for _, a := range n.shared.owned[o] {
		if p := n.PoolOf(a); p != nil && p.Name == pool {
			return n.Leases[a], true
		}
	}
	for _, a := range n.shared.owned[o] {
		if n.isPart(n.PoolOf(a), pool) {
			return n.Leases[a], true
		}
	}
	return Lease{}, false
}

// isPart reports whether a pool is nested in another, at any depth. An owner keeps an address that the outer pool gave
// before the inner pool was split off.
func (n *Net) isPart(p *Pool, outer string) bool {
	for range n.Pools {
		if p == nil || p.Within == "" {
			return false
		}
		if p.Within == outer {
			return true
		}
		p, _ = n.Pool(p.Within) // nil if it does not exist, but Read refuses such pools
	}
	return false
}

// lease gives an address to an owner.
func (n *Net) lease(a netip.Addr, o Owner) {
	n.shared = shared{}
	n.Leases[a] = Lease{Addr: a, Owner: o}
	n.todo.link(leasePath(a), "../../../alloc/"+o.String())
}

// changes lists the edits to write, in order.
type changes struct {
	dir *Dir
	all []*edit
}

func (c *changes) replace(name string, text []byte) { c.all = append(c.all, c.dir.content(name, text)) }
func (c *changes) link(name, to string)             { c.all = append(c.all, c.dir.link(name, to)) }
func (c *changes) remove(name string)               { c.all = append(c.all, &edit{name: name}) }

// write makes all edits. The caller holds the lock on net/. write first puts all new content on the disk, so a full
// disk changes nothing. It then calls held to check the lock again, just before readers see the first change. A later
// error says how many of the changes were made.
func (c *changes) write(held func() error) error {
	if len(c.all) == 0 {
		return nil
	}
	for _, dir := range []string{poolDir, "net/lease/v4", "net/lease/v6", "net/meta/v4", "net/meta/v6", setDir,
		accessDir} {
		c.dir.sweep(dir)
	}
	defer c.dir.discard(c.all)
	for _, e := range c.all {
		if err := c.dir.prepare(e); err != nil {
			return err
		}
	}
	if err := held(); err != nil {
		return err
	}
	for i, e := range c.all {
		err := c.dir.do(e)
		if dir := path.Dir(e.name); err == nil && (i+1 == len(c.all) || path.Dir(c.all[i+1].name) != dir) {
			step("flush", dir)
			if err = c.dir.flush(dir); err != nil {
				err = writeError("write", e.name, err)
			}
		}
		if err != nil && len(c.all) > 1 {
			return croft.Errorf(croft.KindOf(err), "%w; %d of %d changes were made before that: look at them in version "+
				"control, and try again", err, i, len(c.all))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Sorted returns the leases ordered by address, including freed ones.
func (n *Net) Sorted() []Lease {
	return slices.SortedFunc(maps.Values(n.Leases), func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
}
