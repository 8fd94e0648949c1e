package usages

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/tenant/usage"
)

// Trim implements usage.Store. Concurrent calls are allowed: each removes the same keys, or keys that have become too
// old since.
func (s *History) Trim(ctx context.Context, now time.Time) error {
	_, err := s.TrimTo(ctx, now, usage.MostDays)
	return err
}

// dated is the key of a day, or of the account of a project that was removed, with its last day.
type dated struct {
	key, date string
	former    bool
}

// TrimTo is like Trim, with another limit for the days of all projects together. It returns how many keys it removed.
func (s *History) TrimTo(ctx context.Context, now time.Time, most int) (removed int, err error) {
	all, err := s.dated(ctx)
	if err != nil {
		return 0, err
	}
	oldest := now.UTC().Add(-usage.Kept).Format(time.DateOnly)
	clocks := s.conn.CheckClock(ctx, now)
	if clocks != nil {
		oldest = "" // excess days are removed nevertheless
	}
	var remove []clientv3.Op
	all = slices.DeleteFunc(all, func(d dated) bool {
		if d.date < oldest {
			remove = append(remove, clientv3.OpDelete(d.key))
		}
		return d.date < oldest
	})
	for _, d := range excess(all, most) {
		remove = append(remove, clientv3.OpDelete(d.key))
	}
	for some := range slices.Chunk(remove, atOnce) {
		if _, err := s.conn.Etcd.Txn(ctx).Then(some...).Commit(); err != nil {
			return removed, s.conn.Wrap(err, "remove old usage of projects")
		}
		removed += len(some)
	}
	return removed, clocks
}

// dated lists the removable keys. Accounts of present projects are not removable, because they contain the present
// usage.
func (s *History) dated(ctx context.Context) (all []dated, err error) {
	present, err := s.projects.Born(ctx, 0)
	if err != nil {
		return nil, err
	}
	former := func(id usage.ID) bool { return present[id.Project] != id.Born }
	err = s.conn.ReadRange(ctx, "list usage of projects", s.keys().allDays(), 0, func(stored *mvccpb.KeyValue) error {
		id, date := parse(stored.Key, s.keys().allDays())
		all = append(all, dated{string(stored.Key), date, former(id)})
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	accounts, err := s.accounts(ctx, s.keys().accounts(), 0)
	for _, a := range accounts {
		if a.Meter.Ended {
			all = append(all, dated{s.keys().account(a.ID), a.Meter.Today.Date, true})
		}
	}
	return all, err
}

// excess returns the days beyond the limit: days of removed projects first, then the oldest ones.
func excess(all []dated, most int) []dated {
	if len(all) <= most {
		return nil
	}
	slices.SortFunc(all, func(a, b dated) int {
		if a.former != b.former {
			if a.former {
				return -1
			}
			return 1
		}
		return strings.Compare(a.date, b.date)
	})
	return all[:len(all)-most]
}
