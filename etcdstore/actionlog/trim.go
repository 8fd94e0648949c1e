package actionlog

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/actions"
	"croft/etcdstore/internal/kv"
)

// Trim implements actions.Store. Several may run at once: each removes the same blocks, or newer ones too.
func (s *Log) Trim(ctx context.Context, now time.Time, projects ...croft.Project) error {
	prefixes := []string{s.keys().all()}
	if len(projects) > 0 {
		prefixes = nil
	}
	for _, p := range projects {
		prefixes = append(prefixes, s.keys().project(p))
	}
	logs := map[string][]block{} // by project, the oldest first
	for _, prefix := range prefixes {
		err := s.conn.ReadRange(ctx, "list the action log", prefix, 0, func(stored *mvccpb.KeyValue) error {
			b := s.keys().blockAt(stored.Key)
			logs[b.project] = append(logs[b.project], b)
			return nil
		}, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
	}
	share := actions.MostOfProject
	if len(projects) == 0 {
		share = actions.Share(counts(logs), actions.MostOfProject, actions.MostOfAll)
	}
	oldest := now.Add(-actions.Kept)
	clocks := s.conn.CheckClock(ctx, now)
	if clocks != nil {
		oldest = time.Time{} // what is too much goes all the same
	}
	for _, blocks := range logs {
		done := slices.DeleteFunc(slices.Clone(blocks), block.refused)
		refused := slices.DeleteFunc(slices.Clone(blocks), func(b block) bool { return !b.refused() })
		// What was refused has a bound of its own, and else takes a quarter of the share.
		gone := append(over(done, share, oldest), over(refused, min(actions.MostRefused, share/4), oldest)...)
		if err := s.remove(ctx, gone); err != nil {
			return err
		}
	}
	if len(projects) > 0 || clocks != nil {
		return clocks
	}
	return s.forgetEnds(ctx, oldest)
}

func counts(logs map[string][]block) (all []int) {
	for _, blocks := range logs {
		n := 0
		for _, b := range blocks {
			n += b.count()
		}
		all = append(all, n)
	}
	return all
}

// over returns the blocks at the beginning of a log that are too old, or too many: of those that stay, only the
// oldest one may have a part over the bound.
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

// removedAtOnce bounds the operations of a transaction.
const removedAtOnce = 100

// forgetEnds removes what is known of the ends of projects of which no entries are left.
func (s *Log) forgetEnds(ctx context.Context, oldest time.Time) error {
	return s.conn.ReadRange(ctx, "list ends of projects", s.keys().allEnded(), 0, func(stored *mvccpb.KeyValue) error {
		var end ended
		if err := s.conn.Decode(stored.Key, stored.Value, &end); err != nil || !end.At.Before(oldest) {
			return err
		}
		key := string(stored.Key)
		_, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, stored.ModRevision)).Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return s.conn.Wrap(err, "forget the end of a project")
		}
		return nil
	})
}
