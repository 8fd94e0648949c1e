package control_test

import (
	"net/http"
	"strings"
	"testing"

	"croft"
	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
	"croft/tenant"
	"croft/tenant/access"
	"croft/test/simcloud"
)

// generation returns the value for If-Match from an answer.
func (a answer) generation() string { return a.header.Get("ETag") }

func TestProjectsAndTheirQuotas(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	create := func(token, name, parent string) answer {
		return a.ask(t, token, http.MethodPost, "/v1/projects", api.NewProject{Name: croft.Project(name),
			Parent: croft.Project(parent)})
	}
	var org, dev tenant.Tenant
	create("adam", "org", "").want(t, http.StatusForbidden, api.ForbiddenVerb)
	create("operator", "org", "").into(t, &org)
	create("anna", "dev", "org").want(t, http.StatusForbidden, api.ForbiddenVerb)
	made := create("operator", "dev", "org")
	made.into(t, &dev)
	create("operator", "dev", "org").want(t, http.StatusConflict, api.NameTaken)
	var below tenant.Tenant
	create("adam", "default", "org").want(t, http.StatusConflict, api.NameTaken) // whether or not it exists
	create("adam", "tools", "org").into(t, &below)
	create("adam", "org.tools", "org").want(t, http.StatusConflict, api.NameTaken)
	if below.Name != "org.tools" || !below.Started || below.ID == "" {
		t.Errorf("an admin of org creates %+v", below)
	}
	create("operator", "berta", "").into(t, &tenant.Tenant{})
	create("adam", "x", "berta").want(t, http.StatusNotFound, api.NotFound)

	var list api.ProjectList
	a.ask(t, "adam", http.MethodGet, "/v1/projects", nil).into(t, &list)
	if len(list.Projects) != 2 || list.Projects[0].Name != "dev" || list.Projects[0].Parent != "org" {
		t.Errorf("the admin of org sees %+v", list.Projects)
	}
	for _, path := range []string{"/v1/projects/berta", "/v1/projects/none", "/v1/projects/berta/quota"} {
		a.ask(t, "adam", http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
	}

	// Only admins of the parent project set the quota of a project.
	limits := api.Limits{Limits: tenant.Limits{tenant.CountInstances: 0}}
	set := func(token, project, match string) answer {
		return a.askWith(t, token, http.MethodPut, "/v1/projects/"+project+"/quota", limits, "If-Match", match)
	}
	set("adam", "org", `"1"`).want(t, http.StatusForbidden, api.ForbiddenVerb)
	set("adam", "dev", "").want(t, http.StatusPreconditionRequired, api.GenerationRequired)
	set("adam", "dev", `"1"`).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	changed := set("adam", "dev", made.generation())
	changed.into(t, &dev)
	var account tenant.Account
	a.ask(t, "adam", http.MethodGet, "/v1/projects/dev/quota", nil).into(t, &account)
	if account.Limits[tenant.CountInstances] != 0 || len(account.Used) != 0 {
		t.Errorf("dev has %+v", account)
	}
	refused := a.ask(t, "adam", http.MethodPost, "/v1/instances?project=dev", wanted())
	refused.want(t, http.StatusForbidden, api.QuotaExceeded)
	if p := refused.problem; p.Resource != "instances" || p.Limit == nil || *p.Limit != 0 || *p.Requested != 1 ||
		p.Project != "dev" {
		t.Errorf("refused with %+v", p)
	}

	// Members get only roles that the admin may grant.
	members := func(role access.Role) answer {
		return a.askWith(t, "adam", http.MethodPut, "/v1/projects/dev/members",
			api.Members{Members: map[string]access.Role{"cyd": role}}, "If-Match", changed.generation())
	}
	members(access.PartitionAdmin).want(t, http.StatusBadRequest, api.SchemaViolation)
	members(access.Member).into(t, &dev)
	if dev.Members["cyd"] != access.Member {
		t.Errorf("the members are %v", dev.Members)
	}
	a.ask(t, "adam", http.MethodDelete, "/v1/projects/org", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "operator", http.MethodDelete, "/v1/projects/org", nil).want(t, http.StatusConflict, api.InUse)
	if got := a.ask(t, "adam", http.MethodDelete, "/v1/projects/dev", nil); got.status != http.StatusNoContent {
		t.Errorf("remove dev: %d %s", got.status, got.body)
	}
}

func TestNamesThatSettingsGiveRightsToAreNotForTenants(t *testing.T) {
	t.Parallel()
	url, c := controltest.StartConfigured(t, func(_ *simcloud.Cloud, config *control.Config) {
		config.Reserved = []croft.Project{"org.staff"}
	})
	if err := c.Store.Registry.PutHost(t.Context(), croft.Host{ID: croft.NewHostID(), Name: "host2", VirtType: "sim",
		Networks: map[string][]croft.Project{"mgmt": {"org.prod"}, "lab": {croft.EveryProject}}}); err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, url)
	create := func(token, name, parent string) answer {
		return a.ask(t, token, http.MethodPost, "/v1/projects", api.NewProject{Name: croft.Project(name),
			Parent: croft.Project(parent)})
	}
	create("operator", "org", "").into(t, &tenant.Tenant{})
	for _, name := range []string{"staff", "org.staff", "prod"} {
		refused := create("adam", name, "org")
		refused.want(t, http.StatusConflict, api.NameTaken)
		if !strings.Contains(string(refused.body), "settings of this cloud give rights to the name") {
			t.Errorf("%s is refused with %s", name, refused.body)
		}
	}
	create("adam", "tools", "org").into(t, &tenant.Tenant{})
	create("operator", "org.prod", "org").into(t, &tenant.Tenant{})
}

