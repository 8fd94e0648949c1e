package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"croft"
)

func TestReportAndExitCode(t *testing.T) {
	notFound, conflict := croft.Errorf(croft.NotFound, "one"), croft.Errorf(croft.Conflict, "two")
	for _, c := range []struct {
		name string
		err  error
		want string
		code int
	}{
		{"nothing wrong", nil, "", 0},
		{"one thing", notFound, "croft: one\n", 3},
		{"several things are a line each, the first has the exit code",
			errors.Join(notFound, errors.Join(conflict, notFound)), "croft: one\ncroft: two\ncroft: one\n", 3},
		{"a first thing without a kind is a failure", errors.Join(errors.New("plain"), notFound),
			"croft: plain\ncroft: one\n", 1},
		{"a sentence made of two errors is one", fmt.Errorf("%w; and %w", notFound, conflict), "croft: one; and two\n",
			3},
		{"an interrupt", fmt.Errorf("wait: %w", context.Canceled), "croft: interrupted: wait: context canceled\n", 1},
		{"a deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), "croft: wait: context deadline exceeded\n", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			report(&b, c.err, func(error) string { return "" })
			if b.String() != c.want {
				t.Errorf("got %q, want %q", &b, c.want)
			}
			if code := ExitCode(c.err); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}
