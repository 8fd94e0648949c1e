package actions

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
)

// Batch is entries that are written together.
type Batch struct {
	At      time.Time // at or after the time of each of its entries
	Nonce   uint64    // distinguishes batches with the same time
	Entries []Entry
}

// NewBatch returns a batch of entries, cut to a bounded size.
func NewBatch(entries ...Entry) Batch {
	b := Batch{Nonce: rand.Uint64(), Entries: entries}
	for i, e := range entries {
		entries[i] = e.bounded()
		if e.Time.After(b.At) {
			b.At = e.Time
		}
	}
	return b
}

// Bounds of the entries that wait to be written.
const (
	mostWaiting   = 20_000
	mostOfProject = 1_000 // per project, so that a busy project loses entries before other projects do
	mostOfTree    = 4_000 // per tree of projects
)

// Bounds of a batch: etcd limits the operations and the size of a transaction.
const (
	batchProjects = 100
	batchEntries  = 500
)

const (
	gather    = 50 * time.Millisecond // how long a batch waits for further entries
	writing   = 10 * time.Second      // timeout of one write
	again     = time.Second           // delay after a failed write
	finishing = 5 * time.Second       // timeout for the remaining entries, at the end
	tidying   = time.Hour             // between trims of the whole log
	tidyAfter = 500                   // entries of a project between two trims of its log
)

// Recorder writes entries to a store, a moment after they were added. Add never blocks: if entries arrive faster than
// they can be written, entries of the busiest projects are dropped and counted.
type Recorder struct {
	store Store
	log   *slog.Logger
	wake  chan struct{} // holds one wake

	emit  func(Entry) // nil: not used
	brief bool        // see Brief

	mu      sync.Mutex
	waiting map[croft.Project]*line
	turns   []croft.Project       // the projects with entries, in the order in which they are taken from
	count   int                   // total number of entries
	trees   map[croft.Project]int // the same per tree of projects
	lost    int
	done    bool
}

// line is the waiting entries of one project.
type line struct {
	entries []Entry
	missed  int // entries dropped since the last one that was taken
}

// NewRecorder returns a recorder, which writes nothing until Run. A nil log discards.
func NewRecorder(s Store, log *slog.Logger) *Recorder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{store: s, log: log, wake: make(chan struct{}, 1), waiting: map[croft.Project]*line{},
		trees: map[croft.Project]int{}}
}

// Emit makes the recorder also call send with each entry when it is added, before it is stored. It must be called
// before the first Add. send must not block for long.
func (r *Recorder) Emit(send func(Entry)) { r.emit = send }

// Brief makes the recorder fit for the process of a command: it does not trim the whole log at its start, which servers
// do, and counts the entries of a project from a random number, so that many commands together trim the log of a busy
// project as often as one server does. It must be called before Run.
func (r *Recorder) Brief() { r.brief = true }

// Store returns the store of the entries.
func (r *Recorder) Store() Store { return r.store }

// Add adds an entry. It is written by the end of Run, unless it is counted in Lost.
func (r *Recorder) Add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.waiting[e.Project]
	if l == nil {
		l = &line{}
		r.waiting[e.Project] = l
	}
	if r.emit != nil {
		r.emit(e)
	}
	if len(l.entries) >= mostOfProject && !e.Refused() { // drop a refused request in favour of a completed action
		if i := slices.IndexFunc(l.entries, Entry.Refused); i >= 0 {
			l.entries = slices.Delete(l.entries, i, i+1)
			l.missed++
			r.lost++
			r.add(e.Project, -1)
		}
	}
	if r.done || r.count >= mostWaiting || len(l.entries) >= mostOfProject || r.trees[e.Project.Root()] >= mostOfTree {
		l.missed++
		r.lost++
		return
	}
	if len(l.entries) == 0 {
		r.turns = append(r.turns, e.Project)
	}
	l.entries = append(l.entries, e)
	r.add(e.Project, 1)
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// add adds more to the counts of a project.
func (r *Recorder) add(p croft.Project, more int) {
	r.count += more
	if r.trees[p.Root()] += more; r.trees[p.Root()] == 0 {
		delete(r.trees, p.Root())
	}
}

