package etcdstore

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/pool"
)

var (
	_ pool.Store = (*Pools)(nil)
	_ pool.Term  = (*poolTerm)(nil)
)

// Pools stores the state of the pools, and which server acts for them.
type Pools struct{ conn *conn }

// poolLease is how many seconds after the death of the acting server another one may act for the pools.
const poolLease = 5

// Lead implements pool.Store: the leader holds a key under its lease, and each of its transactions compares
// that the key is still the one that it created.
func (s *Pools) Lead(ctx context.Context, me pool.Server, act func(context.Context, pool.Term) error) error {
	for {
		revision, lease, err := s.takeLead(ctx, me)
		if err != nil {
			return s.conn.wrapped(err, "become the server that acts for the pools")
		}
		if lease == 0 {
			s.conn.awaitFree(ctx, s.conn.keys.pools().leader(), revision+1)
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		return s.lead(ctx, lease, revision, act)
	}
}

// takeLead creates the leader's key. It returns the revision of its creation, or, without a lease, a revision
// from which to watch the present leader's key.
func (s *Pools) takeLead(ctx context.Context, me pool.Server) (revision int64, lease clientv3.LeaseID, err error) {
	key := s.conn.keys.pools().leader()
	got, err := s.conn.etcd.Get(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	if len(got.Kvs) > 0 {
		if gone, err := s.succeed(ctx, me, got.Kvs[0]); !gone {
			return got.Header.Revision, 0, err
		}
	}
	granted, err := s.conn.etcd.Grant(ctx, poolLease)
	if err != nil {
		return 0, 0, err
	}
	done, err := s.conn.etcd.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, encode(me),
		clientv3.WithLease(granted.ID))).Commit()
	if err != nil || !done.Succeeded {
		s.conn.shared().StandDown(ctx, granted.ID)
		if err != nil {
			return 0, 0, err
		}
		return done.Header.Revision, 0, nil
	}
	return done.Header.Revision, granted.ID, nil
}

// succeed removes the key of a server of the same directory, which died without removing it.
func (s *Pools) succeed(ctx context.Context, me pool.Server, kv *mvccpb.KeyValue) (gone bool, err error) {
	var there pool.Server
	if err := s.conn.decode(kv.Key, kv.Value, &there); err != nil || there.Directory == "" ||
		there.Directory != me.Directory {
		return false, err
	}
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(string(kv.Key),
		kv.ModRevision)).Then(clientv3.OpDelete(string(kv.Key))).Commit()
	return err == nil && done.Succeeded, err
}

