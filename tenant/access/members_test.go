package access_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"croft"
	"croft/tenant/access"
)

// members are the projects of users, sorted. An admin of lab administers lab-a.
type members struct {
	of   map[string][]croft.Project
	role map[string]access.Role // by user and project
	away bool
}

func (m members) ProjectsOf(user string) ([]croft.Project, error) {
	if m.away {
		return nil, croft.Errorf(croft.Unavailable, "they are being read")
	}
	return m.of[user], nil
}

func (m members) RolesOf(user string, p croft.Project) []access.Role {
	var all []access.Role
	for _, name := range []croft.Project{p, map[croft.Project]croft.Project{"lab-a": "lab"}[p]} {
		if r := m.role[user+"@"+string(name)]; r != "" && (name == p || r == access.ProjectAdmin) {
			all = append(all, r)
		}
	}
	return all
}

func TestWhatMembersAre(t *testing.T) {
	m := members{of: map[string][]croft.Project{"ann": {"lab"}, "joe": {"lab", "shop"}, "ada": {"lab"}},
		role: map[string]access.Role{"ann@lab": access.Member, "joe@lab": access.Reader, "joe@shop": access.Member,
			"ada@lab": access.ProjectAdmin}}
	none := croft.Errorf(croft.Denied, "nobody knows this one")
	grant := func(p croft.Project, roles ...access.Role) access.Granted {
		return access.Granted{Roles: map[croft.Project][]access.Role{p: roles}, None: none}
	}
	home := grant("lab", access.Reader)
	home.Home = "lab"
	for _, c := range []struct {
		name, user string
		granted    access.Granted
		members    access.Members
		header     []string
		want       string // project and roles, or a refusal
	}{
		{"a member of one project", "ann", grant(""), m, nil, "lab [member]"},
		{"who names it", "ann", grant(""), m, []string{"lab"}, "lab [member]"},
		{"who names another", "ann", grant(""), m, []string{"shop"},
			`ann has no role in the project "shop" that the header X-Croft-Project names`},
		{"who names nothing", "ann", grant(""), m, []string{""}, `ann has no role in the project ""`},
		{"a member of two", "joe", grant(""), m, nil, "joe has roles in the projects [lab shop]: name one"},
		{"who names one", "joe", grant(""), m, []string{"shop"}, "shop [member]"},
		{"who names both", "joe", grant(""), m, []string{"lab", "shop"}, "the request has 2 headers"},
		{"an admin below", "ada", grant(""), m, []string{"lab-a"}, "lab-a [project-admin]"},
		{"a member is nothing below", "ann", grant(""), m, []string{"lab-a"}, "ann has no role in the project"},
		{"what is granted is added", "ann", grant("lab", access.Reader, access.ProjectAdmin), m, nil,
			"lab [reader member project-admin]"},
		{"once", "ann", grant("lab", access.Member), m, nil, "lab [member]"},
		{"a grant and a membership elsewhere", "ann", grant("shop", access.Reader), m, nil,
			"ann has roles in the projects [lab shop]"},
		{"the home is meant", "joe", home, m, nil, "lab [reader]"},
		{"unless another is named", "joe", home, m, []string{"shop"}, "shop [member]"},
		{"nobody", "eve", grant(""), m, nil, "nobody knows this one"},
		{"nobody who names one", "eve", grant(""), m, []string{"lab"}, "nobody knows this one"},
		{"no members are known", "ann", grant("shop", access.Reader), nil, nil, "shop [reader]"},
		{"an operator", "ann", grant("", access.PartitionAdmin), m, nil, " [partition-admin]"},
		{"an operator who names any project", "ann", grant("", access.PartitionAdmin), m, []string{"x"},
			"x [partition-admin]"},
		{"and none", "ann", grant("", access.PartitionAdmin), m, []string{"a/b"}, "the header X-Croft-Project:"},
		{"before the members are read", "ann", grant("shop", access.Reader), members{away: true}, nil,
			"they are being"},
	} {
		r := request(t)
		r.Header[access.ProjectHeader] = c.header
		got, err := access.Choose(access.Caller{User: c.user}, c.granted, c.members, r)
		text := fmt.Sprint(got.Project, " ", got.Roles)
		if err != nil {
			text = err.Error()
			if got.Project != "" || got.Roles != nil {
				t.Errorf("%s: refused as %+v", c.name, got)
			}
		}
		if len(text) < len(c.want) || text[:len(c.want)] != c.want {
			t.Errorf("%s: got %q, want %q", c.name, text, c.want)
		}
	}
}

// laggingMembers learn of a member only in CatchUp.
type laggingMembers struct{ members }

func (m laggingMembers) CatchUp(context.Context) error {
	m.of["ann"], m.role["ann@lab"] = []croft.Project{"lab"}, access.Member
	return nil
}

func TestAUserWhoJustBecameAMemberIsLetIn(t *testing.T) {
	m := laggingMembers{members{of: map[string][]croft.Project{}, role: map[string]access.Role{}}}
	none := access.Granted{None: croft.Errorf(croft.Denied, "nobody knows this one")}
	r := httptest.NewRequest(http.MethodGet, "/v1/whoami", nil)
	c, err := access.Choose(access.Caller{User: "ann"}, none, m, r)
	if err != nil || c.Project != "lab" || !c.Has(access.Member) {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := access.Choose(access.Caller{User: "joe"}, none, m, r); croft.KindOf(err) != croft.Denied {
		t.Errorf("a stranger: %v", err)
	}
}
