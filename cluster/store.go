package cluster

import (
	"context"
	"strings"

	"croft"
)

// Records stores clusters. Every write is one transaction that compares the record as it was read, and the holder where
// there is one.
type Records interface {
	// Get returns a cluster, also a deleted one while it is remembered. NotFound.
	Get(ctx context.Context, id croft.ClusterID) (Cluster, error)
	// Named returns the cluster that has a name. NotFound.
	Named(ctx context.Context, project croft.Project, name string) (Cluster, error)
	// List returns the clusters of a project by name, deleted ones too; an empty project means all.
	List(ctx context.Context, project croft.Project) ([]Cluster, error)
	// Living returns the clusters of a project that are not deleted, by name. It reads no others.
	Living(ctx context.Context, project croft.Project) ([]Cluster, error)
	// Create writes a record, takes its name and charges its project, if nobody has created one of the same project,
	// user and appliance since Latest was read. Conflict: somebody has. *TakenError: the name or the ID is taken.
	// OverQuota.
	Create(ctx context.Context, c Cluster, latest int64) (Cluster, error)
	// Latest returns a number that changes whenever one of the same project, user and appliance is created.
	Latest(ctx context.Context, project croft.Project, user, appliance string) (int64, error)
	// Update replaces a record as it was read, and moves its name with it. One that becomes DELETED loses name,
	// accounts and charge in the same transaction. Conflict: it changed, or by is not its holder any more, or it names
	// a site that has as many clusters as it may. *TakenError: the new name is taken. by is nil for requests of users.
	Update(ctx context.Context, c Cluster, by *Holder) (Cluster, error)
	// Forget removes what is left of a deleted cluster. NotFound; Conflict: it is not deleted.
	Forget(ctx context.Context, id croft.ClusterID) error
	// Hold makes the caller the holder of a cluster until Release, or until its lease ends. Conflict: another one is.
	Hold(ctx context.Context, id croft.ClusterID) (*Holder, error)
	// Release ends a hold. An error may be ignored: the lease ends.
	Release(ctx context.Context, h *Holder) error
	// Follow calls changed with each cluster that there is, and with each that changes, until ctx ends.
	Follow(ctx context.Context, changed func(croft.ClusterID)) error
	// Note appends to the events of a cluster, of which the latest MaxEvents are kept. NotFound: the cluster is gone,
	// even if its UUID is that of a later one by now.
	Note(ctx context.Context, c Cluster, e Event) error
	// Events returns the events, oldest first.
	Events(ctx context.Context, id croft.ClusterID) ([]Event, error)
}

// MaxEvents is how many events of a cluster are kept.
const MaxEvents = 200

// MaxConsole bounds what an event keeps of a console, in bytes.
const MaxConsole = 16 << 10

// Bounded returns the event as it is kept: with the beginning of a long message, and the end of a long console.
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
	Key     string // of the store
	Created int64  // its revision
	Lease   int64
}

// TakenError says that a name or an ID belongs to another cluster. It is a croft.Conflict.
type TakenError struct {
	What string          // "name" or "id"
	By   croft.ClusterID // empty: not known
	Text string
}

// Error implements error.
func (e *TakenError) Error() string { return e.Text }

// Unwrap returns its kind.
func (e *TakenError) Unwrap() error { return croft.Conflict }

// Catalogue stores what clusters are built by. Writes compare the generation of what they replace, where 0 is that
// there is none. Conflict: it has another one, or a name is taken. NotFound.
type Catalogue interface {
	Sites(ctx context.Context) ([]Site, error)
	PutSite(ctx context.Context, s Site) (Site, error)
	// RemoveSite removes a site that nothing uses. Conflict: something does; the error counts it.
	RemoveSite(ctx context.Context, name string) error

	// Credentials lists those of a user in a project, or of AnyUser; of all, if both are empty. It reads no others.
	Credentials(ctx context.Context, project croft.Project, user string) ([]Credential, error)
	Credential(ctx context.Context, id CredentialID) (Credential, error)
	PutCredential(ctx context.Context, c Credential) (Credential, error)
	// RemoveCredential removes one that no living cluster needs. Conflict.
	RemoveCredential(ctx context.Context, id CredentialID) error

	// Appliances lists the appliances of a project and those that have no project in their unique names; an empty
	// project means all. It reads no others. In a Catalogue, appliances have their unique names.
	Appliances(ctx context.Context, project croft.Project) ([]Appliance, error)
	// Appliance returns the appliance of a unique name. If project shop has no @shop:slurm, that is slurm, unless slurm
	// is private to another project. NotFound.
	Appliance(ctx context.Context, unique string) (Appliance, error)
	// PutAppliance stores an appliance. A new @shop:slurm is refused while slurm is public or belongs to shop, and a
	// public @shop:slurm is slurm for every other project. Conflict.
	PutAppliance(ctx context.Context, a Appliance) (Appliance, error)
	// RemoveAppliance removes the appliance of exactly this unique name, which has no implementations. Conflict.
	RemoveAppliance(ctx context.Context, unique string) error

	// Implementations lists those of the appliance of a unique name; of all, if it is empty. It reads no others.
	Implementations(ctx context.Context, appliance string) ([]Implementation, error)
	Implementation(ctx context.Context, id ImplementationID) (Implementation, error)
	// AddImplementation stores a new one, and gives it the next revision.
	AddImplementation(ctx context.Context, i Implementation) (Implementation, error)
	// EnableImplementation changes nothing but that.
	EnableImplementation(ctx context.Context, id ImplementationID, enabled bool) (Implementation, error)
	// RemoveImplementation removes one that no cluster was built by. Conflict.
	RemoveImplementation(ctx context.Context, id ImplementationID) error

	Images(ctx context.Context) ([]Image, error)
	PutImage(ctx context.Context, i Image) (Image, error)
	RemoveImage(ctx context.Context, name string) error
}

// AnyUser stands for all users of a project. No user has this name, since it has a blank.
const AnyUser = "any user"

// Accounts stores the accounts of users on clusters.
type Accounts interface {
	Account(ctx context.Context, id croft.ClusterID, user string) (Account, error)
	// AddAccount stores one. Conflict: there is one, or the cluster is being removed.
	AddAccount(ctx context.Context, a Account) error
	RemoveAccount(ctx context.Context, id croft.ClusterID, user string) error
	// DropAccount removes one that is still as given. NotFound: it is not.
	DropAccount(ctx context.Context, a Account) error
	// AllAccounts lists the accounts on all clusters.
	AllAccounts(ctx context.Context) ([]Account, error)
	// SealAccount stores the password of an account as another key sealed it. NotFound: the account is not as it was.
	SealAccount(ctx context.Context, a Account, password Sealed) error
}
