package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
)

// Operation is the operationId of an operation in the API's document.
type Operation string

// Decision is the right of a role to an operation.
type Decision int

// The decisions. Yes applies to the projects that the caller sees: the own one for readers and members, also those
// below it for a project-admin, all for a partition-admin. Below is Yes without the own project, for operations that
// the admin of the project above decides about, such as setting a quota.
const (
	Undecided Decision = iota // not in the table, and so denied
	No
	Yes
	Below
)

func (d Decision) String() string {
	return [...]string{"undecided", "no", "yes", "below"}[d]
}

// row has the decisions about one operation, indexed by role in the order of Roles.
type row struct {
	cloud bool // the operation concerns no project
	roles [5]Decision
}

// The rows of most operations.
var (
	reads      = row{roles: [5]Decision{Yes, Yes, Yes, Yes, No}}
	changes    = row{roles: [5]Decision{No, Yes, Yes, Yes, No}}
	manages    = row{roles: [5]Decision{No, No, Yes, Yes, No}}
	fromAbove  = row{roles: [5]Decision{No, No, Below, Yes, No}}
	operates   = row{cloud: true, roles: [5]Decision{No, No, No, Yes, No}}
	everybody  = row{cloud: true, roles: [5]Decision{Yes, Yes, Yes, Yes, Yes}}
	everyHuman = row{cloud: true, roles: [5]Decision{Yes, Yes, Yes, Yes, No}}
)

// table decides about every operation. Operations that are not in it are denied.
var table = map[Operation]row{
	"getRoot":     everybody,
	"whoami":      everybody,
	"getDocument": everyHuman,

	"listInstances":    reads,
	"getInstance":      reads,
	"getInstanceLog":   reads,
	"watchEvents":      reads,
	"watchInstance":    reads,
	"createInstance":   changes,
	"destroyInstance":  changes,
	"startInstance":    changes,
	"stopInstance":     changes,
	"rebootInstance":   changes,
	"rebuildInstance":  changes,
	"recreateInstance": changes,
	"keepInstance":     changes,
	"attachConsole":    changes,
	"forwardPort":      changes,
	"explainRequest":   changes, // like createInstance, since it reveals how full the cloud is

	"listClaims":   reads,
	"getClaim":     reads,
	"createClaim":  changes,
	"useClaim":     changes,
	"releaseClaim": changes,

	"listPools":         reads,
	"getPool":           reads,
	"listPoolResources": reads,
	"getResourceLog":    manages, // it contains commands of operators, who may not have considered readers
	"listTickets":       reads,
	"getTicket":         reads, // readers do not see what it assigns
	"openTicket":        changes,
	"renewTicket":       changes,
	"closeTicket":       changes,

	"listKeys":  reads,
	"addKey":    changes,
	"removeKey": changes,

	"listProjects":  reads,
	"getProject":    reads,
	"getQuota":      reads,
	"getUsage":      reads,
	"listUsage":     reads,
	"createProject": manages, // below the project that is named as its parent
	"changeProject": fromAbove,
	"removeProject": fromAbove,
	"setQuota":      fromAbove,

	"getDefaultQuota": everyHuman,
	"setDefaultQuota": operates,
	"checkQuotas":     operates,
	"recountQuota":    operates,

	"setMembers":    manages,
	"listMappings":  reads,
	"setMapping":    manages, // by operators, and by users of a peer for their own partition
	"removeMapping": manages,

	"listTokens":  manages,
	"createToken": manages,
	"revokeToken": manages,

	"listActions": reads,

	"listObjects":    reads,
	"getObject":      reads,
	"getProperty":    reads,
	"changeObject":   reads, // the permissions of properties decide, which may include readers
	"setProperty":    reads,
	"removeProperty": reads,
	"addTag":         changes,
	"removeTag":      changes,

	"getDefinition":    everyHuman,
	"checkDefinition":  reads,
	"setDefinition":    operates,
	"removeDefinition": operates,

	"listClusters":      reads,
	"getCluster":        reads,
	"listClusterEvents": reads,
	"createCluster":     changes,
	"explainCluster":    changes, // like createCluster, since it reveals how full sites are
	"changeCluster":     changes,
	"deleteCluster":     changes,
	"addClusterHost":    changes,
	"removeClusterHost": changes,
	"endUse":            changes,
	"makeAccount":       changes, // for oneself
	"removeAccount":     changes,
	"readOutput":        changes, // of one's own clusters

	"listSites":     everyHuman, // users who enter a password must see its destination
	"getSite":       everyHuman,
	"getSiteHealth": changes, // it sends a request to the site, with a credential of the caller
	"createSite":    operates,
	"changeSite":    operates,
	"removeSite":    operates,

	"listCredentials":  changes, // one's own; admins list all of the project
	"getCredential":    changes,
	"createCredential": changes,
	"changeCredential": changes, // one's own
	"removeCredential": changes,

	"rewrapSecrets": operates,

	"listAppliances":       reads,
	"getAppliance":         reads,
	"listImplementations":  reads,
	"getImplementation":    reads,
	"createAppliance":      changes, // of the project; only operators write public ones
	"changeAppliance":      changes,
	"removeAppliance":      changes,
	"addImplementation":    changes,
	"changeImplementation": changes,
	"removeImplementation": changes,

	"getImage":    everyHuman,
	"addImage":    operates, // the server fetches its URL
	"removeImage": operates,
	"bringImage":  changes,

	"listImages": everyHuman,
	"pullImage":  operates,

	"listHostImages":   operates,
	"removeHostImages": operates,

	"listPartitions":  operates,
	"getPartition":    operates,
	"removePartition": operates,
	"getCard":         operates,
	"addPeer":         operates,
	"removePeer":      operates,
	"listSigners":     operates,
	"retireSigner":    operates,
	"listRows":        operates,
	"exportPartition": operates,
	"importPartition": operates,

	"listHosts":    operates,
	"getHost":      operates,
	"drainHost":    operates,
	"enableHost":   operates,
	"acceptHost":   operates,
	"forgetHost":   operates,
	"emptyHost":    operates,
	"removeMember": operates,
	"listUsages":   operates,

	"listAggregates":  everyHuman, // callers other than operators see only public ones, without hosts
	"getAggregate":    everyHuman,
	"createAggregate": operates,
	"changeAggregate": operates,
	"removeAggregate": operates,

	"listDistances":  everyHuman, // callers other than operators see only those between public aggregates
	"getDistance":    everyHuman,
	"setDistance":    operates,
	"removeDistance": operates,

	"listPolicies": everyHuman, // all users may choose by them
	"getPolicy":    everyHuman,
	"checkPolicy":  operates, // its errors reveal locations
	"setPolicy":    operates,
	"removePolicy": operates,
	"getStanding":  operates, // it reveals hosts
	"getCrushMap":  operates,

	"getInventory":        operates,
	"getHostCapabilities": operates,

	"listResourceTypes": everyHuman,
	"listCapabilities":  everyHuman,
	"addCapability":     operates,
	"removeCapability":  operates,
	"listUsers":         everyHuman, // each caller sees only some of them

	"auditCloud":  operates,
	"repairCloud": operates,

	"listInvitations":  operates,
	"createInvitation": operates,
	"revokeInvitation": operates,
}

