package etcdstore

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"croft"
)

func TestWhatAMemberTellsOfItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*clientv3.StatusResponse)
		says   string // part of one problem; empty: no problem
	}{
		{"one that is well", func(*clientv3.StatusResponse) {}, ""},
		{"one a little behind", func(m *clientv3.StatusResponse) { m.RaftAppliedIndex -= behind }, ""},
		{"one far behind", func(m *clientv3.StatusResponse) { m.RaftAppliedIndex -= behind + 1 },
			"is slow, 5001 entries behind"},
		{"one without a leader", func(m *clientv3.StatusResponse) { m.Leader = 0 }, "has no leader"},
		{"one that is four fifths full", func(m *clientv3.StatusResponse) { m.DbSize = 80 << 20 },
			"has filled 80 of its 100 MiB"},
		{"one that tells no quota", func(m *clientv3.StatusResponse) { m.DbSizeQuota = 0 }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &clientv3.StatusResponse{Leader: 1, RaftAppliedIndex: 9000, DbSize: 79 << 20, DbSizeQuota: 100 << 20}
			c.change(m)
			got := troubles("http://a:2379", m, 9000)
			if c.says == "" && len(got) > 0 || c.says != "" && (len(got) != 1 || !strings.Contains(got[0], c.says)) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}

func TestMemberThatEndsIsUnavailable(t *testing.T) {
	t.Parallel()
	s := &conn{endpoints: "http://a:2379"}
	for _, err := range []error{
		raft.ErrStopped, raft.ErrProposalDropped, errors.ErrStopped, rpctypes.ErrGRPCStopped, rpctypes.ErrLeaderChanged,
		status.Error(codes.Unknown, raft.ErrStopped.Error()),
		status.Error(codes.Unknown, raft.ErrProposalDropped.Error()),
		status.Error(codes.Canceled, "context canceled"), // from a server that is shutting down
	} {
		if got := croft.KindOf(s.wrap(err, "write")); got != croft.Unavailable {
			t.Errorf("%q is of kind %q, want that it is unavailable", err, got)
		}
	}
	if got := croft.KindOf(s.wrap(context.Canceled, "write")); got == croft.Unavailable {
		t.Error("what we cancel ourselves is taken for a server that is away")
	}
}
