package trust

import (
	"strings"
	"testing"
	"time"

	"croft/trust/pki"
)

func TestAHostThatDoesNotRenewIsTold(t *testing.T) {
	now := time.Now()
	stamp := func(left time.Duration) Joined {
		return Joined{Certificates: map[string]Stamp{"etcd": {Made: now.Add(left - pki.Life), Until: now.Add(left)}}}
	}
	for _, c := range []struct {
		name string
		j    Joined
		says string
	}{
		{"one that did not join has none", Joined{}, ""},
		{"a new certificate", stamp(pki.Life), ""},
		{"one that is due for renewal", stamp(pki.Life / 4), ""},
		{"one that should have been renewed", stamp(pki.Life / 6), "is not renewed: does it reach the join server?"},
		{"one that ran out", stamp(-time.Hour), "let it join again"},
	} {
		if got := OverdueOf(c.j); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}
