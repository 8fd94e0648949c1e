package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"croft"
	"croft/control/api"
	"croft/control/feed"
	"croft/tenant/access"
)

// heartbeat is the interval of the comments that show that a stream is alive.
const heartbeat = 15 * time.Second

// events is a stream of server-sent events.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu sync.Mutex
}

// stream starts the answer.
func (c *call) stream() *events {
	c.begin()
	return &events{w: c.w, control: http.NewResponseController(c.w)}
}

// send writes an event. kind, id and data may be zero values.
func (e *events) send(kind string, id int64, data any) error {
	text := ""
	if kind != "" {
		text += "event: " + kind + "\n"
	}
	if id != 0 {
		text += "id: " + strconv.FormatInt(id, 10) + "\n"
	}
	if data != nil {
		line, err := json.Marshal(data) // has no line feeds
		if err != nil {
			return err
		}
		text += "data: " + string(line) + "\n"
	}
	return e.write(text + "\n")
}

func (e *events) write(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := fmt.Fprint(e.w, text); err != nil {
		return err
	}
	return e.control.Flush()
}

// changes sends changes as show returns them, always all changes of a revision. Only the last event of a revision has
// an id: a client that resumes after an id has received everything up to that revision.
func (e *events) changes(all []croft.Change, show func(croft.Change) api.Change) error {
	for i, change := range all {
		id := change.Revision
		if i+1 < len(all) && all[i+1].Revision == id {
			id = 0
		}
		if err := e.send("instance", id, show(change)); err != nil {
			return err
		}
	}
	return nil
}

// alive writes a comment at each heartbeat until ctx ends or the client has disconnected; in the latter case it calls
// gone.
func (e *events) alive(ctx context.Context, gone func()) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if e.write(": alive\n\n") != nil {
				gone()
				return
			}
		}
	}
}

// streaming runs a stream, with concurrent heartbeats. Errors after the start end the stream, and the client sees a
// closed connection.
func (c *call) streaming(run func(ctx context.Context, e *events)) error {
	ctx, end := c.lasting()
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	var beat sync.WaitGroup
	defer beat.Wait()
	defer cancel()
	e := c.stream()
	beat.Go(func() { e.alive(ctx, cancel) })
	run(ctx, e)
	return nil
}

// watchEvents streams the changes of the instances that the caller sees.
func watchEvents(c *call, in api.EventPosition) error {
	ctx, cancel := c.brief()
	defer cancel()
	w, err := c.watch(ctx)
	if err != nil {
		return err
	}
	position, now, err := c.feed.From(ctx, in.Last)
	if err != nil {
		return err
	}
	return c.streaming(func(ctx context.Context, e *events) {
		if e.send("", now, nil) != nil { // the client can resume from here, even before the first event
			return
		}
		for {
			changes, err := c.feed.Next(ctx, position)
			if errors.Is(err, feed.ErrCompacted) {
				_ = e.send("compacted", 0, struct{}{}) // the stream ends either way
			}
			if err != nil {
				return
			}
			position += len(changes)
			sees := w.sees(changes[len(changes)-1].Revision)
			var failed error
			mine := slices.DeleteFunc(changes, func(change croft.Change) bool {
				sees, err := sees(ctx, change)
				failed = cmp.Or(failed, err)
				return !sees
			})
			if failed != nil || e.changes(mine, c.changed) != nil {
				return // the client resumes after the last event that it received
			}
		}
	})
}

// watched decides which changes of projects a stream sends. Project names are reused, and the tree of projects may be
// older than a change. A change belongs to the caller if its project now has the same identity in the store as when the
// stream started, and if the change happened to that project. A stream that resumes after an earlier event thus omits
// the changes of a former project of the same name.
type watched struct {
	*call
	own, named croft.ProjectID // of the caller's project and of the one in the request, at the start of the stream
}

// watch reads the identities of the projects that the caller watches.
func (c *call) watch(ctx context.Context) (w watched, err error) {
	w = watched{call: c}
	if c.caller.Operator() {
		return w, nil
	}
	w.own, err = c.identityOf(c.caller.Project)
	if err == nil && c.project != "" {
		w.named, _, err = c.stored(ctx, c.project)
	}
	return w, err
}

