package cluster

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"croft"
	"croft/internal/lazyregexp"
)

// The identifiers. All are UUIDs in canonical form.
type (
	CredentialID     string
	ImplementationID string
	MemberID         string
	UseID            string
)

// NewCredentialID makes a random UUID.
func NewCredentialID() CredentialID { return CredentialID(uuid.NewString()) }

// NewImplementationID makes a random UUID.
func NewImplementationID() ImplementationID { return ImplementationID(uuid.NewString()) }

// NewUseID makes a random UUID.
func NewUseID() UseID { return UseID(uuid.NewString()) }

// space is the name space of the UUIDs of members.
var space = uuid.MustParse("7c0e6d0e-5a7e-4c52-9d5e-3a1f0c3d1b57")

// IDOf returns the ID of a member. At the local site it is the UUID of the member's instance.
func IDOf(c croft.ClusterID, r Role, index int) MemberID {
	return MemberID(uuid.NewSHA1(space, []byte(string(c)+"/"+string(r)+"/"+strconv.Itoa(index))).String())
}

// nameForm matches the names of sites, credentials, appliances, images and clusters.
var nameForm = lazyregexp.New(`^[a-z][a-z0-9-]{0,62}$`)

// CheckName validates the name of an object; the argument what names the kind of object in errors. A name never has the
// form of an ID. Invalid.
func CheckName(what, name string) error {
	if _, err := croft.ParseClusterID(name); err == nil {
		return croft.Errorf(croft.Invalid, "%q is not a name for %s: it has the form of an ID", name, what)
	}
	if !nameForm.MatchString(name) {
		return croft.Errorf(croft.Invalid, "%.80q is not a name for %s: use 1 to 63 small letters, digits and dashes, "+
			"beginning with a letter", name, what)
	}
	return nil
}

// longestHostName is the maximum length of a machine name.
const longestHostName = 63

// MachineName returns the name of a machine of a cluster, which is a host name. A long cluster name is cut, and the
// start of the cluster's ID keeps it unique.
func MachineName(name string, id croft.ClusterID, suffix string) string {
	if len(name)+len(suffix) <= longestHostName {
		return strings.TrimRight(name, "-") + suffix
	}
	mark := "-" + string(id[:8])
	return strings.TrimRight(name[:longestHostName-len(suffix)-len(mark)], "-") + mark + suffix
}

// machinePrefix returns the common prefix of the names of all machines of a cluster, for any number of slaves.
func machinePrefix(name string, id croft.ClusterID) string {
	const last = "-slave-99999"
	return strings.TrimSuffix(MachineName(name, id, last), last)
}

// ScopedAppliance returns the cloud-wide unique name of an appliance: @shop:slurm for the appliance slurm of project
// shop. The appliances of operators belong to no project and have plain names; so do the appliances of projects that
// earlier versions stored.
func ScopedAppliance(project croft.Project, name string) string {
	if project == "" {
		return name
	}
	return "@" + string(project) + ":" + name
}

// SplitAppliance splits the unique name of an appliance into its project, which may be empty, and its name in the
// project.
func SplitAppliance(unique string) (project croft.Project, name string) {
	if rest, scoped := strings.CutPrefix(unique, "@"); scoped {
		if of, name, found := strings.Cut(rest, ":"); found {
			return croft.Project(of), name
		}
	}
	return "", unique
}

// ApplianceName returns the name of an appliance in its project.
func ApplianceName(unique string) string {
	_, name := SplitAppliance(unique)
	return name
}

// CheckAppliance validates the unique name of an appliance. Invalid.
func CheckAppliance(unique string) error {
	project, name := SplitAppliance(unique)
	if project != "" {
		if err := project.Check(); err != nil {
			return err
		}
	}
	return CheckName("an appliance", name)
}

// hidden matches the names of secret outputs and parameters.
var hidden = lazyregexp.New(`(?i)password|secret|token`)

// Hidden reports whether a parameter or output must be stored sealed, by its name.
func Hidden(name string) bool { return hidden.MatchString(name) }

// Role is the role of a member in its cluster.
type Role string

// The roles.
const (
	Master Role = "master"
	Slave  Role = "slave"
)
