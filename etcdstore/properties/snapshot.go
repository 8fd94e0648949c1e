package properties

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft/tenant/objects"
)

// ReadAt calls each with all existing objects at a revision.
func (s *Objects) ReadAt(ctx context.Context, revision int64, each func(objects.Object) error) error {
	for _, kind := range objects.Kinds {
		var all []objects.Object
		err := s.conn.ReadRange(ctx, "read properties", s.keys().kind(kind), revision,
			func(entry *mvccpb.KeyValue) error {
				o, err := s.decodeObject(s.refOf(kind, entry.Key), entry)
				all = append(all, o)
				return err
			})
		if err == nil {
			all, err = s.existing(ctx, all, revision)
		}
		if err != nil {
			return err
		}
		for _, o := range all {
			if err := each(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// DefinitionsAt returns all definitions that are set, at a revision.
func (s *Objects) DefinitionsAt(ctx context.Context, revision int64) ([]objects.Definition, error) {
	return s.definitionShelf().List(ctx, revision)
}
