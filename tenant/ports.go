package tenant

import (
	"context"

	"croft"
	"croft/tenant/access"
)

// Projects stores projects and the limits of the partition, and counts the usage of projects. Every write is one
// transaction, conditional on the data that it is based on.
type Projects interface {
	// List returns the projects of a scope that have a record, by name.
	List(ctx context.Context, scope access.Scope) ([]Tenant, error)
	// Create stores a new project. Conflict: the name is taken, or a project that is to be below another one has
	// instances already. NotFound: the parent does not exist.
	Create(ctx context.Context, p Tenant) (Tenant, error)
	// Change replaces note, members and limits; name, parent and creation never change. NotFound. Conflict: the record
	// has another generation.
	Change(ctx context.Context, p Tenant) (Tenant, error)
	// Remove removes a project, its SSH keys, its tokens and the properties and tags of its images. NotFound. Conflict:
	// it has instances, or projects below it.
	Remove(ctx context.Context, name croft.Project) error
	// Defaults returns the limits of the partition, which apply to projects without own limits.
	Defaults(ctx context.Context) (Defaults, error)
	// SetDefaults replaces the limits of the partition. Conflict: they have another generation.
	SetDefaults(ctx context.Context, d Defaults) (Defaults, error)
	// Accounts returns the limits and the usage of the named projects, in the order of the names. The projects need no
	// records.
	Accounts(ctx context.Context, names ...croft.Project) ([]Account, error)
	// Check compares the counters with the records, as of one moment.
	Check(ctx context.Context) ([]Discrepancy, error)
	// Recount counts a project's records again.
	Recount(ctx context.Context, name croft.Project) error
}

// Quotas decides whether projects may use more.
type Quotas interface {
	// Admit returns nil if a project may use more now. It charges nothing. OverQuota: the error holds a *Refusal.
	Admit(ctx context.Context, name croft.Project, more Amounts) error
}

// Defaults are the limits of the partition.
type Defaults struct {
	// The most that may be used, by resource class or count (`instances`, `tokens`, `tickets`, `pools`, `clusters`):
	// whole numbers from 0, or -1 for no limit, whatever the default is.
	Limits     Limits `json:"limits" maxProperties:"100" minimum:"-1"`
	Generation int64  `json:"generation" minimum:"0"` // 0: never set
}

// Discrepancy is a project whose counters differ from its records.
type Discrepancy struct {
	Project croft.Project `json:"project"` // its name
	Counted Amounts       `json:"counted"` // counters, by measure
	Records Amounts       `json:"records"` // what its records add up to, by measure
}
