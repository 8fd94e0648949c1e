package croft

import (
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

// Depth returns the level's index in Levels; -1: there is no such level.
func (l Level) Depth() int {
	for i, level := range Levels {
		if level == l {
			return i
		}
	}
	return -1
}

// ParseLevel reads the name of a level. Invalid.
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

// Near asks for a host near to a location. Distance counts how many levels lead up from the host to a location that
// holds both: 0 the host itself, or any host in the location; 1 the same rack; 2 the same row; 3 the same site.
type Near struct {
	To       string `json:"to"`       // what the user named
	Location string `json:"location"` // where that was at the time of the request
	Distance int    `json:"distance"` // the greatest that is allowed, unless Soft
	Soft     bool   `json:"soft"`     // as near as there is room
}

// MaxDistance is the greatest distance within a site.
const MaxDistance = len(Levels) - 1

// ParseNear reads NAME or NAME:DISTANCE, where the distance is a number from 0 to MaxDistance or the level that is
// shared. The location is left empty. Invalid.
func ParseNear(text string) (Near, error) {
	name, distance, hard := strings.Cut(text, ":")
	n := Near{To: name, Soft: !hard}
	if name == "" {
		return n, Errorf(Invalid, "--near %q: name an instance, a host or a location", text)
	}
	if !hard {
		return n, nil
	}
	if depth := Level(distance).Depth(); depth >= 0 {
		n.Distance = MaxDistance - depth
		return n, nil
	}
	d, err := strconv.Atoi(distance)
	if err != nil || d < 0 || d > MaxDistance {
		return n, Errorf(Invalid, "--near %q: after the colon stands what is shared: host, rack, row or site, or a "+
			"distance from 0 to %d", text, MaxDistance)
	}
	n.Distance = d
	return n, nil
}

// String returns what ParseNear reads.
func (n Near) String() string {
	if n.Soft {
		return n.To
	}
	return n.To + ":" + string(Levels[MaxDistance-n.Distance])
}

// Admit checks whether a host at this distance is near enough. NoCapacity: it is not.
func (n Near) Admit(distance int) error {
	if n.Soft || distance <= n.Distance {
		return nil
	}
	where := "in another site than " + n.To
	if distance <= MaxDistance {
		where = "in the same " + string(Levels[MaxDistance-distance]) + " as " + n.To
	}
	if n.To != n.Location {
		where += ", " + n.Location + ","
	}
	if n.Distance == 0 {
		return Errorf(NoCapacity, "is %s and is to be there", where)
	}
	return Errorf(NoCapacity, "is %s and is to be in the same %s", where, Levels[MaxDistance-n.Distance])
}
