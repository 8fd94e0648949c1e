package etcdstore

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/etcdserver"
)

// growth refuses new records while etcd or the disk of a member is nearly full, so that there is room for the
// writes that remove records, and for fences, observations and leases. etcd itself refuses all writes once it is
// full, removals by transaction too.
type growth struct {
	mu     sync.Mutex
	looked time.Time
	full   error
}

const (
	// growLook is how old what is known of the size of etcd may be.
	growLook = 20 * time.Millisecond
	// reservedParts is the part of etcd's quota that is kept for removals: one of so many.
	reservedParts = 8
)

// crowded reports whether the rest of etcd's quota is needed for removals. All figures are in bytes. etcd compares its
// quota with the size of its file, in which the pages of removed records stay, and which only a defragmentation makes
// smaller. So a file that comes close to the quota counts as full, unless a quarter of it is free pages, which new
// records fill first. The file may grow further, since a compaction writes pages again before it frees them.
func crowded(quota, file, inUse int64) bool {
	kept := quota / reservedParts
	return quota > 0 && file >= quota-kept && inUse >= quota-2*kept
}

// mayGrow returns why nothing new may be stored now. NoCapacity. If the size is not known, everything may be stored:
// etcd refuses by itself what has no room.
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
			break // once the alarm is raised, etcd refuses by itself, and says what helps
		}
		if s.lowDisk(look) {
			g.full = croft.Errorf(croft.NoCapacity, "nothing new is stored: etcd at %s is %s", s.endpoints, diskFull)
		} else if quota := status.DbSizeQuota; crowded(quota, status.DbSize, status.DbSizeInUse) {
			g.full = croft.Errorf(croft.NoCapacity, "nothing new is stored: etcd at %s has filled %d of its %d MiB, and "+
				"keeps the rest for removals; remove what is not needed, or raise etcd's quota", s.endpoints, status.DbSizeInUse>>20, quota>>20)
		}
		break
	}
	if ctx.Err() == nil {
		g.looked = time.Now()
	}
	return g.full
}

// diskFull says that a member of etcd has noted that its disk is nearly full.
const diskFull = "out of space, and keeps the rest for removals, because the disk of its host is nearly full: " +
	"remove what is not needed, or make room there, which croft up notices by itself"

// lowDisk reports whether a member of etcd has noted that its disk is nearly full.
func (s *conn) lowDisk(ctx context.Context) bool {
	got, err := s.etcd.Get(ctx, etcdserver.LowPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly(),
		clientv3.WithSerializable())
	return err == nil && got.Count > 0
}
