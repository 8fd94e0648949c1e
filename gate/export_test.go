package gate

import "strings"

// Policy is the table: what a host may do with each method, and whether it is served at all.
func Policy() (allows map[string]string, served map[string]bool) {
	allows, served = map[string]string{}, map[string]bool{}
	for name, m := range policy {
		allows[name], served[name] = m.allows, m.serve != nil
	}
	return allows, served
}

// Clean is what a gate makes of a text.
func Clean(text string) string { return clean(text) }

// Longest bounds a text that is too long.
var Longest = strings.Repeat("x", longest)

// What one host may have under way.
const (
	MostCalls   = mostCalls
	MostStreams = mostStreams
	AtOnce      = atOnce
)
