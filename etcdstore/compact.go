package etcdstore

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage"
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

// compactor has an embedded server forget old revisions by what they take. etcd does so
// by itself once an hour, and cannot be written to once it is full; a busy cloud, or
// pool, may fill it sooner. Of several servers only the leader acts.
type compactor struct {
	server *etcdserver.EtcdServer
	growth int64
	keep   time.Duration
	look   time.Duration

	base  int64  // what the server held when it was smallest since the last compaction
	marks []mark // oldest first
}

// mark is the revision at a time.
type mark struct {
	at       time.Time
	revision int64
}

func newCompactor(server *etcdserver.EtcdServer, quota int64) *compactor {
	if quota <= 0 {
		quota = storage.DefaultQuotaBytes
	}
	return &compactor{server: server, growth: min(compactGrowth, quota/8), keep: compactKeep, look: compactLook}
}

// run compacts until ctx ends or the server stops.
func (c *compactor) run(ctx context.Context) {
	tick := time.NewTicker(c.look)
	defer tick.Stop()
	c.base = c.server.Backend().SizeInUse()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.server.StopNotify():
			return
		case <-tick.C:
		}
		kept := c.note(mark{time.Now(), c.server.KV().Rev()})
		if kept > 0 && c.server.Leader() == c.server.MemberID() && c.due(c.server.Backend().SizeInUse()) {
			// An error costs nothing: the next look comes.
			_, _ = c.server.Compact(ctx, &pb.CompactionRequest{Revision: kept})
		}
	}
}

// note adds a mark and returns the newest revision that is old enough to be forgotten,
// 0 where none is.
func (c *compactor) note(now mark) int64 {
	c.marks = append(c.marks, now)
	for len(c.marks) > 1 && now.at.Sub(c.marks[1].at) >= c.keep {
		c.marks = c.marks[1:]
	}
	if now.at.Sub(c.marks[0].at) < c.keep {
		return 0
	}
	return c.marks[0].revision
}

// due tells whether the server has grown enough since the last time. What a compaction
// frees it frees by and by, so the smallest size since then counts.
func (c *compactor) due(size int64) bool {
	c.base = min(c.base, size)
	if size-c.base < c.growth {
		return false
	}
	c.base = size
	return true
}

// compacting is the work of a server's compactor.
type compacting struct {
	stop context.CancelFunc
	work sync.WaitGroup
}

func (c *compactor) start() *compacting {
	ctx, stop := context.WithCancel(context.Background())
	running := &compacting{stop: stop}
	running.work.Go(func() { c.run(ctx) })
	return running
}

func (c *compacting) end() {
	c.stop()
	c.work.Wait()
}
