package patient_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"croft/internal/testing/patient"
)

// bounded is a test whose binary has the given deadline.
type bounded struct {
	testing.TB
	end    time.Time
	failed bool
}

func (b *bounded) Deadline() (time.Time, bool) { return b.end, !b.end.IsZero() }
func (b *bounded) Context() context.Context    { return context.Background() }
func (b *bounded) Fatalf(string, ...any)       { b.failed = true; panic(b) }

func TestWhatNeverIsSoEndsBeforeTheBinary(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  time.Duration // until the binary ends; 0: no deadline
		takes time.Duration
	}{
		{"a binary without a deadline", 0, 5 * time.Minute},
		{"one that has much time", time.Hour, 5 * time.Minute},
		{"one that has little", 2 * time.Minute, 90 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bounded{TB: t}
				if c.left > 0 {
					b.end = time.Now().Add(c.left)
				}
				began := time.Now()
				func() {
					defer func() { _ = recover() }()
					patient.Until(b, "it is so", func() bool { return false })
				}()
				if took := time.Since(began).Truncate(time.Second); !b.failed || took != c.takes {
					t.Errorf("it failed: %v, after %s", b.failed, took)
				}
			})
		})
	}
}

func TestWhatIsSoIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		patient.Until(&bounded{TB: t}, "it was asked three times", func() bool { asked++; return asked == 3 })
	})
}
