package croft

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"croft/internal/lazyregexp"
)

// Level is a kind of location. A host is in one rack, a rack in one row, a row in one site.
type Level string

// The levels, from the top of the tree down.
const (
	LevelSite Level = "site"
	LevelRow  Level = "row"
	LevelRack Level = "rack"
	LevelHost Level = "host"
)

// Levels lists the levels from the top down.
var Levels = [...]Level{LevelSite, LevelRow, LevelRack, LevelHost}

// Depth returns the level's index in Levels; -1: the level does not exist.
func (l Level) Depth() int {
	for i, level := range Levels {
		if level == l {
			return i
		}
	}
	return -1
}

// ParseLevel parses the name of a level. Invalid.
func ParseLevel(text string) (Level, error) {
	if level := Level(text); level.Depth() >= 0 {
		return level, nil
	}
	var names []string
	for _, level := range Levels {
		names = append(names, string(level))
	}
	return "", Errorf(Invalid, "there is no level %q: write one of %s", text, strings.Join(names, ", "))
}

// Near requires or prefers a host near to a location, host or aggregate, or requires one far from it. Operators set
// distances. For pairs without one, the distance of type FailureDistance is the number of levels from the host up to a
// location that contains both: 0 the host itself, or any host in the location or aggregate; 1 the same rack; 2 the same
// row; 3 the same site; 4 another site.
type Near struct {
	To        string `json:"to"`                  // the name that the user gave
	Location  string `json:"location"`            // its location at the time of the request
	Distance  int    `json:"distance"`            // the greatest allowed distance or, with Far, the least, unless Soft
	Soft      bool   `json:"soft"`                // as near as capacity allows
	Far       bool   `json:"far,omitempty"`       // never Soft
	Type      string `json:"type,omitempty"`      // of the distance; failure if empty
	Aggregate bool   `json:"aggregate,omitempty"` // Location is the name of an aggregate
}

// MaxDistance is the greatest distance within a site that is derived from locations.
const MaxDistance = len(Levels) - 1

// ParseNear parses NAME or NAME:DISTANCE, where the distance is a number from 0 to MaxStatedDistance or the level that
// is shared. It leaves the location empty. Invalid.
func ParseNear(text string) (Near, error) {
	name, distance, hard := strings.Cut(text, ":")
	n := Near{To: name, Soft: !hard}
	if name == "" {
		return n, Errorf(Invalid, "--near %q: name an instance, an aggregate, a host or a location", text)
	}
	if !hard {
		return n, nil
	}
	if depth := Level(distance).Depth(); depth >= 0 {
		n.Distance = MaxDistance - depth
		return n, nil
	}
	var err error
	if n.Distance, err = parseDistance(distance); err != nil {
		return n, Errorf(Invalid, "--near %q: after the colon stands what is shared: host, rack, row or site, or a "+
			"distance from 0 to %d", text, MaxStatedDistance)
	}
	return n, nil
}

// ParseFar parses NAME:DISTANCE, where the distance is a number from 1 to MaxStatedDistance or the level that must not
// be shared. It leaves the location empty. Invalid.
func ParseFar(text string) (Near, error) {
	name, distance, _ := strings.Cut(text, ":")
	n := Near{To: name, Far: true}
	if name == "" {
		return n, Errorf(Invalid, "--far %q: name an instance, an aggregate, a host or a location", text)
	}
	if depth := Level(distance).Depth(); depth >= 0 {
		n.Distance = MaxDistance - depth + 1
		return n, nil
	}
	var err error
	if n.Distance, err = parseDistance(distance); err != nil || n.Distance == 0 {
		return n, Errorf(Invalid, "--far %q: after a colon stands what is not to be shared: host, rack, row or site, or a "+
			"distance from 1 to %d", text, MaxStatedDistance)
	}
	return n, nil
}

func parseDistance(text string) (int, error) {
	d, err := strconv.ParseUint(text, 10, 31)
	if err == nil && d > MaxStatedDistance {
		err = strconv.ErrRange
	}
	return int(d), err
}

