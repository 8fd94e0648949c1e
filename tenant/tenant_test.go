package tenant_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/tenant"
	"croft/tenant/access"
)

func TestAdmit(t *testing.T) {
	chain := func(own, above tenant.Limits) []tenant.Account {
		return []tenant.Account{{Project: "dev", Limits: own, Used: tenant.Amounts{"VCPU": 3}},
			{Project: "org", Limits: above, Used: tenant.Amounts{"VCPU": 5}}}
	}
	for _, c := range []struct {
		name     string
		chain    []tenant.Account
		defaults tenant.Limits
		more     tenant.Amounts
		refused  *tenant.Refusal
	}{
		{"no limit anywhere", chain(nil, nil), nil, tenant.Amounts{"VCPU": 100}, nil},
		{"exactly what is left", chain(tenant.Limits{"VCPU": 4}, tenant.Limits{"VCPU": 6}), nil,
			tenant.Amounts{"VCPU": 1}, nil},
		{"more than the project has left", chain(tenant.Limits{"VCPU": 4}, nil), nil, tenant.Amounts{"VCPU": 2},
			&tenant.Refusal{Measure: "VCPU", Limit: 4, Used: 3, Requested: 2, Project: "dev", Of: "dev"}},
		{"more than those above have left", chain(tenant.Limits{"VCPU": 9}, tenant.Limits{"VCPU": 6}), nil,
			tenant.Amounts{"VCPU": 2},
			&tenant.Refusal{Measure: "VCPU", Limit: 6, Used: 5, Requested: 2, Project: "org", Of: "dev"}},
		{"the default of the partition", chain(nil, tenant.Limits{"VCPU": tenant.Unlimited}), tenant.Limits{"VCPU": 3},
			tenant.Amounts{"VCPU": 1},
			&tenant.Refusal{Measure: "VCPU", Limit: 3, Used: 3, Requested: 1, Project: "dev", Of: "dev"}},
		{"a limit of its own instead of the default", chain(tenant.Limits{"VCPU": 4}, tenant.Limits{"VCPU": 9}),
			tenant.Limits{"VCPU": 0}, tenant.Amounts{"VCPU": 1}, nil},
		{"nothing of what is used up", chain(tenant.Limits{"VCPU": 1}, nil), nil,
			tenant.Amounts{"VCPU": 0, "DISK_GB": 5}, nil},
		{"an amount at the end of the numbers", chain(tenant.Limits{"VCPU": 1<<63 - 1}, nil), nil,
			tenant.Amounts{"VCPU": 1<<63 - 1},
			&tenant.Refusal{Measure: "VCPU", Limit: 1<<63 - 1, Used: 3, Requested: 1<<63 - 1, Project: "dev",
				Of: "dev"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := tenant.Admit(c.chain, c.defaults, c.more)
			refusal, _ := errors.AsType[*tenant.Refusal](err)
			if diff := cmp.Diff(c.refused, refusal); diff != "" ||
				c.refused != nil && croft.KindOf(err) != croft.OverQuota {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if c.refused != nil && (!strings.Contains(err.Error(), "project "+string(c.refused.Project)) ||
				strings.Contains(err.Error(), "below it") != (c.refused.Project == "org")) {
				t.Errorf("says %q", err)
			}
		})
	}
}

func TestTree(t *testing.T) {
	tree := tenant.NewTree([]tenant.Tenant{
		{Name: "ops", Parent: "org"}, {Name: "other"},
		{Name: "org", Members: map[string]access.Role{"ann": access.ProjectAdmin, "bob": access.Member}},
		{Name: "dev", Parent: "org", Members: map[string]access.Role{"cyd": access.Reader}},
		{Name: "ci", Parent: "dev", Members: map[string]access.Role{"ann": access.Member}},
	})
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"a chain ends at the root", tree.Chain("ci"), []croft.Project{"ci", "dev", "org"}},
		{"a name without a record is a root", tree.Chain("free"), []croft.Project{"free"}},
		{"below are children and theirs", tree.Below("org"), []croft.Project{"org", "dev", "ci", "ops"}},
		{"an administrator above is one here", tree.RolesOf("ann", "ci"),
			[]access.Role{access.Member, access.ProjectAdmin}},
		{"a member above is nobody here", tree.RolesOf("bob", "dev"), []access.Role(nil)},
		{"a member has projects", tree.ProjectsOf("ann"), []croft.Project{"ci", "org"}},
		{"others have none", tree.ProjectsOf("eve"), []croft.Project(nil)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	var order []croft.Project
	for _, p := range tree.Sorted() {
		order = append(order, p.Name)
	}
	if diff := cmp.Diff([]croft.Project{"org", "dev", "ci", "ops", "other"}, order); diff != "" {
		t.Errorf("sorted (-want +got):\n%s", diff)
	}
}

func TestAnInstanceIsChargedForWhatItClaims(t *testing.T) {
	inst := croft.Instance{Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 2, croft.MemoryMB: 512}}}
	a := tenant.AmountsOf(inst)
	if a.String() != "MEMORY_MB:512,VCPU:2,instances:1" {
		t.Errorf("charged with %s", a)
	}
	if rest := a.Plus(a).Minus(a).Minus(a); len(rest) != 0 {
		t.Errorf("nothing is %s", rest)
	}
}

func TestProjectsAreChecked(t *testing.T) {
	many := map[string]access.Role{}
	for i := range 501 {
		many[string(rune('a'+i%26))+string(rune(0x100+i))] = access.Reader
	}
	for name, c := range map[string]struct {
		project tenant.Tenant
		says    string
	}{
		"no name":          {tenant.Tenant{}, "not a project name"},
		"a long note":      {tenant.Tenant{Name: "a", Note: strings.Repeat("x", 257)}, "257 bytes"},
		"too many members": {tenant.Tenant{Name: "a", Members: many}, "501 members"},
		"a user of blanks": {tenant.Tenant{Name: "a", Members: map[string]access.Role{"a b": access.Reader}},
			"user"},
		"a role that isn't": {tenant.Tenant{Name: "a", Members: map[string]access.Role{"a": "king"}},
			"not a role"},
		"a custom class is limited": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"CUSTOM_FPGA": 1}}, ""},
		"a limit of a class that does not exist": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"VCPUS": 1}},
			`did you mean "VCPU"?`},
		"a limit of half a name": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"MEMORY": 1}},
			`did you mean "MEMORY_MB"?`},
		"a limit of another unit": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"MEMORY_GB": 1}},
			`did you mean "MEMORY_MB"?`},
		"a count in capitals": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"INSTANCES": 1}},
			`did you mean "instances"?`},
		"an unlimited limit is one": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"VCPU": tenant.Unlimited}},
			""},
		"a class in small letters": {tenant.Tenant{Name: "a", Limits: tenant.Limits{"vcpu": 1}}, "VCPU"},
	} {
		err := c.project.Check()
		if c.says == "" && err != nil || c.says != "" && (croft.KindOf(err) != croft.Invalid ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
