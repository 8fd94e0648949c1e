package heat

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWhatAGroupIsTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		now     numbering
		present []int
		wanted  []int
		want    numbering
		refused bool
	}{
		{"it grows by the next number", numbering{size: 1}, []int{0}, []int{0, 1}, numbering{size: 2}, false},
		{"one that goes is named", numbering{size: 3}, []int{0, 1, 2}, []int{0, 2}, numbering{size: 2,
			skipped: []int{1}}, false},
		{"the last one that goes too", numbering{size: 2}, []int{0, 1}, []int{0}, numbering{size: 1, skipped: []int{1}},
			false},
		{"what replaces it has the next number", numbering{size: 1, skipped: []int{1}}, []int{0}, []int{0, 2},
			numbering{size: 2, skipped: []int{1}}, false},
		{"one goes and others come", numbering{size: 3}, []int{0, 1, 2}, []int{0, 2, 3, 4}, numbering{size: 4,
			skipped: []int{1}}, false},
		{"an index that never was is a gap", numbering{size: 1}, []int{0}, []int{0, 2}, numbering{size: 2,
			gaps: []int{1}}, false},
		{"gaps and what follows", numbering{size: 2, gaps: []int{1}}, []int{0, 1}, []int{0, 2, 3, 5},
			numbering{size: 4, gaps: []int{1, 4}}, false},
		{"behind a gap the right one goes", numbering{size: 2, gaps: []int{1}}, []int{0, 1}, []int{2},
			numbering{size: 1, skipped: []int{0}, gaps: []int{1}}, false},
		{"one that failed before it was made was never skipped", numbering{size: 2}, []int{0}, []int{0},
			numbering{size: 1}, false},
		{"nothing is left", numbering{size: 2}, []int{0, 1}, nil, numbering{skipped: []int{0, 1}}, false},
		{"a number that was taken out does not come back", numbering{size: 1, skipped: []int{1}}, []int{0}, []int{0, 1},
			numbering{},
			true},
		{"nor does a gap", numbering{size: 2, gaps: []int{1}}, []int{0, 1}, []int{0, 1, 2}, numbering{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.now.resized(c.wanted, c.present)
			if (err != nil) != c.refused || err == nil && !got.same(c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
			if err == nil && !slices.Equal(got.indexes(), c.wanted) {
				t.Errorf("the group has the indexes %v, want %v", got.indexes(), c.wanted)
			}
		})
	}
}

// TestNumbersFollowIndexes performs random resizes, some of which never reach Heat or fail before members exist, and
// checks with a model of Heat that each slave keeps its machine.
func TestNumbersFollowIndexes(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		told := numbering{}
		var present, indexes []int // numbers in Heat, our indexes
		machines := map[int]int{}  // index to number
		next := 0
		for range 30 {
			wanted := slices.Clone(indexes)
			for range r.IntN(3) {
				wanted = append(wanted, next)
				next++
			}
			for range r.IntN(3) {
				if len(wanted) > 0 {
					i := r.IntN(len(wanted))
					wanted = slices.Delete(wanted, i, i+1)
				}
			}
			if r.IntN(4) == 0 {
				continue // the request was never sent, and its indexes are lost
			}
			now, err := told.resized(wanted, present)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			before := present
			present = now.numbers()
			told, indexes = now, wanted
			for i, index := range indexes {
				if old, was := machines[index]; was && old != present[i] {
					t.Fatalf("seed %d: slave %d was machine %d and is %d", seed, index, old, present[i])
				} else if !was && slices.Contains(before, present[i]) {
					t.Fatalf("seed %d: the new slave %d is machine %d, which was another's", seed, index, present[i])
				}
				machines[index] = present[i]
			}
		}
	}
}

func TestListsOfHeat(t *testing.T) {
	for text, want := range map[string][]string{
		``: nil, `[]`: nil, `[1, 2]`: {"1", "2"}, `["1", "gap-3"]`: {"1", "gap-3"}, `1,2`: {"1", "2"}, `1, gap-2`: {"1",
			"gap-2"},
	} {
		if got := listOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// same reports whether two numberings lead to the same parameters.
func (g numbering) same(other numbering) bool {
	return g.size == other.size && slices.Equal(g.skipped, other.skipped) && slices.Equal(g.gaps, other.gaps)
}
