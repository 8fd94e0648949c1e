package cloud

import (
	"context"

	"croft"
	"croft/cluster"
)

// Clusters manages clusters of machines, each named by its ID or by its name in the project. NotFound.
type Clusters interface {
	// Create requests a cluster, and returns when it is on record; or it returns an existing cluster that can be
	// reused. *cluster.ChoiceError: no site can build it. Conflict: the name is taken, or the ID belongs to another
	// request. Invalid. OverQuota.
	Create(ctx context.Context, r cluster.Request) (cluster.Created, error)
	// Explain returns where a request would be built. It changes nothing.
	Explain(ctx context.Context, r cluster.Request) (cluster.Explanation, error)
	// Find returns a cluster. A deleted cluster is found by its ID for cluster.Remembered.
	Find(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error)
	// List returns the clusters of a project that are not deleted, by name; an empty project means all projects.
	List(ctx context.Context, project croft.Project, f cluster.Filter) ([]cluster.Cluster, error)
	// Wait returns a cluster when its state is settled, or in its state when ctx ends. It calls progress, which may be
	// nil, with each change until then.
	Wait(ctx context.Context, project croft.Project, idOrName string, progress func(cluster.Cluster)) (cluster.Cluster,
		error)
	// Events returns the events of a cluster, oldest first.
	Events(ctx context.Context, project croft.Project, idOrName string) ([]cluster.Event, error)
	// Change changes a cluster if it has the given generation; nil accepts any. Conflict: it has another generation, or
	// its state permits no resize. Invalid.
	Change(ctx context.Context, project croft.Project, idOrName string, c cluster.Change, generation *int64) (
		cluster.Cluster, error)
	// AddHost adds one slave to a cluster. Conflict.
	AddHost(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error)
	// RemoveHost removes a slave, chosen by its ID, its name, or "last". Conflict: it is the master, or may not be
	// removed.
	RemoveHost(ctx context.Context, project croft.Project, idOrName, host string) (cluster.Cluster, error)
	// Delete starts the removal of a cluster. Conflict: other users use it, and Force is false.
	Delete(ctx context.Context, project croft.Project, idOrName string, r cluster.Removal) (cluster.Cluster, error)
	// EndUse ends a use. NotFound.
	EndUse(ctx context.Context, project croft.Project, idOrName string, use cluster.UseID) (cluster.Cluster, error)
	// Account returns the account of a user on a cluster, and creates it if necessary. Unavailable: the cluster is not
	// ready, or its agent does not answer. Invalid: its appliance creates no accounts.
	Account(ctx context.Context, project croft.Project, idOrName, user string) (cluster.Login, error)
	RemoveAccount(ctx context.Context, project croft.Project, idOrName, user string) error
	// Output returns an output of a user's cluster, even a secret one. NotFound: there is no such output. Denied: the
	// cluster belongs to another user. Unavailable: there is no key to open it with.
	Output(ctx context.Context, project croft.Project, idOrName, user, name string) (cluster.Output, error)
}

// Sites manages the sites where clusters can be built. Conflict: the site has another generation, or is in use.
// NotFound. Invalid.
type Sites interface {
	List(ctx context.Context) ([]cluster.Site, error)
	Find(ctx context.Context, name string) (cluster.Site, error)
	Create(ctx context.Context, s cluster.Site) (cluster.Site, error)
	Change(ctx context.Context, name string, c cluster.SiteChange, generation *int64) (cluster.Site, error)
	Remove(ctx context.Context, name string) error
	// Health contacts the site now, with the user's credential if there is one.
	Health(ctx context.Context, name string, project croft.Project, user string) (cluster.SiteHealth, error)
}

// Credentials manages the credentials with which the cloud acts for users at sites. Their secrets can be written but
// never read. Each is named by its ID, or by its name for the user in the project.
type Credentials interface {
	// List returns the credentials of a user in a project; with both empty, all credentials.
	List(ctx context.Context, project croft.Project, user string) ([]cluster.Credential, error)
	Find(ctx context.Context, project croft.Project, user, idOrName string) (cluster.Credential, error)
	// Create stores a credential that the site accepts. Invalid: the site refuses it. Unavailable.
	Create(ctx context.Context, n cluster.NewCredential) (cluster.Credential, error)
	Change(ctx context.Context, project croft.Project, user, idOrName string, c cluster.CredentialChange,
		generation *int64) (cluster.Credential, error)
	// Remove removes a credential. Conflict: a cluster uses it.
	Remove(ctx context.Context, project croft.Project, user, idOrName string) error
}

// Appliances manages appliances, which say what clusters are for, and their implementations, which say how sites build
// them. In a call, @shop:slurm means the appliance that project shop calls slurm: its own, else the operators'
// appliance. Plain slurm means the operators' appliance, else the appliance of the only project that has one (Conflict:
// several projects have one). Answers contain the plain name, and the project separately.
type Appliances interface {
	// List returns the appliances that a project may use, by name: its own and public ones; an empty project means all.
	List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error)
	Find(ctx context.Context, name string) (cluster.Appliance, error)
	Create(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error)
	Change(ctx context.Context, name string, c cluster.ApplianceChange, generation *int64) (cluster.Appliance, error)
	Remove(ctx context.Context, name string) error
	Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error)
	// AddImplementation stores the next revision. Invalid: the template has an error; the text names its line.
	AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error)
	EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID, enabled bool) (
		cluster.Implementation, error)
	RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error
}

// SiteImages manages images that implementations name, and copies them to sites.
type SiteImages interface {
	List(ctx context.Context) ([]cluster.SiteImage, error)
	Find(ctx context.Context, name string) (cluster.SiteImage, error)
	Create(ctx context.Context, i cluster.SiteImage) (cluster.SiteImage, error)
	Remove(ctx context.Context, name string) error
	// Bring starts to copy an image to a site with the credential of a user. With ref, it records instead where the
	// image already is.
	Bring(ctx context.Context, name, site, ref string, project croft.Project, user string) (cluster.SiteImage, error)
}

// Seals manages the keys that seal secrets.
type Seals interface {
	// Rewrap seals again, with the first key, all secrets of credentials, clusters and accounts that another key seals,
	// and returns their number. Afterwards the other keys are no longer needed. Unavailable: a key is missing.
	Rewrap(ctx context.Context) (int, error)
}
