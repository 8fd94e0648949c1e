// Package objectstest provides contract tests for objects.Store, and a store in memory that passes them.
package objectstest

import (
	"context"
	"slices"
	"sync"

	"croft"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// Memory is an objects.Store in memory. Its zero value is empty.
type Memory struct {
	mu          sync.Mutex
	revision    int64
	records     map[objects.Ref]int64 // revision at which the record was created
	objects     map[objects.Ref]objects.Object
	definitions map[objects.Place]objects.Definition
}

var _ objects.Store = (*Memory)(nil)

// Add creates a record. It replaces one of the same name.
func (m *Memory) Add(ref objects.Ref) {
	m.Remove(ref)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[objects.Ref]int64{}
	}
	m.revision++
	m.records[ref] = m.revision
}

// Remove removes a record and its object.
func (m *Memory) Remove(ref objects.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, ref)
	delete(m.objects, ref)
}

// Has reports whether an object is stored, even if its record is gone.
func (m *Memory) Has(ref objects.Ref) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, has := m.objects[ref]
	return has
}

// Read implements objects.Store.
func (m *Memory) Read(_ context.Context, scope access.Scope, ref objects.Ref) (objects.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, exists := m.records[ref]
	if !sees(scope, ref) || !exists && ref.Kind != objects.Image {
		return objects.Snapshot{}, croft.Errorf(croft.NotFound, "there is no %s", ref)
	}
	o, stored := m.objects[ref]
	if !stored {
		o = objects.Object{Ref: ref}
	}
	return objects.Snapshot{Object: o, Definitions: m.of(ref.Kind), Record: record}, nil
}

func sees(scope access.Scope, ref objects.Ref) bool {
	if ref.Kind.InProject() {
		return scope.Sees(ref.Project)
	}
	return scope.All()
}

func (m *Memory) of(kind objects.Kind) objects.Definitions {
	var all objects.Definitions
	for _, place := range objects.Places(kind) {
		if d, set := m.definitions[place]; set {
			all = append(all, d)
		}
	}
	return all
}

// Write implements objects.Store.
func (m *Memory) Write(_ context.Context, s objects.Snapshot, next objects.Object) (objects.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ref := s.Object.Ref
	same := slices.EqualFunc(m.of(ref.Kind), s.Definitions, func(a, b objects.Definition) bool {
		return a.Place == b.Place && a.Generation == b.Generation
	})
	if !same || m.records[ref] != s.Record || m.objects[ref].Generation != s.Object.Generation {
		return next, croft.Errorf(croft.Conflict, "%s was changed by another request", ref)
	}
	m.revision++
	next.Ref, next.Generation = ref, m.revision
	if next.Empty() {
		delete(m.objects, ref)
		next.Generation = 0
		return next, nil
	}
	if m.objects == nil {
		m.objects = map[objects.Ref]objects.Object{}
	}
	m.objects[ref] = next
	return next, nil
}

// List implements objects.Store.
func (m *Memory) List(_ context.Context, scope access.Scope, kind objects.Kind) ([]objects.Object,
	objects.Definitions, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []objects.Object
	for ref, o := range m.objects {
		if ref.Kind == kind && sees(scope, ref) {
			all = append(all, o)
		}
	}
	return all, m.of(kind), nil
}

// Some implements objects.Store.
func (m *Memory) Some(_ context.Context, kind objects.Kind, refs []objects.Ref) ([]objects.Object, objects.Definitions,
	error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []objects.Object
	for _, ref := range refs {
		if o, stored := m.objects[ref]; stored {
			all = append(all, o)
		}
	}
	return all, m.of(kind), nil
}

// Definition implements objects.Store.
func (m *Memory) Definition(_ context.Context, at objects.Place) (objects.Definition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, set := m.definitions[at]
	if !set {
		return d, croft.Errorf(croft.NotFound, "no definition is set for %s in the %s", at.Kind, at.Level)
	}
	return d, nil
}

// PutDefinition implements objects.Store.
func (m *Memory) PutDefinition(_ context.Context, d objects.Definition) (objects.Definition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.definitions[d.Place].Generation != d.Generation {
		return d, croft.Errorf(croft.Conflict, "the definition was changed by another request")
	}
	if m.definitions == nil {
		m.definitions = map[objects.Place]objects.Definition{}
	}
	m.revision++
	d.Generation = m.revision
	m.definitions[d.Place] = d
	return d, nil
}

// RemoveDefinition implements objects.Store.
func (m *Memory) RemoveDefinition(_ context.Context, d objects.Definition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now, set := m.definitions[d.Place]; !set || now.Generation != d.Generation {
		return croft.Errorf(croft.Conflict, "the definition was changed by another request")
	}
	delete(m.definitions, d.Place)
	return nil
}
