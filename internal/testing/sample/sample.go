// Package sample makes a test try some of its many cases in each run, and all of them in make soak.
package sample

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// OneIn returns every nth of cases, starting at a random one, and logs which, in a line that test/suite repeats at its
// end. With CROFT_SAMPLE=1 it starts at the first case. With CROFT_SOAK it returns all cases.
func OneIn[T any](t testing.TB, n int, cases []T) (some []T) {
	t.Helper()
	if os.Getenv("CROFT_SOAK") != "" || n < 2 {
		return cases
	}
	first := 1 + rand.IntN(n)
	if text := os.Getenv("CROFT_SAMPLE"); text != "" {
		var err error
		if first, err = strconv.Atoi(text); err != nil || first < 1 || first > n {
			t.Fatalf("CROFT_SAMPLE is %q, want the first case, 1 to %d", text, n)
		}
	}
	for i := first - 1; i < len(cases); i += n {
		some = append(some, cases[i])
	}
	t.Logf("sampled: %d of %d cases, one in %d (again: CROFT_SAMPLE=%d; make soak tries all)",
		len(some), len(cases), n, first)
	return some
}
