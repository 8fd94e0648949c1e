package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"croft"
	"croft/control/api"
)

// TestNamesThatLeadToOtherPathsAreNotSent: a path with an empty or dotted name is that of another operation.
func TestNamesThatLeadToOtherPathsAreNotSent(t *testing.T) {
	t.Parallel()
	cloud := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the cloud was asked for %s", r.URL)
	}))
	defer cloud.Close()
	c := as(t, cloud.URL, "operator")
	for _, name := range []string{"", ".", ".."} {
		if _, err := c.GetPartition(t.Context(), api.PartitionNamed{ID: name}); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: got %v (%s), want Invalid", name, err, croft.KindOf(err))
		}
	}
}
