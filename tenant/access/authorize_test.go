package access_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/tenant/access"
)

// tree has the projects below each project.
type tree map[croft.Project][]croft.Project

func (t tree) Below(p croft.Project) []croft.Project { return append([]croft.Project{p}, t[p]...) }

func (t tree) ID(croft.Project) croft.ProjectID { return "" }

var projects = tree{"lab": {"lab-a", "lab-b"}, "lab-a": {"lab-b"}, "shop": {"shop-a"}}

func caller(p croft.Project, roles ...access.Role) access.Caller {
	return access.Caller{User: "ann", Project: p, Roles: roles}.In(projects)
}

func TestWhoMayDoWhatWhere(t *testing.T) {
	operations := map[string]access.Operation{"formatDisks": {}, "createToken": {Rule: access.Manages, Lasting: true},
		"setMembers": {Rule: access.Manages, Lasting: true}}
	for id, rule := range map[string]access.Rule{"getInstance": access.Reads, "listInstances": access.Reads,
		"stopInstance": access.Changes, "destroyInstance": access.Changes, "createProject": access.Manages,
		"setQuota": access.FromAbove, "removeProject": access.FromAbove, "drainHost": access.Operates,
		"whoami": access.Everybody, "getRoot": access.Everybody} {
		operations[id] = access.Operation{Rule: rule}
	}
	for id, op := range operations {
		op.Action = cmp.Or(map[string]string{"stopInstance": "stop an instance", "drainHost": "drain a host",
			"setQuota": "set the limits of a project", "listInstances": "list instances"}[id], id)
		operations[id] = op
	}
	const own, below, deep, other = "lab", "lab-a", "lab-b", "shop"
	reader, member := caller(own, access.Reader), caller(own, access.Member)
	admin, operator := caller(own, access.ProjectAdmin), caller("", access.PartitionAdmin)
	foreign := admin
	foreign.Peer = "11111111-1111-4111-8111-111111111111"
	agent, nobody := access.Caller{Roles: []access.Role{access.Agent}}, caller(own)
	lost := caller("", access.Reader, access.Member, access.ProjectAdmin)
	for _, c := range []struct {
		name    string
		caller  access.Caller
		op      string
		project croft.Project
		want    croft.Kind
		says    string
	}{
		{"a reader reads the own project", reader, "getInstance", own, "", ""},
		{"without a name it is the own one", reader, "getInstance", "", "", ""},
		{"a reader changes nothing", reader, "stopInstance", own, croft.Denied,
			`ann (reader) may not stop an instance in project "lab": it takes the role member`},
		{"another project is not there", reader, "getInstance", other, croft.NotFound, `there is no project "shop"`},
		{"nor for what a reader may not do", reader, "stopInstance", other, croft.NotFound, "there is no project"},
		{"nor for an operation that there is not", reader, "formatDisks", other, croft.NotFound, "there is no project"},
		{"a project below is not a member's", member, "getInstance", below, croft.NotFound, ""},
		{"a member changes instances", member, "destroyInstance", own, "", ""},
		{"a member makes no tokens", member, "createToken", own, croft.Denied, "it takes the role project-admin"},
		{"a member sets no quota", member, "setQuota", own, croft.Denied,
			`ann (member) may not set the limits of a project in project "lab": it takes the role project-admin`},
		{"an admin makes tokens", admin, "createToken", own, "", ""},
		{"an admin of another cloud makes none", foreign, "createToken", own, croft.Denied, "would outlast theirs"},
		{"nor members", foreign, "setMembers", below, croft.Denied, "would outlast theirs"},
		{"but projects below", foreign, "createProject", own, "", ""},
		{"and their quotas", foreign, "setQuota", below, "", ""},
		{"an admin does so below", admin, "createToken", deep, "", ""},
		{"an admin does not elsewhere", admin, "createToken", other, croft.NotFound, ""},
		{"nor there below", admin, "createToken", "shop-a", croft.NotFound, ""},
		{"an admin has not the own quota", admin, "setQuota", own, croft.Denied,
			"an admin of the project above decides"},
		{"nor without a name", admin, "setQuota", "", croft.Denied, "an admin of the project above decides"},
		{"but quotas below", admin, "setQuota", below, "", ""},
		{"far below too", admin, "removeProject", deep, "", ""},
		{"an admin drains no host", admin, "drainHost", "", croft.Denied, "it takes the role partition-admin"},
		{"whatever project is named", admin, "drainHost", other, croft.Denied,
			"ann (project-admin) may not drain a host:"},
		{"an operator does everything", operator, "setQuota", other, "", ""},
		{"an operator sees everything at once", operator, "listInstances", "", "", ""},
		{"an operator drains hosts", operator, "drainHost", "", "", ""},
		{"but not what no rule names", operator, "formatDisks", own, croft.Denied, "no rule allows"},
		{"an agent asks who it is", agent, "whoami", "", "", ""},
		{"an agent lists nothing", agent, "listInstances", "", croft.Denied,
			"the caller (agent) may not list instances: it takes the role reader"},
		{"an agent finds no project", agent, "getInstance", own, croft.NotFound, ""},
		{"somebody without a role", nobody, "getInstance", own, croft.NotFound, ""},
		{"not even the own project", nobody, "getInstance", "", croft.Denied, "ann (no role)"},
		{"nor the root", nobody, "getRoot", "", croft.Denied, ""},
		{"roles of no project", lost, "listInstances", "", croft.Denied, ""},
		{"of no project, anywhere", lost, "listInstances", own, croft.NotFound, ""},
		{"of no project, below everything", lost, "setQuota", "", croft.Denied, ""},
		{"an unknown role", caller(own, "king"), "getInstance", own, croft.NotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := access.Authorize(c.caller, operations[c.op], c.project)
			if croft.KindOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Fatalf("got %v (%s), want kind %q", err, croft.KindOf(err), c.want)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %q, want %q in it", err, c.says)
			}
			if access.Unauthenticated(err) {
				t.Errorf("%v counts as unauthenticated", err)
			}
		})
	}
}

