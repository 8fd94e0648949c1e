package ipam

import (
	"maps"
	"net/netip"
	"path"
	"slices"

	"croft"
	"croft/grid/ipam/nft"
)

// Net is what a directory says, as it was read: pools and leases at once, the rest when it is asked for. Changes are
// collected, and written by Dir.Change.
type Net struct {
	Pools  []*Pool // by name
	Leases map[netip.Addr]Lease
	Grid   Grid     // where jobs run; NewGrid reads it from the same directory
	Notes  []string // sentences about what is likely a mistake

	dir   *Dir
	facts *Facts
	tags  *layout
	todo  changes

	shared shared
}

// Read reads pools and leases. Invalid, with the file and line of what is wrong.
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
			continue // freed since
		} else if err != nil {
			return err
		}
		n.Leases[a] = l
	}
	return nil
}

// shared is what is computed once for many questions. A change of a lease forgets it.
type shared struct {
	placed map[string][]netip.Addr
	rules  []nft.Rule
	owned  map[Owner][]netip.Addr
	nodes  []string
}

// LeaseOf returns the lease of an owner in a pool, the lowest of several; ok: it has one.
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

// isPart reports whether a pool is inside of another, at any depth. An address that the outer pool gave before the
// inner one was carved out of it stays with its owner.
func (n *Net) isPart(p *Pool, outer string) bool {
	for range n.Pools {
		if p == nil || p.Within == "" {
			return false
		}
		if p.Within == outer {
			return true
		}
		p, _ = n.Pool(p.Within) // nil where there is none, which reading the pools refuses
	}
	return false
}

// lease gives an address to an owner.
func (n *Net) lease(a netip.Addr, o Owner) {
	n.shared = shared{}
	n.Leases[a] = Lease{Addr: a, Owner: o}
	n.todo.link(leasePath(a), "../../../alloc/"+o.String())
}

// changes are what is to be written, in order.
type changes struct {
	dir *Dir
	all []*edit
}

func (c *changes) replace(name string, text []byte) { c.all = append(c.all, c.dir.content(name, text)) }
func (c *changes) link(name, to string)             { c.all = append(c.all, c.dir.link(name, to)) }
func (c *changes) remove(name string)               { c.all = append(c.all, &edit{name: name}) }

// write does all of them. The caller has the lock, which held says again just before readers see the first change. All
// new content is on the disk before that, so a disk that is full changes nothing. An error after that says how many of
// the changes were done.
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

// Sorted are the leases in the order of their addresses, those that were freed and are held too.
func (n *Net) Sorted() []Lease {
	return slices.SortedFunc(maps.Values(n.Leases), func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
}
