package croft

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"croft/internal/lazyregexp"
)

// Aggregate is a set of hosts that an operator has named, like the aggregates of OpenStack's Nova. A host may be in any
// number of them. (A group, in contrast, is a set of a project's instances.)
type Aggregate struct {
	Name   string   `json:"name"`           // unique in the cloud
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

var aggregateForm = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

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
		return a, Errorf(Conflict, "aggregate %s has generation %d, not %d: another request changed it; read it again",
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

// Bound restricts the hosts that an instance may be on, by aggregates and locations: NAME (in it), in:A,B (in at least
// one of them), !NAME or !in:A,B (in none of them). ParseBound returns it. It has the notation of Placement's
// member_of.
type Bound string

// MaxBoundNames bounds the names in all bounds of an instance: each may add a comparison to the transaction that writes
// the order, and etcd limits those.
const MaxBoundNames = 16

const (
	boundNot     = "!"
	boundSeveral = "in:"
)

// placeForm is the form of names of aggregates and locations.
var placeForm = lazyregexp.New(`^[a-z0-9]([a-z0-9=./-]{0,598}[a-z0-9])?$`)

// ParseBound parses a bound and returns it in the stored form: names sorted, without duplicates. Invalid.
func ParseBound(text string) (Bound, error) {
	rest, not := strings.CutPrefix(text, boundNot)
	list, several := strings.CutPrefix(rest, boundSeveral)
	names := strings.Split(list, ",")
	if len(names) > 1 && !several {
		return "", Errorf(Invalid, "%.80q: several names are written in:A,B", text)
	}
	return NewBound(not, names...)
}

// NewBound returns a bound of these names: in one of them or, with not set, in none of them. Invalid.
func NewBound(not bool, names ...string) (Bound, error) {
	names = slices.Clone(names)
	for i, name := range names {
		names[i] = strings.Trim(strings.TrimSpace(name), "/")
		if !placeForm.MatchString(names[i]) {
			return "", Errorf(Invalid,
				"%.80q is no name of an aggregate, such as ssd, and no location, such as site1/row2", name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if n := len(names); n == 0 || n > MaxBoundNames {
		return "", Errorf(Invalid, "%d names of aggregates or locations: give 1 to %d", n, MaxBoundNames)
	}
	text := strings.Join(names, ",")
	if len(names) > 1 {
		text = boundSeveral + text
	}
	if not {
		text = boundNot + text
	}
	return Bound(text), nil
}

// CheckBounds refuses texts that ParseBound would not return, and too many of them. Invalid.
func CheckBounds(all []Bound) error {
	if n := len(NamesIn(all)); n > MaxBoundNames {
		return Errorf(Invalid, "%d names of aggregates or locations: %d at most", n, MaxBoundNames)
	}
	for _, b := range all {
		if parsed, err := ParseBound(string(b)); err != nil || parsed != b {
			return Errorf(Invalid, "%.80q is not how aggregates or locations to be in are written", string(b))
		}
	}
	return nil
}

// Not reports whether the bound excludes hosts.
func (b Bound) Not() bool { return strings.HasPrefix(string(b), boundNot) }

// Names returns the aggregates and locations in the bound.
func (b Bound) Names() []string {
	text := strings.TrimPrefix(string(b), boundNot)
	return strings.Split(strings.TrimPrefix(text, boundSeveral), ",")
}

// NamesIn returns all names in bounds, sorted, without duplicates.
func NamesIn(all []Bound) []string {
	var names []string
	for _, b := range all {
		names = append(names, b.Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// String returns the bound for people: in ssd, in one of a, b, not in a, b.
func (b Bound) String() string {
	names := strings.Join(b.Names(), ", ")
	switch several := strings.Contains(names, ","); {
	case b.Not():
		return "not in " + names
	case several:
		return "in one of " + names
	}
	return "in " + names
}

// CrushPolicy is a policy by which CRUSH chooses hosts, in the four instructions of package crush/policy. An operator
// chose its name.
type CrushPolicy struct {
	Name string `json:"name"` // unique in the cloud
	Text string `json:"text"` // at most MaxPolicyText bytes
	// Generation is the version of the stored policy. 0: it is not stored.
	Generation int64 `json:"generation"`
}

// Limits of policies. An instance's record and its order contain the text.
const (
	MaxPolicyText = 4096
	MaxPolicies   = 1000
)

// CheckPolicyName validates the name of a policy. Invalid.
func CheckPolicyName(name string) error {
	if !aggregateForm.MatchString(name) {
		return Errorf(Invalid, "%.80q is not the name of a policy: use a to z, 0 to 9 and dashes in between, 63 "+
			"characters at most", name)
	}
	return nil
}

// Check validates a policy's name, and that its text is text. Invalid.
func (p CrushPolicy) Check() error {
	if err := CheckPolicyName(p.Name); err != nil {
		return err
	}
	switch bad := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }; {
	case len(p.Text) > MaxPolicyText:
		return Errorf(Invalid, "policy %s has %d bytes: it may have %d", p.Name, len(p.Text), MaxPolicyText)
	case !utf8.ValidString(p.Text) || strings.ContainsFunc(p.Text, bad):
		return Errorf(Invalid, "policy %s has characters that cannot be printed: leave them out", p.Name)
	}
	return nil
}

// CrushNumbers are the input of CRUSH: a number for each host and location, which stays the same while the host or the
// location is on record, independently of others.
type CrushNumbers struct {
	Hosts     map[HostID]int32
	Locations map[string]int32 // by the name of the location's bucket
}

// MaxCrushNumber is above all numbers of hosts and locations.
const MaxCrushNumber = 1<<17 - 1

// Refusal is a host that a policy chose before another and that was refused.
type Refusal struct {
	Host HostID `json:"host"` // UUID of the host
	Why  string `json:"why"`  // a phrase to follow the host's name, such as: is drained
}

// MaxRefusals is the maximum number of refusals in a record, which keeps the first ones.
const MaxRefusals = 16

// FilteredHosts holds the results of a request's filters of host properties and tags.
type FilteredHosts struct {
	Wanted      map[HostID]bool  // hosts that match at least one filter of Where
	Barred      map[HostID]bool  // hosts that match a filter of WhereNot
	Generations map[HostID]int64 // of the properties of each host that has any
}

// HasPropertyFilters reports whether an instance has filters of host properties and tags.
func (s Spec) HasPropertyFilters() bool { return len(s.Where)+len(s.WhereNot) > 0 }

// Admit checks whether the filters of an instance admit a host. NoCapacity: they do not.
func (n FilteredHosts) Admit(s Spec, host HostID) error {
	switch {
	case len(s.Where) > 0 && !n.Wanted[host]:
		return Errorf(NoCapacity, "does not have the properties of --where")
	case n.Barred[host]:
		return Errorf(NoCapacity, "has properties of --where-not")
	}
	return nil
}

// Generation returns the generation of a host's properties; nil: the instance has no filters.
func (n FilteredHosts) Generation(s Spec, host HostID) *int64 {
	if !s.HasPropertyFilters() {
		return nil
	}
	generation := n.Generations[host]
	return &generation
}
