package kv

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
)

// TestAReaderWaitsForWhatWasStoredBefore: readers wait for a copy that lags, and not for one that has everything.
func TestAReaderWaitsForWhatWasStoredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tail := newTail("things", func(context.Context) (int64, error) { return 7, nil })
		tail.Listed(nil)
		go func() {
			time.Sleep(time.Second)
			tail.Seen(&mvccpb.KeyValue{ModRevision: 6})
			time.Sleep(time.Second)
			tail.Seen(&mvccpb.KeyValue{ModRevision: 7})
		}()
		began := time.Now()
		if err := tail.CatchUp(t.Context()); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("behind: %v after %s", err, time.Since(began))
		}
		began = time.Now()
		if err := tail.CatchUp(t.Context()); err != nil || time.Since(began) > lookEvery {
			t.Errorf("with everything: %v after %s", err, time.Since(began))
		}
	})
}

func TestAWatchThatIsCutOffIsNotWaitedForForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tail := newTail("things", func(context.Context) (int64, error) { return 7, nil })
		if err := tail.CatchUp(t.Context()); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

// TestAFloodOfReadersAsksTheStoreRarely: many readers share a comparison, and more than a maximum are refused.
func TestAFloodOfReadersAsksTheStoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, refused, served atomic.Int64
		tail := newTail("things", func(context.Context) (int64, error) {
			looks.Add(1)
			return 0, nil
		})
		tail.Listed(nil)
		const length = 2 * time.Second
		var flood sync.WaitGroup
		for range 2 * mostLooking {
			flood.Go(func() {
				for began := time.Now(); time.Since(began) < length; time.Sleep(100 * time.Millisecond) {
					if croft.KindOf(tail.CatchUp(t.Context())) == croft.Unavailable {
						refused.Add(1)
					} else {
						served.Add(1)
					}
				}
			})
		}
		flood.Wait()
		if most := int64(length/lookEvery) + 2; looks.Load() > most {
			t.Errorf("%d looks, want at most %d", looks.Load(), most)
		}
		if refused.Load() == 0 || served.Load() == 0 {
			t.Errorf("%d refused, %d served", refused.Load(), served.Load())
		}
	})
}

// TestALookIsSharedByThoseBeforeItAlone: a reader that asks during a comparison waits for the next one, since the
// present one may have read before a write that the reader knows of.
func TestALookIsSharedByThoseBeforeItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		tail := newTail("things", func(context.Context) (int64, error) {
			looks.Add(1)
			time.Sleep(time.Second)
			return 0, nil
		})
		tail.Listed(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var readers sync.WaitGroup
		readers.Go(func() { _ = tail.CatchUp(ctx) }) // its end does not end the others' wait
		synctest.Wait()
		readers.Go(func() {
			if err := tail.CatchUp(t.Context()); err != nil || looks.Load() != 2 {
				t.Errorf("%v after %d looks", err, looks.Load())
			}
		})
		readers.Wait()
	})
}
