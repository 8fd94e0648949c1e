package croft

import "strings"

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
