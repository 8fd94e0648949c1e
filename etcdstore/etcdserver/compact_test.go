package etcdserver

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/internal/testing/patient"
)

const smallQuota = 32 << 20

// startHasty runs a server with a small quota, whose compactor keeps history only for a short time.
func startHasty(t *testing.T, keep time.Duration) (*Server, *clientv3.Client) {
	t.Helper()
	s, err := Start(t.Context(), Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true,
		MaxBytes: smallQuota, compactKeep: keep, compactLook: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	etcd := s.Client()
	t.Cleanup(func() { _ = etcd.Close() })
	return s, etcd
}

// TestEmbeddedServerIsNotFilledByItsHistory writes one key repeatedly, six times the server's quota in total.
func TestEmbeddedServerIsNotFilledByItsHistory(t *testing.T) {
	t.Parallel()
	if c := newCompactor(nil, Config{MaxBytes: smallQuota}); c.growth != smallQuota/32 {
		t.Errorf("it compacts after %d bytes, want a thirty-second of the quota", c.growth)
	}
	s, etcd := startHasty(t, 100*time.Millisecond)
	value := strings.Repeat("x", 256<<10)
	for written := 0; written < 6*smallQuota; written += len(value) {
		if _, err := etcd.Put(t.Context(), "/key", value); err != nil {
			t.Fatalf("after %d MiB: %v", written>>20, err)
		}
		// No faster than a disk writes or, on a busy machine, than the server compacts: recent history is kept whatever
		// its size.
		time.Sleep(2 * time.Millisecond)
		patient.Until(t, "history is compacted", func() bool {
			return s.etcd.Server.Backend().SizeInUse() <= smallQuota*3/4
		})
	}
}

// A server that grows within the time for which history is kept, and then no more, is still compacted later.
func TestWhatWasTooRecentIsForgottenLater(t *testing.T) {
	t.Parallel()
	s, etcd := startHasty(t, time.Second)
	value := strings.Repeat("x", 256<<10)
	for range smallQuota / 2 / len(value) {
		if _, err := etcd.Put(t.Context(), "/key", value); err != nil {
			t.Fatal(err)
		}
	}
	patient.Until(t, "no more is kept than it may grow by", func() bool {
		if _, err := etcd.Put(t.Context(), "/small", ""); err != nil { // pages are freed by later writes
			t.Fatal(err)
		}
		return s.etcd.Server.KV().FirstRev() > 1 && s.etcd.Server.Backend().SizeInUse() < smallQuota/4
	})
}

func TestCompactorKeepsTheLastMoments(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	at := func(second int) revisionAt {
		return revisionAt{begun.Add(time.Duration(second) * time.Second), 100 + int64(second)}
	}
	c := &compactor{keep: 10 * time.Second, growth: 100, base: 1000}
	for second, want := range []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 101, 102} {
		if got := c.note(at(second)); got != want {
			t.Errorf("after %d s what was before revision %d is old, want %d", second, got, want)
		}
	}
	first := int64(1) // oldest revision that is kept, given the compactions
	for i, look := range []struct {
		size int64
		to   int64 // 0: nothing is due
	}{
		{1000, 0}, {1099, 0}, {1100, 105}, {1150, 0}, {900, 0}, {999, 0}, {1000, 109}, {1099, 0}, {1100, 111},
		// It stops growing. Revision 121, recent at the last compaction, is ten seconds old later.
		{1100, 0}, {1100, 0}, {1100, 0}, {1100, 0}, {1100, 0}, {1100, 0}, {1100, 0}, {1100, 0}, {1100, 0},
		{1100, 121}, {1100, 0}, {1100, 0},
	} {
		got := c.due(at(13+i), first, look.size)
		if got != look.to {
			t.Errorf("look %d, at a size of %d: revision %d is due, want %d", i, look.size, got, look.to)
		}
		first = max(first, got)
	}
}

// A due revision stays due until it is compacted, by this server or by the leader.
func TestACompactionThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	c := &compactor{keep: time.Second, growth: 100, base: 1000}
	for i, look := range []struct{ first, size, to int64 }{
		{1, 1000, 0}, {1, 1100, 100}, {1, 1100, 101}, {1, 1100, 102}, {101, 1100, 0}, {101, 1100, 0},
	} {
		now := revisionAt{begun.Add(time.Duration(i) * time.Second), 100 + int64(i)}
		if got := c.due(now, look.first, look.size); got != look.to {
			t.Errorf("look %d: revision %d is due, want %d", i, got, look.to)
		}
	}
}

// The oldest revision of a server that never compacted its history is -1.
func TestAServerThatDoesNotGrowKeepsItsWholeHistory(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	c := &compactor{keep: time.Second, growth: 100, base: 1000}
	for i := range 5 {
		if got := c.due(revisionAt{begun.Add(time.Duration(i) * time.Second), 100 + int64(i)}, -1, 1050); got != 0 {
			t.Errorf("after %d s revision %d is due, want none", i, got)
		}
	}
}
