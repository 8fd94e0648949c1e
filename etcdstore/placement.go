package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore/etcdserver"
	"croft/etcdstore/placing"
)

// DefaultTxnOps is etcd's default limit on the operations of one transaction (--max-txn-ops).
const DefaultTxnOps = 128

// Placement returns the store of the Placement API. maxTxnOps is the limit configured in the etcd servers; 0:
// DefaultTxnOps.
func (s *conn) Placement(maxTxnOps int) *placing.Placement {
	return placing.NewPlacement(s.shared(), cmp.Or(maxTxnOps, DefaultTxnOps), s.watching, s.disconnected)
}

// MaxTxnOps probes how many operations the servers allow in one transaction, up to etcdserver.TxnOps, which is
// sufficient. The servers do not report their limit, but refuse larger transactions.
func (s *conn) MaxTxnOps(ctx context.Context) (int, error) {
	always := clientv3.Compare(clientv3.Version(homeKey), ">", -1)
	var failed error
	allowed := func(n int) bool {
		_, err := s.etcd.Txn(ctx).If(slices.Repeat([]clientv3.Cmp{always}, n)...).Commit()
		if err != nil && !errors.Is(err, rpctypes.ErrTooManyOps) {
			failed = err
		}
		return err == nil
	}
	if allowed(etcdserver.TxnOps) {
		return etcdserver.TxnOps, nil
	}
	n := sort.Search(etcdserver.TxnOps, func(n int) bool { return failed != nil || !allowed(n+1) })
	if failed != nil {
		return 0, s.wrap(failed, "learn the limit of transactions")
	}
	return n, nil
}
