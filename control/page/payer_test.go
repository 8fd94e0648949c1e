package page

import (
	"testing"

	"croft"
	"croft/tenant/access"
)

func TestTheProjectsOfATenantShareItsStreams(t *testing.T) {
	t.Parallel()
	of := func(p croft.Project) string { return (&visit{caller: access.Caller{Project: p, User: "anna"}}).payer() }
	if of("lab") != of("lab.one") || of("lab.one") != of("lab.two.three") || of("lab") == of("web") {
		t.Errorf("lab has the streams of %q, lab.one of %q, and web of %q", of("lab"), of("lab.one"), of("web"))
	}
}
