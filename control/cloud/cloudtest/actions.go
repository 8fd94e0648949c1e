package cloudtest

import (
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/cloud"
	"croft/internal/delay"
	"croft/tenant"
	"croft/tenant/access"
)

// logged returns the entries that a filter chooses, once there are at least n.
func (s *suite) logged(f actions.Filter, n int) []actions.Entry {
	s.Helper()
	for {
		page, err := s.Cloud.Actions.List(s.ctx, f)
		s.must(err)
		if len(page.Entries) >= n {
			return page.Entries
		}
		if delay.For(s.ctx, 10*time.Millisecond) != nil {
			s.Fatalf("%+v chooses %+v, want %d entries", f, page.Entries, n)
		}
	}
}

func (s *suite) actions() {
	begun := time.Now().Add(-time.Minute)
	org := tenant.Tenant{Name: "org", Created: time.Now().UTC()}
	_, err := s.Cloud.Projects.Create(s.ctx, org)
	s.must(err)
	_, err = s.Cloud.Projects.Create(s.ctx, org)
	s.is(err, croft.Conflict, "a project that there is")
	_, err = s.Cloud.Projects.Create(s.ctx, tenant.Tenant{Name: "dev", Parent: "org"})
	s.must(err)
	made, err := s.Cloud.Access.Create(s.ctx, cloud.NewAccess{User: "ann", Project: "org", Role: access.Member,
		Life: time.Hour})
	s.must(err)
	_, err = s.Cloud.Access.Revoke(s.ctx, made.ID)
	s.must(err)
	s.must(s.Cloud.Projects.Remove(s.ctx, "dev"))
	_, err = s.Cloud.Projects.List(s.ctx)
	s.must(err)

	all := s.logged(actions.Filter{}, 6)
	want := []struct{ operation, object, project string }{
		{"removeProject", "project/dev", "org"}, {"revokeToken", "token/" + string(made.ID), "org"},
		{"createToken", "token/" + string(made.ID), "org"}, {"createProject", "project/dev", "org"},
		{"createProject", "project/org", ""}, {"createProject", "project/org", ""},
	}
	if len(all) != len(want) {
		s.Fatalf("there are %+v", all)
	}
	for i, e := range all {
		w := want[i]
		done := i != 4
		if e.Operation != w.operation || e.Object.String() != w.object || string(e.Project) != w.project ||
			(e.Result == actions.Done) != done ||
			(e.Operation == "createToken") != (e.Object.For != "") ||
			e.User == "" || e.Via == "" || e.From == "" || !e.Operator ||
			e.Time.Before(begun) || e.Time.After(time.Now()) {
			s.Errorf("%d: got %+v, want %+v", i, e, w)
		}
	}
	for name, c := range map[string]struct {
		f    actions.Filter
		want int
	}{
		"a project":           {actions.Filter{Project: "org"}, 4},
		"an object":           {actions.Filter{Object: actions.Object{Kind: actions.Project, Name: "org"}}, 2},
		"a user":              {actions.Filter{User: all[0].User}, 6},
		"another user":        {actions.Filter{User: "nobody"}, 0},
		"since then":          {actions.Filter{Since: all[1].Time}, 2},
		"a limit":             {actions.Filter{Limit: 2}, 2},
		"a later time":        {actions.Filter{Since: time.Now().Add(time.Hour)}, 0},
		"a project and since": {actions.Filter{Project: "org", Since: all[2].Time}, 3},
	} {
		if got := s.logged(c.f, c.want); len(got) != c.want {
			s.Errorf("%s: %d entries, want %d", name, len(got), c.want)
		}
	}
	page, err := s.Cloud.Actions.List(s.ctx, actions.Filter{Limit: 4})
	s.must(err)
	next, err := s.Cloud.Actions.List(s.ctx, actions.Filter{Limit: 4, After: page.Next})
	if err != nil || page.Next == "" || len(next.Entries) != 2 || next.Entries[1] != all[5] || next.Next != "" {
		s.Errorf("the second page is %+v, %v", next, err)
	}
	_, err = s.Cloud.Actions.List(s.ctx, actions.Filter{After: "x"})
	s.is(err, croft.Invalid, "a page that begins nowhere")
}
