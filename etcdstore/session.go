package etcdstore

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sessionTTL is the default time for which a scheduler's session remains valid after its death; leaseTTL is the same
// for an agent, in seconds.
const (
	sessionTTL = 30 * time.Second
	leaseTTL   = 10
)

// sessionKey returns the session of this store. It creates one at the first call, and after the last one was lost. A
// session is a lease, kept alive until Close; the first transaction that names it attaches a key to it.
func (s *conn) sessionKey(ctx context.Context) (string, clientv3.LeaseID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != "" {
		return s.session, s.sessionID, nil
	}
	lease, err := s.etcd.Grant(ctx, int64(s.sessionTTL/time.Second))
	if err != nil {
		return "", 0, s.wrap(err, "begin a session")
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	alive, err := s.etcd.KeepAlive(keeping, lease.ID) // ends with the client, or when the session is retired
	if err != nil {
		stop()
		return "", 0, s.wrap(err, "keep the session alive")
	}
	s.session, s.sessionID, s.sessionEnd = fmt.Sprintf("%016x", lease.ID), lease.ID, stop
	s.work.Go(func() {
		defer stop()
		for range alive {
		}
		s.forgetSession(lease.ID)
	})
	return s.session, s.sessionID, nil
}

// forgetSession makes the next request create another session.
func (s *conn) forgetSession(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessionID == id {
		s.session, s.sessionID = "", 0
	}
}

// retireSession makes the next request create another session, and lets this one expire. The outcome for a record that
// names it is unknown here; agents undo the record once the session has ended. Requests in flight must end before that.
func (s *conn) retireSession(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session != "" && s.session == session {
		s.sessionEnd()
		s.session, s.sessionID = "", 0
	}
}

// forgetLost forgets the session if an error says that etcd does not know its lease: the keepalive notices that only at
// its next beat.
func (s *conn) forgetLost(err error, id clientv3.LeaseID) {
	if rpctypes.Error(err) == rpctypes.ErrLeaseNotFound {
		s.forgetSession(id)
	}
}

// endSession revokes the session's lease, which removes its key. If etcd does not answer, the lease expires.
func (s *conn) endSession() {
	s.mu.Lock()
	id := s.sessionID
	s.mu.Unlock()
	if id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.etcd.Revoke(ctx, id) // best effort, see above
}
