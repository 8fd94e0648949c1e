package ipam

import (
	"net/netip"
	"strings"

	"croft"
	"croft/ipam/foreign"
)

// What becomes of the addresses of a list.
const (
	AsReserved = "reserved" // no pool gives them
	AsFacts    = "facts"    // only what is said of them is kept
	AsLeases   = "leases"   // each is leased to the owner that the list names, or whose name it has
)

// Imported counts what an import changed.
type Imported struct {
	Records int `json:"records"`
	Changed int `json:"changed"` // prefixes and addresses of which something else is said now
	Leased  int `json:"leased"`
}

// Import adds what lists of other programs say. Doing it again changes nothing. Conflict: an address is leased to
// another owner, or a list names two owners; nothing is imported then.
func (n *Net) Import(all []foreign.Record, as string) (Imported, error) {
	done := Imported{Records: len(all)}
	seen := map[netip.Prefix]foreign.Record{}
	for _, r := range all {
		if before, twice := seen[r.Prefix]; twice {
			return done, croft.Errorf(croft.Conflict, "%s: %s is in %s already", r.At, r.Prefix, before.At)
		}
		seen[r.Prefix] = r
		c := Change{AddTags: r.Tags, Set: r.Facts, Reserve: as == AsReserved && r.Prefix.IsSingleIP()}
		changed, err := n.Describe(r.Prefix, c)
		if err != nil {
			return done, croft.Errorf(croft.KindOf(err), "%s: %w", r.At, err)
		}
		if changed {
			done.Changed++
		}
		if as == AsLeases && r.Prefix.IsSingleIP() {
			leased, err := n.importLease(r)
			if err != nil {
				return done, croft.Errorf(croft.KindOf(err), "%s: %w", r.At, err)
			}
			done.Leased += leased
		}
	}
	return done, nil
}

// importLease leases an address as the list says, whatever its pool would give. It returns how many it leased, 0 or 1.
func (n *Net) importLease(r foreign.Record) (int, error) {
	name := r.Owner
	for _, k := range []string{"name", "hostname", "dns_name"} {
		if name == "" {
			name = strings.ToLower(r.Facts[k])
		}
	}
	if name == "" {
		return 0, croft.Errorf(croft.Invalid, "%s has no owner and no name", r.Prefix.Addr())
	}
	o, err := ParseOwner(name)
	if err != nil {
		return 0, err
	}
	if l, ok := n.Leases[r.Prefix.Addr()]; ok && !l.Freed() {
		if l.Owner != o {
			return 0, croft.Errorf(croft.Conflict, "%s is leased to %s, not %s", l.Addr, l.Owner, o)
		}
		return 0, nil
	}
	n.lease(r.Prefix.Addr(), o)
	return 1, nil
}
