package croft

import (
	"regexp"
	"slices"
	"strings"
)

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
var placeForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9=./-]{0,598}[a-z0-9])?$`)

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