// For a quota of a project that the caller does not see, the answer has no numbers.
func TestAQuotaAboveTellsNothingOfOthers(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	var org tenant.Tenant
	made := a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "secret-org"})
	made.into(t, &org)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna", Parent: "secret-org"}).
		into(t, &tenant.Tenant{})
	a.askWith(t, "operator", http.MethodPut, "/v1/projects/secret-org/quota",
		api.Limits{Limits: tenant.Limits{"VCPU": 0}}, "If-Match", made.generation()).into(t, &org)
	refused := a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted())
	refused.want(t, http.StatusForbidden, api.QuotaExceeded)
	refused.hides(t, "secret-org")
	if refused.problem.Limit != nil || !strings.Contains(refused.problem.Detail, "VCPU") {
		t.Errorf("refused with %s", refused.body)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/projects/anna", nil).hides(t, "secret-org")
}

func TestAMistypedProjectIsAnsweredWithOneThatTheCallerSees(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "org"}).into(t, &tenant.Tenant{})
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "dev", Parent: "org"}).into(t,
		&tenant.Tenant{})
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).into(t, &tenant.Tenant{})
	for name, want := range map[string]string{"dve": `; did you mean "dev"?`, "bertha": "", "x.dev": ""} {
		got := a.ask(t, "adam", http.MethodGet, "/v1/projects/"+name, nil)
		got.want(t, http.StatusNotFound, api.NotFound)
		if detail := got.problem.Detail; detail != "there is no such project, or it is not yours"+want {
			t.Errorf("the answer about %s is %q", name, detail)
		}
	}
}

// TestAnOperatorIsRefusedAProjectThatDoesNotExist, once the cloud has projects: nothing would limit what it makes.
func TestAnOperatorIsRefusedAProjectThatDoesNotExist(t *testing.T) {
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	create := func(project string) answer {
		return a.ask(t, "operator", http.MethodPost, "/v1/instances?project="+project, wanted())
	}
	create("early").want(t, http.StatusAccepted, "")
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "lab"}).want(t, http.StatusCreated, "")
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, "/v1/instances", wanted()},
		{http.MethodPost, "/v1/candidates", wanted()},
		{http.MethodPost, "/v1/claims", wanted("hold", 60)},
		{http.MethodPut, "/v1/groups/g/tags/x", nil},
	} {
		got := a.ask(t, "operator", request.method, request.path+"?project=labb", request.body)
		got.want(t, http.StatusNotFound, api.NotFound)
		if want := `there is no project "labb"; did you mean "lab"?`; got.problem.Detail != want {
			t.Errorf("%s %s: %s, want %s", request.method, request.path, got.problem.Detail, want)
		}
	}
	for _, project := range []string{"lab", "default", "early"} {
		a.ask(t, "operator", http.MethodPost, "/v1/candidates?project="+project, wanted()).want(t, http.StatusOK, "")
	}
	a.ask(t, "operator", http.MethodGet, "/v1/instances?project=labb", nil).want(t, http.StatusOK, "")
}
