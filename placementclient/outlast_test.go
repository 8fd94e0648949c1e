package placementclient_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/placementclient"
)

// claimant is the consumer of the claims.
const claimant croft.InstanceID = "7d5e2e4e-68ae-4b5c-8f9e-000000000002"

// TestAClaimThatIsSentIsAnswered cancels the caller while the server writes the claim: if the claim were released
// before it is written, it would remain.
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
	if err := client.Claim(ctx, claimant, croft.Owner{Project: "default"}, candidate); err != nil {
		t.Errorf("the caller does not know of his claim: %v", err)
	}
}

// mute is a server that never answers.
type mute struct{}

func (mute) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A claim that is not answered in time fails with its caller's deadline, which commands distinguish from an
// interruption.
func TestAClaimThatIsNotAnsweredInTimeIsNoInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := placementclient.New(placementclient.Config{Endpoint: "http://127.0.0.1:8778", Transport: mute{}})
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			what string
			end  func() (context.Context, context.CancelFunc)
			want error
		}{
			{"its caller has a deadline", func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), time.Second)
			}, context.DeadlineExceeded},
			{"its caller is interrupted", func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			}, context.Canceled},
		} {
			ctx, cancel := test.end()
			err := client.Claim(ctx, claimant, croft.Owner{Project: "default"}, croft.Candidate{})
			if !errors.Is(err, test.want) {
				t.Errorf("%s: %v, not %v", test.what, err, test.want)
			}
			cancel()
		}
	})
}
