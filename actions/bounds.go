package actions

import (
	"maps"
	"slices"
	"time"

	"croft"
)

// Bounds of the log. What is over them is removed from time to time, the oldest entries first.
const (
	Kept          = 90 * 24 * time.Hour
	MostOfProject = 2_000
	MostRefused   = 500 // refused requests of a project, which are kept apart, so that they push out nothing else
	MostOfAll     = 100_000
	// MostEnded is how many removed projects of one tree the log remembers. The entries of older ones are removed.
	MostEnded = 1_000
)

// Shares returns how many entries each project may keep, of the number that each has. Trees of projects share equally
// first, and then the projects of each tree. So a tenant who creates many projects pushes out its own entries alone.
func Shares(counts map[croft.Project]int, each, all int) map[croft.Project]int {
	trees := map[croft.Project][]int{}
	sums := map[croft.Project]int{}
	for p, n := range counts {
		trees[p.Root()] = append(trees[p.Root()], n)
		sums[p.Root()] += min(n, each)
	}
	ofTree := Share(slices.Collect(maps.Values(sums)), all, all)
	ofProject := map[croft.Project]int{}
	for root, own := range trees {
		ofProject[root] = Share(own, each, ofTree)
	}
	shares := map[croft.Project]int{}
	for p := range counts {
		shares[p] = ofProject[p.Root()]
	}
	return shares
}

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
