package cloudtest

import (
	"time"

	"croft"
	"croft/control/cloud"
	"croft/internal/delay"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// used reads reports until wanted accepts one, and returns it.
func (s *suite) used(f usage.Filter, what string, wanted func(map[croft.Project]usage.Day) bool) usage.Report {
	s.Helper()
	for {
		r, err := s.Cloud.Usage.List(s.ctx, f)
		s.must(err)
		sums := map[croft.Project]usage.Day{}
		for _, a := range r.Projects {
			if !a.Former {
				sums[a.Project] = usage.Sum(a.Days)
			}
		}
		if wanted(sums) {
			return r
		}
		if delay.For(s.ctx, 20*time.Millisecond) != nil {
			s.Fatalf("%s: %+v chooses %+v", what, f, r)
		}
	}
}

func usageIsRecorded(s *suite) {
	_, err := s.Cloud.Projects.Create(s.ctx, tenant.Tenant{Name: "org", Created: time.Now().UTC()})
	s.must(err)
	_, err = s.Cloud.Projects.Create(s.ctx, tenant.Tenant{Name: "dev", Parent: "org"})
	s.must(err)
	token := cloud.NewAccess{User: "ann", Project: "dev", Role: access.Member, Life: time.Hour}
	made, err := s.Cloud.Access.Create(s.ctx, token)
	s.must(err)
	_, err = s.Cloud.Access.Create(s.ctx, token)
	s.must(err)
	s.used(usage.Filter{}, "two tokens count for a project and above", func(d map[croft.Project]usage.Day) bool {
		return d["dev"].Peak[tenant.CountTokens] == 2 && d["org"].Peak[tenant.CountTokens] == 2
	})
	_, err = s.Cloud.Access.Revoke(s.ctx, made.ID)
	s.must(err)
	// yesterday, as the test may run past midnight
	today := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	r := s.used(usage.Filter{Since: today, Projects: []croft.Project{"dev"}}, "time passes",
		func(d map[croft.Project]usage.Day) bool { return d["dev"].UnitSeconds[tenant.CountTokens] > 0 })
	if len(r.Projects) != 1 || r.Until.IsZero() || time.Since(r.Until) > patience {
		s.Errorf("the history is %+v", r)
	}
	for name, f := range map[string]usage.Filter{
		"a day to come":    {Since: "2999-01-01"},
		"a day long ago":   {Until: "1999-01-01"},
		"nobody's project": {Projects: []croft.Project{"nobody"}},
	} {
		r, err := s.Cloud.Usage.List(s.ctx, f)
		if s.must(err); len(r.Projects) > 0 || r.Projects == nil {
			s.Errorf("%s has %+v", name, r)
		}
	}
	for _, f := range []usage.Filter{{Since: "yesterday"}, {Until: "2026-02-30"},
		{Since: "2026-02-02", Until: "2026-02-01"}} {
		_, err := s.Cloud.Usage.List(s.ctx, f)
		s.is(err, croft.Invalid, "a filter that cannot be")
	}

	_, err = s.Cloud.Access.Revoke(s.ctx, s.others(made.ID))
	s.must(err)
	s.must(s.Cloud.Projects.Remove(s.ctx, "dev"))
	r = s.used(usage.Filter{}, "a removed project is not there", func(d map[croft.Project]usage.Day) bool {
		_, there := d["dev"]
		return !there
	})
	for _, a := range r.Projects {
		if a.Former {
			s.Errorf("nobody asked for %+v", a)
		}
	}
	r, err = s.Cloud.Usage.List(s.ctx, usage.Filter{Former: true, Projects: []croft.Project{"dev"}})
	s.must(err)
	if len(r.Projects) != 1 || !r.Projects[0].Former || r.Projects[0].Days[0].Peak[tenant.CountTokens] != 2 {
		s.Errorf("of the removed project there is %+v", r)
	}
}

// others returns the other token of the project dev, which must have exactly two.
func (s *suite) others(id access.TokenID) access.TokenID {
	s.Helper()
	all, err := s.Cloud.Access.List(s.ctx, "dev")
	s.must(err)
	for _, one := range all {
		if one.ID != id {
			return one.ID
		}
	}
	s.Fatal("there is no other token")
	return ""
}
