package compute_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
)

// awaitReason polls why a part is not ready until the reason contains want; empty: until it is ready.
func awaitReason(t *testing.T, ready func(context.Context) error, want string) {
	t.Helper()
	for {
		err := ready(t.Context())
		if want == "" && err == nil || err != nil && want != "" && strings.Contains(err.Error(), want) {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("it says %v, want %q", err, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestAnAgentSaysWhyItIsNotReady(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Place = "the machine"
	c.ledger.away.Store(true)
	agent := c.launch(func() {})
	awaitReason(t, agent.Ready, "the host does not take orders yet")
	awaitReason(t, agent.Ready, "nobody answers")
	c.ledger.away.Store(false)
	awaitReason(t, agent.Ready, "")

	twin := c.host
	twin.Place, twin.Name, twin.API = "its copy", "copied", "http://copy"
	copied := c.beside(twin).launch(func() { t.Error("the copy takes orders") })
	awaitReason(t, copied.Ready, "this agent does nothing: another agent has this host's UUID")
}

func TestAnAgentSaysThatItsHypervisorDoesNotAnswer(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	c := newFaultyCloud(t, func(_ context.Context, op string, _ croft.InstanceID) error {
		if dead.Load() && op == sim.OpList {
			return croft.Errorf(croft.Unavailable, "start libvirtd")
		}
		return nil
	})
	agent := c.start()
	awaitReason(t, agent.HypervisorReady, "")
	dead.Store(true)
	agent.Resync(t.Context())
	awaitReason(t, agent.HypervisorReady, "start libvirtd")
	dead.Store(false) // and it is ready before the next resync
	awaitReason(t, agent.HypervisorReady, "")
}

func TestUsagesAreToldToWhoHasTheToken(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	api := (&compute.API{Agent: agent, Token: "secret"}).Handler()
	ask := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/usages", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	if got := ask("guess"); got.Code != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", got.Code, got.Body)
	}
	if got := ask("secret"); got.Code != http.StatusOK || !strings.Contains(got.Body.String(),
		`"instance":"`+string(inst.ID)+`"`) {
		t.Errorf("with it: %d %s", got.Code, got.Body)
	}
}

var errAway = errors.New("nobody answers")
