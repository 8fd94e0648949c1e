// Package access identifies the callers of the cloud's API, and decides what each caller may do: one table maps
// operations and roles to decisions, and everything that is not in it is denied.
package access

import (
	"context"
	"slices"
	"strings"
	"time"

	"croft"
)

// A Role is a user's role in a project, or in the whole partition.
type Role string

// The roles. A project-admin administers the project and all projects below it. A partition-admin is an operator of the
// cloud. An agent is a host of the cloud, which may do nothing that tenants do.
const (
	Reader         Role = "reader"
	Member         Role = "member"
	ProjectAdmin   Role = "project-admin"
	PartitionAdmin Role = "partition-admin"
	Agent          Role = "agent"
)

// Roles lists all roles. The roles of people come first, in ascending order.
var Roles = []Role{Reader, Member, ProjectAdmin, PartitionAdmin, Agent}

// The roles that can be granted: to members of a project, and with tokens. Commands offer these, and accept no others.
var (
	MemberRoles = Roles[:3:3]
	TokenRoles  = Roles[:4:4]
)

// Check validates the name of a role. Invalid.
func (r Role) Check() error { return r.CheckAmong(Roles) }

// CheckAmong validates a role that must be one of allowed. Invalid.
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

// Caller is the sender of a request according to its credentials. Nothing else in the request can extend its rights.
type Caller struct {
	Partition croft.PartitionID `json:"partition"`                    // the cloud that it is from
	User      string            `json:"user"`                         // user name for people and for the action log
	Project   croft.Project     `json:"project,omitempty"`            // empty only for a partition-admin or an agent
	Roles     []Role            `json:"roles"`                        // what it may do
	Host      croft.HostID      `json:"host,omitempty"`               // host of an agent
	Peer      croft.PartitionID `json:"peer,omitempty" format:"uuid"` // partition of the user, if it is another one
	// Delegated names the creator of the caller's token if that was created in the name of User; empty: it is the
	// user's own.
	Delegated string  `json:"delegated,omitempty"`
	Token     TokenID `json:"-"` // if the caller has a token of this cloud
	// PeerProject is the user's project in the partition Peer, and PeerProjectID its identity.
	PeerProject croft.Project `json:"peer_project,omitempty"`
	// The id of that project.
	PeerProjectID croft.ProjectID `json:"peer_project_id,omitempty" format:"uuid"`
	Via           string          `json:"via"` // the credentials, such as "token 1f3a" or "socket, uid 0"
	// When a token of this cloud expires; absent for other credentials.
	Expires time.Time `json:"expires,omitzero"`

	// ProjectID is the identity of Project, which distinguishes it from a later project of the same name. Empty: the
	// name has no record, or it was not read yet.
	ProjectID croft.ProjectID `json:"project_id,omitempty" format:"uuid"`

	tree Tree // nil: no project is below another
}

// Tree is the tree of projects. It answers from memory.
type Tree interface {
	// Below lists p and the projects below it at every depth.
	Below(p croft.Project) []croft.Project
	// ID returns the identity of p; empty: it has no record.
	ID(p croft.Project) croft.ProjectID
}

// Refresher is a Tree that may be older than the stored records.
type Refresher interface {
	// Refresh returns once the tree has the stored record of p, or knows that none exists. Unavailable.
	Refresh(ctx context.Context, p croft.Project) error
}

// Behind is a copy in memory, of tokens, members or peers, that may be older than the stored records.
type Behind interface {
	// CatchUp returns once the copy includes everything that was stored when CatchUp was called. Concurrent calls share
	// reads. Unavailable.
	CatchUp(ctx context.Context) error
}

// CatchUp calls CatchUp of a copy that implements Behind.
func CatchUp(ctx context.Context, copied any) error {
	if b, behind := copied.(Behind); behind {
		return b.CatchUp(ctx)
	}
	return nil
}

// Refresh updates the caller's tree with the stored records of projects, if it implements Refresher.
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

// In returns the caller with a tree of projects, which decides which projects a project-admin administers in addition
// to the own one. The tree is read at each use, so a long stream notices new and removed projects.
func (c Caller) In(t Tree) Caller {
	c.tree = t
	return c
}

// Identity returns the current identity of a project in the caller's tree; empty: the project has no record, or there
// is no tree.
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

// Scope returns the projects that the caller may see: all for an operator, the own one and those below it for a
// project-admin, the own one for others. Agents, and callers without a role, see nothing.
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

// Scope restricts a read to projects. The zero Scope includes nothing.
type Scope struct {
	all      bool
	projects []croft.Project
}

// Everything returns the scope of operators, and of the cloud's own components.
func Everything() Scope { return Scope{all: true} }

// Within returns a scope of the named projects.
func Within(projects ...croft.Project) Scope { return Scope{projects: projects} }

// Sees reports whether the scope includes a project.
func (s Scope) Sees(p croft.Project) bool { return s.all || slices.Contains(s.projects, p) }

// All reports whether the scope includes all projects, including future ones.
func (s Scope) All() bool { return s.all }

// Projects lists the projects of the scope, unless All.
func (s Scope) Projects() []croft.Project { return slices.Clone(s.projects) }
