package direct

import (
	"testing"

	"croft"
	"croft/internal/testing/badserver"
)

// TestAnAgentThatDies checks that callers learn that a retry may succeed, however the agent dies.
func TestAnAgentThatDies(t *testing.T) {
	t.Parallel()
	for name, address := range badserver.All(t, false) {
		h := croft.Host{Name: "h", API: "http://" + address}
		if _, err := (agents{}).Contents(t.Context(), h); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: what it has: got %v of kind %q, want Unavailable", name, err, croft.KindOf(err))
		}
		if _, err := (agents{}).Usages(t.Context(), h); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: what its guests use: got %v of kind %q, want Unavailable", name, err, croft.KindOf(err))
		}
	}
}