// Lost returns the number of entries that were dropped, or could not be written at the end.
func (r *Recorder) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// take returns the next batch; false: nothing waits. Projects take turns.
func (r *Recorder) take() (Batch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var entries []Entry
	for range min(len(r.turns), batchProjects) {
		project := r.turns[0]
		l := r.waiting[project]
		n := min(len(l.entries), batchEntries-len(entries))
		if n == 0 {
			break
		}
		l.entries[0].Missed += l.missed
		entries = append(entries, l.entries[:n]...)
		r.add(project, -n)
		l.entries, l.missed = l.entries[n:], 0
		r.turns = r.turns[1:]
		if len(l.entries) > 0 {
			r.turns = append(r.turns, project)
		} else {
			delete(r.waiting, project)
		}
	}
	return NewBatch(entries...), len(entries) > 0
}

// Run writes entries until ctx ends, then the remaining ones, and returns. Entries that are added afterwards are lost.
func (r *Recorder) Run(ctx context.Context) error {
	written := map[croft.Project]int{} // number of entries since the last trim of the project's log
	tidied := time.Time{}
	if r.brief {
		tidied = time.Now()
	}
	for ctx.Err() == nil {
		if time.Since(tidied) >= tidying {
			tidied = time.Now()
			r.tidy(ctx)
			clear(written)
		}
		quiet := time.NewTimer(time.Until(tidied.Add(tidying)))
		select {
		case <-ctx.Done():
		case <-quiet.C:
		case <-r.wake:
			_ = delay.For(ctx, gather) // the rest is written below
		}
		quiet.Stop()
		for b, any := r.take(); any; b, any = r.take() {
			if left := r.write(ctx, b); left {
				return r.finish(ctx, written, b)
			}
			r.tidyBusy(ctx, written, b)
		}
	}
	return r.finish(ctx, written, Batch{})
}

// write writes a batch, with retries until ctx ends; then it reports true.
func (r *Recorder) write(ctx context.Context, b Batch) (left bool) {
	for said := false; ; {
		err := r.append(ctx, b)
		if err == nil {
			if said {
				r.log.Info("the action log is written again", "lost", r.Lost())
			}
			return false
		}
		if ctx.Err() != nil {
			return true
		}
		if !said {
			r.log.Warn("the action log cannot be written: entries wait, and are dropped if they become too many",
				"err", err)
			said = true
		}
		if delay.For(ctx, again) != nil {
			return true
		}
	}
}

func (r *Recorder) append(ctx context.Context, b Batch) error {
	ctx, cancel := context.WithTimeout(ctx, writing)
	defer cancel()
	return r.store.Append(ctx, b)
}

// finish writes a batch whose outcome may be unknown, and all waiting entries.
func (r *Recorder) finish(ctx context.Context, written map[croft.Project]int, b Batch) error {
	r.mu.Lock()
	r.done = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishing)
	defer cancel()
	for any := true; any; b, any = r.take() {
		if len(b.Entries) == 0 {
			continue
		}
		if err := r.store.Append(ctx, b); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lost += len(b.Entries) + r.count
			return croft.Errorf(croft.Unavailable, "%d entries of the action log are lost: %w",
				len(b.Entries)+r.count, err)
		}
		if r.brief {
			r.tidyBusy(ctx, written, b)
		}
	}
	return nil
}

// tidyBusy trims the logs of busy projects.
func (r *Recorder) tidyBusy(ctx context.Context, written map[croft.Project]int, b Batch) {
	for _, e := range b.Entries {
		if _, known := written[e.Project]; r.brief && !known {
			written[e.Project] = rand.IntN(tidyAfter)
		}
		written[e.Project]++
	}
	var busy []croft.Project
	for project, n := range written {
		if n >= tidyAfter {
			busy = append(busy, project)
			delete(written, project)
		}
	}
	if len(busy) > 0 {
		r.tidy(ctx, busy...)
	}
}

func (r *Recorder) tidy(ctx context.Context, projects ...croft.Project) {
	if err := r.store.Trim(ctx, time.Now(), projects...); err != nil && ctx.Err() == nil {
		r.log.Warn("old entries of the action log are not removed now", "err", err)
	}
}
