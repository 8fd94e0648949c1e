package etcdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/delay"
)

const (
	mib = 1 << 20
	// leastSpace is required to start without data: two log files of 64 MiB each, the database, the reserve, and some
	// space to start with.
	leastSpace = 256 * mib
	// leastToGoOn is required to start again with data, even if only read-only.
	leastToGoOn = 16 * mib
	// lowSpace is the limit below which no new records are accepted: the next log file needs most of it. New records
	// are accepted again at enoughSpace.
	lowSpace    = 96 * mib
	enoughSpace = 128 * mib
	// reserve is how much the database can grow although the disk is full. It grows by 16 MiB at a time. After it has
	// grown twice, less than reserveLeast is left for removals.
	reserve      = 48 * mib
	reserveLeast = 24 * mib
	// ballast is the size of a file that is shortened by ballastPart whenever fewer than leastFree bytes are free:
	// every few thousand writes etcd writes a small file, and ends the process if it cannot.
	ballast     = 2 * mib
	ballastPart = 256 << 10
	leastFree   = 64 << 10
	// spaceEvery is the interval of checks.
	spaceEvery = time.Second
	// askTime bounds a request to another member, or to this one.
	askTime = 2 * time.Second
)

// checkSpace refuses to start on a disk that is too full, where etcd would end the process. Unavailable; also ErrFull
// if there is data, since the other members may continue without this one.
func checkSpace(dir string) error {
	free, err := freeSpace(dir)
	if err != nil {
		return fmt.Errorf("embedded etcd: read how much space is left: %w", err)
	}
	needs := int64(leastSpace)
	_, err = os.Stat(database(dir))
	begun := err == nil
	if begun {
		needs = leastToGoOn
	}
	if free < needs {
		err := croft.Errorf(croft.Unavailable,
			"embedded etcd: %d MiB are left on the disk of %s, and it needs %d MiB to start: make room there, or name another state directory",
			free/mib, dir, needs/mib)
		if begun {
			err = isFull{err}
		}
		return err
	}
	return nil
}

// isFull is an error that counts as ErrFull and has its own text.
type isFull struct{ error }

func (isFull) Is(target error) bool { return target == ErrFull }
func (e isFull) Unwrap() error      { return e.error }

func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// spaceKeeper watches the free disk space of a server.
//
// A server that cannot write ends its process. So space is reserved: blocks behind the end of the database, a log file
// that etcd itself allocates ahead of its use, and a ballast. While little other space is free, a key below LowPrefix
// makes every store refuse new records, so that the reserve is left for removals, fences, observations and leases. Once
// the reserve is used up, etcd's own alarm refuses everything except deletions. If the other members can continue
// without this one, it ends instead.
type spaceKeeper struct {
	etcd   *etcdserver.EtcdServer
	client *clientv3.Client    // of etcd
	peers  *connlimit.Listener // nil: no other members are possible
	dir    string
	log    *slog.Logger

	said  bool             // the log already reports that the disk is nearly full
	lease clientv3.LeaseID // of this member's key below LowPrefix; 0: the key does not exist
	bare  int              // consecutive rounds that found no reserve
}

// LowPrefix is the prefix of the keys that exist while the disk of a member is nearly full. Each key ends in the ID of
// the member, and has a lease, so that the key of a member that has ended expires.
const LowPrefix = "/croft/low/"

// lowTTL is the time, in seconds, after which the key of a member that has ended expires.
const lowTTL = 30

// run checks until ctx ends, or until this member must end because its disk is full.
func (k *spaceKeeper) run(ctx context.Context) (full bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	look := func(ctx context.Context) {
		if full = k.look(ctx); full {
			end()
		}
	}
	look(ctx)
	delay.Every(ctx, spaceEvery, look)
	return full
}

// look does one round; it reports whether this member must end.
func (k *spaceKeeper) look(ctx context.Context) (full bool) {
	free, err := freeSpace(k.dir)
	if err == nil && free < lowSpace && k.dispensable(ctx) {
		k.log.Error("the disk is nearly full: this member of etcd pauses until there is room again, and the others "+
			"continue",
			"dir", k.dir, "free_mib", free/mib)
		// permits writes that were refused while the others could not continue without this member
		_ = k.permit(ctx)
		k.peers.End() // so that another member whose disk fills does not count on this one
		return true
	}
	if err == nil {
		err = errors.Join(k.keepBallast(free), reserveAhead(database(k.dir)), k.refuse(ctx, free))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EOPNOTSUPP) {
		k.log.Warn("etcd cannot look after the space that is left to it", "dir", k.dir, "err", err)
	}
	return false
}

