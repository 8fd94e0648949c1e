package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"croft"
)

// wrap adds the attempted action to an error, gives errors of the transport and of the server their kind, and adds
// advice.
func (s *conn) wrap(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if answer := s.answered(err, what); answer != nil {
		return answer
	}
	if !away(err) {
		return fmt.Errorf("etcd at %s: %s: %w", s.endpoints, what, err)
	}
	return croft.Errorf(croft.Unavailable, "etcd at %s does not answer (%s: %w); is `croft up` or etcd running there?",
		s.endpoints, what, err)
}

// wrapped is like wrap, for an err that may be nil.
func (s *conn) wrapped(err error, what string) error {
	if err == nil {
		return nil
	}
	return s.wrap(err, "%s", what)
}

// answered converts an error answer of the server to an error with advice; nil: the error needs none.
func (s *conn) answered(err error, what string) error {
	switch rpctypes.Error(err) {
	case rpctypes.ErrNoSpace:
		return croft.Errorf(croft.Unavailable, "%s: etcd at %s is %s", what, s.endpoints, outOfSpace)
	case rpctypes.ErrCorrupt:
		return croft.Errorf(croft.Unavailable, "%s: etcd at %s %s", what, s.endpoints, corrupt)
	case rpctypes.ErrTooManyRequests:
		return croft.Errorf(croft.Unavailable,
			"%s: etcd at %s has more to do than it can: look at its disk's latency, and try again", what, s.endpoints)
	case rpctypes.ErrTooManyLearners:
		return croft.Errorf(croft.Unavailable,
			"%s: another host joins and has not finished: start croft up there again, or forget it (`croft host list` names it), and try again", what)
	case rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrUnhealthy:
		return croft.Errorf(croft.Unavailable,
			"%s: etcd lets no member in or out while one does not answer, or was let in a moment ago: look at `croft host list`, and try again", what)
	case rpctypes.ErrLeaseNotFound:
		return croft.Errorf(croft.Unavailable,
			"%s: our lease in etcd ran out, as after a pause of this machine or of the network: try again", what)
	case rpctypes.ErrAuthFailed:
		return croft.Errorf(croft.Invalid,
			"etcd at %s refuses user %s or the password: check etcd.user and etcd.password_file", s.endpoints,
			s.user)
	case rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken:
		return croft.Errorf(croft.Invalid,
			"etcd at %s wants a user and a password: set etcd.user and etcd.password_file", s.endpoints)
	case rpctypes.ErrPermissionDenied:
		if s.user == "" { // the server uses the name in our certificate as a user
			return croft.Errorf(croft.Invalid,
				"%s: etcd at %s wants a user and a password: set etcd.user and etcd.password_file, or give the user that our certificate names readwrite on the prefix %s", what, s.endpoints, root)
		}
		return croft.Errorf(croft.Invalid,
			"%s: etcd at %s does not let user %s do that: give its role readwrite on the prefix %s", what, s.endpoints,
			s.user, root)
	}
	return nil
}

// Advice about an etcd that is read-only.
const (
	outOfSpace = "out of space and cannot write: if its host's disk is full, make room there; croft up notices it; " +
		"if its quota is used up, compact and defragment it and disarm its alarm (etcdctl compact, defrag, alarm " +
		"disarm), or raise its quota"
	corrupt = "reports that the data of a member is corrupt: find it with etcdctl alarm list, and replace that member"
)

// away reports whether an error means that the server does not answer, or is shutting down.
func away(err error) bool {
	switch code(err) {
	// Canceled: by the server, not by us
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	// Errors of a server that is stopping or was removed have no code; the same applies to errors of the transport when
	// the server is killed while it answers.
	if answer, is := status.FromError(err); is {
		return answer.Code() == codes.Unknown || answer.Code() == codes.Internal || answer.Code() == codes.Aborted
	}
	for _, ending := range []string{"raft: stopped", "raft proposal dropped", "server stopped"} {
		if strings.Contains(err.Error(), ending) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, clientv3.ErrNoAvailableEndpoints)
}

// code returns the error code of the transport or of the server's answer.
func code(err error) codes.Code {
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return answer.Code()
	}
	return status.Code(err)
}
