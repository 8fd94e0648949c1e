package cluster

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"croft/internal/wording"
)

// A criterion compares candidates by a number; smaller is better.
type criterion struct {
	of  func(Candidate) float64
	why func(a, b Candidate) string // says why a is before b
}

// order sorts candidates, best first, and sets the reason why each is before the next.
func (w World) order(h Hints, all []Candidate, random *rand.Rand) {
	// The order of the input must not matter: only the random source decides between equal candidates.
	slices.SortFunc(all, func(a, b Candidate) int { return cmp.Compare(a.Implementation.ID, b.Implementation.ID) })
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	criteria := w.criteria(h)
	slices.SortStableFunc(all, func(a, b Candidate) int {
		for _, c := range criteria {
			if n := cmp.Compare(c.of(a), c.of(b)); n != 0 {
				return n
			}
		}
		return 0
	})
	for i := range all {
		all[i].Why = why(criteria, all, i)
	}
}

func why(criteria []criterion, all []Candidate, i int) string {
	if len(all) == 1 {
		return "it is the only one"
	}
	if i == len(all)-1 {
		return "it is the last"
	}
	for _, c := range criteria {
		if c.of(all[i]) != c.of(all[i+1]) {
			return c.why(all[i], all[i+1])
		}
	}
	return "by chance: the next is as good"
}

func (w World) criteria(h Hints) []criterion {
	failures := map[string]int{}
	for _, t := range w.Troubles {
		if w.Now.Sub(t.At) < TroubleKept {
			failures[t.Site]++
		}
	}
	place := func(c Candidate) float64 {
		if at := slices.Index(h.PreferSites, c.Site.Name); at >= 0 {
			return float64(at)
		}
		return math.Inf(1)
	}
	return []criterion{
		{func(c Candidate) float64 { return before(c.Site.Name == w.Reuse) },
			func(_, _ Candidate) string { return "it has a cluster that can be reused" }},
		{func(c Candidate) float64 { return before(c.Room.Known) },
			func(_, _ Candidate) string { return "it is known to have room" }},
		{place, func(_, _ Candidate) string { return "the request prefers it" }},
		{func(c Candidate) float64 { return -float64(c.Site.Priority) },
			func(a, b Candidate) string {
				return fmt.Sprintf("its priority is %d, the next site's is %d", a.Site.Priority, b.Site.Priority)
			}},
		{func(c Candidate) float64 { return -c.Room.Free },
			func(a, b Candidate) string {
				return fmt.Sprintf("it leaves %.1f %% of its scarcest resource free, the next site %.1f "+
					"%%", a.Room.Free*100,
					b.Room.Free*100)
			}},
		{func(c Candidate) float64 { return float64(failures[c.Site.Name]) },
			func(a, b Candidate) string {
				return fmt.Sprintf("%s in the last hour, at the next %d",
					wording.Count(failures[a.Site.Name], "failure"),
					failures[b.Site.Name])
			}},
	}
}

// before maps a condition to a sort key: 0, which sorts first, if it holds, else 1.
func before(yes bool) float64 {
	if yes {
		return 0
	}
	return 1
}
