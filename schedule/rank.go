package schedule

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// Policy determines which candidate is taken.
type Policy struct {
	// Order returns the candidates in the order in which to try them, best first. It may change the slice, and is
	// called several times.
	Order func([]croft.Candidate) []croft.Candidate
	// Sample is the number of candidates to choose from, at least 1. If none of them can be taken, four times as many
	// are requested.
	Sample int
	// Crush is the name of a stored policy with which CRUSH chooses; empty: Order chooses.
	Crush string
}

// The policies. Equal candidates are ordered randomly, so that concurrent schedulers do not all start with the same
// host.
var (
	// Spread prefers the candidate that leaves the greatest fraction of its scarcest resource free. The sample is
	// small: the best of a random few is nearly the best of all, and reading all of them would take most of a request's
	// time.
	Spread = &Policy{Order: spread, Sample: 32}
	// Pack prefers the candidate that leaves the smallest fraction of its scarcest resource free, so that hosts fill up
	// one after the other and large requests find empty ones. A small sample would miss the host being filled.
	Pack = &Policy{Order: pack, Sample: 256}
)

// The names of the policies.
const (
	PolicySpread = "spread"
	PolicyPack   = "pack"
)

// crushSample is how many hosts a request first asks Placement about, in the order of its CRUSH policy. Nearly always
// the first host is taken.
const crushSample = 4

// crushPrefix precedes the name of a stored policy.
const crushPrefix = "crush:"

// Name returns the name with which PolicyNamed returns the policy; empty: it has none.
func (p *Policy) Name() string {
	switch {
	case p == Spread:
		return PolicySpread
	case p == Pack:
		return PolicyPack
	case p != nil && p.Crush != "":
		return crushPrefix + p.Crush
	}
	return ""
}

// Policies lists the names of all built-in policies.
var Policies = []string{PolicySpread, PolicyPack}

// PolicyNamed returns the policy with a name: spread, pack, or crush: followed by the name of a stored policy; whether
// that exists is only checked by requests. Invalid: there is no policy of this name.
func PolicyNamed(name string) (*Policy, error) {
	if stored, crush := strings.CutPrefix(name, crushPrefix); crush {
		if err := croft.CheckPolicyName(stored); err != nil {
			return nil, err
		}
		return &Policy{Order: spread, Sample: crushSample, Crush: stored}, nil
	}
	switch name {
	case PolicySpread:
		return Spread, nil
	case PolicyPack:
		return Pack, nil
	}
	return nil, croft.Errorf(croft.Invalid, "policy %q is neither spread nor pack, nor crush:NAME%s", name,
		nearest.Hint(name, Policies))
}

func spread(candidates []croft.Candidate) []croft.Candidate {
	return byFree(candidates, func(a, b float64) int { return cmp.Compare(b, a) })
}

func pack(candidates []croft.Candidate) []croft.Candidate {
	return byFree(candidates, cmp.Compare[float64])
}

// byFree sorts by the fraction that stays free; candidates whose fraction is negative or unknown are last.
func byFree(candidates []croft.Candidate, compare func(a, b float64) int) []croft.Candidate {
	type judged struct {
		croft.Candidate
		free float64
	}
	all := make([]judged, len(candidates))
	for i, c := range candidates {
		all[i] = judged{c, freeAfter(c)}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b judged) int {
		if (a.free < 0) != (b.free < 0) {
			return cmp.Compare(b.free, a.free)
		}
		return compare(a.free, b.free)
	})
	for i := range all {
		candidates[i] = all[i].Candidate
	}
	return candidates
}

// freeAfter returns the fraction of the scarcest class that stays free once the candidate is claimed, among the classes
// it takes and the providers it takes them from. It is negative if there is too little, or no summary.
func freeAfter(c croft.Candidate) float64 {
	least := 1.0
	for provider, amounts := range c.Allocations {
		summary := c.Summaries[provider]
		for class, amount := range amounts {
			capacity := summary.Capacity[class]
			if capacity <= 0 {
				return -1
			}
			least = min(least, float64(capacity-summary.Used[class]-amount)/float64(capacity))
		}
	}
	return least
}

// hostOf returns the host on which a candidate's instance would run: the root of the tree that provides its VCPU. Other
// providers may offer shared resources, such as a storage pool.
func hostOf(c croft.Candidate) croft.HostID {
	var first croft.HostID
	for provider, amounts := range c.Allocations {
		if amounts[croft.VCPU] > 0 && (first == "" || provider < first) {
			first = provider
		}
	}
	return cmp.Or(c.Summaries[first].Root, first)
}
