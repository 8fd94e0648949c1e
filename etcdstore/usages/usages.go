// Package usages stores the history of the usage of projects in etcd: an account for each project, and a key for each
// day before the present day of the account.
package usages

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/tenant/access"
	"croft/tenant/usage"
)

// History is the store of the history of usage.
type History struct {
	conn     *kv.Conn
	projects *tenants.Projects
}

var _ usage.Store = (*History)(nil)

// New makes the store of the history of usage.
func New(c *kv.Conn, p *tenants.Projects) *History { return &History{c, p} }

func (s *History) keys() Keys   { return Keys(s.conn.Prefix) }
func (s *History) head() string { return tenants.Keys(s.conn.Prefix).Recorded() }

// Head implements usage.Store.
func (s *History) Head(ctx context.Context) (usage.Head, error) { return s.headAt(ctx, 0) }

func (s *History) headAt(ctx context.Context, revision int64) (h usage.Head, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.head(), clientv3.WithRev(revision))
	if err != nil {
		return h, s.conn.Wrap(err, "read how far usage is recorded")
	}
	for _, stored := range got.Kvs {
		err = s.conn.Decode(stored.Key, stored.Value, &h)
		h.Generation = stored.ModRevision
	}
	return h, err
}

// Take implements usage.Store.
func (s *History) Take(ctx context.Context, was usage.Head, recorder string) (usage.Taken, error) {
	next := was
	next.Recorder = recorder
	next, err := s.write(ctx, was, next, nil)
	if err != nil {
		return usage.Taken{}, err
	}
	t := usage.Taken{Head: next, Revision: next.Generation}
	levels, err := s.projects.LevelsAt(ctx, t.Revision)
	if err != nil {
		return t, err
	}
	t.Levels, t.Follow = levels.All(), levels.Follow
	t.Accounts, err = s.accounts(ctx, s.keys().accounts(), t.Revision)
	return t, err
}

func (s *History) accounts(ctx context.Context, prefix string, revision int64) (all []usage.Stored, err error) {
	err = s.conn.ReadRange(ctx, "read past usage of projects", prefix, revision, func(stored *mvccpb.KeyValue) error {
		id, _ := parse(stored.Key, s.keys().accounts())
		a := usage.Stored{ID: id}
		err := s.conn.Decode(stored.Key, stored.Value, &a.Meter)
		all = append(all, a)
		return err
	})
	return all, err
}

// atOnce is how many keys one transaction writes, because etcd limits transactions.
const atOnce = 100

// Write implements usage.Store: it writes days first, then accounts, and the head with the last of them. A day that was
// written without its account is written again when recording continues from the stored account.
func (s *History) Write(ctx context.Context, step usage.Step) (usage.Head, error) {
	var ops []clientv3.Op
	for _, d := range step.Days {
		ops = append(ops, clientv3.OpPut(s.keys().day(d.ID, d.Day.Date), kv.Encode(d.Day)))
	}
	for _, a := range step.Accounts {
		ops = append(ops, clientv3.OpPut(s.keys().account(a.ID), kv.Encode(a.Meter)))
	}
	for len(ops) > atOnce {
		if err := s.commit(ctx, step.Was, ops[:atOnce]); err != nil {
			return usage.Head{}, err
		}
		ops = ops[atOnce:]
	}
	return s.write(ctx, step.Was, step.Next, ops)
}

// write replaces the head was by next, and does the operations more, in one transaction.
func (s *History) write(ctx context.Context, was, next usage.Head, more []clientv3.Op) (usage.Head, error) {
	ops := append(slices.Clone(more), clientv3.OpPut(s.head(), kv.Encode(next)))
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(s.head(), was.Generation)).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		return usage.Head{}, errReplaced
	}
	if err != nil {
		return usage.Head{}, s.conn.Wrap(err, "record the usage of projects")
	}
	next.Generation = done.Header.Revision
	return next, nil
}

func (s *History) commit(ctx context.Context, was usage.Head, ops []clientv3.Op) error {
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(s.head(), was.Generation)).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		return errReplaced
	}
	if err != nil {
		return s.conn.Wrap(err, "record the usage of projects")
	}
	return nil
}

var errReplaced = croft.Errorf(croft.Conflict, "another process records the usage of projects")

// List returns the records within a scope that a filter selects, as of one moment. The usage of a former project of the
// same name is only within the scope of operators.
func (s *History) List(ctx context.Context, scope access.Scope, f usage.Filter) (usage.Report, error) {
	got, err := s.conn.Etcd.Get(ctx, s.head(), clientv3.WithCountOnly())
	if err != nil {
		return usage.Report{}, s.conn.Wrap(err, "read the past usage of projects")
	}
	revision := got.Header.Revision
	head, err := s.headAt(ctx, revision)
	report := usage.Report{Until: head.At, Projects: []usage.Account{}}
	if err != nil || head.Generation == 0 {
		return report, err
	}
	accounts, err := s.chosen(ctx, scope, f, revision)
	if err != nil {
		return report, err
	}
	present, err := s.projects.Born(ctx, revision)
	if err != nil {
		return report, err
	}
	for _, a := range accounts {
		former := present[a.Project] != a.Born
		if former && !(f.Former && scope.All()) {
			continue
		}
		over, err := s.over(ctx, a.ID, f, revision)
		if err != nil {
			return report, err
		}
		days := f.Present(over, a.Meter, head.At)
		if len(days) > 0 {
			report.Projects = append(report.Projects, usage.Account{Project: a.Project, Former: former, Days: days})
		}
	}
	return report, nil
}

// chosen lists the accounts that a filter selects.
func (s *History) chosen(ctx context.Context, scope access.Scope, f usage.Filter, revision int64) (all []usage.Stored,
	err error) {
	prefixes := []string{s.keys().accounts()}
	if f.Projects != nil || !scope.All() {
		names := f.Projects
		if names == nil {
			names = scope.Projects()
		}
		prefixes = nil
		for _, p := range slices.Compact(slices.Sorted(slices.Values(names))) {
			if p.Check() == nil && scope.Sees(p) {
				prefixes = append(prefixes, s.keys().accountsOf(p))
			}
		}
	}
	for _, prefix := range prefixes {
		some, err := s.accounts(ctx, prefix, revision)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// over returns the past days of an account.
func (s *History) over(ctx context.Context, id usage.ID, f usage.Filter, revision int64) (all []usage.Day, err error) {
	end := clientv3.GetPrefixRangeEnd(s.keys().days(id))
	if f.Until != "" {
		end = s.keys().day(id, f.Until) + "\x00"
	}
	got, err := s.conn.Etcd.Get(ctx, s.keys().day(id, f.Since), clientv3.WithRange(end), clientv3.WithRev(revision))
	if err != nil {
		return nil, s.conn.Wrap(err, "read the past usage of project %s", id.Project)
	}
	for _, stored := range got.Kvs { // at most as many as are kept
		var d usage.Day
		if err := s.conn.Decode(stored.Key, stored.Value, &d); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
