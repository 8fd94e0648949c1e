package etcdstore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// storedHost is a host's record as stored: with its token, without fields derived from other keys.
type storedHost struct {
	croft.Host
	Token string `json:"token,omitempty"`
}

// PutHost implements compute.Registry.
func (s *Store) PutHost(ctx context.Context, h croft.Host) error {
	h.Alive, h.Drained, h.Seen = false, false, time.Time{}
	if _, err := s.etcd.Put(ctx, s.keys.host(h.ID), encode(storedHost{h, h.Token})); err != nil {
		return s.wrap(err, "write the record of host %s", h.ID)
	}
	return nil
}

// seenEvery is how often an agent records that it is alive, to tell later since when it is not.
const seenEvery = time.Minute

// offerTime is how long an agent that may not have the seat leaves it to others before it tries again; shorter
// than a lease.
const offerTime = 5 * time.Second

// StayAlive makes a host alive at once and until ctx ends, and returns only then: Serve for a host without
// rivals.
func (s *Store) StayAlive(ctx context.Context, host croft.HostID) error {
	known := make(chan struct{})
	close(known)
	return s.Serve(ctx, croft.Agent{Host: host}, known, func(*croft.Agent) bool { return true })
}

// seats lets agents take, hold, offer and leave the seat of their host.
type seats struct{ *conn }

// Serve implements compute.Registry.
func (s *Store) Serve(ctx context.Context, me croft.Agent, known <-chan struct{},
	seated func(rival *croft.Agent) bool) error {
	for {
		id := seats{s.conn}.serveOnce(ctx, me, known, seated)
		s.metrics.held.Set(0)
		if ctx.Err() != nil {
			seats{s.conn}.leaveSeat(ctx, me.Host, id)
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// leaveSeat ends the host's life at once; if etcd does not answer, the lease expires.
func (s seats) leaveSeat(ctx context.Context, host croft.HostID, id clientv3.LeaseID) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if id == 0 {
		return
	}
	_ = s.noteSeen(end, host, id)
	_, _ = s.etcd.Revoke(end, id)
}

// noteSeen stores the time at which the host's agent is alive, if it is and the host was not forgotten. An
// error costs only accuracy.
func (s seats) noteSeen(ctx context.Context, host croft.HostID, id clientv3.LeaseID) error {
	alive := clientv3.Compare(clientv3.LeaseValue(s.keys.alive(host)), "=", id)
	_, err := s.etcd.Txn(ctx).If(alive, exists(s.keys.host(host))).Then(clientv3.OpPut(s.keys.seen(host),
		now())).Commit()
	return err
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// serveOnce takes a lease and, under it, the host's seat, and holds both until the lease is lost or ctx ends.
// If another agent has the seat, it is on standby until that agent leaves.
func (s seats) serveOnce(ctx context.Context, me croft.Agent, known <-chan struct{},
	seated func(*croft.Agent) bool) clientv3.LeaseID {
	lease, err := s.etcd.Grant(ctx, leaseTTL)
	if err != nil {
		return 0
	}
	holding, cancel := context.WithCancel(ctx)
	defer cancel()
	beats, err := s.etcd.KeepAlive(holding, lease.ID)
	if err != nil {
		return lease.ID
	}
	rival, revision, err := s.takeSeat(ctx, lease.ID, me)
	switch {
	case err != nil:
		return lease.ID
	case rival != nil:
		seated(rival)
		s.awaitSeat(ctx, me.Host, revision)
		s.standDown(ctx, lease.ID)
		return 0
	}
	if !seated(nil) {
		s.offerSeat(ctx, lease.ID, me)
		s.standDown(ctx, lease.ID)
		return 0
	}
	s.metrics.held.Set(1)
	s.live(ctx, me.Host, lease.ID, known, beats)
	if ctx.Err() == nil {
		s.metrics.lost.Inc()
	}
	return lease.ID
}

// takeSeat takes the host's seat if it is free or held by an agent of the same place. If a rival holds it, it
// records this agent as a twin, and returns the rival and a revision to watch from.
func (s seats) takeSeat(ctx context.Context, lease clientv3.LeaseID, me croft.Agent) (rival *croft.Agent,
	revision int64, err error) {
	key := s.keys.agent(me.Host)
	got, err := s.etcd.Get(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	free := absent(key)
	if len(got.Kvs) > 0 {
		var there croft.Agent
		if err := s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &there); err != nil {
			return nil, 0, err
		}
		if there.Place != me.Place {
			_, err = s.etcd.Do(ctx, s.noteTwin(lease, me))
			return &there, got.Header.Revision + 1, err
		}
		free = unchanged(key, got.Kvs[0].ModRevision)
	}
	done, err := s.etcd.Txn(ctx).If(free).Then(clientv3.OpPut(key, encode(me), clientv3.WithLease(lease))).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("somebody else was faster")
	}
	return nil, 0, err
}

// noteTwin records an agent that has the host's UUID and not its seat.
func (s seats) noteTwin(lease clientv3.LeaseID, me croft.Agent) clientv3.Op {
	note := s.keys.twins(me.Host) + uuid.NewSHA1(uuid.Nil, []byte(me.Place)).String()
	return clientv3.OpPut(note, encode(me), clientv3.WithLease(lease))
}

// offerSeat leaves the seat for offerTime to an agent that has more right to it.
func (s seats) offerSeat(ctx context.Context, lease clientv3.LeaseID, me croft.Agent) {
	mine := clientv3.Compare(clientv3.LeaseValue(s.keys.agent(me.Host)), "=", lease)
	if _, err := s.etcd.Txn(ctx).If(mine).Then(clientv3.OpDelete(s.keys.agent(me.Host)),
		s.noteTwin(lease, me)).Commit(); err != nil {
		return // the lease expires
	}
	select {
	case <-ctx.Done():
	case <-time.After(offerTime):
	}
}

// awaitSeat returns when the seat has been left since the revision, or the watch broke.
func (s seats) awaitSeat(ctx context.Context, host croft.HostID, from int64) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer s.watching()()
	for answer := range s.etcd.Watch(ctx, s.keys.agent(host), clientv3.WithRev(from)) {
		if answer.Err() != nil {
			return
		}
		for _, event := range answer.Events {
			if event.Type == clientv3.EventTypeDelete {
				return
			}
		}
	}
}

// standDown revokes a lease, so that the next round begins with a fresh one.
func (s *conn) standDown(ctx context.Context, id clientv3.LeaseID) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, _ = s.etcd.Revoke(end, id)
}

