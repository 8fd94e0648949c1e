// Package access says who calls the API of the cloud, and what each caller may do: one table from operations and
// roles to decisions, which denies whatever it does not name.
package access

import (
	"context"
	"slices"
	"strings"

	"croft"
)

// A Role is what somebody is to a project, or to the whole partition.
type Role string

// The roles. A project-admin administers the project and all projects below it. A partition-admin is an operator of
// the cloud. An agent is a host of the cloud, which may do nothing that tenants do.
const (
	Reader         Role = "reader"
	Member         Role = "member"
	ProjectAdmin   Role = "project-admin"
	PartitionAdmin Role = "partition-admin"
	Agent          Role = "agent"
)

// Roles are all roles, from the least to the greatest of those that people have.
var Roles = []Role{Reader, Member, ProjectAdmin, PartitionAdmin, Agent}

// The roles that can be given: to members of a project, and with tokens. Commands offer these, and accept no other.
var (
	MemberRoles = Roles[:3:3]
	TokenRoles  = Roles[:4:4]
)

// Check validates the name of a role. Invalid.
func (r Role) Check() error { return r.CheckAmong(Roles) }

// CheckAmong validates a role that has to be one of those allowed. Invalid.
func (r Role) CheckAmong(allowed []Role) error {
	if r == Agent && !slices.Contains(allowed, r) {
		return croft.Errorf(croft.Invalid, "the role %s is only for hosts, which have certificates", r)
	}
	if !slices.Contains(allowed, r) {
		return croft.Errorf(croft.Invalid, "%.40q is not a role: use one of %s", string(r),
			strings.Join(Words(allowed), ", "))
	}
	return nil
}

// Words lists roles as text.
func Words(roles []Role) (all []string) {
	for _, r := range roles {
		all = append(all, string(r))
	}
	return all
}

// Caller is who makes a request, as its credentials say. Nothing in the request can widen it.
type Caller struct {
	Partition croft.PartitionID `json:"partition"`
	User      string            `json:"user"`              // name for people and for the action log
	Project   croft.Project     `json:"project,omitempty"` // empty only for a partition-admin or an agent
	Roles     []Role            `json:"roles"`
	Host      croft.HostID      `json:"host,omitempty"` // of an agent
	Peer      croft.PartitionID `json:"peer,omitempty"` // the partition that the user is of, if it is another one
	// Delegated names who made the caller's token in the name of User; empty: it is the user's own.
	Delegated string  `json:"delegated,omitempty"`
	Token     TokenID `json:"-"` // of a caller with a token of this cloud
	// PeerProject is the user's project in that partition, and PeerProjectID its identity.
	PeerProject   croft.Project   `json:"peer_project,omitempty"`
	PeerProjectID croft.ProjectID `json:"peer_project_id,omitempty"`
	Via           string          `json:"via"` // how it was recognized, such as "token 1f3a" or "socket, uid 0"

	// ProjectID is the identity of Project, so that a later project of the same name is told from it. Empty: the name
	// has no record, or it was not read yet.
	ProjectID croft.ProjectID `json:"project_id,omitempty"`

	tree Tree // nil: no project is below another
}

// Tree knows which projects lie below which. It answers from memory.
type Tree interface {
	// Below lists p and the projects below it at every depth.
	Below(p croft.Project) []croft.Project
	// ID returns the identity of p; empty: it has no record.
	ID(p croft.Project) croft.ProjectID
}

// Refresher is a Tree that may be behind what is stored.
type Refresher interface {
	// Refresh returns once the tree has the record of p that is stored now, or knows that there is none. Unavailable.
	Refresh(ctx context.Context, p croft.Project) error
}

// Behind is a copy in memory, of tokens, members or peers, that may be behind what is stored.
type Behind interface {
	// CatchUp returns once the copy has everything that was stored when it was called. Many callers share few reads.
	// Unavailable.
	CatchUp(ctx context.Context) error
}

// CatchUp has a copy catch up with what is stored, if it may be behind.
func CatchUp(ctx context.Context, copied any) error {
	if b, behind := copied.(Behind); behind {
		return b.CatchUp(ctx)
	}
	return nil
}

// Refresh has the tree of the caller catch up with what is stored about projects. A tree that needs none does nothing.
func (c Caller) Refresh(ctx context.Context, projects ...croft.Project) error {
	t, behind := c.tree.(Refresher)
	if !behind {
		return nil
	}
	for _, p := range projects {
		if err := t.Refresh(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// In returns the caller in a tree of projects, which decides what a project-admin administers besides the own
// project. The tree is asked at each use, so a long stream notices when projects come and go.
func (c Caller) In(t Tree) Caller {
	c.tree = t
	return c
}

// Identity returns the identity of a project as the tree of the caller has it at present; empty: the project has no
// record, or there is no tree.
func (c Caller) Identity(p croft.Project) croft.ProjectID {
	if c.tree == nil || p == "" {
		return ""
	}
	return c.tree.ID(p)
}

// Has reports whether the caller has a role.
func (c Caller) Has(r Role) bool { return slices.Contains(c.Roles, r) }

// Operator reports whether the caller may see and change everything in the partition.
func (c Caller) Operator() bool { return c.Has(PartitionAdmin) }

// Scope is what the caller may see at all: operators everything, a project-admin the own project and those below it,
// others the own project. Agents, and callers without a role, see nothing.
func (c Caller) Scope() Scope {
	switch {
	case c.Operator():
		return Everything()
	case c.Project == "":
		return Scope{}
	case c.Has(ProjectAdmin) && c.tree != nil:
		return Within(c.tree.Below(c.Project)...)
	case c.Has(ProjectAdmin), c.Has(Member), c.Has(Reader):
		return Within(c.Project)
	}
	return Scope{}
}

// Scope limits a read to projects. The zero Scope sees nothing.
type Scope struct {
	all      bool
	projects []croft.Project
}

// Everything is the scope of operators, and of parts of the cloud itself.
func Everything() Scope { return Scope{all: true} }

// Within is a scope of the named projects.
func Within(projects ...croft.Project) Scope { return Scope{projects: projects} }

// Sees reports whether the scope includes a project.
func (s Scope) Sees(p croft.Project) bool { return s.all || slices.Contains(s.projects, p) }

// All reports whether the scope includes all projects, those to come as well.
func (s Scope) All() bool { return s.all }

// Projects lists the projects of the scope, unless All.
func (s Scope) Projects() []croft.Project { return slices.Clone(s.projects) }
