package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
)

func TestGroupsOfAnIssuerAreRolesHere(t *testing.T) {
	c, err := OIDC{Issuer: "https://id.example", Groups: []string{"a=b=lab:member", "ops=partition-admin"}}.Config("p")
	want := map[string]oidc.Grant{"a=b": {Project: "lab", Role: access.Member}, "ops": {Role: access.PartitionAdmin}}
	if diff := cmp.Diff(want, c.Groups); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "lab", "=lab:member", "devs=member", "devs=lab:partition-admin"} {
		if _, err := (OIDC{Groups: []string{text}}).Config("p"); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestProjectsOfAKeystoneAreProjectsHere(t *testing.T) {
	c, err := Tenants{Projects: []string{"1a2b=lab"}, Roles: []string{"swiftoperator=reader"},
		Operators: []string{"admin"}}.Config("p")
	want := access.KeystoneConfig{Partition: "p", Projects: map[string]croft.Project{"1a2b": "lab"},
		Roles: map[string]access.Role{"swiftoperator": access.Reader}, Operators: []string{"admin"}}
	if diff := cmp.Diff(want.Projects, c.Projects) + cmp.Diff(want.Roles, c.Roles) +
		cmp.Diff(want.Operators, c.Operators); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []Tenants{{Projects: []string{"lab"}}, {Roles: []string{"=reader"}}} {
		if _, err := bad.Config("p"); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
