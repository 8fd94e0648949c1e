package ipam

import (
	"errors"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"croft"
)

// Net is what a directory says, as it was read: pools and leases at once, the rest when it is asked for. Changes are
// collected, and written by Dir.Change.
type Net struct {
	Pools  []*Pool // by name
	Leases map[netip.Addr]Lease
	Grid   Grid     // where jobs run; NewGrid reads it from the same directory
	Notes  []string // sentences about what is likely a mistake

	dir    *Dir
	facts  *Facts
	tags   *layout
	writes []func() error
}

// A Lease is an address that an owner has, or had until a short time ago.
type Lease struct {
	Addr  netip.Addr
	Owner Owner
	Until time.Time // of an address that was freed: until when it is held for its former owner; zero: it is leased
}

// Freed reports whether the owner gave the address back.
func (l Lease) Freed() bool { return !l.Until.IsZero() }

// Holds reports whether others are refused the address.
func (l Lease) Holds(now time.Time) bool { return !l.Freed() || now.Before(l.Until) }

// Read reads pools and leases. Invalid, with the file and line of what is wrong.
func (d *Dir) Read() (*Net, error) {
	n := &Net{dir: d, Leases: map[netip.Addr]Lease{}, Grid: NewGrid(d)}
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

// readLease reads what has the name of an address. Another process may replace it meanwhile, a link by a file or the
// other way round, so what looks wrong is looked at again.
func (d *Dir) readLease(a netip.Addr) (l Lease, err error) {
	for range 4 {
		if l, err = d.lookAtLease(a); err == nil || croft.KindOf(err) == croft.NotFound {
			break
		}
	}
	return l, err
}

func (d *Dir) lookAtLease(a netip.Addr) (Lease, error) {
	name := leasePath(a)
	to, err := d.target(name)
	if errors.Is(err, syscall.EINVAL) { // it is no link
		l, freedErr := d.readFreed(a)
		if to, err = d.target(name); errors.Is(err, syscall.EINVAL) {
			return l, freedErr
		}
	}
	if err != nil {
		return Lease{}, err
	}
	o, err := ownerAt(name, to)
	return Lease{Addr: a, Owner: o}, err
}

// ownerAt reads the owner from where a lease leads, such as alloc/web/front@7/0.
func ownerAt(name, to string) (Owner, error) {
	below, ok := strings.CutPrefix(to, "alloc/")
	dir, last := path.Split(below)
	if !ok || dir == "" || !allDigits(last) {
		return Owner{}, croft.Errorf(croft.Invalid, "%s leads to %s: a lease leads to alloc/JOB/SLOT", name, to)
	}
	o, err := ParseOwner(below)
	if err != nil {
		return o, croft.Errorf(croft.Invalid, "%s: %w", name, err)
	}
	return o, nil
}

// freedFile is what stands in place of a lease that was freed.
type freedFile struct {
	Freed string `yaml:"freed"` // the former owner
	Until string `yaml:"until"`
}

func (d *Dir) readFreed(a netip.Addr) (Lease, error) {
	name := leasePath(a)
	text, err := d.read(name)
	if err != nil {
		return Lease{}, err
	}
	if line := strings.TrimSpace(string(text)); strings.HasPrefix(line, "../../../alloc/") {
		return Lease{}, croft.Errorf(croft.Invalid, "%s is a file with the text %q, and should be a link: version control "+
			"did not keep it (git config core.symlinks true, fossil settings allow-symlinks on, and check out again)",
			name, line)
	}
	r := &reader{file: name}
	if r.root, err = parse(name, text); err != nil {
		return Lease{}, err
	}
	l := Lease{Addr: a}
	freed, until := r.at("freed"), r.at("until")
	if freed == nil || until == nil {
		return l, croft.Errorf(croft.Invalid, "%s is neither a link nor says who freed the address (freed:) and how long "+
			"it is held (until:)", name)
	}
	if l.Owner, err = ParseOwner(freed.Value); err != nil {
		r.wrong(freed, "freed: %w", err)
	}
	if l.Until, err = time.Parse(time.RFC3339, until.Value); err != nil {
		r.wrong(until, "until: want a time such as 2026-01-31T12:00:00Z, not %s", describe(until))
	}
	return l, r.err
}

// The changes of a Net. They are done in this order when Dir.Change ends.

func (n *Net) replace(name string, text []byte) {
	n.writes = append(n.writes, func() error { return n.dir.replace(name, text) })
}

func (n *Net) remove(name string) {
	n.writes = append(n.writes, func() error { return n.dir.remove(name) })
}

func (n *Net) lease(a netip.Addr, o Owner) {
	n.Leases[a] = Lease{Addr: a, Owner: o}
	n.writes = append(n.writes, func() error { return n.dir.link(leasePath(a), "../../../alloc/"+o.String()) })
}

func (n *Net) write() error {
	if len(n.writes) > 0 {
		for _, dir := range []string{poolDir, "net/lease/v4", "net/lease/v6", "net/meta/v4", "net/meta/v6", setDir,
			accessDir} {
			n.dir.sweep(dir)
		}
	}
	for _, write := range n.writes {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// Sorted are the leases in the order of their addresses, those that were freed and are held too.
func (n *Net) Sorted() []Lease {
	return slices.SortedFunc(maps.Values(n.Leases), func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
}
