package image

import (
	"context"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute"
)

// flight is one fetch that any number of callers wait for.
type flight struct {
	cancel  context.CancelFunc
	waiters int // guarded by Cache.mu; at 0 the flight is abandoned and ends
	done    chan struct{}
	transfer

	img compute.Image // these two are set before done is closed
	err error
}

// transfer counts a flight's bytes for those who wait.
type transfer struct{ have, total atomic.Int64 }

func (t *transfer) progress() croft.Progress {
	return croft.Progress{Done: t.have.Load(), Total: t.total.Load()}
}

// join returns the flight that fetches ref, starting it where there is none.
// Every join without error needs a leave.
func (c *Cache) join(ctx context.Context, ref Reference) (*flight, error) {
	key := ref.String()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, abandoned := c.joinNow(ctx, ref, key)
		if !abandoned {
			return f, nil
		}
		// It still holds the files that a new one would write.
		select {
		case <-f.done:
		case <-ctx.Done():
		}
	}
}

func (c *Cache) joinNow(ctx context.Context, ref Reference, key string) (f *flight, abandoned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f = c.flights[key]
	if f != nil && f.waiters == 0 {
		return f, true
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		c.flights[key] = f
		go func() {
			f.img, f.err = c.fetch(ctx, ref, &f.transfer)
			c.mu.Lock()
			delete(c.flights, key)
			c.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiters++
	return f, false
}

// leave ends the caller's interest. The last to leave ends the flight and waits
// for it, so that no fetch outlives its callers.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	c.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// progressEvery is the pause between two calls of a progress function.
const progressEvery = 200 * time.Millisecond

// wait waits for the flight's end or the caller's.
func (f *flight) wait(ctx context.Context, progress func(croft.Progress)) (compute.Image, error) {
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
			return compute.Image{}, ctx.Err()
		case <-tick.C:
			if now := f.progress(); now != last {
				progress(now)
				last = now
			}
		}
	}
}
