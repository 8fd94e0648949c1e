// Package standard holds the resource classes and traits that every Placement
// knows without anybody creating them.
package standard

import (
	_ "embed"
	"strings"
)

//go:embed traits.txt
var traits string

//go:embed classes.txt
var classes string

// Traits returns the standard traits in the order of their names.
func Traits() []string { return lines(traits) }

// Classes returns the standard resource classes; their order numbers them.
func Classes() []string { return lines(classes) }

// lines returns the lines of a text that are not comments.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}
