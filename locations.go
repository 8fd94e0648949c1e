package croft

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
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
	Type      string `json:"type,omitempty"`      // of the distance; FailureDistance if empty
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
