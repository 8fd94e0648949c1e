package ledger

import (
	"context"
	"slices"
	"time"
)

// mostCustom bounds the custom resource classes that exist at once, and the custom traits: whoever may create providers
// can create them, and each is an entry of the store.
const mostCustom = 20_000

// A custom class or trait without users is removed when it is this old, and unused for idleFor. If there are more than
// half of mostCustom, soonTidied is old enough.
const (
	tidiedAfter = 24 * time.Hour
	soonTidied  = 10 * time.Minute
	idleFor     = 10 * time.Minute
)

// tidyBatch is the number of symbols that one transaction removes, which is within any limit.
const tidyBatch = 32

// room refuses to create a symbol beyond mostCustom.
func (t *Tx) room(kind string, all *Symbols, layer symbolLayer) error {
	n := all.custom()
	for l := t; l != nil; l = l.under {
		for _, v := range layer(l) {
			n += count(v.exists && v.at == 0 && !v.Standard)
		}
	}
	if n < mostCustom {
		return nil
	}
	e := invalid("There are %d custom %s already, and no more are taken: delete those that nobody needs.", n, kind)
	e.Cause = ErrFull
	return e
}

func (t *Tx) roomForClass() error { return t.room("resource classes", t.base.classes, classLayer) }
func (t *Tx) roomForTrait() error { return t.room("traits", t.base.traits, traitLayer) }

// idle is a symbol without users.
type idle struct {
	modified int64 // revision of its entry then; a new user writes the entry
	since    time.Time
}

// tidier removes the idle symbols of one kind.
type tidier struct {
	kind   string
	all    func(*State) *Symbols
	remove func(*Tx, *symbolView)
	find   func(*Tx, string) *symbolView
	inUse  func(*Tx, *symbolView) bool
	idle   map[string]idle
}

// tidy removes custom classes and traits without users, until ctx ends.
func (l *Ledger) tidy(ctx context.Context) {
	tick := time.NewTicker(l.config.Tidy)
	defer tick.Stop()
	classes := &tidier{"resource classes", (*State).Classes, (*Tx).removeClass, (*Tx).class, (*Tx).classInUse,
		map[string]idle{}}
	traits := &tidier{"traits", (*State).Traits, (*Tx).removeTrait, (*Tx).trait, (*Tx).traitInUse, map[string]idle{}}
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

// tidyWith notes which symbols are idle, and removes those that have been idle for long enough, unless somebody begins
// to use them.
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
				v := d.find(t, name)
				if v != nil && v.modified == d.idle[name].modified && !d.inUse(t, v) {
					d.remove(t, v)
					n++
				}
			}
			return nil
		})
		if err != nil {
			break // the next turn tries again
		}
		removed += n
	}
	if removed > 0 {
		l.log.Info("names that no provider has were removed", "op", "tidy", "of", d.kind, "count", removed)
	}
}

// due updates what is idle, and returns the symbols to remove.
func (d *tidier) due(all *Symbols, now time.Time) []string {
	age := tidiedAfter
	if all.custom() > mostCustom/2 {
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
