package accesstest

import (
	"net/http"
	"testing"

	"croft/tenant/access"
)

// Request returns a request with a token.
func Request(t testing.TB, s access.Secret) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://croft.invalid/v1/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Text())
	return r
}
