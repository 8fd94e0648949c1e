package heat

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// progressPause is the interval at which the progress of an upload is stored in Glance.
const progressPause = 10 * time.Second

// abandoned is how long an upload may show no progress before another process replaces it.
const abandoned = 6 * progressPause

// mostUploads is the maximum number of concurrent uploads.
const mostUploads = 4

// mostImage bounds an image, in bytes.
const mostImage = 1 << 40

// uploadKey identifies the image and target of an upload.
type uploadKey struct{ site, project, image, hash string }

// upload is an upload in progress.
type upload struct {
	done, total atomic.Int64
	id          atomic.Pointer[string]
	ended       chan struct{}
	err         error // valid once ended is closed
}

func (u *upload) ref() string {
	if id := u.id.Load(); id != nil {
		return *id
	}
	return ""
}

// uploads are the uploads of this process.
type uploads struct {
	mu    sync.Mutex
	all   map[uploadKey]*upload
	seen  map[string]sighting // uploads of other processes, by image
	ctx   context.Context     // ends with Close
	end   context.CancelFunc
	slots chan struct{}
	work  sync.WaitGroup
}

// sighting is when an image was first seen with its current update time.
type sighting struct{ updated, first time.Time }

func (u *uploads) init() {
	u.ctx, u.end = context.WithCancel(context.Background())
	u.all, u.seen, u.slots = map[uploadKey]*upload{}, map[string]sighting{}, make(chan struct{}, mostUploads)
}

func (u *uploads) close() {
	u.end()
	u.work.Wait()
}

// running returns the upload under a key, including one that ended and whose result was not read yet.
func (u *uploads) running(key uploadKey) *upload {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[key]
}

// begin starts an upload, unless one is running.
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

// stopped reports whether an upload of another process has shown no progress for abandoned, by the clock of this
// machine.
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
