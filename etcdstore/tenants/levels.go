package tenants

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
	"croft/tenant/usage"
)

// Levels holds the usage of all projects, by their counters and entries, at one revision after the other.
type Levels struct {
	store    *Projects
	Revision int64
	counters map[croft.Project]*counter
	entries  map[string]entry // by key
	above    map[croft.Project][]croft.Project
}

// counter is a counter, and the entries that are not settled in it.
type counter struct {
	count
	born, changed int64
	pending       tenant.Amounts // sum of their reductions
}

// ready returns the usage of a project; false: it is not counted.
func (l *Levels) ready(p croft.Project) (usage.Level, bool) {
	c := l.counters[p]
	if c == nil || !c.Ready {
		return usage.Level{}, false
	}
	return usage.Level{ID: usage.ID{Project: p, Born: c.born}, Changed: c.changed, Used: c.Used.Minus(c.pending)}, true
}

// All lists the usage of every project.
func (l *Levels) All() (all []usage.Level) {
	for _, p := range slices.Sorted(maps.Keys(l.counters)) {
		if level, ready := l.ready(p); ready {
			all = append(all, level)
		}
	}
	return all
}

// followed returns the range of keys that contains the usage of projects: from projects to the end of quotas.
func (k Keys) followed() (from, end string) {
	return k.projects(), clientv3.GetPrefixRangeEnd(string(k) + "quota/")
}

// Recorded returns the key of the head of the history of usage. It is within the range that Follow watches, so that a
// writer of the head first gets all earlier changes, and then its own.
func (k Keys) Recorded() string { return string(k) + "quota/recorded" }

