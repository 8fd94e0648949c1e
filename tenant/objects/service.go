package objects

import (
	"context"
	"errors"
	"slices"

	"croft"
	"croft/tenant/access"
)

// Store stores objects and definitions. Every read names the scope of its caller; objects outside of it are not found.
type Store interface {
	// Read returns an object, which is empty with generation 0 if none is stored, and the definitions of its kind, at
	// one revision. NotFound: the reference names no record within the scope.
	Read(ctx context.Context, scope access.Scope, ref Ref) (Snapshot, error)
	// Write replaces the object of a snapshot by next, and returns it with its new generation. An empty object is
	// deleted. Conflict: the object, a definition of its kind or the record changed since the snapshot.
	Write(ctx context.Context, s Snapshot, next Object) (Object, error)
	// List returns the objects of a kind within the scope, in any order, and the definitions of the kind, at one
	// revision. Objects whose record is gone are left out.
	List(ctx context.Context, scope access.Scope, kind Kind) ([]Object, Definitions, error)
	// Some returns what is stored of the referred objects of a kind, in any order, and the definitions of the kind. It
	// does not check whether there are such records.
	Some(ctx context.Context, kind Kind, refs []Ref) ([]Object, Definitions, error)
	// Definition returns the definition at a place. NotFound: none exists.
	Definition(ctx context.Context, at Place) (Definition, error)
	// PutDefinition stores a definition at its place, and returns it with its new generation; d.Generation is the
	// generation of the one to replace, or 0. Conflict.
	PutDefinition(ctx context.Context, d Definition) (Definition, error)
	// RemoveDefinition removes a definition with this place and generation. Conflict.
	RemoveDefinition(ctx context.Context, d Definition) error
}

// Snapshot is an object and the definitions that govern it, at one revision.
type Snapshot struct {
	Object      Object
	Definitions Definitions
	Record      int64 // creation revision of the record, which identifies it among records with the same ID
}

// Service handles the requests of callers. It has no state.
type Service struct{ store Store }

// New returns a service for a store.
func New(s Store) *Service { return &Service{s} }

// scopeFor widens the scope of an agent to its own host.
func scopeFor(c access.Caller, scope access.Scope, ref Ref) access.Scope {
	if ref.Kind == Host && c.Has(access.Agent) && c.Host != "" && string(c.Host) == ref.ID {
		return access.Everything()
	}
	return scope
}

// Object returns the part of an object that the caller may read. NotFound: the reference names no record within the
// scope.
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

// List returns the objects of a kind within the scope that the filter selects, by project and ID. Objects of which the
// caller may read nothing are left out.
func (s *Service) List(ctx context.Context, c access.Caller, scope access.Scope, kind Kind, f Filter) ([]Object,
	error) {
	if err := kind.Check(); err != nil {
		return nil, err
	}
	all, definitions, err := s.store.List(ctx, scope, kind)
	if err != nil {
		return nil, err
	}
	return definitions.visible(c, kind, all, f), nil
}

// Some returns the parts that the caller may read of objects whose records the caller has just been shown. Objects
// without such parts are left out.
func (s *Service) Some(ctx context.Context, c access.Caller, kind Kind, refs []Ref) ([]Object, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	all, definitions, err := s.store.Some(ctx, kind, refs)
	return definitions.visible(c, kind, all, nil), err
}

// visible returns the parts of objects that the caller may read, of those that match the filter.
func (d Definitions) visible(c access.Caller, kind Kind, all []Object, f Filter) []Object {
	under := d.Effective(kind)
	chosen := []Object{}
	for _, o := range all {
		if o = under.visible(c, o); !o.Empty() && f.Match(o) {
			chosen = append(chosen, o)
		}
	}
	slices.SortFunc(chosen, func(a, b Object) int { return a.compare(b.Ref) })
	return chosen
}

// attempts bounds how often a change is retried after a concurrent one: of several concurrent attempts, one always
// succeeds.
const attempts = 64

// Change changes an object and returns the part that the caller may read. NotFound: the reference names no record
// within the scope, or a property or tag to remove does not exist. Denied: *ForbiddenError, or tags. Invalid:
// *ViolationsError, or a limit. Conflict: the generation in the change is not the current one. An error means that
// nothing changed, except that after Unavailable the change may have been made; it can be repeated.
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

// DefinitionAt returns the definition at a place. NotFound: none exists.
func (s *Service) DefinitionAt(ctx context.Context, at Place) (Definition, error) {
	if err := at.Check(); err != nil {
		return Definition{}, err
	}
	return s.store.Definition(ctx, at)
}

// SetDefinition stores a definition at its place. Existing objects are not changed: the definition applies at their
// next change. Denied: only operators may set definitions. Conflict: d.Generation is not the generation of the current
// definition there.
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

// RemoveDefinition removes the definition at a place, so that a less specific one applies. NotFound; Denied.
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

// Breach is an object that violates the current definition.
type Breach struct {
	Ref
	Violations []Violation `json:"violations"` // what is wrong
}

// Check lists the objects of a kind within the scope that violate the current definition, by project and ID, as far as
// the caller may read the properties concerned. An object without properties violates nothing.
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
