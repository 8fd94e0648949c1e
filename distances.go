package croft

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Distance is a distance that an operator sets between two aggregates, locations or hosts, in both directions.
type Distance struct {
	// the ends, sorted: names of aggregates, locations as topology.Path writes them, or UUIDs of hosts
	A        string `json:"a"`
	B        string `json:"b"`
	Distance int    `json:"distance"` // from 0 to MaxStatedDistance, in a unit of the operator's choice
}

// Distances are the stated distances of one type.
type Distances struct {
	Type      string     `json:"type"`
	Distances []Distance `json:"distances"` // sorted, one per pair, at most MaxDistances
	// Generation is the version of all distances of the type together. 0: none are stored, or the caller is a tenant.
	Generation int64 `json:"generation"`
}

// Between is the distance between two aggregates, locations or hosts.
type Between struct {
	Type     string `json:"type"`
	A        string `json:"a"`
	B        string `json:"b"`
	Distance int    `json:"distance"`
	Stated   bool   `json:"stated"` // by an operator, for these two or for places that contain them; false: derived
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

var distanceForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

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
