package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"croft"
)

// Errors of a member or its transport while it is stopped or killed are Unavailable.
func TestTheKindsOfErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want croft.Kind
	}{
		{"nobody listens", status.Error(codes.Unavailable, "connection refused"), croft.Unavailable},
		{"it is slow", context.DeadlineExceeded, croft.Unavailable},
		{"it is slow, and says so", status.Error(codes.DeadlineExceeded, "too late"), croft.Unavailable},
		{"the connection was closed", status.Error(codes.Canceled, "grpc: the client connection is closing"),
			croft.Unavailable},
		{"a stream was cut", status.Error(codes.Internal, "stream terminated by RST_STREAM"), croft.Unavailable},
		{"its store is closed", status.Error(codes.Unknown, "mvcc: closed"), croft.Unavailable},
		{"it was removed", status.Error(codes.Unknown, "raft: stopped"), croft.Unavailable},
		{"it stops in this process", errors.New("raft: stopped"), croft.Unavailable},
		{"no member is known", clientv3.ErrNoAvailableEndpoints, croft.Unavailable},
		{"no leader", rpctypes.ErrNoLeader, croft.Unavailable},
		{"a leader is elected", rpctypes.ErrLeaderChanged, croft.Unavailable},
		{"our lease ran out", rpctypes.ErrLeaseNotFound, croft.Unavailable},
		{"no space", rpctypes.ErrNoSpace, croft.Unavailable},
		{"another password", rpctypes.ErrAuthFailed, croft.Invalid},
		{"we gave up", context.Canceled, ""},
		{"it asks for too much", rpctypes.ErrRequestTooLarge, ""},
		{"a fault of ours", errors.New("another request was faster"), ""},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			if _, known := errors.AsType[rpctypes.EtcdError](c.err); known && err != c.err {
				continue // etcd's client returns these unchanged
			}
			if got := new(conn).wrap(err, "try"); croft.KindOf(got) != c.want {
				t.Errorf("%s: %v is of kind %q, want %q", c.name, got, croft.KindOf(got), c.want)
			}
		}
	}
}
