package objects

import (
	"context"
	"errors"
	"slices"

	"croft"
	"croft/access"
)

// Store keeps objects and definitions. Every read names the scope of its caller; what lies outside is not found.
type Store interface {
	// Read returns an object, empty with generation 0 if nothing is noted, and the definitions of its kind, all as of
	// one moment. NotFound: there is no such thing, or not within the scope.
	Read(ctx context.Context, scope access.Scope, ref Ref) (Snapshot, error)
	// Write replaces the object of a snapshot by next, which it returns with its new generation. Nothing is kept of an
	// empty object. Conflict: the object, a definition of its kind or the thing itself changed since the snapshot.
	Write(ctx context.Context, s Snapshot, next Object) (Object, error)
	// List returns what is noted about things of a kind within the scope, in any order, and the definitions of the kind
	// as of one moment. Objects of things that are gone are left out.
	List(ctx context.Context, scope access.Scope, kind Kind) ([]Object, Definitions, error)
	// Definition returns what is set at a place. NotFound: nothing.
	Definition(ctx context.Context, at Place) (Definition, error)
	// PutDefinition sets a definition at its place; d.Generation is that of the one to be replaced, or 0. It returns it
	// with its new generation. Conflict.
	PutDefinition(ctx context.Context, d Definition) (Definition, error)
	// RemoveDefinition removes a definition with this place and generation. Conflict.
	RemoveDefinition(ctx context.Context, d Definition) error
}

// Snapshot is an object and what governs it at one moment.
type Snapshot struct {
	Object      Object
	Definitions Definitions
	Record      int64 // creation of the record of the thing, by which it is told from a later one of the same ID
}

// Service answers callers. It has no state of its own.
type Service struct{ store Store }

// New returns a service over a store.
func New(s Store) *Service { return &Service{s} }

// scopeFor widens the scope of an agent to its own host.
func scopeFor(c access.Caller, scope access.Scope, ref Ref) access.Scope {
	if ref.Kind == Host && c.Has(access.Agent) && c.Host != "" && string(c.Host) == ref.ID {
		return access.Everything()
	}
	return scope
}

// Object returns what the caller may read of an object. NotFound: there is no such thing within the scope.
func (s *Service) Object(ctx context.Context, c access.Caller, scope access.Scope, ref Ref) (Object, error) {
	if err := ref.Check(); err != nil {
		return Object{}, err
	}
	got, err := s.store.Read(ctx, scopeFor(c, scope, ref), ref)
	if err != nil {
		return Object{}, err
	}
	return got.Definitions.Effective(ref.Kind).visible(c, got.Object), nil
}

// List returns the objects of a kind within the scope that the filter chooses, by project and ID. An object of which
// the caller may read nothing is not among them.
func (s *Service) List(ctx context.Context, c access.Caller, scope access.Scope, kind Kind, f Filter) ([]Object,
	error) {
	if err := kind.Check(); err != nil {
		return nil, err
	}
	all, definitions, err := s.store.List(ctx, scope, kind)
	if err != nil {
		return nil, err
	}
	under := definitions.Effective(kind)
	chosen := []Object{}
	for _, o := range all {
		if o = under.visible(c, o); !o.Empty() && f.Match(o) {
			chosen = append(chosen, o)
		}
	}
	slices.SortFunc(chosen, func(a, b Object) int { return a.compare(b.Ref) })
	return chosen, nil
}

// attempts bounds how often a change is tried anew because another one was faster: of several that are tried at once,
// one always succeeds.
const attempts = 64

