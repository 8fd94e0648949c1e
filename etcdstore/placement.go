package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"croft/etcdstore/etcdserver"
	"croft/etcdstore/internal/kv"
	"croft/placement/ledger"
	"croft/placement/transfer"
)

// DefaultTxnOps is etcd's default limit on the operations of one transaction (--max-txn-ops).
const DefaultTxnOps = 128

// Placement stores the state of the embedded Placement below the home partition. Each transaction that writes
// also writes the head; its revision shows readers up to where there are changes.
type Placement struct {
	conn  *conn
	limit int
}

var _ ledger.Store = (*Placement)(nil)

// Placement returns the store of the Placement API. maxTxnOps is the limit configured in the etcd servers; 0 is
// DefaultTxnOps.
func (s *conn) Placement(maxTxnOps int) *Placement {
	return &Placement{conn: s, limit: cmp.Or(maxTxnOps, DefaultTxnOps)}
}

// MaxTxnOps probes how many operations the servers allow in one transaction, up to etcdserver.TxnOps, which is
// enough. The servers do not report the limit, but refuse what exceeds it.
func (s *conn) MaxTxnOps(ctx context.Context) (int, error) {
	always := clientv3.Compare(clientv3.Version(homeKey), ">", -1)
	var failed error
	allowed := func(n int) bool {
		_, err := s.etcd.Txn(ctx).If(slices.Repeat([]clientv3.Cmp{always}, n)...).Commit()
		if err != nil && !errors.Is(err, rpctypes.ErrTooManyOps) {
			failed = err
		}
		return err == nil
	}
	if allowed(etcdserver.TxnOps) {
		return etcdserver.TxnOps, nil
	}
	n := sort.Search(etcdserver.TxnOps, func(n int) bool { return failed != nil || !allowed(n+1) })
	if failed != nil {
		return 0, s.wrap(failed, "learn the limit of transactions")
	}
	return n, nil
}

// Limit implements ledger.Store. The head takes a read and a write from the limit.
func (p *Placement) Limit() int { return p.limit - 2 }

// Load implements ledger.Store: all pages are read at the revision of the first.
func (p *Placement) Load(ctx context.Context) (ledger.Snapshot, error) { return p.loadAt(ctx, 0) }

func (p *Placement) loadAt(ctx context.Context, revision int64) (ledger.Snapshot, error) {
	out := ledger.Snapshot{Revision: revision}
	prefix := p.conn.keys.placement()
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		got, err := p.conn.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(kv.PageSize),
			clientv3.WithRev(out.Revision))
		if err != nil {
			return out, p.conn.wrap(err, "read the state of Placement")
		}
		if out.Revision == 0 {
			out.Revision = got.Header.Revision
		}
		for _, kv := range got.Kvs {
			if key, ok := p.key(kv.Key); ok {
				out.Entries = append(out.Entries, ledger.Entry{Key: key, Value: kv.Value, Created: kv.CreateRevision,
					Modified: kv.ModRevision})
			}
		}
		if !got.More {
			return out, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// readAt returns the state as of a revision.
func (p *Placement) readAt(ctx context.Context, revision int64) (*transfer.State, error) {
	return (&ledger.Archive{Store: placementAt{p, revision}}).Read(ctx, func(string, int, int) {})
}

// placementAt reads the state as of a revision.
type placementAt struct {
	*Placement
	revision int64
}

// Load implements ledger.Store.
func (p placementAt) Load(ctx context.Context) (ledger.Snapshot, error) {
	return p.loadAt(ctx, p.revision)
}

// key splits a key below the prefix into kind and ID; false for the head.
func (p *Placement) key(key []byte) (ledger.Key, bool) {
	kind, id, ok := strings.Cut(strings.TrimPrefix(string(key), p.conn.keys.placement()), "/")
	return ledger.Key{Kind: ledger.Kind(kind), ID: id}, ok
}

// Watch implements ledger.Store.
func (p *Placement) Watch(ctx context.Context, after int64, changed func(int64, []ledger.Entry)) error {
	ctx, end := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var work sync.WaitGroup
	defer work.Wait()
	defer end(nil) // also ends the watch at the server
	defer p.conn.watching()()
	work.Go(func() { end(p.conn.disconnected(ctx)) })
	answers := p.conn.etcd.Watch(ctx, p.conn.keys.placement(), clientv3.WithPrefix(), clientv3.WithRev(after+1))
	for answer := range answers {
		if err := answer.Err(); err != nil {
			return p.conn.wrap(err, "watch the state of Placement")
		}
		for events := answer.Events; len(events) > 0; {
			revision, n := events[0].Kv.ModRevision, 0
			var entries []ledger.Entry
			for ; n < len(events) && events[n].Kv.ModRevision == revision; n++ {
				if key, ok := p.key(events[n].Kv.Key); ok {
					entries = append(entries, ledger.Entry{Key: key, Value: events[n].Kv.Value,
						Created: events[n].Kv.CreateRevision, Modified: revision,
						Deleted: events[n].Type == clientv3.EventTypeDelete})
				}
			}
			changed(revision, entries)
			events = events[n:]
		}
	}
	return p.conn.wrap(cmp.Or(context.Cause(ctx), clientv3.ErrNoAvailableEndpoints), "watch the state of Placement")
}

// Commit implements ledger.Store.
func (p *Placement) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	k := p.conn.keys
	head := k.placementHead()
	compares := make([]clientv3.Cmp, len(t.If))
	for i, c := range t.If {
		key := k.placementEntry(c.Kind, c.ID)
		if c.Created {
			compares[i] = clientv3.Compare(clientv3.CreateRevision(key), "=", c.Revision)
		} else {
			compares[i] = unchanged(key, c.Revision)
		}
	}
	then := make([]clientv3.Op, 0, len(t.Then)+2)
	then = append(then, clientv3.OpGet(head))
	for _, w := range t.Then {
		key := k.placementEntry(w.Kind, w.ID)
		if w.Delete {
			then = append(then, clientv3.OpDelete(key))
		} else {
			then = append(then, clientv3.OpPut(key, string(w.Value)))
		}
	}
	nonce := uuid.NewString()
	if len(t.Then) > 0 {
		then = append(then, clientv3.OpPut(head, nonce))
	}
	got, err := p.conn.etcd.Txn(ctx).If(compares...).Then(then...).Else(clientv3.OpGet(head)).Commit()
	if err != nil {
		return ledger.Outcome{}, p.refusal(p.conn.wrap(err, "write the state of Placement"))
	}
	out := ledger.Outcome{Done: got.Succeeded}
	var last []byte
	if kvs := got.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		out.Before, last = kvs[0].ModRevision, kvs[0].Value
	}
	out.Revision = out.Before
	switch {
	case out.Done && len(t.Then) > 0:
		out.Revision = got.Header.Revision
	case string(last) == nonce: // sent twice by the transport, and done the first time
		out.Done = true
	}
	return out, nil
}

// refusal recognises a transaction that etcd, or the transport, refused for its size.
func (p *Placement) refusal(err error) error {
	_, fromEtcd := errors.AsType[rpctypes.EtcdError](err)
	if errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		!fromEtcd && code(err) == codes.ResourceExhausted {
		return fmt.Errorf("%w: %w", ledger.ErrTooLarge, err)
	}
	return err
}
