// Package registry manages the records that clusters are built from: sites, credentials, appliances, their
// implementations, and images. It validates records before it stores them, and tries credentials and templates at their
// sites. It reveals no secret, neither in responses nor in errors of sites that repeat it.
package registry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/nearest"
)

// Config configures a registry.
type Config struct {
	cluster.Backends // except AllowedIP; Rewrap seals the secrets of Records and Accounts again, if they are not nil

	Timeout time.Duration // of the calls to sites for a request; 20 s by default
}

// Registry manages the records that clusters are built from.
type Registry struct {
	Config

	mu     sync.Mutex
	health map[string]cluster.Health // last health of each site
}

// New returns a registry.
func New(c Config) (*Registry, error) {
	if c.Partition == "" || c.Catalogue == nil || len(c.Drivers) == 0 {
		return nil, croft.Errorf(croft.Invalid, "registry: Partition, Catalogue and Drivers are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	return &Registry{Config: c, health: map[string]cluster.Health{}}, nil
}

// NoteHealth stores the last result of a site: nil, or why it did not answer.
func (r *Registry) NoteHealth(site string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := cluster.Health{OK: err == nil, Since: time.Now().UTC()}
	if err != nil {
		now.Error = bounded(err.Error())
	}
	if before := r.health[site]; before.OK == now.OK && !before.Since.IsZero() {
		now.Since = before.Since
	}
	r.health[site] = now
}

func (r *Registry) healthOf(site string) cluster.Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.health[site]
}

// driver returns the driver of a site. Unavailable: this server has none.
func (r *Registry) driver(s cluster.Site) (cluster.Driver, error) {
	d := r.Drivers[s.Type]
	if d == nil {
		return nil, croft.Errorf(croft.Unavailable, "this server reaches no sites of type %s, such as %s", s.Type,
			s.Name)
	}
	return d, nil
}

// site returns a site. NotFound.
func (r *Registry) site(ctx context.Context, name string) (cluster.Site, error) {
	all, err := r.Catalogue.Sites(ctx)
	if err != nil {
		return cluster.Site{}, err
	}
	return pick("site", name, all, func(s cluster.Site) string { return s.Name })
}

// pick returns the element with a name, or NotFound with the nearest name.
func pick[T any](what, name string, all []T, nameOf func(T) string) (one T, err error) {
	var names []string
	for _, v := range all {
		if nameOf(v) == name {
			return v, nil
		}
		names = append(names, nameOf(v))
	}
	return one, croft.Errorf(croft.NotFound, "there is no %s %.80q%s", what, name, nearest.Hint(name, names))
}

// amend reads, changes and writes a record. With a generation it tries once; otherwise it tries again until no
// concurrent write intervenes.
func amend[T any](ctx context.Context, generation *int64, read func(context.Context) (T, int64, error),
	change func(*T) error, write func(context.Context, T) (T, error)) (T, error) {
	for {
		v, now, err := read(ctx)
		if err != nil {
			return v, err
		}
		if generation != nil && *generation != now {
			return v, croft.Errorf(croft.Conflict, "it has generation %d, not %d: another request changed it; read "+
				"it again",
				now, *generation)
		}
		if err := change(&v); err != nil {
			return v, err
		}
		next, err := write(ctx, v)
		if err == nil || croft.KindOf(err) != croft.Conflict || generation != nil {
			return next, err
		}
		again, after, lost := read(ctx)
		if lost != nil || after == now { // the conflict is not about the generation
			return again, err
		}
	}
}

// set sets a field if value is not nil.
func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
