package etcdstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/etcdserver"
)

// growth refuses new records while etcd or the disk of a member is nearly full. This reserves room for writes that
// remove records, and for fences, observations and leases. Once etcd is full, it refuses all writes, even removals by
// transaction.
type growth struct {
	mu     sync.Mutex
	looked time.Time
	full   error
}

const (
	// growLook is the maximum age of the cached size of etcd.
	growLook = 20 * time.Millisecond
	// reservedParts: 1/reservedParts of etcd's quota is reserved for removals.
	reservedParts = 8
)

// crowded reports whether the rest of etcd's quota is needed for removals. All sizes are in bytes. etcd compares its
// quota with the size of its file. Pages of removed records remain in the file until a defragmentation makes it
// smaller. So a file whose size is close to the quota counts as full, unless a quarter of it is free pages, which new
// records fill first. The file may still grow a little, because a compaction writes pages again before it frees them.
func crowded(quota, file, inUse int64) bool {
	kept := quota / reservedParts
	return quota > 0 && file >= quota-kept && inUse >= quota-2*kept
}

// mayGrow returns why no new records may be stored now. NoCapacity. If the size is unknown, new records are allowed:
// etcd itself refuses writes that do not fit.
func (s *conn) mayGrow(ctx context.Context) error {
	g := &s.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.looked) < growLook {
		return g.full
	}
	look, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	g.full = nil
	endpoints := s.etcd.Endpoints()
	if len(endpoints) == 0 { // the server is in this process
		endpoints = []string{""}
	}
	for _, endpoint := range endpoints {
		status, err := s.etcd.Status(look, endpoint)
		if err != nil {
			continue
		}
		if len(status.Errors) > 0 {
			break // once the alarm is raised, etcd itself refuses writes, and its error contains advice
		}
		if s.lowDisk(look) {
			g.full = croft.Errorf(croft.NoCapacity, "new records are refused: etcd at %s is %s", s.endpoints, diskFull)
		} else if quota := status.DbSizeQuota; crowded(quota, status.DbSize, status.DbSizeInUse) {
			g.full = croft.Errorf(croft.NoCapacity, "new records are refused: etcd at %s has filled %d of its %d "+
				"MiB, and the rest is reserved for removals; remove unused records, or raise etcd's "+
				"quota", s.endpoints, status.DbSizeInUse>>20, quota>>20)
		}
		break
	}
	if ctx.Err() == nil {
		g.looked = time.Now()
	}
	return g.full
}

// diskFull is the state in which a member of etcd has recorded that its disk is nearly full.
const diskFull = "out of space except for removals, because the disk of its host is nearly full: remove unused " +
	"records, or make room there; croft up notices it"

// lowDisk reports whether a member of etcd has recorded that its disk is nearly full.
func (s *conn) lowDisk(ctx context.Context) bool {
	got, err := s.etcd.Get(ctx, etcdserver.LowPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly(),
		clientv3.WithSerializable())
	return err == nil && got.Count > 0
}
