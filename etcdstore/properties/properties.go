// Package properties stores properties and tags of objects in etcd, and the definitions of properties. Every
// transaction that removes an object's record also removes its properties and tags.
package properties

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/etcdstore/tenants"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// Objects is the store of objects and definitions.
type Objects struct {
	conn     *kv.Conn
	things   Things
	projects *tenants.Projects
}

var _ objects.Store = (*Objects)(nil)

// Things are the prefixes of the records of objects.
type Things struct {
	Instances, Hosts string // ID
	Groups           string // project, group, and the rest of a member's key
}

// NewObjects makes the store of objects and definitions.
func NewObjects(c *kv.Conn, t Things, p *tenants.Projects) *Objects { return &Objects{c, t, p} }

// Charged returns the source of the charges for the properties of images. Properties of instances and groups are
// removed with their instances, which are charged, and properties of hosts belong to operators.
func Charged(c *kv.Conn) tenants.Source {
	k := Keys(c.Prefix)
	return tenants.Source{Prefix: k.kind(objects.Image), Charge: func(key, value []byte) (tenants.Charge, error) {
		project, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.kind(objects.Image)), "/")
		var o storedObject
		err := c.Decode(key, value, &o)
		return tenants.Charge{Project: croft.Project(project), Amounts: chargeOf(o)}, err
	}}
}

// chargeOf returns the charge for the properties and tags of an image.
func chargeOf(o storedObject) tenant.Amounts {
	if len(o.Properties)+len(o.Tags) == 0 {
		return nil
	}
	return tenants.SizeOf(tenant.CountDescribed, o)
}

func (t Things) group(ref objects.Ref) string {
	return t.Groups + string(ref.Project) + "/" + ref.ID + "/"
}

// storedObject is the value of an object's key.
type storedObject struct {
	Properties map[string]objects.Value `json:"properties,omitempty"`
	Tags       []string                 `json:"tags,omitempty"`
}

func (s *Objects) keys() Keys { return Keys(s.conn.Prefix) }

// Read implements objects.Store, in one transaction.
func (s *Objects) Read(ctx context.Context, scope access.Scope, ref objects.Ref) (objects.Snapshot, error) {
	if err := ref.Check(); err != nil { // parts of it become part of keys
		return objects.Snapshot{}, err
	}
	if !inScope(scope, ref) {
		return objects.Snapshot{}, noThing(ref)
	}
	k := s.keys()
	ops := append(s.getDefinitions(ref.Kind), clientv3.OpGet(k.Object(ref)))
	if record, ok := s.record(ref); ok {
		ops = append(ops, record)
	}
	got, err := s.conn.Etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return objects.Snapshot{}, s.conn.Wrap(err, "read the properties of %s", ref)
	}
	answers := make([][]*mvccpb.KeyValue, len(got.Responses))
	for i, r := range got.Responses {
		answers[i] = r.GetResponseRange().Kvs
	}
	last := len(s.getDefinitions(ref.Kind))
	snapshot := objects.Snapshot{Object: objects.Object{Ref: ref}}
	if snapshot.Definitions, err = s.definitions(ref.Kind, answers[:last]); err != nil {
		return objects.Snapshot{}, err
	}
	if stored := answers[last]; len(stored) > 0 {
		if snapshot.Object, err = s.decodeObject(ref, stored[0]); err != nil {
			return objects.Snapshot{}, err
		}
	}
	for _, record := range answers[last+1:] {
		if snapshot.Record, err = s.recordOf(ref, record); err != nil {
			return objects.Snapshot{}, err
		}
	}
	return snapshot, nil
}

func inScope(scope access.Scope, ref objects.Ref) bool {
	if ref.Kind.InProject() {
		return scope.Sees(ref.Project)
	}
	return scope.All()
}

func noThing(ref objects.Ref) error {
	return croft.Errorf(croft.NotFound, "there is no %s; look at the list of all, or at the spelling", ref)
}

// record returns the read of an object's record, or of a member of a group; false for images, which have no record.
func (s *Objects) record(ref objects.Ref, options ...clientv3.OpOption) (clientv3.Op, bool) {
	switch ref.Kind {
	case objects.Instance:
		return clientv3.OpGet(s.things.Instances+ref.ID, options...), true
	case objects.Host:
		return clientv3.OpGet(s.things.Hosts+ref.ID, append(options, clientv3.WithKeysOnly())...), true
	case objects.Group:
		return clientv3.OpGet(s.things.group(ref), append(options, clientv3.WithPrefix(), clientv3.WithLimit(1),
			clientv3.WithKeysOnly())...), true
	}
	return clientv3.Op{}, false
}

