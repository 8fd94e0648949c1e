package clusters

import (
	"context"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
	"croft/etcdstore/internal/kv"
)

// TestWhatWasForgottenUnwatchedIsTold lists twice, as after a compaction.
func TestWhatWasForgottenUnwatchedIsTold(t *testing.T) {
	t.Parallel()
	record := func(id string) *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte("clusters/records/" + id)} }
	follow := func(_ context.Context, _ string, listed func([]*mvccpb.KeyValue),
		seen func(*mvccpb.KeyValue, bool)) error {
		listed([]*mvccpb.KeyValue{record("a"), record("b"), record("c")})
		seen(record("d"), true)
		seen(record("c"), false)
		listed([]*mvccpb.KeyValue{record("b")})
		return context.Canceled
	}
	s := New(&kv.Conn{FollowWhole: follow}, nil, Session{}, nil)
	var told []croft.ClusterID
	if err := s.Follow(t.Context(), func(id croft.ClusterID) { told = append(told, id) }); err != context.Canceled {
		t.Error(err)
	}
	if len(told) < 6 {
		t.Fatalf("told %v", told)
	}
	slices.Sort(told[6:])
	if want := []croft.ClusterID{"a", "b", "c", "d", "c", "b", "a", "d"}; !slices.Equal(want, told) {
		t.Errorf("told %v, want %v", told, want)
	}
}
