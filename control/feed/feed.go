// Package feed keeps the latest changes of a cloud for any number of followers, who go on where they left off.
package feed

import (
	"context"
	"sync"

	"croft"
	"croft/control/api"
)

// mostChanges is how many changes are kept for clients that connect again.
const mostChanges = 16 << 10

// ErrCompacted tells a client that changes were forgotten which it has not got.
var ErrCompacted error = api.NewProblem(api.Compacted,
	"the changes since then are forgotten: list the instances again, and follow them without Last-Event-ID")

// Feed keeps the latest changes for any number of followers, whose speed it does not depend on.
type Feed struct {
	mu      sync.Mutex
	begun   bool
	since   int64          // revision after which no change is missing
	first   int            // position of changes[0]; positions count from the start of the process
	changes []croft.Change // by their arrival; revisions of different kinds of records may be out of order
	more    chan struct{}  // closed when there are more
}

// New makes a Feed that has not begun.
func New() *Feed { return &Feed{more: make(chan struct{})} }

// Begin forgets everything: changes up to the revision may be missing.
func (f *Feed) Begin(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.since = true, revision
	f.first += len(f.changes) + 1 // so that every follower has missed something
	f.changes = nil
	f.wake()
}

// Add appends a change.
func (f *Feed) Add(c croft.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changes) == mostChanges {
		for _, old := range f.changes[:mostChanges/4] {
			f.since = max(f.since, old.Revision)
		}
		f.changes = append([]croft.Change(nil), f.changes[mostChanges/4:]...)
		f.first += mostChanges / 4
	}
	f.changes = append(f.changes, c)
	f.wake()
}

func (f *Feed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// From returns the position at which a client goes on that got everything up to a revision, or one that is new if that
// is 0, and the revision to name to a new one. It waits until the feed has begun. ErrCompacted.
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
	end := f.first + len(f.changes)
	switch {
	case revision == 0:
		now = f.since
		for _, c := range f.changes {
			now = max(now, c.Revision)
		}
		return end, now, nil
	case revision < f.since:
		return 0, 0, ErrCompacted
	}
	// The client may not have got changes of older revisions that arrived after the one that it names.
	position = end
	for i, c := range f.changes {
		if c.Revision == revision {
			position = f.first + i + 1
		}
	}
	for i, c := range f.changes {
		if c.Revision > revision {
			return min(position, f.first+i), revision, nil
		}
	}
	return position, revision, nil
}

// Next waits for changes at a position and returns them. ErrCompacted: the follower is too slow.
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
