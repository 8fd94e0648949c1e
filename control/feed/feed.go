// Package feed keeps the latest changes of a cloud for any number of followers, who resume where they stopped.
package feed

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"croft"
	"croft/control/api"
)

// mostChanges is the number of changes that are kept for clients that reconnect.
const mostChanges = 16 << 10

// ErrCompacted means that changes were dropped that the client has not received.
var ErrCompacted error = api.NewProblem(api.Compacted,
	"the changes since then are forgotten: list the instances again, and follow them without Last-Event-ID")

// Feed keeps the latest changes for any number of followers, and never waits for a slow one. A revision corresponds to
// a position at every server: all changes up to it are before the position, and all later ones after it.
type Feed struct {
	mu      sync.Mutex
	begun   bool
	since   int64          // revision after which no change is missing
	first   int            // position of changes[0]; positions count from the start of the process
	changes []croft.Change // in the order of their revisions; a revision is kept or dropped as a whole
	more    chan struct{}  // closed when changes are added
}

// New returns a Feed that has not started.
func New() *Feed { return &Feed{more: make(chan struct{})} }

// Begin drops all changes: changes up to the revision may be missing.
func (f *Feed) Begin(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.since = true, revision
	f.first += len(f.changes) + 1 // so that every follower has missed something
	f.changes = nil
	f.wake()
}

// Add appends all changes of one revision, which is later than those before.
func (f *Feed) Add(changes []croft.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if over := len(f.changes) + len(changes) - mostChanges; over > 0 {
		f.forget(max(over, mostChanges/4))
	}
	f.changes = append(f.changes, changes...)
	f.wake()
}

// forget drops at least n of the oldest changes, and the rest of the revision of the last dropped one.
func (f *Feed) forget(n int) {
	if n = min(n, len(f.changes)); n == 0 {
		return
	}
	f.since = f.changes[n-1].Revision
	n = f.after(f.since)
	f.changes = slices.Clone(f.changes[n:])
	f.first += n
}

// after returns the index of the first change after a revision.
func (f *Feed) after(revision int64) int {
	at, _ := slices.BinarySearchFunc(f.changes, revision+1,
		func(c croft.Change, revision int64) int { return cmp.Compare(c.Revision, revision) })
	return at
}

func (f *Feed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// From returns the position at which a client resumes that has received everything up to a revision; 0: a new client.
// It also returns the revision to tell a new client. It waits until the feed has started. ErrCompacted.
func (f *Feed) From(ctx context.Context, revision int64) (position int, now int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.begun {
		more := f.more
		f.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil && !f.begun {
			return 0, 0, croft.Errorf(croft.Unavailable, "the changes of the cloud cannot be followed yet: try again")
		}
	}
	switch {
	case revision == 0:
		now = f.since
		if n := len(f.changes); n > 0 {
			now = f.changes[n-1].Revision
		}
		return f.first + len(f.changes), now, nil
	case revision < f.since:
		return 0, 0, ErrCompacted
	}
	return f.first + f.after(revision), revision, nil
}

// Next waits for changes at a position and returns them, all of each revision. ErrCompacted: the follower is too slow.
func (f *Feed) Next(ctx context.Context, position int) ([]croft.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if position < f.first {
			return nil, ErrCompacted
		}
		if at := position - f.first; at < len(f.changes) {
			return append([]croft.Change(nil), f.changes[at:]...), nil
		}
		more := f.more
		f.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}