// ErrFull is the error of a member that ended because its disk is nearly full, while the others continue.
var ErrFull = croft.Errorf(croft.Unavailable,
	"the disk of this member of etcd is nearly full, and the others continue without it")

// MayServe reports whether a member with data in a directory has enough space to serve. After ErrFull more space is
// needed than the limit at which it ended. A file system that does not report free space counts as having enough.
func MayServe(dir string) bool {
	free, err := freeSpace(dir)
	return err != nil || free >= enoughSpace
}

// AwaitRoom returns once the disk has enough space for writes, which may be immediately. Until then the server can be
// read, and the log reports the problem. ErrFull and ErrRemoved as for Wait.
func (s *Server) AwaitRoom(ctx context.Context) error {
	k := s.space
	for said := false; k != nil; {
		free, err := freeSpace(k.dir)
		room := err != nil || k.overQuota() || free >= lowSpace && !k.alarmed()
		if room && (free < enoughSpace || !k.hasKey(ctx)) {
			return nil // a write now reports any other problem
		}
		if !said && !room {
			k.log.Error("the disk is nearly full: etcd only answers reads, and the start continues when there is room",
				"dir", k.dir, "free_mib", free/mib, "needs_mib", enoughSpace/mib)
			said = true
		}
		select {
		case <-s.full:
			return ErrFull
		case <-s.etcd.Server.StopNotify():
			return ErrRemoved
		default:
		}
		if err := delay.For(ctx, spaceEvery); err != nil {
			return fmt.Errorf("wait for room on the disk of %s: %w", k.dir, err)
		}
	}
	return nil
}

// AwaitSpace returns when MayServe is true, or ctx ends.
func AwaitSpace(ctx context.Context, dir string) error {
	for !MayServe(dir) {
		if err := delay.For(ctx, spaceEvery); err != nil {
			return err
		}
	}
	return nil
}

// dispensable reports whether more than half of the members answer without this one. Members whose disks fill at the
// same time check this one after the other, so that they do not count on each other.
func (k *spaceKeeper) dispensable(ctx context.Context) bool {
	if k.etcd.IsLearner() {
		return true
	}
	members := slices.DeleteFunc(slices.Clone(k.etcd.Cluster().Members()),
		func(m *membership.Member) bool { return m.IsLearner })
	if len(members) < 3 {
		return false
	}
	rank := 0
	for _, m := range members {
		if m.ID < k.etcd.MemberID() {
			rank++
		}
	}
	if delay.For(ctx, time.Duration(rank)*2*askTime) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	rt, err := transport.NewTransport(k.etcd.Cfg.PeerTLSInfo, askTime)
	if err != nil {
		return false
	}
	defer rt.CloseIdleConnections()
	var answering atomic.Int64
	var asks sync.WaitGroup
	for _, m := range members {
		if m.ID != k.etcd.MemberID() && len(m.PeerURLs) > 0 {
			asks.Go(func() {
				if answers(ctx, rt, m.PeerURLs[0]) {
					answering.Add(1)
				}
			})
		}
	}
	asks.Wait()
	return int(answering.Load()) > len(members)/2
}

// answers reports whether a member answers at a URL.
func answers(ctx context.Context, rt http.RoundTripper, peer string) bool {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, peer+"/version", nil)
	if err != nil {
		return false
	}
	answer, err := rt.RoundTrip(ask)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// refuse makes stores refuse new records while little space is free, and etcd refuse all writes while no reserve is
// left either. It logs each change once.
func (k *spaceKeeper) refuse(ctx context.Context, free int64) error {
	switch {
	case free < lowSpace:
		if !k.said {
			k.log.Error("the disk is nearly full: croft takes no new orders until there is room again, and guests "+
				"keep running",
				"dir", k.dir, "free_mib", free/mib)
			k.said = true
		}
		if k.bare++; k.reserved() {
			k.bare = 0
		}
		if k.bare <= 1 { // the first time, etcd may just be allocating its next log file
			return k.putKey(ctx)
		}
		if k.alarmed() {
			return nil
		}
		k.log.Error("no space is left for removals either: etcd is read-only until there is room again", "dir", k.dir)
		return k.alarm(ctx, pb.AlarmRequest_ACTIVATE)
	case free >= enoughSpace && (k.said || k.hasKey(ctx) || k.alarmed() && !k.overQuota()):
		if err := k.permit(ctx); err != nil {
			return err
		}
		k.log.Info("there is room on the disk again, and orders are taken", "dir", k.dir, "free_mib", free/mib)
	case k.lease != 0:
		return k.putKey(ctx)
	}
	return nil
}