// live stores that the host is alive, and the schema version of its agent, once known is closed. It keeps the
// time up to date, and returns when the lease is lost or ctx ends.
func (s seats) live(ctx context.Context, host croft.HostID, id clientv3.LeaseID, known <-chan struct{},
	beats <-chan *clientv3.LeaseKeepAliveResponse) {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for {
		select {
		case <-known:
			if _, err := s.etcd.Put(ctx, s.keys.alive(host), now()+" "+schemaOf(schemaMinor),
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
			s.metrics.beat.SetToCurrentTime()
		}
	}
}

// TakeTurn implements audit.Shared: the turn is a key under a lease that is never renewed.
func (s *Store) TakeTurn(ctx context.Context, length time.Duration) (bool, error) {
	got, err := s.etcd.Get(ctx, s.keys.turn(), clientv3.WithKeysOnly())
	if err != nil || len(got.Kvs) > 0 {
		return false, s.wrapped(err, "look whose turn it is")
	}
	lease, err := s.etcd.Grant(ctx, max(1, int64(length/time.Second)))
	if err != nil {
		return false, s.wrap(err, "take the turn")
	}
	done, err := s.etcd.Txn(ctx).If(absent(s.keys.turn())).
		Then(clientv3.OpPut(s.keys.turn(), "", clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return false, s.wrap(err, "take the turn")
	}
	if !done.Succeeded {
		s.standDown(ctx, lease.ID)
	}
	return done.Succeeded, nil
}

// wrapped is wrap for an err that may be nil.
func (s *conn) wrapped(err error, what string) error {
	if err == nil {
		return nil
	}
	return s.wrap(err, "%s", what)
}
