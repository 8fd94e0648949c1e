package direct

import (
	"net/http/httptest"
	"testing"

	"croft"
	"croft/internal/endpoint"
)

func TestATokenTellsWherePlacementListens(t *testing.T) {
	t.Parallel()
	own := endpoint.OwnAddresses()
	if len(own) == 0 {
		t.Skip("this machine has no address but the loopback interface's")
	}
	placement := httptest.NewServer(nil)
	t.Cleanup(placement.Close)
	c := tokens{settings: Defaults()}
	c.settings.Placement.Endpoint = placement.URL
	got, err := c.placementForOthers(t.Context(), "http://127.0.0.1:1", false)
	if err != nil || got != placement.URL {
		t.Errorf("Placement beside etcd: got %q, %v", got, err)
	}
	c.settings.Placement.Endpoint = "http://127.0.0.1:1"
	if _, err = c.placementForOthers(t.Context(), "http://"+own[0]+":1", false); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a Placement that is not there: %v", err)
	}
}
