package tenant_test

import (
	"testing"

	"croft"
	"croft/tenant"
)

func TestAShortNameStandsForTheProjectsThatEndInIt(t *testing.T) {
	known := []croft.Project{"lab", "lab.ci", "shop", "shop.ci.arm"}
	many := []croft.Project{"a.ci", "b.ci", "c.ci", "d.ci"}
	for _, one := range []struct {
		name  croft.Project
		known []croft.Project
		hint  string
		short bool
	}{
		{"ci", known, `; did you mean "lab.ci"?`, true},
		{"ci.arm", known, `; did you mean "shop.ci.arm"?`, true},
		{"ci", append(known, "shop.ci"), `; did you mean "lab.ci" or "shop.ci"?`, true},
		{"lap", known, `; did you mean "lab"?`, false},
		{"ci", many, "", false},
		{"nothing", known, "", false},
	} {
		err := tenant.NotFound(one.name, one.known)
		if croft.KindOf(err) != croft.NotFound || tenant.HintOf(err) != one.hint || tenant.Short(err) != one.short {
			t.Errorf("%s is refused with %v, short: %v; want %q, %v", one.name, err, tenant.Short(err), one.hint,
				one.short)
		}
	}
}
