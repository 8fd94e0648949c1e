package etcdstore

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
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"croft"
)

const (
	mib = 1 << 20
	// leastSpace is what a server without data needs: two files of its log of 64 MiB
	// each, its database, the reserve, and some to begin with.
	leastSpace = 256 * mib
	// leastToGoOn is what one with data needs to start again, and be it read-only.
	leastToGoOn = 16 * mib
	// lowSpace is where it takes no more writes: the next file of its log takes most of
	// that. It takes them again once there is enoughSpace.
	lowSpace    = 96 * mib
	enoughSpace = 128 * mib
	// reserve is what the database may grow by although the disk is full.
	reserve = 32 * mib
	// spaceEvery is how often the server looks.
	spaceEvery = time.Second
)

// checkSpace refuses to start on a disk that is too full, which etcd ends the process
// for. Unavailable, and ErrFull where there is data, so that others may go on with it.
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

// isFull is an error that is ErrFull, in its own words.
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

func database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// keepSpace keeps space for the server until ctx ends, and where that comes to an end
// keeps clients from writing, until there is enough again.
//
// A server that cannot write ends its process. So blocks are reserved ahead of the end
// of the database, as etcd does for its log, and while few are left etcd's own alarm
// refuses whatever would need more. Where other members can go on without this one, it
// ends with ErrFull instead.
func (e *Embedded) keepSpace(ctx context.Context, dir string, log *slog.Logger) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	var low bool
	for {
		free, err := freeSpace(dir)
		if err == nil && free < lowSpace && e.dispensable(ctx) {
			log.Error("the disk is nearly full: this member of etcd rests until there is room again, and the others go on", "dir", dir, "free_mib", free/mib)
			if low { // while it could not be spared
				_ = e.alarm(ctx, pb.AlarmRequest_DEACTIVATE)
			}
			e.service.peers.End() // the next one whose disk is full does not rely on it
			close(e.full)
			return
		}
		if err == nil {
			err = errors.Join(reserveAhead(database(dir)), e.minds(ctx, free, &low, dir, log))
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EOPNOTSUPP) {
			log.Warn("etcd cannot look after the space that is left to it", "dir", dir, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// startKeeping runs keepSpace until the server is closed.
func (e *Embedded) startKeeping(c EmbeddedConfig) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { e.keepSpace(ctx, c.Dir, cmp.Or(c.Log, slog.New(slog.DiscardHandler))) })
	e.end = func() {
		cancel()
		work.Wait()
	}
}

// ErrFull ends a member whose disk is nearly full, where the others go on without it.
var ErrFull = croft.Errorf(croft.Unavailable,
	"the disk of this member of etcd is nearly full, and the others go on without it")

// MayServe tells whether a member with data in a directory has room to serve: one that ended with ErrFull has once
// there is some more than what it ended for. A file system that does not tell has.
func MayServe(dir string) bool {
	free, err := freeSpace(dir)
	return err != nil || free >= enoughSpace
}

// AwaitSpace returns when MayServe says yes, or ctx ends.
func AwaitSpace(ctx context.Context, dir string) error {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for !MayServe(dir) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// dispensable tells whether more than half of the members answer beside this one. Several whose disks fill at once ask
// one after the other, so that they do not all rely on each other.
func (e *Embedded) dispensable(ctx context.Context) bool {
	server := e.server.Server
	if server.IsLearner() {
		return true
	}
	members := slices.DeleteFunc(slices.Clone(server.Cluster().Members()),
		func(m *membership.Member) bool { return m.IsLearner })
	if len(members) < 3 {
		return false
	}
	rank := 0
	for _, m := range members {
		if m.ID < server.MemberID() {
			rank++
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(rank) * 2 * checkTime):
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	way, err := transport.NewTransport(e.server.Server.Cfg.PeerTLSInfo, checkTime)
	if err != nil {
		return false
	}
	defer way.CloseIdleConnections()
	var answering atomic.Int64
	var asks sync.WaitGroup
	for _, m := range members {
		if m.ID != server.MemberID() && len(m.PeerURLs) > 0 {
			asks.Go(func() {
				if answers(ctx, way, m.PeerURLs[0]) {
					answering.Add(1)
				}
			})
		}
	}
	asks.Wait()
	return int(answering.Load()) > len(members)/2
}

// answers tells whether there is a member at a URL.
func answers(ctx context.Context, way http.RoundTripper, peer string) bool {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, peer+"/version", nil)
	if err != nil {
		return false
	}
	answer, err := way.RoundTrip(ask)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// minds raises the alarm or takes it back, and says so once.
func (e *Embedded) minds(ctx context.Context, free int64, low *bool, dir string, log *slog.Logger) error {
	switch {
	case free < lowSpace && !*low:
		log.Error("the disk is nearly full: nothing new is ordered until there is room again, and what runs goes on",
			"dir", dir, "free_mib", free/mib)
		if err := e.alarm(ctx, pb.AlarmRequest_ACTIVATE); err != nil {
			return err
		}
		*low = true
	case free >= enoughSpace && (*low || e.alarmed()) && !e.overQuota():
		if err := e.alarm(ctx, pb.AlarmRequest_DEACTIVATE); err != nil {
			return err
		}
		*low = false
		log.Info("there is room on the disk again, and orders are taken", "dir", dir, "free_mib", free/mib)
	}
	return nil
}

func (e *Embedded) alarm(ctx context.Context, action pb.AlarmRequest_AlarmAction) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := e.server.Server.Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: uint64(e.server.Server.MemberID()),
		Alarm: pb.AlarmType_NOSPACE})
	return err
}

func (e *Embedded) alarmed() bool {
	for _, raised := range e.server.Server.Alarms() {
		if raised.Alarm == pb.AlarmType_NOSPACE && raised.MemberID == uint64(e.server.Server.MemberID()) {
			return true
		}
	}
	return false
}

// overQuota tells whether etcd has its own reason for the alarm: it stores about as
// much as it may.
func (e *Embedded) overQuota() bool {
	quota := e.server.Server.Cfg.QuotaBackendBytes
	if quota == 0 {
		quota = 2 << 30 // etcd's own default
	}
	return quota > 0 && e.server.Server.Backend().Size() >= quota/10*9
}

// reserveAhead has the file system keep blocks for a file and for what comes after its
// end, without changing its size.
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

// lastWords is etcd's log: nothing but the sentence with which it ends the process,
// where it cannot go on.
func lastWords() *zap.Logger {
	return zap.New(zapcore.NewNopCore(), zap.WithFatalHook(lastWord{}), zap.WithPanicHook(lastWord{}))
}

type lastWord struct{}

// OnWrite implements zapcore.CheckWriteHook.
func (lastWord) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := "croft: the embedded etcd cannot go on: " + entry.Message
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			text += ": " + err.Error()
		}
	}
	fmt.Fprintln(os.Stderr, text)
	os.Exit(croft.ExitUnavailable)
}
