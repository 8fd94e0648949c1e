package placement

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"croft"
)

// mostCustom bounds the custom resource classes that there are at once, and the custom
// traits: whoever may make providers can make them, and each is an entry of the store.
const mostCustom = 20_000

// Custom classes and traits that no provider has are removed when they are this old, and
// unused for idleFor. Where there are more than half of mostCustom, soonTidied is enough.
const (
	tidiedAfter = 24 * time.Hour
	soonTidied  = 10 * time.Minute
	idleFor     = 10 * time.Minute
)

// tidyBatch is how many names are removed by one write, which stays within any limit.
const tidyBatch = 32

// room refuses a name more than there may be. The caller is about to create it.
func (t *tx) room(kind string, all *names, layer func(*tx) map[string]*nameView) error {
	n := all.custom()
	for l := t; l != nil; l = l.under {
		for _, v := range layer(l) {
			n += count(v.exists && v.at == 0 && !v.standard)
		}
	}
	if n < mostCustom {
		return nil
	}
	return &apiError{status: http.StatusForbidden, kind: croft.Invalid,
		detail: fmt.Sprintf("There are %d custom %s already, and no more are taken: delete those that nobody needs.", n, kind)}
}

func (t *tx) roomForClass() error {
	return t.room("resource classes", t.base.classes, func(l *tx) map[string]*nameView { return l.classes })
}

func (t *tx) roomForTrait() error {
	return t.room("traits", t.base.traits, func(l *tx) map[string]*nameView { return l.traits })
}

// idle is a name that nobody uses.
type idle struct {
	modified int64 // its entry then; whoever begins to use it writes that
	since    time.Time
}

// tidy removes custom classes and traits that nobody uses any more, until ctx ends.
func (s *Server) tidy(ctx context.Context) {
	tick := time.NewTicker(s.config.Tidy)
	defer tick.Stop()
	classes, traits := map[string]idle{}, map[string]idle{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.tidyNames(ctx, "resource classes", classes, func(st *state) *names { return st.classes }, func(t *tx, name string, was idle) bool {
			v := t.class(name)
			free := v != nil && v.modified == was.modified && !t.classInUse(v)
			if free {
				t.removeClass(v)
			}
			return free
		})
		s.tidyNames(ctx, "traits", traits, func(st *state) *names { return st.traits }, func(t *tx, name string, was idle) bool {
			v := t.trait(name)
			free := v != nil && v.modified == was.modified && !t.traitInUse(v)
			if free {
				t.removeTrait(v)
			}
			return free
		})
	}
}

// tidyNames notes which names nobody uses, and removes those of which that is known for
// long enough. remove does so unless somebody began to use the name.
func (s *Server) tidyNames(ctx context.Context, what string, known map[string]idle, of func(*state) *names, remove func(*tx, string, idle) bool) {
	due := s.due(known, of, time.Now())
	removed := 0
	for batch := range slices.Chunk(due, tidyBatch) {
		n := 0
		err := s.change(ctx, func(t *tx) error {
			n = 0
			for _, name := range batch {
				n += count(remove(t, name, known[name]))
			}
			return nil
		})
		if err != nil {
			break // the next turn tries again
		}
		removed += n
	}
	if removed > 0 {
		s.log.Info("names that no provider has were removed", "op", "tidy", "of", what, "count", removed)
	}
}

// due brings up to date what is known of idle names, and returns those that are to go.
func (s *Server) due(known map[string]idle, of func(*state) *names, now time.Time) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.state == nil {
		return nil
	}
	all := of(s.state)
	age := tidiedAfter
	if all.custom() > mostCustom/2 {
		age = soonTidied
	}
	var due []string
	for name := range known {
		if x := all.byName[name]; x == nil || x.users > 0 {
			delete(known, name)
		}
	}
	for x := range all.all() {
		if x.standard || x.users > 0 {
			continue
		}
		was, noted := known[x.name]
		switch {
		case !noted || was.modified != x.modified:
			known[x.name] = idle{x.modified, now}
		case now.Sub(was.since) >= idleFor && now.Sub(time.Unix(x.created, 0)) >= age:
			due = append(due, x.name)
		}
	}
	return due
}
