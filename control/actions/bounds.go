package actions

import (
	"maps"
	"slices"
	"time"

	"croft"
)

// Bounds of the log. Entries beyond them are removed periodically, oldest first.
const (
	Kept          = 90 * 24 * time.Hour
	MostOfProject = 2_000
	// refused requests of a project, which have their own bound, so that they push out no other entries
	MostRefused = 500
	MostOfAll   = 100_000
	// MostEnded is the number of removed projects per tree whose entries are kept. The entries of projects that were
	// removed earlier are dropped.
	MostEnded = 1_000
)

// Shares returns the number of entries that each project may keep; counts has the current numbers. Trees of projects
// get equal shares first, then the projects of each tree. So a tenant who creates many projects pushes out only its own
// entries.
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

// Share returns the number of entries that each project may keep, so that the projects, whose current numbers are
// counts, keep at most all together. It is each if that suffices; otherwise only those with the most entries lose some,
// until they have equal numbers.
func Share(counts []int, each, all int) int {
	counts = slices.Sorted(slices.Values(counts))
	for i, n := range counts {
		rest := len(counts) - i // projects with n entries or more
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
