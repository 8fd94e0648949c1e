package etcdstore

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// TestEmbeddedServerIsNotFilledByItsHistory writes one key again and again, six times as
// much as the server may store.
func TestEmbeddedServerIsNotFilledByItsHistory(t *testing.T) {
	t.Parallel()
	const quota = 32 << 20
	e, err := StartEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true,
		MaxBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.compacting.end() // ours is in more of a hurry
	c := newCompactor(e.server.Server, quota)
	if c.growth != quota/8 {
		t.Errorf("it compacts after %d bytes, want an eighth of the quota", c.growth)
	}
	c.keep, c.look = 100*time.Millisecond, 10*time.Millisecond
	e.compacting = c.start()
	etcd := v3client.New(e.server.Server)
	defer etcd.Close()
	value := strings.Repeat("x", 256<<10)
	for written := 0; written < 6*quota; written += len(value) {
		if _, err := etcd.Put(t.Context(), "/key", value); err != nil {
			t.Fatalf("after %d MiB: %v", written>>20, err)
		}
		// No faster than a disk, and on a busy machine no faster than it forgets: the past is kept for a while,
		// however much it is.
		time.Sleep(2 * time.Millisecond)
		for begun := time.Now(); e.server.Server.Backend().SizeInUse() > quota*3/4; time.Sleep(2 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("after %d MiB it holds %d MiB, and forgets nothing", written>>20,
					e.server.Server.Backend().SizeInUse()>>20)
			}
		}
	}
}

func TestCompactorKeepsTheLastMoments(t *testing.T) {
	t.Parallel()
	c := &compactor{keep: 10 * time.Second, growth: 100, base: 1000}
	begun := time.Now()
	for second, want := range []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 101, 102} {
		if got := c.note(mark{begun.Add(time.Duration(second) * time.Second), 100 + int64(second)}); got != want {
			t.Errorf("after %d s it would forget what was before revision %d, want %d", second, got, want)
		}
	}
	for i, look := range []struct {
		size int64
		due  bool
	}{{1000, false}, {1099, false}, {1100, true}, {1150, false}, {900, false}, {999, false}, {1000, true},
		{1099, false}, {1100, true}} {
		if got := c.due(look.size); got != look.due {
			t.Errorf("look %d, at a size of %d: due is %v, want %v", i, look.size, got, look.due)
		}
	}
}