func TestWhatCallersSee(t *testing.T) {
	for _, c := range []struct {
		name   string
		caller access.Caller
		all    bool
		want   []croft.Project
	}{
		{"a reader", caller("lab", access.Reader), false, []croft.Project{"lab"}},
		{"a member", caller("lab", access.Member), false, []croft.Project{"lab"}},
		{"a project-admin", caller("lab", access.ProjectAdmin), false, []croft.Project{"lab", "lab-a", "lab-b"}},
		{"a project-admin of nothing above", caller("lab-b", access.ProjectAdmin), false, []croft.Project{"lab-b"}},
		{"a project-admin where no tree is known",
			access.Caller{Project: "lab", Roles: []access.Role{access.ProjectAdmin}}, false, []croft.Project{"lab"}},
		{"an operator", caller("lab", access.PartitionAdmin), true, nil},
		{"an agent", caller("", access.Agent), false, nil},
		{"nobody", caller("lab"), false, nil},
		{"a project-admin of no project", caller("", access.ProjectAdmin), false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.caller.Scope()
			if got.All() != c.all || !slices.Equal(got.Projects(), c.want) {
				t.Errorf("sees everything %v, %v; want %v, %v", got.All(), got.Projects(), c.all, c.want)
			}
			if got.Sees("") != c.all {
				t.Errorf("sees what is of no project: %v", got.Sees(""))
			}
		})
	}
}

func TestATreeThatChangesChangesWhatIsSeen(t *testing.T) {
	now := tree{"lab": {"lab-a"}}
	c := access.Caller{Project: "lab", Roles: []access.Role{access.ProjectAdmin}}.In(now)
	now["lab"] = []croft.Project{"lab-new"}
	if s := c.Scope(); s.Sees("lab-a") || !s.Sees("lab-new") {
		t.Errorf("it sees %v", s.Projects())
	}
}

func TestWhoGivesWhichRoles(t *testing.T) {
	for _, c := range []struct {
		name string
		from access.Role
		give access.Role
		want croft.Kind
		says string
	}{
		{"a member gives none", access.Member, access.Reader, croft.Denied, "it takes project-admin"},
		{"an admin gives admin", access.ProjectAdmin, access.ProjectAdmin, "", ""},
		{"an admin makes no operator", access.ProjectAdmin, access.PartitionAdmin, croft.Denied,
			"it takes partition-admin"},
		{"an operator makes operators", access.PartitionAdmin, access.PartitionAdmin, "", ""},
		{"nobody makes agents", access.PartitionAdmin, access.Agent, croft.Invalid, "only for hosts"},
		{"nor roles that there are not", access.PartitionAdmin, "king", croft.Invalid, "is not a role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := access.AuthorizeRoles(caller("lab", c.from), []access.Role{c.give})
			if croft.KindOf(err) != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want kind %q and %q in it", err, c.want, c.says)
			}
		})
	}
}