// LevelsAt reads the usage of all projects at a revision.
func (s *Projects) LevelsAt(ctx context.Context, revision int64) (*Levels, error) {
	l := &Levels{store: s, Revision: revision, counters: map[croft.Project]*counter{}, entries: map[string]entry{},
		above: map[croft.Project][]croft.Project{}}
	for _, prefix := range []string{s.keys().projects(), s.keys().allUsed(), s.keys().allEntries()} {
		err := s.conn.ReadRange(ctx, "read usage of projects", prefix, revision, func(stored *mvccpb.KeyValue) error {
			_, err := l.note(stored, true)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Born returns the revisions at which the counters of projects were created, at a revision; 0: the current one.
func (s *Projects) Born(ctx context.Context, revision int64) (map[croft.Project]int64, error) {
	all := map[croft.Project]int64{}
	return all, s.conn.ReadRange(ctx, "list the counted projects", s.keys().allUsed(), revision,
		func(stored *mvccpb.KeyValue) error {
			all[s.keys().counterOf(stored.Key)] = stored.CreateRevision
			return nil
		}, clientv3.WithKeysOnly())
}

// Follow calls seen with the changes after the revision of the levels, one revision after the other, until seen or the
// watch fails.
func (l *Levels) Follow(ctx context.Context, seen func(usage.Seen) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // also ends the watch at the server
	from, end := l.store.keys().followed()
	for answer := range l.store.conn.Etcd.Watch(ctx, from, clientv3.WithRange(end), clientv3.WithRev(l.Revision+1)) {
		if err := answer.Err(); err != nil {
			return l.store.conn.Wrap(err, "watch the usage of projects")
		}
		for _, some := range byRevision(answer.Events) {
			s, err := l.take(some)
			if err == nil {
				err = seen(s)
			}
			if err != nil {
				return err
			}
		}
	}
	return cmp.Or(ctx.Err(), error(croft.Errorf(croft.Unavailable, "the watch of the usage of projects ended")))
}

// byRevision groups events by revision: etcd sends all events of a revision in one answer.
func byRevision(all []*clientv3.Event) (groups [][]*clientv3.Event) {
	for i, e := range all {
		if i == 0 || e.Kv.ModRevision != all[i-1].Kv.ModRevision {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], e)
	}
	return groups
}

// take applies all changes of one revision.
func (l *Levels) take(events []*clientv3.Event) (usage.Seen, error) {
	l.Revision = events[0].Kv.ModRevision
	before, touched := map[croft.Project]int64{}, map[croft.Project]bool{}
	for _, e := range events {
		name := l.store.keys().counterOf(e.Kv.Key)
		if c := l.counters[name]; c != nil && c.Ready {
			before[name] = c.born
		}
		names, err := l.note(e.Kv, e.Type == clientv3.EventTypePut)
		if err != nil {
			return usage.Seen{}, err
		}
		for _, name := range names {
			touched[name] = true
		}
	}
	seen := usage.Seen{Revision: l.Revision}
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		level, ready := l.ready(name)
		if ready {
			l.counters[name].changed = l.Revision
			level.Changed = l.Revision
			seen.Levels = append(seen.Levels, level)
		}
		if born := before[name]; born != 0 && born != level.Born {
			seen.Gone = append(seen.Gone, usage.ID{Project: name, Born: born})
		}
	}
	return seen, nil
}

// counterOf returns the project of a counter's key; empty: the key is not a counter's.
func (k Keys) counterOf(key []byte) croft.Project {
	if name, is := strings.CutPrefix(string(key), k.allUsed()); is {
		return croft.Project(name)
	}
	return ""
}

// note applies the present value of a key, and returns the projects whose usage may change.
func (l *Levels) note(stored *mvccpb.KeyValue, present bool) ([]croft.Project, error) {
	k, key := l.store.keys(), string(stored.Key)
	switch {
	case strings.HasPrefix(key, k.projects()):
		if !present {
			delete(l.above, croft.Project(kv.Last(stored.Key)))
			return nil, nil
		}
		p, err := l.store.decodeProject(stored)
		l.above[p.Name] = p.Above
		return nil, err
	case strings.HasPrefix(key, k.allUsed()):
		return l.noteCounter(k.counterOf(stored.Key), stored, present)
	case strings.HasPrefix(key, k.allEntries()):
		return l.noteEntry(k.entryOf(stored.Key), stored, present)
	}
	return nil, nil
}

func (l *Levels) noteCounter(name croft.Project, stored *mvccpb.KeyValue, present bool) ([]croft.Project, error) {
	if !present {
		delete(l.counters, name)
		return []croft.Project{name}, nil
	}
	c := &counter{born: stored.CreateRevision, changed: stored.ModRevision}
	if err := l.store.conn.Decode(stored.Key, stored.Value, &c.count); err != nil {
		return nil, err
	}
	if was := l.counters[name]; was != nil && was.born == c.born && was.Since == c.Since {
		c.pending = was.pending
	} else {
		for key, e := range l.entries {
			if slices.Contains(l.chain(l.store.keys().entryOf([]byte(key))), name) {
				c.giveBack(e, 1)
			}
		}
	}
	l.counters[name] = c
	return []croft.Project{name}, nil
}

// noteEntry applies an entry, which counts for its project and all ancestors.
func (l *Levels) noteEntry(name croft.Project, stored *mvccpb.KeyValue, present bool) ([]croft.Project, error) {
	key, chain := string(stored.Key), l.chain(name)
	if was, is := l.entries[key]; is {
		for _, p := range chain {
			l.counters[p].giveBack(was, -1)
		}
		delete(l.entries, key)
	}
	if !present {
		return chain, nil
	}
	e, err := l.store.decodeEntry(stored)
	if err != nil {
		return nil, err
	}
	l.entries[key] = e
	for _, p := range chain {
		l.counters[p].giveBack(e, 1)
		if c := l.counters[p]; c != nil {
			c.changed = max(c.changed, e.revision)
		}
	}
	return chain, nil
}

func (l *Levels) chain(p croft.Project) []croft.Project {
	return append([]croft.Project{p}, l.above[p]...)
}

// giveBack adds an entry to the pending amounts, or removes it if sign is -1, unless the counted records include the
// entry already.
func (c *counter) giveBack(e entry, sign int64) {
	if c == nil || e.revision <= c.Since {
		return
	}
	if sign > 0 {
		c.pending = c.pending.Plus(e.amounts)
	} else {
		c.pending = c.pending.Minus(e.amounts)
	}
}
