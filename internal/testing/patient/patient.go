// Package patient waits in tests for other goroutines and processes. A busy machine exceeds any short deadline, so
// these waits last for minutes, but end before the test binary's own deadline, whose message says less. Tests in a
// bubble of testing/synctest do not need this package, because the binary has no deadline there.
package patient

import (
	"context"
	"testing"
	"time"
)

const (
	// Longest is the longest wait.
	Longest = 5 * time.Minute
	// spare is the part of the test binary's time reserved for the failing test's message and clean-up.
	spare = 30 * time.Second
	// shortestPause and longestPause limit the pauses between two polls.
	shortestPause = 5 * time.Millisecond
	longestPause  = 200 * time.Millisecond
)

// Deadline returns the deadline of a wait that starts now.
func Deadline(t testing.TB) time.Time {
	end := time.Now().Add(Longest)
	if own, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if d, is := own.Deadline(); is && d.Add(-spare).Before(end) {
			return d.Add(-spare)
		}
	}
	return end
}

// Context returns a context that ends with the test, or at its Deadline.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), Deadline(t))
	t.Cleanup(cancel)
	return ctx
}

// Until polls is, and fails the test at its Deadline. Its pauses grow, since a poll may use as much of the processor as
// the work that it waits for.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	pause := shortestPause
	for end := Deadline(t); !is(); <-time.After(pause) {
		pause = min(pause*3/2, longestPause)
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("it never is so that %s", what)
		}
	}
}
