package partitions

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation/assertion"
	"croft/etcdstore/internal/kv"
)

// Nonces stores which assertions of peers were used, in keys under leases. Assertions of the same minute share one
// lease, so that a request costs one transaction. It implements assertion.Nonces.
type Nonces struct {
	store *Partitions

	mu    sync.Mutex
	lease clientv3.LeaseID
	since time.Time // earliest time at which the lease may have been granted
}

// NewNonces returns the Nonces of one server; all servers of a cloud see each other's used assertions.
func (s *Partitions) NewNonces() *Nonces { return &Nonces{store: s} }

var _ assertion.Nonces = (*Nonces)(nil)

// leaseShared is how long a lease is used for new keys; a key exists for at least assertion.Kept.
const leaseShared = time.Minute

// Use implements assertion.Nonces. If the answer is lost, the nonce counts as used, and the assertion is refused.
func (n *Nonces) Use(ctx context.Context, peer croft.PartitionID, nonce string) error {
	key, conn := n.store.peerKeys().nonce(peer, nonce), n.store.conn
	for {
		lease, fresh, err := n.granted(ctx)
		if err != nil {
			return err
		}
		done, err := conn.Etcd.Txn(ctx).If(kv.Absent(key)).Then(clientv3.OpPut(key, "", clientv3.WithLease(lease))).
			Commit()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound) && !fresh: // this process was suspended for long
			n.drop(lease)
			continue
		case err != nil:
			return conn.Wrap(err, "remember an assertion")
		case !done.Succeeded:
			return croft.Errorf(croft.Conflict, "the assertion was used before")
		}
		return nil
	}
}

// granted returns a lease that lasts long enough, and whether it is new.
func (n *Nonces) granted(ctx context.Context) (lease clientv3.LeaseID, fresh bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.lease != 0 && now.Sub(n.since) < leaseShared {
		return n.lease, false, nil
	}
	got, err := n.store.conn.Etcd.Grant(ctx, int64((assertion.Kept+leaseShared)/time.Second))
	if err != nil {
		return 0, false, n.store.conn.Wrap(err, "remember an assertion")
	}
	n.lease, n.since = got.ID, now
	return n.lease, true, nil
}

// drop discards a lease that has expired.
func (n *Nonces) drop(lease clientv3.LeaseID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lease == lease {
		n.lease = 0
	}
}