// ParseNears parses texts with ParseNear and ParseFar, for distances of type kind; empty: FailureDistance. Invalid.
func ParseNears(near, far []string, kind string) (all []Near, err error) {
	if kind != "" {
		if err := CheckDistanceType(kind); err != nil {
			return nil, err
		}
		if len(near)+len(far) == 0 {
			return nil, Errorf(Invalid, "the type of distances %s says nothing without what to be near to or far from",
				kind)
		}
	}
	if kind == FailureDistance {
		kind = ""
	}
	for i, text := range slices.Concat(near, far) {
		parse := ParseNear
		if i >= len(near) {
			parse = ParseFar
		}
		n, err := parse(text)
		if err != nil {
			return nil, err
		}
		_, distance, _ := strings.Cut(text, ":")
		if kind != "" && Level(distance).Depth() >= 0 {
			return nil, Errorf(Invalid, "%q: levels are of the type %s: write a number for one of type %s", text,
				FailureDistance, kind)
		}
		n.Type = kind
		all = append(all, n)
	}
	return all, nil
}

// NearType returns the common type of distances of all, in the form that ParseNears takes. Invalid: they differ.
func NearType(all []Near) (string, error) {
	for _, n := range all {
		if n.Type != all[0].Type {
			return "", Errorf(Invalid, "a request has distances of one type, not of %s and of %s",
				all[0].Kind(), n.Kind())
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	return all[0].Type, nil
}

// Kind returns the type of the distance.
func (n Near) Kind() string { return cmp.Or(n.Type, FailureDistance) }

// Text returns the text that ParseNear or ParseFar parses.
func (n Near) Text() string {
	level := n.Distance
	if n.Far {
		level--
	}
	switch {
	case n.Soft:
		return n.To
	case n.Type == "" && level >= 0 && level <= MaxDistance:
		return n.To + ":" + string(Levels[MaxDistance-level])
	}
	return n.To + ":" + strconv.Itoa(n.Distance)
}

// String returns the text for people.
func (n Near) String() string {
	text := "near " + n.Text()
	if n.Far {
		text = "far " + n.Text()
	}
	if n.Type != "" {
		text += " by " + n.Type
	}
	return text
}

// Admit checks whether a host at this distance, which is stated or derived from locations, is near enough, or far
// enough. NoCapacity: it is not.
func (n Near) Admit(distance int, stated bool) error {
	if n.Soft || n.Far && distance >= n.Distance || !n.Far && distance <= n.Distance {
		return nil
	}
	// The error contains no distances and no locations, because not all callers may read them.
	level := n.Distance
	if n.Far {
		level--
	}
	switch derived := !stated && n.Type == "" && level <= MaxDistance; {
	case derived && n.Far:
		return Errorf(NoCapacity, "is %s and is not to be in the same %s", where(distance, n.To),
			Levels[MaxDistance-level])
	case n.Far:
		return Errorf(NoCapacity, "is nearer to %s than %d by %s", n.To, n.Distance, n.Kind())
	case !derived:
		return Errorf(NoCapacity, "is farther from %s than %d by %s", n.To, n.Distance, n.Kind())
	case n.Distance == 0:
		return Errorf(NoCapacity, "is %s and is to be there", where(distance, n.To))
	}
	return Errorf(NoCapacity, "is %s and is to be in the same %s", where(distance, n.To), Levels[MaxDistance-level])
}

// where describes the place of a host at a distance that is derived from locations.
func where(distance int, name string) string {
	switch {
	case distance == 0:
		return "where " + name + " is"
	case distance <= MaxDistance:
		return "in the same " + string(Levels[MaxDistance-distance]) + " as " + name
	}
	return "in another site than " + name
}

// Distance is a distance that an operator sets between two aggregates, locations or hosts, in both directions.
type Distance struct {
	// the ends, sorted: names of aggregates, locations such as site1/row2, or UUIDs of hosts
	A        string `json:"a"`
	B        string `json:"b"`        // the other location or host
	Distance int    `json:"distance"` // from 0 to MaxStatedDistance, in a unit of the operator's choice
}

// Distances are the stated distances of one type.
type Distances struct {
	Type      string     `json:"type"`      // such as failure or network
	Distances []Distance `json:"distances"` // sorted, one per pair, at most MaxDistances
	// Generation is the version of all distances of the type together. 0: none are stored, or the caller is a tenant.
	Generation int64 `json:"generation"`
}

// Between is the distance between two aggregates, locations or hosts.
type Between struct {
	Type     string `json:"type"`     // type of the distance
	A        string `json:"a"`        // one location or host
	B        string `json:"b"`        // the other one
	Distance int    `json:"distance"` // in any unit
	Stated   bool   `json:"stated"`   // by an operator, for these two or for places that contain them; false: derived
}

// FailureDistance is the type of distances that are derived from locations: the number of levels up to a location that
// contains both.
const FailureDistance = "failure"

// Limits of stated distances. Every aggregate and site in them adds a comparison to the transactions that write orders,
// and etcd limits those.
const (
	MaxStatedDistance = 1_000_000
	MaxDistances      = 2000 // per type
	MaxDistanceNames  = 32   // aggregates and sites in the distances of one type
	MaxDistanceTypes  = 16
	maxDistanceBytes  = 1 << 19 // of the names in the distances of one type
)

var distanceForm = lazyregexp.New(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckDistanceType validates the name of a type of distances. Invalid.
func CheckDistanceType(name string) error {
	if !distanceForm.MatchString(name) {
		return Errorf(Invalid, "%.80q is not the name of a type of distances, such as network: use a to z, 0 to 9 and "+
			"dashes in between, 32 characters at most", name)
	}
	return nil
}

// Sorted returns the distance with its ends in order.
func (d Distance) Sorted() Distance {
	if d.A > d.B {
		d.A, d.B = d.B, d.A
	}
	return d
}

// Check validates a distance. Invalid.
func (d Distance) Check() error {
	for _, end := range []string{d.A, d.B} {
		if !placeForm.MatchString(end) {
			return Errorf(Invalid, "%.80q is no name of an aggregate or a host, and no location, such as site1/row2", end)
		}
	}
	switch {
	case d.A == d.B:
		return Errorf(Invalid, "the distance between %s and itself is 0: name two places", d.A)
	case d.Distance < 0 || d.Distance > MaxStatedDistance:
		return Errorf(Invalid, "the distance between %s and %s is %d: write a whole number from 0 to %d", d.A, d.B,
			d.Distance, MaxStatedDistance)
	}
	return nil
}

func comparePairs(a, b Distance) int {
	return cmp.Or(strings.Compare(a.A, b.A), strings.Compare(a.B, b.B))
}

// With returns the distances with d added, which replaces another one of its pair. Invalid: d is invalid, or there are
// too many.
func (all Distances) With(d Distance) (Distances, error) {
	if err := d.Check(); err != nil {
		return all, err
	}
	d = d.Sorted()
	all.Distances = slices.Clone(all.Distances)
	if i, found := slices.BinarySearchFunc(all.Distances, d, comparePairs); found {
		all.Distances[i] = d
	} else {
		all.Distances = slices.Insert(all.Distances, i, d)
	}
	if n := len(all.Distances); n > MaxDistances {
		return all, Errorf(Invalid, "the type %s would have %d distances: it may have %d", all.Type, n, MaxDistances)
	}
	bytes := 0
	for _, one := range all.Distances {
		bytes += len(one.A) + len(one.B)
	}
	if bytes > maxDistanceBytes {
		return all, Errorf(Invalid, "the names in the distances of type %s would have %d bytes: they may have %d", all.Type,
			bytes, maxDistanceBytes)
	}
	if n := len(all.Names()); n > MaxDistanceNames {
		return all, Errorf(Invalid, "the distances of type %s would name %d aggregates and sites: they may name %d",
			all.Type, n, MaxDistanceNames)
	}
	return all, nil
}

// Without returns the distances without the one of a pair; false: the pair has no distance.
func (all Distances) Without(a, b string) (Distances, bool) {
	i, found := slices.BinarySearchFunc(all.Distances, Distance{A: a, B: b}.Sorted(), comparePairs)
	if found {
		all.Distances = slices.Delete(slices.Clone(all.Distances), i, i+1)
	}
	return all, found
}

// Names returns the names in the distances that are or may become aggregates, sorted, without duplicates, without
// hosts.
func (all Distances) Names() (names []string) {
	for _, d := range all.Distances {
		for _, end := range []string{d.A, d.B} {
			if _, err := ParseHostID(end); err != nil && CheckAggregateName(end) == nil {
				names = append(names, end)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DistancesKey returns the key of the distances of a type in Instance.BasedOn.
func DistancesKey(kind string) string { return distancesPrefix + kind }

const distancesPrefix = "distances/"

// DistancesOf returns the type of distances that a key in Instance.BasedOn denotes; false: the key is an aggregate.
func DistancesOf(name string) (kind string, is bool) { return strings.CutPrefix(name, distancesPrefix) }

// NoDistances returns the error for a type that has no distances, given the types that have some.
func NoDistances(kind string, all []Distances) error {
	types := []string{FailureDistance}
	for _, d := range all {
		if d.Type != FailureDistance {
			types = append(types, d.Type)
		}
	}
	return Errorf(NotFound, "no distance of type %s is stated; the types are: %s", kind, strings.Join(types, ", "))
}
