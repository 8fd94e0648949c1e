package cloudtest

import (
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/delay"
	"croft/tenant/access"
)

// logged returns the entries that a filter chooses, once there are at least n.
func (s *suite) logged(f api.LogFilter, n int) []actions.Entry {
	s.Helper()
	for {
		page, err := s.Client.ListActions(s.ctx, f)
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
	s.project("org", "")
	_, err := s.Client.CreateProject(s.ctx, api.NewProject{Name: "org"})
	s.is(err, croft.Conflict, "a project that there is")
	s.project("dev", "org")
	org := api.InProject{Project: "org"}
	made, err := s.createToken(api.NewToken{InProject: org, User: "ann", Role: access.Member, Life: "1h"})
	s.must(err)
	_, err = s.Client.RevokeToken(s.ctx, api.TokenNamed{ID: string(made.ID)})
	s.must(err)
	s.must(s.Client.RemoveProject(s.ctx, api.ProjectNamed{Project: "dev"}))
	_, err = s.Client.ListProjects(s.ctx)
	s.must(err)

	all := s.logged(api.LogFilter{}, 6)
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
	since := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		f    api.LogFilter
		want int
	}{
		"a project":           {api.LogFilter{InProject: org}, 4},
		"an object":           {api.LogFilter{Object: "project/org"}, 2},
		"a user":              {api.LogFilter{User: all[0].User}, 6},
		"another user":        {api.LogFilter{User: "nobody"}, 0},
		"since then":          {api.LogFilter{Since: since(all[1].Time)}, 2},
		"a limit":             {api.LogFilter{Limit: 2}, 2},
		"a later time":        {api.LogFilter{Since: since(time.Now().Add(time.Hour))}, 0},
		"a project and since": {api.LogFilter{InProject: org, Since: since(all[2].Time)}, 3},
	} {
		if got := s.logged(c.f, c.want); len(got) != c.want {
			s.Errorf("%s: %d entries, want %d", name, len(got), c.want)
		}
	}
	page, err := s.Client.ListActions(s.ctx, api.LogFilter{Limit: 4})
	s.must(err)
	next, err := s.Client.ListActions(s.ctx, api.LogFilter{Limit: 4, After: page.Next})
	if err != nil || page.Next == "" || len(next.Entries) != 2 || next.Entries[1] != all[5] || next.Next != "" {
		s.Errorf("the second page is %+v, %v", next, err)
	}
	_, err = s.Client.ListActions(s.ctx, api.LogFilter{After: "x"})
	s.is(err, croft.Invalid, "a page that begins nowhere")
}
