// Package sizes stores in etcd the named sizes of instances. All of them are one record, so that at most one is the
// default at any moment.
package sizes

import (
	"cmp"
	"context"
	"slices"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/internal/nearest"
)

// Sizes is the store of sizes.
type Sizes struct{ records shelf.Shelf[record] }

// record has all sizes, by name.
type record struct {
	Sizes []croft.Size `json:"sizes"`
}

// all is the name of the only record.
const all = "all"

// New makes the store of sizes.
func New(c *kv.Conn) *Sizes {
	return &Sizes{shelf.Shelf[record]{Conn: c, Noun: "record of sizes", Prefix: c.Prefix + "sizes/",
		Empty: func(r record) bool { return len(r.Sizes) == 0 }}}
}

// List returns all sizes, by name.
func (s *Sizes) List(ctx context.Context) ([]croft.Size, error) {
	found, err := s.records.Named(ctx, all)
	if len(found) == 0 {
		return []croft.Size{}, err
	}
	return found[0].Sizes, err
}

// Find returns a size. NotFound.
func (s *Sizes) Find(ctx context.Context, name string) (croft.Size, error) {
	known, err := s.List(ctx)
	if err != nil {
		return croft.Size{}, err
	}
	at, err := find(known, name)
	if err != nil {
		return croft.Size{}, err
	}
	return known[at], nil
}

// find returns the index of a size. NotFound.
func find(known []croft.Size, name string) (int, error) {
	at := slices.IndexFunc(known, func(s croft.Size) bool { return s.Name == name })
	if at >= 0 {
		return at, nil
	}
	var names []string
	for _, s := range known {
		names = append(names, s.Name)
	}
	return at, croft.Errorf(croft.NotFound, "there is no size %.80q%s; `croft size list` shows all", name,
		nearest.Hint(name, names))
}

// Default returns the default size, or the built-in one if no size is the default.
func (s *Sizes) Default(ctx context.Context) (croft.Size, error) {
	known, err := s.List(ctx)
	if err != nil {
		return croft.Size{}, err
	}
	if at := slices.IndexFunc(known, func(s croft.Size) bool { return s.Default }); at >= 0 {
		return known[at], nil
	}
	return croft.BuiltInSize(), nil
}

// Create stores a size. It does nothing if there is the same one. Conflict: the name is taken by another size. Invalid:
// there are too many.
func (s *Sizes) Create(ctx context.Context, wanted croft.Size) (croft.Size, error) {
	if err := checkNew(wanted.Name); err != nil {
		return wanted, err
	}
	if err := wanted.Check(); err != nil {
		return wanted, err
	}
	return s.change(ctx, func(known []croft.Size) ([]croft.Size, string, error) {
		at, err := find(known, wanted.Name)
		switch {
		case err != nil && len(known) >= croft.MaxSizes:
			return nil, "", croft.Errorf(croft.Invalid, "create size %s: there are %d sizes, and may not be more: remove one",
				wanted.Name, len(known))
		case err != nil:
			known = append(known, wanted)
		case known[at].Resources.String() != wanted.Resources.String():
			return nil, "", croft.Errorf(croft.Conflict, "create size %s: there is one already, with %s: choose another name, "+
				"or remove that one", wanted.Name, known[at].Resources)
		}
		if wanted.Default {
			setDefault(known, wanted.Name)
		}
		return known, wanted.Name, nil
	})
}

// checkNew refuses a new size whose name says that it is the default one, which any size can be. Invalid.
func checkNew(name string) error {
	if name == "default" {
		return croft.Errorf(croft.Invalid, "no size can be called default: choose another name, and make it the default "+
			"with --default or `croft size default NAME`")
	}
	return nil
}

// Change changes a size. NotFound. Conflict: the new name is taken.
func (s *Sizes) Change(ctx context.Context, name string, to croft.SizeChange) (croft.Size, error) {
	now := cmp.Or(to.Name, name)
	if err := croft.CheckSizeName(now); err != nil {
		return croft.Size{}, err
	}
	if now != name {
		if err := checkNew(now); err != nil {
			return croft.Size{}, err
		}
	}
	return s.change(ctx, func(known []croft.Size) ([]croft.Size, string, error) {
		at, err := find(known, name)
		if err != nil {
			return nil, "", err
		}
		if _, err := find(known, now); err == nil && now != name {
			return nil, "", croft.Errorf(croft.Conflict, "rename size %s: there is a size %s already: choose another name",
				name, now)
		}
		known[at].Name = now
		switch {
		case to.Default != nil && *to.Default:
			setDefault(known, now)
		case to.Default != nil:
			known[at].Default = false
		}
		return known, now, nil
	})
}

// setDefault makes a size the only default one.
func setDefault(known []croft.Size, name string) {
	for i := range known {
		known[i].Default = known[i].Name == name
	}
}

// Remove removes a size. Instances keep what they have. NotFound.
func (s *Sizes) Remove(ctx context.Context, name string) error {
	_, err := s.change(ctx, func(known []croft.Size) ([]croft.Size, string, error) {
		at, err := find(known, name)
		if err != nil {
			return nil, "", err
		}
		return slices.Delete(known, at, at+1), "", nil
	})
	return err
}

// change replaces all sizes by the result of next, and returns the one that next names; empty: none.
func (s *Sizes) change(ctx context.Context, next func([]croft.Size) (_ []croft.Size, about string, _ error)) (
	found croft.Size, err error) {
	_, err = s.records.Change(ctx, all, nil, func(now record, _ bool) (record, error) {
		known, about, err := next(slices.Clone(now.Sizes))
		if err != nil {
			return now, err
		}
		slices.SortFunc(known, func(a, b croft.Size) int { return cmp.Compare(a.Name, b.Name) })
		if at, err := find(known, about); err == nil {
			found = known[at]
		}
		return record{known}, nil
	})
	return found, err
}
