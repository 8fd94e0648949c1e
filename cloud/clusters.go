package cloud

import (
	"context"

	"croft"
	"croft/cluster"
)

// Clusters asks for clusters of machines, each named by its ID or by its name in the project. NotFound.
type Clusters interface {
	// Create asks for a cluster, and returns once it is on record, or with one that is there and can be reused.
	// *cluster.ChoiceError: no site can build it. Conflict: the name is taken, or the ID with another request. Invalid.
	// OverQuota.
	Create(ctx context.Context, r cluster.Request) (cluster.Created, error)
	// Explain says where a request would be built. It changes nothing.
	Explain(ctx context.Context, r cluster.Request) (cluster.Explanation, error)
	// Find returns a cluster, for cluster.Remembered after its end too, by its ID.
	Find(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error)
	// List returns the clusters of a project that are not deleted, by name; an empty project means all.
	List(ctx context.Context, project croft.Project, f cluster.Filter) ([]cluster.Cluster, error)
	// Wait returns a cluster once its state is settled, or as it is when ctx ends. progress, which may be nil, is
	// called with each change until then.
	Wait(ctx context.Context, project croft.Project, idOrName string, progress func(cluster.Cluster)) (cluster.Cluster,
		error)
	// Events returns what happened to a cluster, oldest first.
	Events(ctx context.Context, project croft.Project, idOrName string) ([]cluster.Event, error)
	// Change changes a cluster of a generation; nil: of any. Conflict: it has another one, or its state permits no
	// resize. Invalid.
	Change(ctx context.Context, project croft.Project, idOrName string, c cluster.Change, generation *int64) (
		cluster.Cluster, error)
	// AddHost makes a cluster larger by one slave. Conflict.
	AddHost(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error)
	// RemoveHost makes it smaller by one slave, by its ID, its name, or "last". Conflict: it is the master, or may not
	// go.
	RemoveHost(ctx context.Context, project croft.Project, idOrName, host string) (cluster.Cluster, error)
	// Delete begins to remove a cluster. Conflict: others use it, and Force is false.
	Delete(ctx context.Context, project croft.Project, idOrName string, r cluster.Removal) (cluster.Cluster, error)
	// EndUse ends a use. NotFound.
	EndUse(ctx context.Context, project croft.Project, idOrName string, use cluster.UseID) (cluster.Cluster, error)
	// Account returns the account of a user on a cluster, and has it made if there is none. Unavailable: the cluster is
	// not ready, or its agent does not answer. Invalid: its appliance makes no accounts.
	Account(ctx context.Context, project croft.Project, idOrName, user string) (cluster.Login, error)
	RemoveAccount(ctx context.Context, project croft.Project, idOrName, user string) error
	// Output returns an output of a cluster of a user, also a secret one. NotFound: there is no such output. Denied:
	// the cluster is another user's. Unavailable: there is no key to open it with.
	Output(ctx context.Context, project croft.Project, idOrName, user, name string) (cluster.Output, error)
}

// Sites manages where clusters can be built. Conflict: another generation, or something uses it. NotFound. Invalid.
type Sites interface {
	List(ctx context.Context) ([]cluster.Site, error)
	Find(ctx context.Context, name string) (cluster.Site, error)
	Create(ctx context.Context, s cluster.Site) (cluster.Site, error)
	Change(ctx context.Context, name string, c cluster.SiteChange, generation *int64) (cluster.Site, error)
	Remove(ctx context.Context, name string) error
	// Health asks the site now, with the credential of a user if there is one.
	Health(ctx context.Context, name string, project croft.Project, user string) (cluster.SiteHealth, error)
}

// Credentials manages what lets the cloud act for users at sites. Their secrets go in, and never come out. Each is
// named by its ID, or by its name for the user in the project.
type Credentials interface {
	// List returns those of a user in a project; with both empty, all.
	List(ctx context.Context, project croft.Project, user string) ([]cluster.Credential, error)
	Find(ctx context.Context, project croft.Project, user, idOrName string) (cluster.Credential, error)
	// Create stores a credential that the site accepts. Invalid: it does not. Unavailable.
	Create(ctx context.Context, n cluster.NewCredential) (cluster.Credential, error)
	Change(ctx context.Context, project croft.Project, user, idOrName string, c cluster.CredentialChange,
		generation *int64) (cluster.Credential, error)
	// Remove removes a credential. Conflict: a cluster needs it.
	Remove(ctx context.Context, project croft.Project, user, idOrName string) error
}

// Appliances manages what clusters are for, and how sites build it. @shop:slurm in a call is what project shop calls
// slurm: its own appliance, else that of the operators. slurm alone is the operators' appliance, else that of the only
// project that has one (Conflict: several have). Answers have the name alone, and the project beside it.
type Appliances interface {
	// List returns those that a project may use, by name: its own and public ones; an empty project means all.
	List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error)
	Find(ctx context.Context, name string) (cluster.Appliance, error)
	Create(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error)
	Change(ctx context.Context, name string, c cluster.ApplianceChange, generation *int64) (cluster.Appliance, error)
	Remove(ctx context.Context, name string) error
	Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error)
	// AddImplementation stores the next revision. Invalid, with the line of the template that is wrong.
	AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error)
	EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID, enabled bool) (
		cluster.Implementation, error)
	RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error
}

// SiteImages manages images that implementations name, and brings them to sites.
type SiteImages interface {
	List(ctx context.Context) ([]cluster.Image, error)
	Find(ctx context.Context, name string) (cluster.Image, error)
	Create(ctx context.Context, i cluster.Image) (cluster.Image, error)
	Remove(ctx context.Context, name string) error
	// Bring begins to bring an image to a site with the credential of a user, or notes where it is already, as ref.
	Bring(ctx context.Context, name, site, ref string, project croft.Project, user string) (cluster.Image, error)
}

// Seals manages the keys with which secrets are sealed.
type Seals interface {
	// Rewrap has the first key seal all secrets that another one seals, of credentials, clusters and accounts, and
	// returns how many those were. Then the others are needed no more. Unavailable: a key is missing.
	Rewrap(ctx context.Context) (int, error)
}
