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
	// compactKeep is how long the past is kept for those who read several pages at one
	// revision, or whose watch was broken; they begin anew where it is gone.
	compactKeep = 10 * time.Second
	// compactGrowth is by how much a server grows before it forgets the past, where that
	// is less than an eighth of its quota.
	compactGrowth = 64 << 20
	compactLook   = time.Second
)

// compactor compacts the history of an embedded server by size. etcd does so by itself once an
// hour, and takes no writes once it is full; a busy cloud, or pool, may fill it sooner. Of several
// servers only the leader acts.
type compactor struct {
	server *etcdserver.EtcdServer
	growth int64
	keep   time.Duration
	look   time.Duration

	base  int64        // the smallest size since the server had last grown enough
	owed  int64        // the revision at that time: what it grew by is compacted up to there, once that is old enough
	marks []revisionAt // oldest first
}

// revisionAt is the revision at a time.
type revisionAt struct {
	at       time.Time
	revision int64
}

func newCompactor(server *etcdserver.EtcdServer, c Config) *compactor {
	quota := cmp.Or(max(c.MaxBytes, 0), storage.DefaultQuotaBytes)
	return &compactor{server: server, growth: min(compactGrowth, quota/8),
		keep: cmp.Or(c.compactKeep, compactKeep), look: cmp.Or(c.compactLook, compactLook)}
}

// run compacts until ctx ends, as long as the server runs.
func (c *compactor) run(ctx context.Context) {
	c.base = c.server.Backend().SizeInUse()
	delay.Every(ctx, c.look, func(ctx context.Context) {
		select {
		case <-c.server.StopNotify():
			return
		default:
		}
		kv := c.server.KV()
		to := c.due(revisionAt{time.Now(), kv.Rev()}, kv.FirstRev(), c.server.Backend().SizeInUse())
		if to > 0 && c.server.Leader() == c.server.MemberID() {
			_, _ = c.server.Compact(ctx, &pb.CompactionRequest{Revision: to}) // the next look repeats it
		}
	})
}

// due returns the revision to compact to now, 0: none. first is the oldest revision that is kept.
// What a compaction frees it frees by and by, so growth counts from the smallest size since the
// last time. What was written within the time that is kept stays then, and is due once it is
// older, whether or not the server grows on.
func (c *compactor) due(now revisionAt, first, size int64) int64 {
	kept := c.note(now)
	c.base = min(c.base, size)
	if size-c.base >= c.growth {
		c.base, c.owed = size, now.revision
		return kept
	}
	if first < c.owed && c.owed <= kept {
		return kept
	}
	return 0
}

// note adds a mark and returns the newest revision that is old enough to be compacted, 0: none.
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
