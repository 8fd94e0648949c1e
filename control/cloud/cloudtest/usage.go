package cloudtest

import (
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// usage reads the history of all projects, or of the project of the input.
func (s *suite) usage(in api.ProjectDays) (usage.Report, error) {
	if in.Project == "" {
		return s.Client.ListUsage(s.ctx, in.Days)
	}
	return s.Client.GetUsage(s.ctx, in)
}

// used reads reports until wanted accepts one, and returns it.
func (s *suite) used(f api.ProjectDays, what string, wanted func(map[croft.Project]usage.Day) bool) usage.Report {
	s.Helper()
	for {
		r, err := s.usage(f)
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
	s.project("org", "")
	s.project("dev", "org")
	named := api.ProjectNamed{Project: "dev"}
	var ids []string
	for range 2 {
		made, err := s.createToken(api.NewToken{InProject: api.InProject{Project: "dev"}, User: "ann",
			Role: access.Member, Life: "1h"})
		s.must(err)
		ids = append(ids, string(made.ID))
	}
	s.used(api.ProjectDays{}, "two tokens count for a project and above", func(d map[croft.Project]usage.Day) bool {
		return d["dev"].Peak[tenant.CountTokens] == 2 && d["org"].Peak[tenant.CountTokens] == 2
	})
	_, err := s.Client.RevokeToken(s.ctx, api.TokenNamed{ID: ids[0]})
	s.must(err)
	// yesterday, as the test may run past midnight
	today := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	r := s.used(api.ProjectDays{ProjectNamed: named, Days: api.Days{Since: today}}, "time passes",
		func(d map[croft.Project]usage.Day) bool { return d["dev"].UnitSeconds[tenant.CountTokens] > 0 })
	if len(r.Projects) != 1 || r.Until.IsZero() || time.Since(r.Until) > patience {
		s.Errorf("the history is %+v", r)
	}
	for name, f := range map[string]api.ProjectDays{
		"a day to come":    {Days: api.Days{Since: "2999-01-01"}},
		"a day long ago":   {Days: api.Days{Until: "1999-01-01"}},
		"nobody's project": {ProjectNamed: api.ProjectNamed{Project: "nobody"}},
	} {
		r, err := s.usage(f)
		if s.must(err); len(r.Projects) > 0 || r.Projects == nil {
			s.Errorf("%s has %+v", name, r)
		}
	}
	for _, f := range []api.Days{{Since: "yesterday"}, {Until: "2026-02-30"},
		{Since: "2026-02-02", Until: "2026-02-01"}} {
		_, err := s.Client.ListUsage(s.ctx, f)
		s.is(err, croft.Invalid, "a filter that cannot be")
	}

	_, err = s.Client.RevokeToken(s.ctx, api.TokenNamed{ID: ids[1]})
	s.must(err)
	s.must(s.Client.RemoveProject(s.ctx, named))
	r = s.used(api.ProjectDays{}, "a removed project is not there", func(d map[croft.Project]usage.Day) bool {
		_, there := d["dev"]
		return !there
	})
	for _, a := range r.Projects {
		if a.Former {
			s.Errorf("nobody asked for %+v", a)
		}
	}
	r, err = s.usage(api.ProjectDays{ProjectNamed: named, Days: api.Days{Former: true}})
	s.must(err)
	if len(r.Projects) != 1 || !r.Projects[0].Former || r.Projects[0].Days[0].Peak[tenant.CountTokens] != 2 {
		s.Errorf("of the removed project there is %+v", r)
	}
}
