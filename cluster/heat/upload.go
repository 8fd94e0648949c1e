package heat

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// progressPause is how often Glance is told how far an upload is.
const progressPause = 10 * time.Second

// abandoned is how long an upload may tell no progress until another one replaces it.
const abandoned = 6 * progressPause

// mostUploads is how many uploads go on at once.
const mostUploads = 4

// mostImage bounds an image, in bytes.
const mostImage = 1 << 40

// uploadKey is what is uploaded where.
type uploadKey struct{ site, project, image, hash string }

// upload is one under way.
type upload struct {
	done, total atomic.Int64
	id          atomic.Pointer[string]
	ended       chan struct{}
	err         error // once ended is closed
}

func (u *upload) ref() string {
	if id := u.id.Load(); id != nil {
		return *id
	}
	return ""
}

// uploads are those of this process.
type uploads struct {
	mu    sync.Mutex
	all   map[uploadKey]*upload
	seen  map[string]sighting // of uploads of other processes, by image
	ctx   context.Context     // ends with Close
	end   context.CancelFunc
	slots chan struct{}
	work  sync.WaitGroup
}

// sighting is when an image was first seen as it is.
type sighting struct{ updated, first time.Time }

func (u *uploads) init() {
	u.ctx, u.end = context.WithCancel(context.Background())
	u.all, u.seen, u.slots = map[uploadKey]*upload{}, map[string]sighting{}, make(chan struct{}, mostUploads)
}

func (u *uploads) close() {
	u.end()
	u.work.Wait()
}

// running returns the upload under a key, also one that ended and whose end nobody was told of yet.
func (u *uploads) running(key uploadKey) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[key]
}

// begin runs an upload unless one runs.
func (u *uploads) begin(key uploadKey, do func(ctx context.Context, u *upload) error) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.all[key]; one != nil {
		return one
	}
	one := &upload{ended: make(chan struct{})}
	u.all[key] = one
	u.work.Go(func() {
		defer close(one.ended)
		select {
		case u.slots <- struct{}{}:
			defer func() { <-u.slots }()
			one.err = do(u.ctx, one)
		case <-u.ctx.Done():
			one.err = u.ctx.Err()
		}
	})
	return one
}

func (u *uploads) forget(key uploadKey, one *upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all[key] == one {
		delete(u.all, key)
	}
}

// stopped reports whether an upload of another process has told no progress for long, by our clock.
func (u *uploads) stopped(id string, updated time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	before, known := u.seen[id]
	if !known || !before.updated.Equal(updated) {
		u.seen[id] = sighting{updated, time.Now()}
		return false
	}
	return time.Since(before.first) > abandoned
}
