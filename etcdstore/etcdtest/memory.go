package etcdtest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/etcdserver/txn"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
)

// Memory is an etcd in memory, for tests that need no disk, network or raft. It is made of etcd's own parts: the
// multi-version store with its transactions and watches, the lessor, and the client. Left out are raft, the write-ahead
// log, connections, members and users. It starts within milliseconds, and runs inside testing/synctest: leases expire
// by the clock of the bubble, and time passes only while nothing is in progress. A contract suite runs against it and
// against a server (see memory_test.go).
type Memory struct {
	backend backend.Backend
	lessor  lease.Lessor
	kv      mvcc.WatchableKV
	lastID  atomic.Int64  // of leases
	done    chan struct{} // closed at the end
	work    sync.WaitGroup

	mu sync.Mutex // serializes writes, as raft does

	pb.UnsafeKVServer // these three: a missing method is an error of the compiler
	pb.UnsafeLeaseServer
	pb.UnsafeWatchServer
}

// NewMemory returns an empty etcd in memory, which ends with the test.
func NewMemory(t testing.TB) *Memory {
	t.Helper()
	m, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// InMemory returns a store on an etcd in memory. Both end with the test.
func InMemory(t testing.TB) *etcdstore.Store {
	t.Helper()
	return NewMemory(t).Open(t)
}

// Open returns another store on the same etcd, as another process would.
func (m *Memory) Open(t testing.TB) *etcdstore.Store {
	t.Helper()
	t.Helper()
	return open(t, etcdstore.Config{Embedded: m})
}

func newMemory() (*Memory, error) {
	dir, err := memoryDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the open file stays usable, and is gone however the test ends
	log := zap.NewNop()
	config := backend.DefaultBackendConfig(log)
	config.Path, config.UnsafeNoFsync, config.MmapSize = filepath.Join(dir, "db"), true, 1<<20
	config.BatchInterval = time.Hour
	m := &Memory{backend: backend.New(config), done: make(chan struct{})}
	m.lessor = lease.NewLessor(log, m.backend, nil, lease.LessorConfig{MinLeaseTTL: 1})
	m.kv = mvcc.New(log, m.backend, m.lessor, mvcc.StoreConfig{})
	m.lessor.Promote(0)
	m.work.Go(m.expire)
	return m, nil
}

// memoryDir returns a new directory, in memory where the system has one.
func memoryDir() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "croft-etcd"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "croft-etcd")
}

func (m *Memory) close() {
	close(m.done)
	m.work.Wait()
	m.lessor.Stop()
	_ = m.kv.Close()
	_ = m.backend.Close()
}

// Endpoint implements etcdstore.Embedded.
func (m *Memory) Endpoint() string { return "http://memory:2379" }

// Client implements etcdstore.Embedded.
func (m *Memory) Client() *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background(), clientv3.WithZapLogger(zap.NewNop()))
	c.KV = clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(m), c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(adapter.LeaseServerToLeaseClient(m), c, time.Second)
	c.Watcher = clientv3.NewWatchFromWatchClient(etcdserver.WatchClient(m), c)
	c.Maintenance = maintenance{}
	return c
}

// maintenance implements the part of clientv3.Maintenance with which a store asks for the size and the alarms of a
// server. There is no limit, and no alarm is raised.
type maintenance struct{ clientv3.Maintenance }

func (maintenance) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{}, nil
}

func (maintenance) AlarmList(context.Context) (*clientv3.AlarmResponse, error) {
	return &clientv3.AlarmResponse{}, nil
}

func (m *Memory) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, Revision: m.kv.Rev(), RaftTerm: 1}
}

// Range implements pb.KVServer.
func (m *Memory) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	answer, _, err := txn.Range(ctx, zap.NewNop(), m.kv, r, true)
	return answer, wire(err)
}

// RangeStream implements pb.KVServer.
func (m *Memory) RangeStream(*pb.RangeRequest, pb.KV_RangeStreamServer) error {
	return errors.ErrUnsupported
}

// Put implements pb.KVServer.
func (m *Memory) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, _, err := txn.Put(context.WithoutCancel(ctx), zap.NewNop(), m.lessor, m.kv, r)
	return answer, wire(err)
}

// DeleteRange implements pb.KVServer.
func (m *Memory) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, _, err := txn.DeleteRange(context.WithoutCancel(ctx), zap.NewNop(), m.kv, r)
	return answer, wire(err)
}

// Txn implements pb.KVServer.
func (m *Memory) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := cmp.Or(ctx.Err(), checkTxn(r)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, _, err := txn.Txn(context.WithoutCancel(ctx), zap.NewNop(), r, true, m.kv, m.lessor, false)
	return answer, wire(err)
}

// checkTxn refuses what the server refuses before it applies a transaction.
func checkTxn(r *pb.TxnRequest) error {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > etcdserver.TxnOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if err := checkPuts(branch); err != nil {
			return err
		}
	}
	return nil
}

// checkPuts refuses a branch that puts a key twice, or puts and deletes it.
func checkPuts(branch []*pb.RequestOp) error {
	puts := map[string]bool{}
	for _, op := range branch {
		if put := op.GetRequestPut(); put != nil {
			if puts[string(put.Key)] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			puts[string(put.Key)] = true
		}
	}
	for _, op := range branch {
		removed := op.GetRequestDeleteRange()
		if removed == nil {
			continue
		}
		if puts[string(removed.Key)] {
			return rpctypes.ErrGRPCDuplicateKey
		}
		if end := string(removed.RangeEnd); end != "" {
			for key := range puts {
				if key >= string(removed.Key) && (end == "\x00" || key < end) {
					return rpctypes.ErrGRPCDuplicateKey
				}
			}
		}
	}
	return nil
}

// Compact implements pb.KVServer.
func (m *Memory) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	m.mu.Lock()
	done, err := m.kv.Compact(traceutil.TODO(), r.Revision)
	m.mu.Unlock()
	if err == nil && r.Physical {
		<-done
	}
	return &pb.CompactionResponse{Header: m.header()}, wire(err)
}

// CompactAll compacts the whole history, as servers do occasionally.
func (m *Memory) CompactAll(t testing.TB) {
	t.Helper()
	if _, err := m.Compact(t.Context(), &pb.CompactionRequest{Revision: m.kv.Rev(), Physical: true}); err != nil {
		t.Fatal(err)
	}
}

// wire returns an error as the server sends it; the client recognizes no other form.
func wire(err error) error {
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, mvcc.ErrFutureRev):
		return rpctypes.ErrGRPCFutureRev
	case errors.Is(err, lease.ErrLeaseNotFound):
		return rpctypes.ErrGRPCLeaseNotFound
	case errors.Is(err, lease.ErrLeaseExists):
		return rpctypes.ErrGRPCLeaseExist
	case errors.Is(err, lease.ErrLeaseTTLTooLarge):
		return rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	return err
}