// lead runs act while the lease is valid; then another server may act.
func (s *Pools) lead(ctx context.Context, lease clientv3.LeaseID, revision int64,
	act func(context.Context, pool.Term) error) error {
	var work sync.WaitGroup
	defer work.Wait() // after end, however act ends
	leading, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	beats, err := s.conn.etcd.KeepAlive(leading, lease)
	if err != nil {
		s.conn.shared().StandDown(ctx, lease)
		return s.conn.wrapped(err, "stay the server that acts for the pools")
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
	err = act(leading, &poolTerm{conn: s.conn, revision: revision})
	s.conn.shared().StandDown(ctx, lease)
	end()
	return err
}

// awaitLoss returns when the leader's key is no longer the one created at the revision. The end of the lease is
// noticed elsewhere; the key may also be removed by others.
func (s *Pools) awaitLoss(ctx context.Context, revision int64) {
	key := s.conn.keys.pools().leader()
	for from := revision + 1; ctx.Err() == nil; {
		s.conn.awaitFree(ctx, key, from)
		got, err := s.conn.etcd.Get(ctx, key)
		if err == nil && (len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != revision) {
			return
		}
		if from = revision + 1; err == nil {
			from = got.Header.Revision + 1
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// WatchLeader implements pool.Store.
func (s *Pools) WatchLeader(ctx context.Context, changed func(*pool.Server)) error {
	return s.conn.follow(ctx, s.conn.keys.pools().leader(),
		func() { changed(nil) },
		func(kv *mvccpb.KeyValue, present bool) {
			var server pool.Server
			if !present || s.conn.decode(kv.Key, kv.Value, &server) != nil {
				changed(nil)
				return
			}
			changed(&server)
		})
}

// poolTerm is the term of the leader whose key was created at revision.
type poolTerm struct {
	conn     *conn
	revision int64
	limit    int // on operations in a transaction, once known
}

// Load implements pool.Term: all pages are read at the revision of the first.
func (t *poolTerm) Load(ctx context.Context) (from pool.Snapshot, err error) {
	k := t.conn.keys.pools()
	const what = "read the pools"
	head, err := t.conn.etcd.Get(ctx, k.head())
	if err != nil {
		return from, t.conn.wrap(err, what)
	}
	revision := head.Header.Revision
	for _, kv := range head.Kvs {
		if err := t.conn.decode(kv.Key, kv.Value, &from.Head); err != nil {
			return from, err
		}
	}
	if from.Pools, err = readAll[pool.Record](ctx, t.conn, what, k.records(), revision); err != nil {
		return from, err
	}
	if from.Resources, err = readAll[pool.Resource](ctx, t.conn, what, k.resources(), revision); err != nil {
		return from, err
	}
	from.Tickets, err = readAll[pool.Ticket](ctx, t.conn, what, k.tickets(), revision)
	return from, err
}

// poolBytes bounds what one transaction writes: etcd's servers accept 1.5 MiB by default.
const poolBytes = 1 << 20

// Commit implements pool.Term.
func (t *poolTerm) Commit(ctx context.Context, b pool.Batch) error {
	if t.limit == 0 {
		limit, err := t.conn.MaxTxnOps(ctx)
		if err != nil {
			return err
		}
		t.limit = limit
	}
	ops, size := make([]clientv3.Op, 0, min(t.limit, 64)), 0
	for _, op := range t.operations(b) {
		bytes := len(op.KeyBytes()) + len(op.ValueBytes())
		if len(ops) == t.limit || len(ops) > 0 && size+bytes > poolBytes {
			if err := t.write(ctx, ops); err != nil {
				return err
			}
			ops, size = ops[:0], 0
		}
		ops, size = append(ops, op), size+bytes
	}
	return t.write(ctx, ops)
}

// operations returns the operations of a batch, in the order required by pool.Batch.
func (t *poolTerm) operations(b pool.Batch) (ops []clientv3.Op) {
	k := t.conn.keys.pools()
	put := func(key string, v any) { ops = append(ops, clientv3.OpPut(key, encode(v))) }
	if b.Head != nil {
		put(k.head(), b.Head)
	}
	for _, p := range b.Pools {
		put(k.record(p.Settings.Name), p)
	}
	ended, open := b.TicketsByEnd()
	for _, ticket := range ended {
		put(k.ticket(ticket.ID), ticket)
	}
	for _, r := range b.Resources {
		put(k.resource(r.ID), r)
	}
	for _, ticket := range open {
		put(k.ticket(ticket.ID), ticket)
	}
	for _, id := range b.GoneTickets {
		ops = append(ops, clientv3.OpDelete(k.ticket(id)))
	}
	for _, id := range b.GoneResources {
		ops = append(ops, clientv3.OpDelete(k.resource(id)))
	}
	for _, name := range b.GonePools {
		ops = append(ops, clientv3.OpDelete(k.record(name)))
	}
	return ops
}

// write commits one transaction of the leader.
func (t *poolTerm) write(ctx context.Context, ops []clientv3.Op) error {
	if len(ops) == 0 {
		return nil
	}
	mine := clientv3.Compare(clientv3.CreateRevision(t.conn.keys.pools().leader()), "=", t.revision)
	done, err := t.conn.etcd.Txn(ctx).If(mine).Then(ops...).Commit()
	if err != nil {
		return t.conn.wrap(err, "write the state of the pools")
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "write the state of the pools: another server acts for them now")
	}
	return nil
}
