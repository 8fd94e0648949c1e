package ledger

import (
	"context"
	"slices"
	"time"
)

// A custom class or trait is removed once it has this age and has been unused for idleFor. The age is soonTidied if
// more than half of maxCustom exist.
const (
	tidiedAfter = 24 * time.Hour
	soonTidied  = 10 * time.Minute
	idleFor     = 10 * time.Minute
)

// tidyBatch is the number of symbols removed per transaction, within any store's limit.
const tidyBatch = 32

// idle is a symbol that has no users.
type idle struct {
	modified int64 // revision of its entry when it was found idle; a new user rewrites the entry
	since    time.Time
}

// tidier removes the idle symbols of one kind.
type tidier struct {
	what  string
	all   func(*State) *Symbols
	table func(*Tx) *symbolTable
	idle  map[string]idle
}

// tidy removes unused custom classes and traits, until ctx ends.
func (l *Ledger) tidy(ctx context.Context) {
	tick := time.NewTicker(l.config.Tidy)
	defer tick.Stop()
	classes := &tidier{"resource classes", (*State).Classes, func(t *Tx) *symbolTable { return &t.classes },
		map[string]idle{}}
	traits := &tidier{"traits", (*State).Traits, func(t *Tx) *symbolTable { return &t.traits }, map[string]idle{}}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		l.tidyWith(ctx, classes)
		l.tidyWith(ctx, traits)
	}
}

// tidyWith records the idle symbols, and removes the ones that have been idle for long enough, unless they get a user
// meanwhile.
func (l *Ledger) tidyWith(ctx context.Context, d *tidier) {
	var due []string
	l.memory.read(func(s *State) {
		if s != nil {
			due = d.due(d.all(s), time.Now())
		}
	})
	removed := 0
	for batch := range slices.Chunk(due, tidyBatch) {
		n := 0
		err := l.Change(ctx, func(t *Tx) error {
			n = 0
			for _, name := range batch {
				all := d.table(t)
				v := all.get(name)
				if v != nil && v.modified == d.idle[name].modified && !t.inUse(all, v) {
					all.remove(v)
					n++
				}
			}
			return nil
		})
		if err != nil {
			break // the next turn retries
		}
		removed += n
	}
	if removed > 0 {
		l.config.Log.Info("names that no provider has were removed", "op", "tidy", "of", d.what, "count", removed)
	}
}

// due updates the idle symbols, and returns the symbols to remove.
func (d *tidier) due(all *Symbols, now time.Time) []string {
	age := tidiedAfter
	if all.custom() > maxCustom/2 {
		age = soonTidied
	}
	var due []string
	for name := range d.idle {
		if x := all.Get(name); x == nil || x.Users > 0 {
			delete(d.idle, name)
		}
	}
	for x := range all.All() {
		if x.Standard || x.Users > 0 {
			continue
		}
		was, noted := d.idle[x.Name]
		switch {
		case !noted || was.modified != x.modified:
			d.idle[x.Name] = idle{x.modified, now}
		case now.Sub(was.since) >= idleFor && now.Sub(time.Unix(x.Created, 0)) >= age:
			due = append(due, x.Name)
		}
	}
	return due
}
