package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"croft"
)

// Operation is an operation of the API, as far as it concerns the rights of callers.
type Operation struct {
	Action   string // what it does, in words: "stop an instance"
	Rule     Rule
	Lasting  bool // it grants rights that would outlive the caller's peer
	Personal bool // its objects belong to a user in person, as credentials and accounts on clusters do
}

// Decision is the right of a role to an operation.
type Decision int

// The decisions. Yes applies to the projects that the caller sees: the own one for readers and members, also those
// below it for a project-admin, all for a partition-admin. Below is Yes without the own project, for operations that
// the admin of the project above decides about, such as setting a quota.
const (
	Undecided Decision = iota // the operation has no rule, and so is denied
	No
	Yes
	Below
)

func (d Decision) String() string {
	return [...]string{"undecided", "no", "yes", "below"}[d]
}

// Rule has the decisions about an operation, by role in the order of Roles.
type Rule struct {
	cloud bool // the operation concerns no project
	roles [5]Decision
}

// The rules of all operations.
var (
	Reads   = Rule{roles: [5]Decision{Yes, Yes, Yes, Yes, No}} // all roles of a project, and operators
	Changes = Rule{
		roles: [5]Decision{No, Yes, Yes, Yes, No},
	} // members and admins of a project, and operators
	Manages = Rule{
		roles: [5]Decision{No, No, Yes, Yes, No},
	} // admins of a project or of one above it, and operators
	FromAbove = Rule{
		roles: [5]Decision{No, No, Below, Yes, No},
	} // admins of a project above, and operators
	Operates   = Rule{cloud: true, roles: [5]Decision{No, No, No, Yes, No}}     // operators
	Everybody  = Rule{cloud: true, roles: [5]Decision{Yes, Yes, Yes, Yes, Yes}} // all authenticated callers, hosts too
	EveryHuman = Rule{cloud: true, roles: [5]Decision{Yes, Yes, Yes, Yes, No}}  // all authenticated callers but hosts
)

// Decide returns the decision of a rule about a role.
func (rule Rule) Decide(r Role) Decision {
	i := slices.Index(Roles, r)
	if i < 0 {
		return Undecided
	}
	return rule.roles[i]
}

// Authorize decides whether a caller may do op in a project. An empty project means the caller's own; for an operator
// without one, and in lists, everything that the caller sees. NotFound: the caller does not see the project, whether it
// exists or not. Denied: the caller sees it, but may not do this.
func Authorize(c Caller, op Operation, project croft.Project) error {
	about := op.Rule
	if project != "" && !about.cloud && !c.Scope().Sees(project) {
		return croft.Errorf(croft.NotFound, "there is no project %.80q", string(project))
	}
	if c.Peer != "" && op.Lasting {
		return croft.Errorf(croft.Denied,
			"%s may not %s: users of other clouds give no rights that would outlast theirs",
			c.words(), op.Action)
	}
	if c.Delegated != "" && op.Personal {
		return croft.Errorf(
			croft.Denied,
			"%s may not %s: %s made this token in the name of %s, and only %[4]s in person may",
			c.words(),
			op.Action,
			c.Delegated,
			c.User,
		)
	}
	project = cmp.Or(project, c.Project)
	if project == "" && !about.cloud && !c.Operator() {
		return forbidden(c, op, project)
	}
	for _, r := range c.Roles {
		if d := op.Rule.Decide(r); d == Yes || d == Below && project != c.Project {
			return nil
		}
	}
	return forbidden(c, op, project)
}

// May reports whether a rule permits a caller in a project.
func May(c Caller, rule Rule, project croft.Project) bool {
	return Authorize(c, Operation{Rule: rule}, project) == nil
}

// MayAnywhere reports whether a rule permits one of the roles, possibly not in all projects.
func MayAnywhere(rule Rule, roles []Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { d := rule.Decide(r); return d == Yes || d == Below })
}

// AuthorizeRoles decides whether a caller may grant roles, with a token or to a member: project-admins grant roles that
// they have, and only operators make operators. Denied. Invalid: agents have certificates, and their role cannot be
// granted.
func AuthorizeRoles(c Caller, roles []Role) error {
	for _, r := range roles {
		if err := r.Check(); err != nil {
			return err
		}
		switch {
		case r == Agent:
			return croft.Errorf(croft.Invalid, "the role %s is only for hosts, which have certificates", Agent)
		case c.Operator(), c.Has(ProjectAdmin) && r != PartitionAdmin:
		default:
			return croft.Errorf(croft.Denied, "%s cannot give the role %s: it takes %s", c.words(), r,
				map[bool]Role{true: PartitionAdmin, false: ProjectAdmin}[r == PartitionAdmin])
		}
	}
	return nil
}

// forbidden says which right the caller lacks.
func forbidden(c Caller, op Operation, project croft.Project) error {
	where := ""
	if project != "" && !op.Rule.cloud {
		where = fmt.Sprintf(" in project %.80q", string(project))
	}
	switch least := leastRole(op.Rule); {
	case least == "":
		return croft.Errorf(croft.Denied, "no rule allows anybody to %.80s", op.Action)
	case op.Rule.Decide(ProjectAdmin) == Below && c.Has(ProjectAdmin): // otherwise it would have been allowed
		return croft.Errorf(
			croft.Denied,
			"%s may not %s%s: an admin of the project above decides that",
			c.words(),
			op.Action,
			where,
		)
	default:
		return croft.Errorf(croft.Denied, "%s may not %s%s: it takes the role %s", c.words(), op.Action, where, least)
	}
}

// leastRole returns the lowest role that a rule permits, possibly not in all projects; empty: none exists.
func leastRole(rule Rule) Role {
	for _, r := range Roles {
		if d := rule.Decide(r); d == Yes || d == Below {
			return r
		}
	}
	return ""
}

// words names the caller in messages.
func (c Caller) words() string {
	var roles []string
	for _, r := range c.Roles {
		roles = append(roles, string(r))
	}
	return fmt.Sprintf("%s (%s)", cmp.Or(c.User, "the caller"), cmp.Or(strings.Join(roles, ", "), "no role"))
}
