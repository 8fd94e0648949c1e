package control_test

import (
	"net/http"
	"strings"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

// TestEveryAnswerHasTheIDOfItsRequest: the client's own if it has the right form, and a problem document has it too.
func TestEveryAnswerHasTheIDOfItsRequest(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	id := func(path, given string) string {
		t.Helper()
		got := a.askWith(t, "anna", http.MethodGet, path, nil, api.RequestIDHeader, given)
		has := got.header.Values(api.RequestIDHeader)
		if len(has) != 1 || got.status >= http.StatusBadRequest && got.problem.Request != has[0] {
			t.Errorf("%s: the header is %q, and the problem has %q", path, has, got.problem.Request)
		}
		return strings.Join(has, " ")
	}
	for _, path := range []string{"/v1/instances", "/v1/instances/none", "/v1", "/nothing", "/v1/claims?limit=no"} {
		if got := id(path, "my-Request_1.2"); got != "my-Request_1.2" {
			t.Errorf("%s: the ID is %q", path, got)
		}
		one, other := id(path, "a b"), id(path, "a b")
		if one == other || len(one) != 16 {
			t.Errorf("%s: the IDs are %q and %q", path, one, other)
		}
		for _, bad := range []string{"a b", strings.Repeat("a", 65), "a/b", "\u00e9"} {
			if got := id(path, bad); got == bad {
				t.Errorf("%s: the ID %q is kept", path, bad)
			}
		}
	}
}
