package api_test

import (
	"fmt"
	"testing"

	"croft"
	"croft/control/api"
)

// TestAProblemKeepsItsKind: a refusal of the server has the same Kind at a client.
func TestAProblemKeepsItsKind(t *testing.T) {
	for code, want := range map[api.Code]croft.Kind{
		api.BadQuery: croft.Invalid, api.Unauthenticated: croft.Denied, api.QuotaExceeded: croft.OverQuota,
		api.NotFound: croft.NotFound, api.NameTaken: croft.Conflict, api.NoCapacity: croft.NoCapacity,
		api.Busy: croft.Unavailable, api.Internal: "",
	} {
		err := fmt.Errorf("ask: %w", api.NewProblem(code, "because"))
		if got := croft.KindOf(err); got != want || err.Error() != "ask: because" {
			t.Errorf("%s is %q, %v, want %q", code, got, err, want)
		}
	}
}
