package placementclient_test

import (
	"context"
	"net/http"
	"testing"

	"croft"
)

// TestAClaimThatIsSentIsAnswered cancels the caller while the server writes the claim: a claim released before it is
// written would remain.
func TestAClaimThatIsSentIsAnswered(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	client, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		leave()
		<-ctx.Done()
		if r.Context().Err() == nil {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	candidate := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{
		"7d5e2e4e-68ae-4b5c-8f9e-000000000001": {croft.VCPU: 1},
	}}
	if err := client.Claim(ctx, "7d5e2e4e-68ae-4b5c-8f9e-000000000002", "default", candidate); err != nil {
		t.Errorf("the caller does not know of his claim: %v", err)
	}
}
