package image

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute"
)

// inflight shares each fetch between concurrent callers.
type inflight struct {
	fetch func(context.Context, Reference, *transfer) (compute.CachedImage, error)

	mu  sync.Mutex
	all map[string]*inflightFetch // by reference
}

// inflightFetch is one fetch with any number of waiters.
type inflightFetch struct {
	cancel  context.CancelFunc
	waiters int // guarded by inflight.mu; at 0 the fetch is cancelled
	done    chan struct{}
	transfer

	img compute.CachedImage // these two are set before done is closed
	err error
}

// join returns the fetch of ref, starting it if necessary. Every join without an error needs a leave.
func (i *inflight) join(ctx context.Context, ref Reference) (*inflightFetch, error) {
	key := ref.key()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, abandoned := i.joinNow(ctx, ref, key)
		if !abandoned {
			return f, nil
		}
		// The old fetch still holds the files that a new one would write.
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
}

func (i *inflight) joinNow(ctx context.Context, ref Reference, key string) (f *inflightFetch, abandoned bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f = i.all[key]
	if f != nil && f.waiters == 0 {
		return f, true
	}
	if f == nil {
		f = &inflightFetch{done: make(chan struct{})}
		ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		i.all[key] = f
		go func() {
			f.img, f.err = i.fetch(ctx, ref, &f.transfer)
			i.mu.Lock()
			delete(i.all, key)
			i.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiters++
	return f, false
}

// leave ends the caller's interest. The last caller to leave cancels the fetch and waits for it, so that no
// fetch outlives its callers.
func (i *inflight) leave(f *inflightFetch) {
	i.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	i.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// progressEvery is the interval between calls of a progress function.
const progressEvery = 200 * time.Millisecond

// wait waits until the fetch or the caller's ctx ends.
func (f *inflightFetch) wait(ctx context.Context, progress func(croft.Progress)) (compute.CachedImage, error) {
	if progress == nil {
		progress = func(croft.Progress) {}
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var last croft.Progress
	for {
		select {
		case <-f.done:
			progress(f.progress())
			return f.img, f.err
		case <-ctx.Done():
			progress(f.progress())
			return compute.CachedImage{}, ctx.Err()
		case <-tick.C:
			if now := f.progress(); now != last {
				progress(now)
				last = now
			}
		}
	}
}

// transfer reports the progress of a fetch to its waiters, in bytes.
type transfer struct{ have, total atomic.Int64 }

func (t *transfer) progress() croft.Progress {
	return croft.Progress{Done: t.have.Load(), Total: t.total.Load()}
}

// finish reports a transfer that was not needed as complete.
func (t *transfer) finish(size int64) {
	t.total.Store(size)
	t.have.Store(size)
}

func (t *transfer) finishAt(name string) {
	if fi, err := os.Stat(name); err == nil {
		t.finish(fi.Size())
	}
}