// recordOf returns the revision at which the record of an object was created; 0 for a group, whose members change.
// NotFound.
func (s *Objects) recordOf(ref objects.Ref, found []*mvccpb.KeyValue) (int64, error) {
	if len(found) == 0 {
		return 0, noThing(ref)
	}
	if ref.Kind == objects.Group {
		return 0, nil
	}
	if ref.Kind == objects.Instance {
		var inst croft.Instance
		if err := s.conn.Decode(found[0].Key, found[0].Value, &inst); err != nil {
			return 0, err
		}
		if inst.Project != ref.Project {
			return 0, noThing(ref)
		}
	}
	return found[0].CreateRevision, nil
}

// isSame returns the comparisons that the object of a snapshot still exists.
func (s *Objects) isSame(snapshot objects.Snapshot) []clientv3.Cmp {
	ref := snapshot.Object.Ref
	created := func(key string) []clientv3.Cmp {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", snapshot.Record)}
	}
	switch ref.Kind {
	case objects.Instance:
		return created(s.things.Instances + ref.ID)
	case objects.Host:
		return created(s.things.Hosts + ref.ID)
	case objects.Group:
		// Existence is enough: a group is its members and has no record, so there is no creation to compare.
		return []clientv3.Cmp{kv.Exists(s.things.group(ref)).WithPrefix()}
	}
	return nil
}

func (s *Objects) decodeObject(ref objects.Ref, entry *mvccpb.KeyValue) (objects.Object, error) {
	var o storedObject
	err := s.conn.Decode(entry.Key, entry.Value, &o)
	return objects.Object{Ref: ref, Properties: o.Properties, Tags: o.Tags, Generation: entry.ModRevision}, err
}

// Write implements objects.Store.
func (s *Objects) Write(ctx context.Context, snapshot objects.Snapshot, next objects.Object) (objects.Object, error) {
	ref := snapshot.Object.Ref
	key := s.keys().Object(ref)
	compares := append(s.isSame(snapshot), kv.Unchanged(key, snapshot.Object.Generation))
	for _, place := range objects.Places(ref.Kind) {
		generation := int64(0)
		for _, d := range snapshot.Definitions {
			if d.Place == place {
				generation = d.Generation
			}
		}
		compares = append(compares, kv.Unchanged(s.keys().definition(place), generation))
	}
	write := clientv3.OpPut(key, kv.Encode(storedObject{next.Properties, next.Tags}))
	if next.Empty() {
		write = clientv3.OpDelete(key)
	}
	change := tenants.Change{If: compares, Then: []clientv3.Op{write}, What: "write the properties of " + ref.String()}
	if ref.Kind == objects.Image {
		before := storedObject{snapshot.Object.Properties, snapshot.Object.Tags}
		change.Project = ref.Project
		change.Charge = chargeOf(storedObject{next.Properties, next.Tags}).Minus(chargeOf(before))
	}
	revision, _, err := s.projects.Commit(ctx, change)
	if err != nil {
		return next, err
	}
	if revision == 0 {
		return next, croft.Errorf(croft.Conflict, "%s or its definition was changed by another request; try again", ref)
	}
	next.Ref, next.Generation = ref, revision
	if next.Empty() {
		next.Generation = 0
	}
	return next, nil
}