// owners caches which project had a name at a revision. All streams share it, so a change costs one read of its project
// for any number of streams.
type owners struct {
	read func(context.Context, croft.Project) (id croft.ProjectID, born int64, err error)

	mu     sync.Mutex
	latest map[croft.Project]*ownerRead
}

// ownerRead is a read of a project that started after the store had reached a revision.
type ownerRead struct {
	revision int64
	done     chan struct{} // closed when the fields below are set
	id       croft.ProjectID
	born     int64
	err      error
}

// mostOwners is the maximum number of projects that owners caches.
const mostOwners = 4096

// of returns the identity of a project at a revision or later, and the revision at which it was created; empty: it has
// no record. The caller has seen the revision in the store. Concurrent callers share one read.
func (o *owners) of(ctx context.Context, p croft.Project, revision int64) (id croft.ProjectID, born int64, err error) {
	o.mu.Lock()
	read := o.latest[p]
	if read != nil && read.revision >= revision {
		o.mu.Unlock()
		select {
		case <-read.done:
			return read.id, read.born, read.err
		case <-ctx.Done():
			return "", 0, ctx.Err()
		}
	}
	read = &ownerRead{revision: revision, done: make(chan struct{})}
	if o.latest == nil || len(o.latest) >= mostOwners {
		o.latest = map[croft.Project]*ownerRead{}
	}
	o.latest[p] = read
	o.mu.Unlock()
	// Other callers wait for this read, so it must not end with the client that started it.
	alone, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownerTime)
	defer cancel()
	read.id, read.born, read.err = o.read(alone, p)
	if read.err != nil { // a later caller tries again
		o.mu.Lock()
		if o.latest[p] == read {
			delete(o.latest, p)
		}
		o.mu.Unlock()
	}
	close(read.done)
	return read.id, read.born, read.err
}

// ownerTime bounds a read of a project for the streams.
const ownerTime = 10 * time.Second

// forget empties the cache, because the revisions may have started again from a lower number.
func (o *owners) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest = nil
}

// stored reads the identity of a project, and the revision at which it was created; empty: it has no record.
func (s *Server) stored(ctx context.Context, p croft.Project) (id croft.ProjectID, born int64, err error) {
	if p == "" || s.Cloud.Projects == nil {
		return "", 0, nil
	}
	all, err := s.Cloud.Projects.List(ctx, access.Within(p))
	if err != nil || len(all) == 0 {
		return "", 0, err
	}
	return all[0].ID, all[0].Born, nil
}

// sees returns a function that reports whether the caller sees a change. All changes are at most as new as revision,
// which the store has reached.
func (w watched) sees(revision int64) func(context.Context, croft.Change) (bool, error) {
	since := map[croft.Project]int64{} // the first revision from which the caller sees changes of a project
	return func(ctx context.Context, change croft.Change) (bool, error) {
		p := change.Project
		switch {
		case w.project != "" && w.project != p:
			return false, nil
		case w.caller.Operator():
			return true, nil
		case !w.caller.Scope().Sees(p):
			return false, nil
		}
		first, read := since[p]
		if !read {
			id, born, err := w.owners.of(ctx, p, revision)
			if err != nil {
				return false, err
			}
			sees := id == w.caller.Identity(p)
			if p == w.caller.Project {
				sees = id == w.own
			}
			if first = born; !sees || w.project != "" && id != w.named {
				first = math.MaxInt64
			}
			since[p] = first
		}
		return change.Revision >= first, nil
	}
}

// watchInstance streams the status of an instance.
func watchInstance(c *call, _ api.InstanceNamed) error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	return c.streaming(func(ctx context.Context, e *events) {
		forever := func(st *croft.Status) (bool, error) { return st == nil, ctx.Err() }
		err := c.Cloud.Scheduler.Wait(ctx, st.Instance, forever, func(st croft.Status) {
			_ = e.send("", 0, c.instance(st)) // heartbeats notice that a client is gone
		})
		if err == nil {
			_ = e.send("gone", 0, struct{}{}) // the stream ends either way
		}
	})
}
