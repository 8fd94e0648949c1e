package sample_test

import (
	"slices"
	"testing"

	"croft/internal/testing/sample"
)

// quiet is a test whose samples test/suite does not list.
type quiet struct{ testing.TB }

func (quiet) Logf(string, ...any) {}

func TestOneIn(t *testing.T) {
	cases := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, c := range []struct {
		name, first, soak string
		want              []string
	}{
		{"from the first on", "1", "", []string{"a", "d", "g"}},
		{"from the last possible one on", "3", "", []string{"c", "f"}},
		{"all in make soak", "2", "1m", cases},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CROFT_SAMPLE", c.first)
			t.Setenv("CROFT_SOAK", c.soak)
			if got := sample.OneIn(quiet{t}, 3, cases); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheSamplesOfManyRunsAreAllCases(t *testing.T) {
	t.Setenv("CROFT_SAMPLE", "")
	t.Setenv("CROFT_SOAK", "")
	left := map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}
	for run := 0; len(left) > 0; run++ {
		if run == 1000 {
			t.Fatalf("%d runs have not sampled %v", run, left)
		}
		for _, c := range sample.OneIn(quiet{t}, 2, []int{0, 1, 2, 3, 4}) {
			delete(left, c)
		}
	}
}
