package croft_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"croft"
)

func TestKindDecidesStatusAndExitCode(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		kind   croft.Kind
		status int
		exit   int
	}{
		{"no error is a success", nil, "", http.StatusOK, croft.ExitOK},
		{"an error of no kind is a plain failure", errors.New("x"), "", http.StatusInternalServerError,
			croft.ExitFailure},
		{"invalid is a usage error", croft.Errorf(croft.Invalid, "x"), croft.Invalid, http.StatusBadRequest,
			croft.ExitUsage},
		{"not found", croft.Errorf(croft.NotFound, "x"), croft.NotFound, http.StatusNotFound, croft.ExitNotFound},
		{"conflict", croft.Errorf(croft.Conflict, "x"), croft.Conflict, http.StatusConflict, croft.ExitConflict},
		{"no capacity is a conflict to HTTP and has an exit code of its own", croft.Errorf(croft.NoCapacity, "x"),
			croft.NoCapacity, http.StatusConflict, croft.ExitNoCapacity},
		{"denied", croft.Errorf(croft.Denied, "x"), croft.Denied, http.StatusForbidden, croft.ExitDenied},
		{"over quota", croft.Errorf(croft.OverQuota, "x"), croft.OverQuota, http.StatusForbidden, croft.ExitNoCapacity},
		{"unavailable", croft.Errorf(croft.Unavailable, "x"), croft.Unavailable, http.StatusServiceUnavailable,
			croft.ExitUnavailable},
		{"a kind is itself an error", croft.NotFound, croft.NotFound, http.StatusNotFound, croft.ExitNotFound},
		{"a kind shows through wrapping", fmt.Errorf("read host: %w", croft.Errorf(croft.NotFound, "x")),
			croft.NotFound, http.StatusNotFound, croft.ExitNotFound},
		{"a bare kind shows through wrapping", fmt.Errorf("read host: %w", croft.Conflict), croft.Conflict,
			http.StatusConflict, croft.ExitConflict},
		{"the outermost kind counts", croft.Errorf(croft.Unavailable, "y: %w", croft.Errorf(croft.NotFound, "x")),
			croft.Unavailable, http.StatusServiceUnavailable, croft.ExitUnavailable},
		{"a kind shows through joined errors", errors.Join(errors.New("a"), croft.Errorf(croft.Invalid, "b")),
			croft.Invalid, http.StatusBadRequest, croft.ExitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := croft.KindOf(c.err); got != c.kind {
				t.Errorf("KindOf = %q, want %q", got, c.kind)
			}
			if got := croft.HTTPStatus(c.err); got != c.status {
				t.Errorf("HTTPStatus = %d, want %d", got, c.status)
			}
			if got := croft.ExitCode(c.err); got != c.exit {
				t.Errorf("ExitCode = %d, want %d", got, c.exit)
			}
		})
	}
}

func TestErrorfKeepsTheCauseAndItsText(t *testing.T) {
	cause := fmt.Errorf("ask host: %w", context.DeadlineExceeded)
	err := croft.Errorf(croft.Unavailable, "schedule vm-1: %w", cause)

	if got, want := err.Error(), "schedule vm-1: ask host: context deadline exceeded"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error("the cause is lost")
	}
	if !errors.Is(err, croft.Unavailable) {
		t.Error("errors.Is does not see the kind")
	}
	if errors.Is(err, croft.Conflict) {
		t.Error("errors.Is sees a kind that the error is not of")
	}
}

// Documents store kinds as text, so the words must never change.
func TestKindsAreStoredAsTheseWords(t *testing.T) {
	for kind, word := range map[croft.Kind]string{
		croft.Invalid:     "invalid",
		croft.NotFound:    "not found",
		croft.Conflict:    "conflict",
		croft.NoCapacity:  "no capacity",
		croft.Unavailable: "unavailable",
		croft.Denied:      "denied",
		croft.OverQuota:   "over quota",
	} {
		if string(kind) != word || kind.Error() != word {
			t.Errorf("kind %q, error text %q, want %q", string(kind), kind.Error(), word)
		}
	}
}