// lasting are the operations that grant rights which would outlive the caller's peer.
var lasting = []Operation{"createToken", "setMembers"}

// personal are the operations on objects that belong to the user personally: credentials, and accounts on clusters.
var personal = []Operation{"createCredential", "changeCredential", "removeCredential", "createCluster",
	"makeAccount", "removeAccount", "getSiteHealth", "bringImage"}

// Operations lists the operations of the table, sorted.
func Operations() []Operation { return slices.Sorted(maps.Keys(table)) }

// Decide returns the decision of the table about an operation and a role.
func Decide(op Operation, r Role) Decision {
	i := slices.Index(Roles, r)
	if i < 0 {
		return Undecided
	}
	return table[op].roles[i]
}

// Authorize decides whether a caller may do op in a project. An empty project means the caller's own; for an operator
// without one, and in lists, everything that the caller sees. NotFound: the caller does not see the project, whether it
// exists or not. Denied: the caller sees it, but may not do this.
func Authorize(c Caller, op Operation, project croft.Project) error {
	about := table[op]
	if project != "" && !about.cloud && !c.Scope().Sees(project) {
		return croft.Errorf(croft.NotFound, "there is no project %.80q", string(project))
	}
	if c.Peer != "" && slices.Contains(lasting, op) {
		return croft.Errorf(croft.Denied,
			"%s may not do %s: users of other clouds give no rights that would outlast theirs",
			c.words(), op)
	}
	if c.Delegated != "" && slices.Contains(personal, op) {
		return croft.Errorf(croft.Denied, "%s may not do %s: %s made this token in the name of %s, and only %[4]s in person may",
			c.words(), op, c.Delegated, c.User)
	}
	project = cmp.Or(project, c.Project)
	if project == "" && !about.cloud && !c.Operator() {
		return forbidden(c, op, project)
	}
	for _, r := range c.Roles {
		if d := Decide(op, r); d == Yes || d == Below && project != c.Project {
			return nil
		}
	}
	return forbidden(c, op, project)
}

// MayAnywhere reports whether one of the roles may do op, possibly not in all projects.
func MayAnywhere(op Operation, roles []Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { d := Decide(op, r); return d == Yes || d == Below })
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
	if project != "" && !table[op].cloud {
		where = fmt.Sprintf(" in project %.80q", string(project))
	}
	switch least := leastRole(op); {
	case least == "":
		return croft.Errorf(croft.Denied, "nobody may do %.80q: no rule names it", string(op))
	case Decide(op, ProjectAdmin) == Below && c.Has(ProjectAdmin): // otherwise it would have been allowed
		return croft.Errorf(croft.Denied, "%s may not do %s%s: an admin of the project above decides that", c.words(), op,
			where)
	default:
		return croft.Errorf(croft.Denied, "%s may not do %s%s: it takes the role %s", c.words(), op, where, least)
	}
}

// leastRole returns the lowest role that may do op, possibly not in all projects; empty: none exists.
func leastRole(op Operation) Role {
	for _, r := range Roles {
		if d := Decide(op, r); d == Yes || d == Below {
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
