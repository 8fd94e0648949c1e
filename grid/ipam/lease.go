package ipam

import (
	"errors"
	"net/netip"
	"path"
	"strings"
	"syscall"
	"time"

	"croft"
)

// A Lease is an address that an owner has, or that it freed and that is held for it.
type Lease struct {
	Addr  netip.Addr
	Owner Owner
	Until time.Time // for a freed address: the end of its hold for the former owner; zero: the address is leased
}

// Freed reports whether the owner gave the address back.
func (l Lease) Freed() bool { return !l.Until.IsZero() }

// Holds reports whether the lease keeps the address from other owners: it is leased, or held at the time now.
func (l Lease) Holds(now time.Time) bool { return !l.Freed() || now.Before(l.Until) }

// readLease reads the link or file of an address. Another process may replace a link by a file, or the reverse, at the
// same time, so readLease tries again after an error other than NotFound.
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
	if errors.Is(err, syscall.EINVAL) { // not a link
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

// ownerAt parses the owner from the target of a lease's link, such as alloc/web/front@7/0.
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

// freedFile is the YAML form of a freed lease. It replaces the link.
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
		return Lease{}, croft.Errorf(croft.Invalid,
			"%s is a file with the text %q, and should be a link: version control "+
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
		return l, croft.Errorf(croft.Invalid,
			"%s is neither a link nor a file with the former owner (freed:) and the end of the hold (until:)", name)
	}
	if l.Owner, err = ParseOwner(freed.Value); err != nil {
		r.wrong(freed, "freed: %w", err)
	}
	if l.Until, err = time.Parse(time.RFC3339, until.Value); err != nil {
		r.wrong(until, "until: want a time such as 2026-01-31T12:00:00Z, not %s", describe(until))
	}
	return l, r.err
}
