package actionlog

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/actions"
	"croft/etcdstore/internal/kv"
)

// Trim implements actions.Store. Concurrent calls are allowed: each removes the same blocks, or newer ones too.
func (s *Log) Trim(ctx context.Context, now time.Time, projects ...croft.Project) error {
	prefixes := []string{s.keys().all()}
	if len(projects) > 0 {
		prefixes = nil
	}
	for _, p := range projects {
		prefixes = append(prefixes, s.keys().project(p))
	}
	logs := map[string][]block{} // by project, oldest first
	for _, prefix := range prefixes {
		err := s.conn.ReadRange(ctx, "list the action log", prefix, 0, func(stored *mvccpb.KeyValue) error {
			b := s.keys().blockAt(stored)
			logs[b.project] = append(logs[b.project], b)
			return nil
		}, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
	}
	var shares map[croft.Project]int
	if len(projects) == 0 {
		shares = actions.Shares(counts(logs), actions.MostOfProject, actions.MostOfAll)
	}
	oldest := now.Add(-actions.Kept)
	clocks := s.conn.CheckClock(ctx, now)
	if clocks != nil {
		oldest = time.Time{} // excess entries are removed nevertheless
	}
	for name, blocks := range logs {
		share := actions.MostOfProject
		if shares != nil {
			share = shares[croft.Project(name)]
		}
		done := slices.DeleteFunc(slices.Clone(blocks), block.refused)
		refused := slices.DeleteFunc(slices.Clone(blocks), func(b block) bool { return !b.refused() })
		// Refused requests have a separate limit, and may take at most a quarter of the share.
		gone := append(over(done, share, oldest), over(refused, min(actions.MostRefused, share/4), oldest)...)
		if err := s.remove(ctx, gone); err != nil {
			return err
		}
	}
	if len(projects) > 0 || clocks != nil {
		return clocks
	}
	return s.forgetEnds(ctx, oldest, logs)
}

func counts(logs map[string][]block) map[croft.Project]int {
	all := map[croft.Project]int{}
	for name, blocks := range logs {
		for _, b := range blocks {
			all[croft.Project(name)] += b.count()
		}
	}
	return all
}

// over returns the blocks at the start of a log that are too old, or exceed the share. Among the remaining blocks, only
// the oldest may extend beyond the share.
func over(blocks []block, share int, oldest time.Time) []block {
	kept := 0
	for i, b := range slices.Backward(blocks) {
		if kept >= share || b.name < moment(oldest) {
			return blocks[:i+1]
		}
		kept += b.count()
	}
	return nil
}

// remove removes blocks.
func (s *Log) remove(ctx context.Context, blocks []block) error {
	for some := range slices.Chunk(blocks, removedAtOnce) {
		var ops []clientv3.Op
		for _, b := range some {
			ops = append(ops, clientv3.OpDelete(s.keys().block(b)))
		}
		if _, err := s.conn.Etcd.Txn(ctx).Then(ops...).Commit(); err != nil {
			return s.conn.Wrap(err, "remove old entries of the action log")
		}
	}
	return nil
}

// removedAtOnce is the maximum number of operations of a transaction.
const removedAtOnce = 100

// forgetEnds removes the records of the ends of projects that have no entries left. If a tree of projects has too many
// ends, it also removes entries and ends of some of them.
func (s *Log) forgetEnds(ctx context.Context, oldest time.Time, logs map[string][]block) error {
	trees := map[croft.Project][]ended{}
	err := s.conn.ReadRange(ctx, "list ends of projects", s.keys().allEnded(), 0, func(stored *mvccpb.KeyValue) error {
		var end ended
		if err := s.conn.Decode(stored.Key, stored.Value, &end); err != nil {
			return err
		}
		end.project, end.revision = s.keys().endedAt(stored.Key), stored.ModRevision
		trees[end.project.Root()] = append(trees[end.project.Root()], end)
		return nil
	})
	if err != nil {
		return err
	}
	for _, ends := range trees {
		slices.SortFunc(ends, func(a, b ended) int { return cmp.Compare(a.revision, b.revision) })
		for i, end := range ends {
			old := end.At.Before(oldest)
			if !old && i >= len(ends)-actions.MostEnded {
				continue
			}
			if !old { // remove the entries first: without the end, a later project of the name would see them
				later := func(b block) bool { return b.created > end.revision }
				hidden := slices.DeleteFunc(slices.Clone(logs[string(end.project)]), later)
				if err := s.remove(ctx, hidden); err != nil {
					return err
				}
			}
			if err := s.forgetEnd(ctx, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetEnd removes the record of a project's end, unless a later project of the name has ended meanwhile.
func (s *Log) forgetEnd(ctx context.Context, end ended) error {
	key := s.keys().ended(end.project)
	_, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, end.revision)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return s.conn.Wrap(err, "forget the end of a project")
	}
	return nil
}
