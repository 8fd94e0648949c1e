package croft

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Aggregate is a set of hosts that an operator has named, like the aggregates of OpenStack's Nova. A host may be in any
// number of them. (A group, in contrast, is a set of a project's instances.)
type Aggregate struct {
	Name   string   `json:"name"`
	Note   string   `json:"note,omitempty"` // for people, at most MaxAggregateNote characters
	Public bool     `json:"public"`         // tenants may name it
	Hosts  []HostID `json:"hosts"`          // sorted, each once, at most MaxAggregateHosts; none for tenants
	// Generation is the version of the stored aggregate. 0: it is not stored, or the caller is a tenant.
	Generation int64 `json:"generation"`
}

// Limits of an aggregate.
const (
	MaxAggregateHosts  = 10000
	MaxAggregateChange = 50 // hosts that one change may add and remove
	MaxAggregateNote   = 256
)

var aggregateForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckAggregateName validates the name of an aggregate. Invalid.
func CheckAggregateName(name string) error {
	if !aggregateForm.MatchString(name) {
		return Errorf(Invalid, "%.80q is not the name of an aggregate: use a to z, 0 to 9 and dashes in between, 63 "+
			"characters at most", name)
	}
	return nil
}

// Check validates an aggregate. Invalid.
func (a Aggregate) Check() error {
	if err := CheckAggregateName(a.Name); err != nil {
		return err
	}
	switch n := utf8.RuneCountInString(a.Note); {
	case n > MaxAggregateNote:
		return Errorf(Invalid, "the note of aggregate %s has %d characters: it may have %d", a.Name, n,
			MaxAggregateNote)
	case !utf8.ValidString(a.Note) || strings.ContainsFunc(a.Note, func(r rune) bool { return !unicode.IsPrint(r) }):
		return Errorf(Invalid, "the note of aggregate %s has characters that cannot be printed: leave them out",
			a.Name)
	case len(a.Hosts) > MaxAggregateHosts:
		return Errorf(Invalid, "aggregate %s would have %d hosts: it may have %d", a.Name, len(a.Hosts),
			MaxAggregateHosts)
	}
	return nil
}

// Has reports whether a host is in the aggregate.
func (a Aggregate) Has(host HostID) bool {
	_, found := slices.BinarySearch(a.Hosts, host)
	return found
}

// AggregateChange changes an aggregate, completely or not at all. Adding a host that is already in it, or removing one
// that is not, changes nothing, so a change can be repeated.
type AggregateChange struct {
	Note        *string
	Public      *bool
	Add, Remove []HostID
	Generation  *int64 // the generation that the aggregate must have; nil: any
}

// Apply returns the changed aggregate. Invalid; Conflict: it has another generation.
func (c AggregateChange) Apply(a Aggregate) (Aggregate, error) {
	if c.Generation != nil && *c.Generation != a.Generation {
		return a, Errorf(Conflict, "aggregate %s has generation %d, not %d: somebody else changed it; read it again",
			a.Name, a.Generation, *c.Generation)
	}
	if n := len(c.Add) + len(c.Remove); n > MaxAggregateChange {
		return a, Errorf(Invalid, "aggregate %s: a change names %d hosts: name at most %d at once", a.Name, n,
			MaxAggregateChange)
	}
	for _, host := range c.Add {
		if slices.Contains(c.Remove, host) {
			return a, Errorf(Invalid, "aggregate %s: host %s is to be added and to be removed", a.Name, host)
		}
	}
	if c.Note != nil {
		a.Note = *c.Note
	}
	if c.Public != nil {
		a.Public = *c.Public
	}
	a.Hosts = slices.DeleteFunc(slices.Concat(a.Hosts, c.Add), func(host HostID) bool {
		return slices.Contains(c.Remove, host)
	})
	slices.Sort(a.Hosts)
	a.Hosts = append([]HostID{}, slices.Compact(a.Hosts)...) // never nil
	return a, a.Check()
}