// Change changes an object and returns what the caller may read of it. NotFound: there is no such thing within the
// scope, or what is to be removed is not there. Denied: *ForbiddenError, or tags. Invalid: *ViolationsError, or a
// limit. Conflict: the generation that the change names is not the present one. After any error nothing is changed,
// except that after Unavailable the change may have been made; it can be repeated.
func (s *Service) Change(ctx context.Context, c access.Caller, scope access.Scope, ref Ref, change Change) (Object,
	error) {
	if err := ref.Check(); err != nil {
		return Object{}, err
	}
	if err := change.check(); err != nil {
		return Object{}, err
	}
	for i := range attempts {
		got, err := s.store.Read(ctx, scopeFor(c, scope, ref), ref)
		if err != nil {
			return Object{}, err
		}
		under := got.Definitions.Effective(ref.Kind)
		next, err := decision{under, c, change, i > 0}.apply(got.Object)
		if err != nil {
			return Object{}, err
		}
		if !next.sameAs(got.Object) {
			next, err = s.store.Write(ctx, got, next)
		}
		if !errors.Is(err, croft.Conflict) {
			return under.visible(c, next), err
		}
	}
	return Object{}, croft.Errorf(croft.Conflict, "%s is being changed by many others at once: try again", ref)
}

// Definition returns the definition that governs a kind.
func (s *Service) Definition(ctx context.Context, kind Kind) (Definition, error) {
	if err := kind.Check(); err != nil {
		return Definition{}, err
	}
	for _, place := range Places(kind) {
		if d, err := s.store.Definition(ctx, place); !errors.Is(err, croft.NotFound) {
			return d, err
		}
	}
	return Definitions{}.Effective(kind), nil
}

// DefinitionAt returns what is set at a place. NotFound: nothing.
func (s *Service) DefinitionAt(ctx context.Context, at Place) (Definition, error) {
	if err := at.Check(); err != nil {
		return Definition{}, err
	}
	return s.store.Definition(ctx, at)
}

// SetDefinition sets a definition at its place. Objects stay as they are: the definition binds at their next change.
// Denied: only operators define. Conflict: d.Generation is not that of the definition set there now.
func (s *Service) SetDefinition(ctx context.Context, c access.Caller, d Definition) (Definition, error) {
	if err := mayDefine(c); err != nil {
		return d, err
	}
	if err := d.Check(); err != nil {
		return d, err
	}
	if _, err := d.compile(); err != nil {
		return d, err
	}
	return s.store.PutDefinition(ctx, d)
}

// RemoveDefinition removes what is set at a place, so that a less explicit definition applies. NotFound; Denied.
func (s *Service) RemoveDefinition(ctx context.Context, c access.Caller, at Place) error {
	if err := mayDefine(c); err != nil {
		return err
	}
	d, err := s.DefinitionAt(ctx, at)
	if err != nil {
		return err
	}
	return s.store.RemoveDefinition(ctx, d)
}

func mayDefine(c access.Caller) error {
	if !c.Operator() {
		return croft.Errorf(croft.Denied, "you may not change definitions: ask an operator of the cloud")
	}
	return nil
}

// Breach is an object that violates the definition that applies now.
type Breach struct {
	Ref
	Violations []Violation `json:"violations"`
}

// Check lists the objects of a kind within the scope that violate the definition that applies now, by project and ID,
// as far as the caller may read what they violate. An object without properties violates nothing.
func (s *Service) Check(ctx context.Context, c access.Caller, scope access.Scope, kind Kind) ([]Breach, error) {
	if err := kind.Check(); err != nil {
		return nil, err
	}
	all, definitions, err := s.store.List(ctx, scope, kind)
	if err != nil {
		return nil, err
	}
	under := definitions.Effective(kind)
	compiled, err := under.compile()
	if err != nil {
		return nil, err
	}
	breaches := []Breach{}
	for _, o := range all {
		found, err := under.violations(compiled, o.Properties, under.known(c, kind))
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(v Violation) bool { return !under.allowed(c, kind, v.Key).read })
		if len(found) > 0 && len(under.visible(c, o).Properties) > 0 {
			breaches = append(breaches, Breach{o.Ref, found})
		}
	}
	slices.SortFunc(breaches, func(a, b Breach) int { return a.compare(b.Ref) })
	return breaches, nil
}