// List implements objects.Store.
func (s *Objects) List(ctx context.Context, scope access.Scope, kind objects.Kind) ([]objects.Object,
	objects.Definitions, error) {
	got, err := s.conn.Etcd.Txn(ctx).Then(s.getDefinitions(kind)...).Commit()
	if err != nil {
		return nil, nil, s.conn.Wrap(err, "read definitions")
	}
	var stored [][]*mvccpb.KeyValue
	for _, r := range got.Responses {
		stored = append(stored, r.GetResponseRange().Kvs)
	}
	under, err := s.definitions(kind, stored)
	if err != nil {
		return nil, nil, err
	}
	revision := got.Header.Revision
	var all []objects.Object
	for _, prefix := range s.prefixes(scope, kind) {
		err := s.conn.ReadRange(ctx, "list properties", prefix, revision, func(entry *mvccpb.KeyValue) error {
			o, err := s.decodeObject(s.refOf(kind, entry.Key), entry)
			all = append(all, o)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	all, err = s.existing(ctx, all, revision)
	return all, under, err
}

// Some implements objects.Store.
func (s *Objects) Some(ctx context.Context, kind objects.Kind, refs []objects.Ref) ([]objects.Object,
	objects.Definitions, error) {
	ops := s.getDefinitions(kind)
	definitions := len(ops)
	for _, ref := range refs {
		if err := ref.Check(); err != nil { // parts of it become part of keys
			return nil, nil, err
		}
		ops = append(ops, clientv3.OpGet(s.keys().Object(ref)))
	}
	stored, err := s.conn.GetMany(ctx, "list properties", ops)
	if err != nil {
		return nil, nil, err
	}
	under, err := s.definitions(kind, stored[:definitions])
	if err != nil {
		return nil, nil, err
	}
	var all []objects.Object
	for i, found := range stored[definitions:] {
		for _, entry := range found {
			o, err := s.decodeObject(refs[i], entry)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, o)
		}
	}
	return all, under, nil
}

// prefixes returns the prefixes of the objects of a kind within a scope.
func (s *Objects) prefixes(scope access.Scope, kind objects.Kind) []string {
	k := s.keys()
	if scope.All() {
		return []string{k.kind(kind)}
	}
	var all []string
	if kind.InProject() {
		for _, project := range scope.Projects() {
			all = append(all, k.Project(kind, project))
		}
	}
	return all
}

func (s *Objects) refOf(kind objects.Kind, key []byte) objects.Ref {
	rest := strings.TrimPrefix(string(key), s.keys().kind(kind))
	if !kind.InProject() {
		return objects.Ref{Kind: kind, ID: rest}
	}
	project, id, _ := strings.Cut(rest, "/")
	return objects.Ref{Kind: kind, Project: croft.Project(project), ID: id}
}

// existing leaves out objects whose record was removed: programs of older versions leave the properties of objects that
// they remove.
func (s *Objects) existing(ctx context.Context, all []objects.Object, revision int64) ([]objects.Object, error) {
	var ops []clientv3.Op
	for _, o := range all {
		if op, ok := s.record(o.Ref, clientv3.WithRev(revision), clientv3.WithKeysOnly()); ok {
			ops = append(ops, op)
		}
	}
	records, err := s.conn.GetMany(ctx, "list what there is", ops)
	if err != nil || len(records) == 0 {
		return all, err
	}
	var there []objects.Object
	for i, o := range all {
		if len(records[i]) > 0 {
			there = append(there, o)
		}
	}
	return there, nil
}

func (s *Objects) getDefinitions(kind objects.Kind) []clientv3.Op {
	var ops []clientv3.Op
	for _, place := range objects.Places(kind) {
		ops = append(ops, clientv3.OpGet(s.keys().definition(place)))
	}
	return ops
}

// definitions decodes the answers to getDefinitions.
func (s *Objects) definitions(kind objects.Kind, answers [][]*mvccpb.KeyValue) (objects.Definitions, error) {
	var all objects.Definitions
	for i := range objects.Places(kind) {
		if len(answers[i]) == 0 {
			continue
		}
		d, err := s.definitionShelf().Read(answers[i][0])
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Definition implements objects.Store.
func (s *Objects) Definition(ctx context.Context, at objects.Place) (objects.Definition, error) {
	if err := at.Check(); err != nil {
		return objects.Definition{}, err
	}
	return s.definitionShelf().Find(ctx, s.keys().nameOf(at))
}

// definitionShelf stores the definitions by the names of their places.
func (s *Objects) definitionShelf() shelf.Shelf[objects.Definition] {
	return shelf.Shelf[objects.Definition]{Conn: s.conn, Noun: "definition", Prefix: s.keys().definitions(),
		Decode: func(entry *mvccpb.KeyValue) (d objects.Definition, err error) {
			err = s.conn.Decode(entry.Key, entry.Value, &d)
			d.Place, d.Generation = s.keys().placeOf(entry.Key), entry.ModRevision
			return d, err
		},
		Stamp: func(d *objects.Definition, generation, _ int64) { d.Generation = generation },
		Missing: func(_ context.Context, name string) error {
			at := s.keys().placeOf([]byte(s.keys().definitions() + name))
			return croft.Errorf(croft.NotFound,
				"no definition is set for %s at the level %s; `croft definition get %s` shows what applies", at.Kind, at.Level,
				at.Kind)
		},
		Differs: func(string, int64, int64) error { return errChanged }}
}

// PutDefinition implements objects.Store.
func (s *Objects) PutDefinition(ctx context.Context, d objects.Definition) (objects.Definition, error) {
	if err := d.Place.Check(); err != nil {
		return d, err
	}
	return s.definitionShelf().Set(ctx, s.keys().nameOf(d.Place), d.Generation, d)
}

// RemoveDefinition implements objects.Store.
func (s *Objects) RemoveDefinition(ctx context.Context, d objects.Definition) error {
	if err := d.Place.Check(); err != nil {
		return err
	}
	err := s.definitionShelf().Remove(ctx, s.keys().nameOf(d.Place), &d.Generation, nil)
	if errors.Is(err, croft.NotFound) {
		return errChanged
	}
	return err
}

var errChanged = croft.Errorf(croft.Conflict, "the definition was changed by another request; read it again")