// permit reverses the effects of refuse. The alarm stays if etcd has another reason for it.
func (k *spaceKeeper) permit(ctx context.Context) error {
	if k.alarmed() && !k.overQuota() {
		if err := k.alarm(ctx, pb.AlarmRequest_DEACTIVATE); err != nil {
			return err
		}
	}
	if k.hasKey(ctx) { // stored by this process, or by one that was killed
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		if _, err := k.client.Delete(ctx, k.key()); err != nil {
			return fmt.Errorf("permit new records: %w", err)
		}
	}
	k.lease, k.bare, k.said = 0, 0, false
	return nil
}

// key returns the key of this member below LowPrefix.
func (k *spaceKeeper) key() string { return LowPrefix + k.etcd.MemberID().String() }

// hasKey reports whether the key of this member exists, according to this member's own data.
func (k *spaceKeeper) hasKey(ctx context.Context) bool {
	got, err := k.client.Get(ctx, k.key(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	return err == nil && got.Count > 0
}

// putKey stores the key that makes stores refuse new records, or renews its lease.
func (k *spaceKeeper) putKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if k.lease != 0 {
		if _, err := k.client.KeepAliveOnce(ctx, k.lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return wrapNote(err)
		}
		k.lease = 0
	}
	granted, err := k.client.Grant(ctx, lowTTL)
	if err != nil {
		return wrapNote(err)
	}
	if _, err := k.client.Put(ctx, k.key(), k.dir, clientv3.WithLease(granted.ID)); err != nil {
		return wrapNote(err)
	}
	k.lease = granted.ID
	return nil
}

func wrapNote(err error) error {
	if err != nil {
		return fmt.Errorf("note that the disk is nearly full: %w", err)
	}
	return nil
}

// reserved reports whether the database and the log still have reserved space for removals.
func (k *spaceKeeper) reserved() bool {
	size, allocated := blocks(database(k.dir))
	if allocated-size < reserveLeast {
		return false
	}
	for _, next := range []string{"0.tmp", "1.tmp"} { // etcd's next log file
		if _, allocated := blocks(filepath.Join(k.dir, "member", "wal", next)); allocated >= wal.SegmentSizeBytes {
			return true
		}
	}
	return false
}

// blocks returns the size of a file, and the space that the file system has allocated for it; zeros if it is absent.
func blocks(file string) (size, allocated int64) {
	var s unix.Stat_t
	if unix.Stat(file, &s) != nil {
		return 0, 0
	}
	return s.Size, s.Blocks * 512
}

// keepBallast creates the ballast while there is enough space, and shortens it when no other space is free.
func (k *spaceKeeper) keepBallast(free int64) error {
	file := filepath.Join(k.dir, "ballast")
	size, _ := blocks(file)
	switch {
	case free >= enoughSpace && size < ballast:
		size = ballast
	case free < leastFree && size > 0:
		size = max(0, size-ballastPart)
	default:
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("keep a ballast: %w", err)
	}
	defer f.Close()
	if err = f.Truncate(size); err == nil && size == ballast {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if err != nil {
		return fmt.Errorf("keep a ballast: %w", err)
	}
	return nil
}

func (k *spaceKeeper) alarm(ctx context.Context, action pb.AlarmRequest_AlarmAction) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := k.etcd.Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: uint64(k.etcd.MemberID()),
		Alarm: pb.AlarmType_NOSPACE})
	return err
}

func (k *spaceKeeper) alarmed() bool {
	for _, raised := range k.etcd.Alarms() {
		if raised.Alarm == pb.AlarmType_NOSPACE && raised.MemberID == uint64(k.etcd.MemberID()) {
			return true
		}
	}
	return false
}

// overQuota reports whether etcd has its own reason for the alarm: its database is close to the quota.
func (k *spaceKeeper) overQuota() bool {
	quota := cmp.Or(k.etcd.Cfg.QuotaBackendBytes, storage.DefaultQuotaBytes)
	return quota > 0 && k.etcd.Backend().Size() >= quota/10*9
}

// reserveAhead makes the file system allocate blocks for a file and beyond its end, without changing its size.
func reserveAhead(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size()+reserve); err != nil {
		return fmt.Errorf("reserve space for %s: %w", file, err)
	}
	return nil
}
