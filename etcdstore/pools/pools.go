// Package pools stores the pools of the cloud in etcd: which manager leads, and its decisions, round by round.
package pools

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/pool"
)

var (
	_ pool.Store = (*Pools)(nil)
	_ pool.Term  = (*term)(nil)
)

// Pools stores the state of the pools, and which server leads.
type Pools struct {
	conn     *kv.Conn
	keys     Keys
	projects *tenants.Projects
	reach    Reach
}

// Reach holds the functions of the connection to etcd that only the pools need.
type Reach struct {
	// AwaitFree returns when a key is removed at or after a revision, or ctx ends.
	AwaitFree func(ctx context.Context, key string, from int64)
	// MaxTxnOps returns how many operations the servers allow in one transaction.
	MaxTxnOps func(ctx context.Context) (int, error)
}

// New makes the store of the pools with these keys, whose tickets and pools are charged to projects.
func New(k Keys, p *tenants.Projects, c *kv.Conn, r Reach) *Pools { return &Pools{c, k, p, r} }

// poolLease is the time in seconds after the death of the leading server until another one may lead.
const poolLease = 5

// lookAgain is the pause of a leader that could not find out whether it still leads.
const lookAgain = time.Second

// Lead implements pool.Store: the leader holds a key under its lease, and each of its transactions compares that the
// key is still the one that it created.
func (s *Pools) Lead(ctx context.Context, me pool.Server, act func(context.Context, pool.Term) error) error {
	for {
		revision, lease, err := s.takeLead(ctx, me)
		if err != nil {
			return s.conn.Wrap(err, "become the server that acts for the pools")
		}
		if lease == 0 {
			s.reach.AwaitFree(ctx, s.keys.leader(), revision+1)
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		return s.lead(ctx, lease, revision, act)
	}
}

// takeLead creates the leader's key. It returns the revision of the key's creation, or, without a lease, a revision
// from which to watch the present leader's key.
func (s *Pools) takeLead(ctx context.Context, me pool.Server) (revision int64, lease clientv3.LeaseID, err error) {
	key := s.keys.leader()
	got, err := s.conn.Etcd.Get(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	if len(got.Kvs) > 0 {
		if gone, err := s.removePredecessor(ctx, me, got.Kvs[0]); !gone {
			return got.Header.Revision, 0, err
		}
	}
	granted, err := s.conn.Etcd.Grant(ctx, poolLease)
	if err != nil {
		return 0, 0, err
	}
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Absent(key)).Then(clientv3.OpPut(key, kv.Encode(me),
		clientv3.WithLease(granted.ID))).Commit()
	if err != nil || !done.Succeeded {
		s.conn.StandDown(ctx, granted.ID)
		if err != nil {
			return 0, 0, err
		}
		return done.Header.Revision, 0, nil
	}
	return done.Header.Revision, granted.ID, nil
}

// removePredecessor removes the key of a server of the same directory that died without removing it.
func (s *Pools) removePredecessor(ctx context.Context, me pool.Server, there *mvccpb.KeyValue) (gone bool, err error) {
	var server pool.Server
	if err := s.conn.Decode(there.Key, there.Value, &server); err != nil || server.Directory == "" ||
		server.Directory != me.Directory {
		return false, err
	}
	key := string(there.Key)
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, there.ModRevision)).Then(clientv3.OpDelete(key)).Commit()
	return err == nil && done.Succeeded, err
}

// lead runs act while the lease is valid; then another server may act.
func (s *Pools) lead(ctx context.Context, lease clientv3.LeaseID, revision int64,
	act func(context.Context, pool.Term) error) error {
	var work sync.WaitGroup
	defer work.Wait() // after end, however act ends
	leading, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	beats, err := s.conn.Etcd.KeepAlive(leading, lease)
	if err != nil {
		s.conn.StandDown(ctx, lease)
		return s.conn.Wrap(err, "stay the server that acts for the pools")
	}
	work.Go(func() {
		for range beats {
		}
		end()
	})
	work.Go(func() {
		s.awaitLoss(leading, revision)
		end()
	})
	err = act(leading, &term{Pools: s, revision: revision, balance: tenants.NewBalance(s.projects)})
	s.conn.StandDown(ctx, lease)
	end()
	return err
}

// awaitLoss returns when the leader's key is no longer the one created at the revision. The end of the lease is noticed
// elsewhere, but the key may also be deleted by other processes.
func (s *Pools) awaitLoss(ctx context.Context, revision int64) {
	key := s.keys.leader()
	for from := revision + 1; ctx.Err() == nil; {
		s.reach.AwaitFree(ctx, key, from)
		got, err := s.conn.Etcd.Get(ctx, key)
		if err == nil && (len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != revision) {
			return
		}
		if from = revision + 1; err == nil {
			from = got.Header.Revision + 1
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookAgain):
		}
	}
}

// WatchLeader implements pool.Store.
func (s *Pools) WatchLeader(ctx context.Context, changed func(*pool.Server)) error {
	return s.conn.Follow(ctx, s.keys.leader(),
		func() { changed(nil) },
		func(stored *mvccpb.KeyValue, present bool) {
			var server pool.Server
			if !present || s.conn.Decode(stored.Key, stored.Value, &server) != nil {
				changed(nil)
				return
			}
			changed(&server)
		})
}
