package cloudtest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/control/cloud"
	"croft/tenant"
	"croft/tenant/access"
)

func (s *suite) access() {
	lab := cloud.NewAccess{User: "ann", Project: "lab", Role: access.Member, Note: "for CI", Life: time.Hour}
	_, err := s.Cloud.Access.Create(s.ctx, lab)
	s.is(err, croft.NotFound, "a token of a project that does not exist")
	_, err = s.Cloud.Projects.Create(s.ctx, tenant.Tenant{Name: "lab", Created: time.Now().UTC()})
	s.must(err)
	made, err := s.Cloud.Access.Create(s.ctx, lab)
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
	operator, err := s.Cloud.Access.Create(s.ctx, cloud.NewAccess{User: "joe", Role: access.PartitionAdmin,
		Life: time.Hour})
	s.must(err)
	made.Secret, operator.Secret = "", ""
	for project, want := range map[croft.Project][]cloud.AccessToken{
		"": {made, operator}, "lab": {made}, "shop": nil,
	} {
		all, err := s.Cloud.Access.List(s.ctx, project)
		s.must(err)
		if project == "" && len(all) == 2 && all[0].ID == operator.ID { // both were made within one second
			all[0], all[1] = all[1], all[0]
		}
		if diff := cmp.Diff(want, all); diff != "" {
			s.Errorf("project %q (-want +got):\n%s", project, diff)
		}
	}
	ended, err := s.Cloud.Access.Revoke(s.ctx, made.ID)
	if err != nil || ended.ID != made.ID || ended.User != "ann" {
		s.Errorf("revoked %+v, %v", ended, err)
	}
	_, err = s.Cloud.Access.Revoke(s.ctx, made.ID)
	s.is(err, croft.NotFound, "a token that is revoked")
	if all, err := s.Cloud.Access.List(s.ctx, ""); err != nil || len(all) != 1 || all[0].ID != operator.ID {
		s.Errorf("left: %+v, %v", all, err)
	}
}

func (s *suite) noAccess() {
	for what, spoil := range map[string]func(*cloud.NewAccess){
		"nobody":         func(a *cloud.NewAccess) { a.User = "" },
		"no project":     func(a *cloud.NewAccess) { a.Project = "" },
		"no role":        func(a *cloud.NewAccess) { a.Role = "" },
		"a host's role":  func(a *cloud.NewAccess) { a.Role = access.Agent },
		"an hour ago":    func(a *cloud.NewAccess) { a.Life = -time.Hour },
		"for ever":       func(a *cloud.NewAccess) { a.Life = 100 * 365 * 24 * time.Hour },
		"a wild project": func(a *cloud.NewAccess) { a.Project = "../lab" },
		"a wild note":    func(a *cloud.NewAccess) { a.Note = "a\x1b[2J" },
	} {
		a := cloud.NewAccess{User: "ann", Project: "lab", Role: access.Member, Life: time.Hour}
		spoil(&a)
		got, err := s.Cloud.Access.Create(s.ctx, a)
		s.is(err, croft.Invalid, what)
		if got.Secret != "" {
			s.Errorf("%s: there is a secret", what)
		}
	}
	_, err := s.Cloud.Access.Revoke(s.ctx, "0123456789ab")
	s.is(err, croft.NotFound, "a token that never was")
	_, err = s.Cloud.Access.Revoke(s.ctx, "../authority")
	s.is(err, croft.NotFound, "what is no ID")
	if all, err := s.Cloud.Access.List(s.ctx, ""); err != nil || len(all) != 0 {
		s.Errorf("there is %+v, %v", all, err)
	}
}
