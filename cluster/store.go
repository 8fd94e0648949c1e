package cluster

import (
	"context"
	"strings"

	"croft"
)

// Records stores clusters. Every write is one transaction that compares the revision of the record that was read, and
// the holder if there is one.
type Records interface {
	// Get returns a cluster, including a deleted one that is still remembered. NotFound.
	Get(ctx context.Context, id croft.ClusterID) (Cluster, error)
	// Named returns the cluster with a name. NotFound.
	Named(ctx context.Context, project croft.Project, name string) (Cluster, error)
	// List returns the clusters of a project by name, including deleted ones; an empty project means all.
	List(ctx context.Context, project croft.Project) ([]Cluster, error)
	// Living returns the clusters of a project that are not deleted, by name. It reads no others.
	Living(ctx context.Context, project croft.Project) ([]Cluster, error)
	// Create writes a record, reserves its name and charges its project, provided that no cluster of the same project,
	// user and appliance was created since Latest was read. Conflict: one was. *TakenError: the name or the ID is
	// taken. OverQuota.
	Create(ctx context.Context, c Cluster, latest int64) (Cluster, error)
	// Latest returns a number that changes whenever a cluster of the same project, user and appliance is created.
	Latest(ctx context.Context, project croft.Project, user, appliance string) (int64, error)
	// Update replaces the record that was read, and renames the cluster if the name changed. A cluster that becomes
	// DELETED loses name, accounts and charge in the same transaction. Conflict: the record changed, by is not the
	// holder any more, or the record names a site that already has its maximum of clusters. *TakenError: the new name
	// is taken. by is nil for requests of users.
	Update(ctx context.Context, c Cluster, by *Holder) (Cluster, error)
	// Forget removes the remaining keys of a deleted cluster. NotFound. Conflict: the cluster is not deleted.
	Forget(ctx context.Context, id croft.ClusterID) error
	// Hold makes the caller the holder of a cluster until Release, or until its lease ends. Conflict: the cluster has
	// another holder.
	Hold(ctx context.Context, id croft.ClusterID) (*Holder, error)
	// Release ends a hold. Callers may ignore its error: the hold ends with the lease.
	Release(ctx context.Context, h *Holder) error
	// Follow calls changed for each existing cluster, and for each cluster that changes, until ctx ends.
	Follow(ctx context.Context, changed func(croft.ClusterID)) error
	// Note appends to the events of a cluster, of which the latest MaxEvents are kept. NotFound: the cluster is gone,
	// even if a later cluster has its UUID.
	Note(ctx context.Context, c Cluster, e Event) error
	// Events returns the events, oldest first.
	Events(ctx context.Context, id croft.ClusterID) ([]Event, error)
}

// MaxEvents is the number of events that are kept per cluster.
const MaxEvents = 200

// MaxConsole bounds the console text of an event, in bytes.
const MaxConsole = 16 << 10

// Bounded returns the event in the form that is stored: it keeps the start of a long message, and the end of a long
// console.
func (e Event) Bounded() Event {
	if len(e.Message) > MaxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:MaxMessage], "")
	}
	if n := len(e.Console); n > MaxConsole {
		e.Console = strings.ToValidUTF8(e.Console[n-MaxConsole:], "")
	}
	return e
}

// Holder is the right to act on a cluster.
type Holder struct {
	Cluster croft.ClusterID
	Key     string // in the store
	Created int64  // revision at which Key was created
	Lease   int64
}

// ApplianceStore stores the records that clusters are built from. A write compares the generation of the record that it
// replaces; 0 means that the record must not exist. Conflict: the generation differs, or a name is taken. NotFound.
type ApplianceStore interface {
	Sites(ctx context.Context) ([]Site, error)
	PutSite(ctx context.Context, s Site) (Site, error)
	// RemoveSite removes an unused site. Conflict: it is used; the error counts the uses.
	RemoveSite(ctx context.Context, name string) error

	// Credentials lists the credentials of a user, or of AnyUser, in a project; if both are empty, all credentials. It
	// reads no others.
	Credentials(ctx context.Context, project croft.Project, user string) ([]Credential, error)
	Credential(ctx context.Context, id CredentialID) (Credential, error)
	PutCredential(ctx context.Context, c Credential) (Credential, error)
	// RemoveCredential removes a credential that no living cluster needs. Conflict: one needs it.
	RemoveCredential(ctx context.Context, id CredentialID) error

	// Appliances lists the appliances of a project and those without a project in their unique names; an empty project
	// means all. It reads no others. In an ApplianceStore, appliances have their unique names.
	Appliances(ctx context.Context, project croft.Project) ([]Appliance, error)
	// Appliance returns the appliance with a unique name. If @shop:slurm does not exist, that is slurm, unless slurm is
	// private to a project other than shop. NotFound.
	Appliance(ctx context.Context, unique string) (Appliance, error)
	// PutAppliance stores an appliance. A public @shop:slurm is also slurm for every other project. Conflict: a new
	// @shop:slurm while slurm is public or belongs to shop, or a public @shop:slurm while slurm is another appliance.
	PutAppliance(ctx context.Context, a Appliance) (Appliance, error)
	// RemoveAppliance removes the appliance with exactly this unique name. Conflict: it has implementations.
	RemoveAppliance(ctx context.Context, unique string) error

	// Implementations lists the implementations of the appliance with a unique name; if it is empty, all
	// implementations. It reads no others.
	Implementations(ctx context.Context, appliance string) ([]Implementation, error)
	Implementation(ctx context.Context, id ImplementationID) (Implementation, error)
	// AddImplementation stores a new implementation with the next revision.
	AddImplementation(ctx context.Context, i Implementation) (Implementation, error)
	// EnableImplementation sets Enabled, and changes nothing else.
	EnableImplementation(ctx context.Context, id ImplementationID, enabled bool) (Implementation, error)
	// RemoveImplementation removes an implementation that no cluster was built from. Conflict: one was.
	RemoveImplementation(ctx context.Context, id ImplementationID) error

	Images(ctx context.Context) ([]SiteImage, error)
	PutImage(ctx context.Context, i SiteImage) (SiteImage, error)
	RemoveImage(ctx context.Context, name string) error
}

// AnyUser stands for all users of a project. No user has this name, because it contains a blank.
const AnyUser = "any user"

// Accounts stores the accounts of users on clusters.
type Accounts interface {
	Account(ctx context.Context, id croft.ClusterID, user string) (Account, error)
	// AddAccount stores an account. Conflict: it exists, or the cluster is being removed.
	AddAccount(ctx context.Context, a Account) error
	RemoveAccount(ctx context.Context, id croft.ClusterID, user string) error
	// DropAccount removes an account if its record is unchanged. NotFound: it is not.
	DropAccount(ctx context.Context, a Account) error
	// AllAccounts lists the accounts on all clusters.
	AllAccounts(ctx context.Context) ([]Account, error)
	// SealAccount replaces the password of an account with the same one, sealed by another key. NotFound: the record of
	// the account changed.
	SealAccount(ctx context.Context, a Account, password Sealed) error
}
