package tenant

import (
	"context"

	"croft"
	"croft/access"
)

// Projects stores projects and the limits of the partition, and counts what projects use. Every write is one
// transaction, conditional on what it builds on.
type Projects interface {
	// List returns the projects of a scope that have a record, by name.
	List(ctx context.Context, scope access.Scope) ([]Tenant, error)
	// Create stores a new project. Conflict: there is one of this name, or a name to be put below another project has
	// instances already. NotFound: there is no such parent.
	Create(ctx context.Context, p Tenant) (Tenant, error)
	// Change replaces note, members and limits; name, parent and creation never change. NotFound. Conflict: the record
	// has another generation.
	Change(ctx context.Context, p Tenant) (Tenant, error)
	// Remove removes a project, its SSH keys, its tokens and what is noted about its images. NotFound. Conflict: it has
	// instances, or projects below it.
	Remove(ctx context.Context, name croft.Project) error
	// Defaults returns the limits of every project that names none of its own.
	Defaults(ctx context.Context) (Defaults, error)
	// SetDefaults replaces them. Conflict: they have another generation.
	SetDefaults(ctx context.Context, d Defaults) (Defaults, error)
	// Accounts returns what the named projects may use and use, in the order of the names. The names need no record.
	Accounts(ctx context.Context, names ...croft.Project) ([]Account, error)
	// Check compares what is counted with the records, as of one moment.
	Check(ctx context.Context) ([]Discrepancy, error)
	// Recount counts a project's records again.
	Recount(ctx context.Context, name croft.Project) error
}

// Quotas tells whether projects may have more.
type Quotas interface {
	// Admit reports whether a project may have more as things are. It charges nothing. OverQuota: the error holds a
	// *Refusal.
	Admit(ctx context.Context, name croft.Project, more Amounts) error
}

// Defaults are the limits of the partition.
type Defaults struct {
	Limits     Limits `json:"limits"`
	Generation int64  `json:"generation"` // 0: never set
}

// Discrepancy is a project of which something else is counted than its records say.
type Discrepancy struct {
	Project croft.Project `json:"project"`
	Counted Amounts       `json:"counted"`
	Records Amounts       `json:"records"`
}
