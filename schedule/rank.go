package schedule

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"croft"
)

// A Policy puts candidates into the order in which they are tried, best first. It
// may change the slice it is given.
type Policy func([]croft.Candidate) []croft.Candidate

// Spread prefers the candidate that leaves the greatest fraction of its scarcest
// resource free. Among equals chance decides, so that schedulers which run at once
// do not all begin with the same host.
func Spread(candidates []croft.Candidate) []croft.Candidate {
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	slices.SortStableFunc(candidates, func(a, b croft.Candidate) int { return cmp.Compare(freeAfter(b), freeAfter(a)) })
	return candidates
}

// freeAfter is the fraction of the scarcest class that stays free once the
// candidate is claimed: of the classes it takes, on the providers it takes them from.
func freeAfter(c croft.Candidate) float64 {
	least := 1.0
	for provider, amounts := range c.Allocations {
		summary := c.Summaries[provider]
		for class, amount := range amounts {
			capacity := summary.Capacity[class]
			if capacity <= 0 {
				return 0 // no summary to judge by: last
			}
			least = min(least, float64(capacity-summary.Used[class]-amount)/float64(capacity))
		}
	}
	return least
}

// hostOf names the host that a candidate's instance would run on: the provider of
// its VCPU. Others in it offer what hosts share, such as a storage pool.
func hostOf(c croft.Candidate) croft.HostID {
	for _, provider := range slices.Sorted(maps.Keys(c.Allocations)) {
		if c.Allocations[provider][croft.VCPU] > 0 {
			return provider
		}
	}
	return ""
}
