package actions

import (
	"slices"
	"time"
)

// Bounds of the log. What is over them is removed from time to time, the oldest entries first.
const (
	Kept          = 90 * 24 * time.Hour
	MostOfProject = 2_000
	MostRefused   = 500 // refused requests of a project, which are kept apart, so that they push out nothing else
	MostOfAll     = 100_000
)

// Share is how many entries each project may keep, so that all projects together, which have these numbers of
// entries, keep no more than all. It is each if that suffices; otherwise only those with most entries lose some, until
// they have equally many.
func Share(counts []int, each, all int) int {
	counts = slices.Sorted(slices.Values(counts))
	for i, n := range counts {
		rest := len(counts) - i // have n entries or more
		if share := all / rest; min(n, each) > share {
			return share
		}
		if n >= each {
			return each
		}
		all -= n
	}
	return each
}
