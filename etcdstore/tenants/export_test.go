package tenants

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Owed counts the unsettled reductions, and returns the current revision of etcd.
func (s *Projects) Owed(ctx context.Context) (n, revision int64, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().allEntries(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, 0, err
	}
	return got.Count, got.Header.Revision, nil
}

// RemoveExpired removes the tokens that expired long ago, as Settle does.
func (s *AccessTokens) RemoveExpired(ctx context.Context) error { return s.removeExpired(ctx) }
