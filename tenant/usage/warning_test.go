package usage

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// full is the store of a cloud whose disk is full.
type full struct{ Store }

func (full) Head(context.Context) (Head, error) {
	return Head{}, croft.Errorf(croft.Unavailable, "the disk is full")
}

func TestAFailureThatLastsIsLoggedOnceInMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		_ = Recorder{Name: "a", Store: full{}, Log: slog.New(slog.NewTextHandler(&log, nil))}.Run(ctx)
		if n := strings.Count(log.String(), "is not recorded"); n != 3 {
			t.Errorf("%d warnings within 11 minutes, want 3", n)
		}
	})
}
