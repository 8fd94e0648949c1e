package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// offerTime is how long an agent that may not hold the lock leaves it to others before it tries again; shorter than a
// lease.
const offerTime = 5 * time.Second

// StayAlive makes a host alive immediately and until ctx ends, and returns only then. It is like Serve, for a host
// without rivals.
func (s *Registry) StayAlive(ctx context.Context, host croft.HostID) error {
	known := make(chan struct{})
	close(known)
	return s.Serve(ctx, croft.Agent{Host: host}, known, func(*croft.Agent) bool { return true })
}

// agentLocks lets agents take, hold, offer and release the lock of their host.
type agentLocks struct{ conn *conn }

// Serve implements compute.Registry.
func (s *Registry) Serve(ctx context.Context, me croft.Agent, known <-chan struct{},
	locked func(rival *croft.Agent) bool) error {
	for {
		id := agentLocks{s.conn}.serveOnce(ctx, me, known, locked)
		s.conn.metrics.held.Set(0)
		if ctx.Err() != nil {
			agentLocks{s.conn}.leave(ctx, me.Host, id)
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// leave revokes the host's lease, which makes the host not alive; if etcd does not answer, the lease expires.
func (s agentLocks) leave(ctx context.Context, host croft.HostID, id clientv3.LeaseID) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if id == 0 {
		return
	}
	_ = s.noteSeen(end, host, id)
	_, _ = s.conn.etcd.Revoke(end, id)
}

// noteSeen stores the time at which the host's agent is alive, if it is alive and the host was not forgotten. An error
// only costs accuracy.
func (s agentLocks) noteSeen(ctx context.Context, host croft.HostID, id clientv3.LeaseID) error {
	k := s.conn.keys
	alive := clientv3.Compare(clientv3.LeaseValue(k.alive(host)), "=", id)
	// Existence is enough: the lease identifies the agent that is alive, and the record only shows that the host was
	// not forgotten.
	_, err := s.conn.etcd.Txn(ctx).If(alive, exists(k.host(host))).Then(clientv3.OpPut(k.seen(host),
		now())).Commit()
	return err
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// serveOnce takes a lease and, under it, the host's lock, and holds both until the lease is lost or ctx ends. If
// another agent has the lock, it waits on standby until that agent releases it.
func (s agentLocks) serveOnce(ctx context.Context, me croft.Agent, known <-chan struct{},
	locked func(*croft.Agent) bool) clientv3.LeaseID {
	lease, err := s.conn.etcd.Grant(ctx, leaseTTL)
	if err != nil {
		return 0
	}
	holding, cancel := context.WithCancel(ctx)
	defer cancel()
	beats, err := s.conn.etcd.KeepAlive(holding, lease.ID)
	if err != nil {
		return lease.ID
	}
	rival, revision, err := s.take(ctx, lease.ID, me)
	switch {
	case err != nil:
		return lease.ID
	case rival != nil:
		locked(rival)
		s.conn.awaitFree(ctx, s.conn.keys.agent(me.Host), revision)
		s.conn.shared().StandDown(ctx, lease.ID)
		return 0
	}
	if !locked(nil) {
		s.offer(ctx, lease.ID, me)
		s.conn.shared().StandDown(ctx, lease.ID)
		return 0
	}
	s.conn.metrics.held.Set(1)
	s.live(ctx, me.Host, lease.ID, known, beats)
	if ctx.Err() == nil {
		s.conn.metrics.lost.Inc()
	}
	return lease.ID
}

// take takes the host's lock if it is free or held by an agent of the same place. If a rival holds it, take records
// this agent as a twin, and returns the rival and a revision to watch from.
func (s agentLocks) take(ctx context.Context, lease clientv3.LeaseID, me croft.Agent) (rival *croft.Agent,
	revision int64, err error) {
	key := s.conn.keys.agent(me.Host)
	got, err := s.conn.etcd.Get(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	free := absent(key)
	if len(got.Kvs) > 0 {
		var there croft.Agent
		if err := s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &there); err != nil {
			return nil, 0, err
		}
		if there.Place != me.Place {
			_, err = s.conn.etcd.Do(ctx, s.noteTwin(lease, me))
			return &there, got.Header.Revision + 1, err
		}
		free = unchanged(key, got.Kvs[0].ModRevision)
	}
	done, err := s.conn.etcd.Txn(ctx).If(free).Then(clientv3.OpPut(key, encode(me), clientv3.WithLease(lease))).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("another request was faster")
	}
	return nil, 0, err
}

// noteTwin records an agent that has the host's UUID but not its lock.
func (s agentLocks) noteTwin(lease clientv3.LeaseID, me croft.Agent) clientv3.Op {
	note := s.conn.keys.twins(me.Host) + uuid.NewSHA1(uuid.Nil, []byte(me.Place)).String()
	return clientv3.OpPut(note, encode(me), clientv3.WithLease(lease))
}

// offer releases the lock for offerTime, so that the original agent of the host, if it runs, can take it.
func (s agentLocks) offer(ctx context.Context, lease clientv3.LeaseID, me croft.Agent) {
	mine := clientv3.Compare(clientv3.LeaseValue(s.conn.keys.agent(me.Host)), "=", lease)
	if _, err := s.conn.etcd.Txn(ctx).If(mine).Then(clientv3.OpDelete(s.conn.keys.agent(me.Host)),
		s.noteTwin(lease, me)).Commit(); err != nil {
		return // the lease expires later
	}
	select {
	case <-ctx.Done():
	case <-time.After(offerTime):
	}
}

// live stores that the host is alive, and the schema version of its agent, once known is closed. It updates
// the stored time at each heartbeat, and returns when the lease is lost or ctx ends.
func (s agentLocks) live(ctx context.Context, host croft.HostID, id clientv3.LeaseID, known <-chan struct{},
	beats <-chan *clientv3.LeaseKeepAliveResponse) {
	tick := time.NewTicker(croft.SeenEvery)
	defer tick.Stop()
	for {
		select {
		case <-known:
			if _, err := s.conn.etcd.Put(ctx, s.conn.keys.alive(host), now()+" "+schemaOf(schemaMinor),
				clientv3.WithLease(id)); err != nil {
				return
			}
			_ = s.noteSeen(ctx, host, id)
			known = nil
		case <-tick.C:
			_ = s.noteSeen(ctx, host, id)
		case _, alive := <-beats:
			if !alive {
				return
			}
			s.conn.metrics.beat.SetToCurrentTime()
		}
	}
}
