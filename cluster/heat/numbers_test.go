package heat

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWhatAGroupIsTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		now     group
		present []int
		wanted  []int
		want    group
		refused bool
	}{
		{"it grows by the next number", group{size: 1}, []int{0}, []int{0, 1}, group{size: 2}, false},
		{"one that goes is named", group{size: 3}, []int{0, 1, 2}, []int{0, 2}, group{size: 2, skipped: []int{1}}, false},
		{"the last one that goes too", group{size: 2}, []int{0, 1}, []int{0}, group{size: 1, skipped: []int{1}}, false},
		{"what replaces it has the next number", group{size: 1, skipped: []int{1}}, []int{0}, []int{0, 2},
			group{size: 2, skipped: []int{1}}, false},
		{"one goes and others come", group{size: 3}, []int{0, 1, 2}, []int{0, 2, 3, 4}, group{size: 4, skipped: []int{1}}, false},
		{"an index that never was is a gap", group{size: 1}, []int{0}, []int{0, 2}, group{size: 2, gaps: []int{1}}, false},
		{"gaps and what follows", group{size: 2, gaps: []int{1}}, []int{0, 1}, []int{0, 2, 3, 5},
			group{size: 4, gaps: []int{1, 4}}, false},
		{"behind a gap the right one goes", group{size: 2, gaps: []int{1}}, []int{0, 1}, []int{2},
			group{size: 1, skipped: []int{0}, gaps: []int{1}}, false},
		{"one that failed before it was made was never skipped", group{size: 2}, []int{0}, []int{0}, group{size: 1}, false},
		{"nothing is left", group{size: 2}, []int{0, 1}, nil, group{skipped: []int{0, 1}}, false},
		{"a number that was taken out does not come back", group{size: 1, skipped: []int{1}}, []int{0}, []int{0, 1}, group{},
			true},
		{"nor does a gap", group{size: 2, gaps: []int{1}}, []int{0, 1}, []int{0, 1, 2}, group{}, true},
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

// TestNumbersFollowIndexes resizes groups at random, where some requests never reach Heat and some fail before members
// are made, and checks against a model of Heat that each slave keeps its machine.
func TestNumbersFollowIndexes(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		told := group{}
		var present, indexes []int // of Heat, of ours
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
		``: nil, `[]`: nil, `[1, 2]`: {"1", "2"}, `["1", "gap-3"]`: {"1", "gap-3"}, `1,2`: {"1", "2"}, `1, gap-2`: {"1", "gap-2"},
	} {
		if got := listOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
