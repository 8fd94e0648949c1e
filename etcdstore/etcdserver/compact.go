package etcdserver

import (
	"cmp"
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage"

	"croft/internal/delay"
)

const (
	// compactKeep is how long history is kept for readers of several pages at one revision and for broken watches; if
	// it is removed earlier, they start again.
	compactKeep = 10 * time.Second
	// compactGrowth is the growth of a server, in bytes, that triggers a compaction; if the quota divided by
	// compactParts is less, that is used instead.
	compactGrowth = 64 << 20
	compactParts  = 32
	compactLook   = time.Second
)

const (
	// compactBatch is how many revisions one transaction of a compaction removes at etcd's default quota; at a smaller
	// quota it removes fewer. The transaction writes the pages that also contain other revisions again before it frees
	// the old ones, so the file needs room for both, and records may be large.
	compactBatch  = 250
	smallestBatch = 8
	compactPause  = 2 * time.Millisecond
)

func batchFor(quota int64) int {
	return int(min(max(compactBatch*quota/storage.DefaultQuotaBytes, smallestBatch), compactBatch))
}

// compactor compacts the history of an embedded server by size. etcd itself compacts once an hour and becomes read-only
// when full, which a busy cloud or pool may reach sooner. In a cluster of several servers only the leader compacts.
type compactor struct {
	server *etcdserver.EtcdServer
	growth int64
	keep   time.Duration
	look   time.Duration

	base  int64        // smallest size since the start, or since the last growth that triggered a compaction
	owed  int64        // revision at that growth; it is compacted once it is old enough
	marks []revisionAt // oldest first
}

// revisionAt is the revision at a point in time.
type revisionAt struct {
	at       time.Time
	revision int64
}

func newCompactor(server *etcdserver.EtcdServer, c Config) *compactor {
	return &compactor{server: server, growth: min(compactGrowth, c.quota()/compactParts),
		keep: cmp.Or(c.compactKeep, compactKeep), look: cmp.Or(c.compactLook, compactLook)}
}

// run compacts until ctx ends, while the server runs.
func (c *compactor) run(ctx context.Context) {
	delay.Every(ctx, c.look, func(ctx context.Context) {
		select {
		case <-c.server.StopNotify():
			return
		default:
		}
		kv := c.server.KV()
		to := c.due(revisionAt{time.Now(), kv.Rev()}, kv.FirstRev(), c.server.Backend().SizeInUse())
		if to > 0 && c.server.Leader() == c.server.MemberID() {
			// an error is retried at the next check
			_, _ = c.server.Compact(ctx, &pb.CompactionRequest{Revision: to})
		}
	})
}

// due returns the revision to compact to now; 0: nothing is due. first is the oldest revision that is kept. A
// compaction frees space gradually, so growth is measured from the smallest size since the last one. Revisions that are
// not old enough yet are kept at first, and are due once they are older, even if the server stops growing.
func (c *compactor) due(now revisionAt, first, size int64) int64 {
	kept := c.note(now)
	c.base = min(c.base, size)
	if size-c.base >= c.growth {
		c.base, c.owed = size, now.revision
		return kept
	}
	if c.owed > 0 && first < c.owed && c.owed <= kept {
		return kept
	}
	return 0
}

// note adds a mark and returns the newest revision that is old enough to be compacted, or 0.
func (c *compactor) note(now revisionAt) int64 {
	c.marks = append(c.marks, now)
	for len(c.marks) > 1 && now.at.Sub(c.marks[1].at) >= c.keep {
		c.marks = c.marks[1:]
	}
	if now.at.Sub(c.marks[0].at) < c.keep {
		return 0
	}
	return c.marks[0].revision
}
