package cloudtest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/control/api"
	"croft/tenant/access"
)

func (s *suite) access() {
	lab := api.NewToken{InProject: api.InProject{Project: "lab"}, User: "ann", Role: access.Member, Note: "for CI",
		Life: "1h"}
	_, err := s.createToken(lab)
	s.is(err, croft.NotFound, "a token of a project that does not exist")
	s.project("lab", "")
	made, err := s.createToken(lab)
	s.must(err)
	secret, err := access.ParseSecret(made.Secret)
	if err != nil || secret.ID != made.ID {
		s.Errorf("the secret of %s is %s, %v", made.ID, secret, err)
	}
	if left := time.Until(made.Expires); made.User != "ann" || made.Project != "lab" || made.Note != "for CI" ||
		len(made.Roles) != 1 || made.Roles[0] != access.Member || made.CreatedBy == "" || left < 50*time.Minute ||
		left > time.Hour {
		s.Errorf("got %+v", made)
	}
	operator, err := s.createToken(api.NewToken{User: "joe", Role: access.PartitionAdmin, Life: "1h"})
	s.must(err)
	made.Secret, operator.Secret = "", ""
	for project, want := range map[croft.Project][]api.AccessToken{
		"": {made, operator}, "lab": {made}, "shop": {},
	} {
		list, err := s.Client.ListTokens(s.ctx, api.InProject{Project: project})
		s.must(err)
		all := list.Tokens
		if project == "" && len(all) == 2 && all[0].ID == operator.ID { // both were made within one second
			all[0], all[1] = all[1], all[0]
		}
		if diff := cmp.Diff(want, all); diff != "" {
			s.Errorf("project %q (-want +got):\n%s", project, diff)
		}
	}
	named := api.TokenNamed{ID: string(made.ID)}
	ended, err := s.Client.RevokeToken(s.ctx, named)
	if err != nil || ended.ID != made.ID || ended.User != "ann" {
		s.Errorf("revoked %+v, %v", ended, err)
	}
	_, err = s.Client.RevokeToken(s.ctx, named)
	s.is(err, croft.NotFound, "a token that is revoked")
	list, err := s.Client.ListTokens(s.ctx, api.InProject{})
	if err != nil || len(list.Tokens) != 1 || list.Tokens[0].ID != operator.ID {
		s.Errorf("left: %+v, %v", list, err)
	}
}

func (s *suite) noAccess() {
	for what, spoil := range map[string]func(*api.NewToken){
		"nobody":        func(a *api.NewToken) { a.User = "" },
		"no project":    func(a *api.NewToken) { a.Project = "" },
		"no role":       func(a *api.NewToken) { a.Role = "" },
		"a host's role": func(a *api.NewToken) { a.Role = access.Agent },
		"an hour ago":   func(a *api.NewToken) { a.Life = "-1h" },
		"for ever":      func(a *api.NewToken) { a.Life = "36500d" },
		"a wild note":   func(a *api.NewToken) { a.Note = "a\x1b[2J" },
	} {
		a := api.NewToken{InProject: api.InProject{Project: "lab"}, User: "ann", Role: access.Member, Life: "1h"}
		spoil(&a)
		got, err := s.createToken(a)
		s.is(err, croft.Invalid, what)
		if got.Secret != "" {
			s.Errorf("%s: there is a secret", what)
		}
	}
	_, err := s.createToken(api.NewToken{InProject: api.InProject{Project: "../lab"}, User: "ann", Role: access.Member,
		Life: "1h"})
	s.is(err, croft.NotFound, "a wild project")
	for _, id := range []string{"0123456789ab", "../authority"} {
		_, err := s.Client.RevokeToken(s.ctx, api.TokenNamed{ID: id})
		s.is(err, croft.NotFound, id)
	}
	if list, err := s.Client.ListTokens(s.ctx, api.InProject{}); err != nil || len(list.Tokens) != 0 {
		s.Errorf("there is %+v, %v", list, err)
	}
}
