package ipam

import (
	"net/netip"
	"strings"

	"croft"
	"croft/grid/ipam/foreign"
)

// The ways to import the addresses of a list.
const (
	AsReserved = "reserved" // reserve each address: no pool gives it
	AsFacts    = "facts"    // keep only the facts and tags
	// lease each address to the owner that the list names, else to an owner named after its host, else reserve it
	AsLeases = "leases"
)

// Imported counts what an import changed.
type Imported struct {
	Records int `json:"records"`
	Changed int `json:"changed"` // prefixes and addresses whose facts changed
	Leased  int `json:"leased"`
	// Nameless are the addresses that could not be leased because the list names neither an owner nor a host for them.
	// They are reserved.
	Nameless []netip.Addr `json:"nameless,omitempty"`
}

// Import adds the records from lists of other programs. It is idempotent. Conflict: an address is leased to another
// owner, or two records are about the same prefix. The caller then writes nothing.
func (n *Net) Import(all []foreign.Record, as string) (Imported, error) {
	done := Imported{Records: len(all)}
	seen := map[netip.Prefix]foreign.Record{}
	for _, r := range all {
		if before, twice := seen[r.Prefix]; twice {
			return done, croft.Errorf(croft.Conflict, "%s: %s is in %s already", r.At, r.Prefix, before.At)
		}
		seen[r.Prefix] = r
		a, owner := r.Prefix.Addr(), ownerOf(r)
		l, leased := n.Leases[a]
		nameless := as == AsLeases && r.Prefix.IsSingleIP() && owner == "" && (!leased || l.Freed())
		if nameless {
			done.Nameless = append(done.Nameless, a)
		}
		c := Change{AddTags: r.Tags, Set: r.Facts, Reserve: as == AsReserved && r.Prefix.IsSingleIP() || nameless}
		changed, err := n.Describe(r.Prefix, c)
		if err != nil {
			return done, croft.Errorf(croft.KindOf(err), "%s: %w", r.At, err)
		}
		if changed {
			done.Changed++
		}
		if as == AsLeases && r.Prefix.IsSingleIP() && owner != "" {
			leased, err := importLease(n, a, owner)
			if err != nil {
				return done, croft.Errorf(croft.KindOf(err), "%s: %w", r.At, err)
			}
			done.Leased += leased
		}
	}
	return done, nil
}

// ownerOf returns the owner in a record, else the name of the machine that has the address; empty: it has neither.
func ownerOf(r foreign.Record) string {
	name := r.Owner
	for _, k := range []string{"name", "hostname", "dns_name"} {
		if name == "" {
			name = strings.ToLower(r.Facts[k])
		}
	}
	return name
}

// importLease leases an address to an owner, even if its pool would not give it. It returns the number of new leases, 0
// or 1. Conflict: the address is leased to another owner.
func importLease(n *Net, a netip.Addr, owner string) (int, error) {
	o, err := ParseOwner(owner)
	if err != nil {
		return 0, err
	}
	if l, ok := n.Leases[a]; ok && !l.Freed() {
		if l.Owner != o {
			return 0, croft.Errorf(croft.Conflict, "%s is leased to %s, not %s", l.Addr, l.Owner, o)
		}
		return 0, nil
	}
	n.lease(a, o)
	return 1, nil
}
