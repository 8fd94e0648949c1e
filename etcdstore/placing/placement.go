package placing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"croft/etcdstore/internal/kv"
	"croft/placement/ledger"
	"croft/placement/transfer"
)

// Placement stores the state of the embedded Placement below the home partition. Each writing transaction also writes
// the head; the head's revision shows readers up to which revision there are changes.
type Placement struct {
	conn         *kv.Conn
	limit        int
	watching     func() (end func())
	disconnected func(ctx context.Context) error
}

var _ ledger.Store = (*Placement)(nil)

// NewPlacement makes a Placement for transactions of at most limit operations. watching is called for each watch;
// disconnected returns as soon as no server can be reached.
func NewPlacement(c *kv.Conn, limit int, watching func() (end func()),
	disconnected func(ctx context.Context) error) *Placement {
	return &Placement{c, limit, watching, disconnected}
}

// Keys builds the keys of Placement; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

// All returns the prefix of all keys.
func (k Keys) All() string  { return string(k) + "placement/" }
func (k Keys) head() string { return k.All() + "head" }
func (k Keys) entry(kind ledger.Kind, id string) string {
	return k.All() + string(kind) + "/" + id
}

func (p *Placement) keys() Keys { return Keys(p.conn.Prefix) }

// Limit implements ledger.Store. The head takes a read and a write from the limit.
func (p *Placement) Limit() int { return p.limit - 2 }

// Load implements ledger.Store. It reads all pages at the revision of the first page.
func (p *Placement) Load(ctx context.Context) (ledger.Snapshot, error) { return p.loadAt(ctx, 0) }

func (p *Placement) loadAt(ctx context.Context, revision int64) (ledger.Snapshot, error) {
	out := ledger.Snapshot{Revision: revision}
	prefix := p.keys().All()
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		got, err := p.conn.Etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(kv.PageSize),
			clientv3.WithRev(out.Revision))
		if err != nil {
			return out, p.conn.Wrap(err, "read the state of Placement")
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
			if p.conn.Newer() { // otherwise no entry has unknown fields, and decoding the entries would be useless
				for _, e := range out.Entries {
					p.keepUnknown(e)
				}
			}
			return out, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// ReadAt returns the state at a revision of etcd.
func (p *Placement) ReadAt(ctx context.Context, revision int64) (*transfer.State, error) {
	return (&ledger.Archive{Store: placementAt{p, revision}}).Read(ctx, func(string, int, int) {})
}

// placementAt reads the state at a revision.
type placementAt struct {
	*Placement
	revision int64
}

// Load implements ledger.Store.
func (p placementAt) Load(ctx context.Context) (ledger.Snapshot, error) {
	return p.loadAt(ctx, p.revision)
}

// keepUnknown makes later writes of an entry keep the fields that a newer program added to it.
func (p *Placement) keepUnknown(e ledger.Entry) {
	if as := ledger.StoredForm(e.Kind); as != nil && !e.Deleted {
		p.conn.KeepUnknown([]byte(p.keys().entry(e.Kind, e.ID)), e.Value, as)
	}
}

// key splits a key below the prefix into kind and ID; false for the head.
func (p *Placement) key(key []byte) (ledger.Key, bool) {
	kind, id, ok := strings.Cut(strings.TrimPrefix(string(key), p.keys().All()), "/")
	return ledger.Key{Kind: ledger.Kind(kind), ID: id}, ok
}

// Watch implements ledger.Store.
func (p *Placement) Watch(ctx context.Context, after int64, changed func(int64, []ledger.Entry)) error {
	ctx, end := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var work sync.WaitGroup
	defer work.Wait()
	defer end(nil) // also ends the watch at the server
	defer p.watching()()
	work.Go(func() { end(p.disconnected(ctx)) })
	answers := p.conn.Etcd.Watch(ctx, p.keys().All(), clientv3.WithPrefix(), clientv3.WithRev(after+1))
	for answer := range answers {
		if err := answer.Err(); err != nil {
			return p.conn.Wrap(err, "watch the state of Placement")
		}
		for events := answer.Events; len(events) > 0; {
			revision, n := events[0].Kv.ModRevision, 0
			var entries []ledger.Entry
			for ; n < len(events) && events[n].Kv.ModRevision == revision; n++ {
				if key, ok := p.key(events[n].Kv.Key); ok {
					e := ledger.Entry{Key: key, Value: events[n].Kv.Value,
						Created: events[n].Kv.CreateRevision, Modified: revision,
						Deleted: events[n].Type == clientv3.EventTypeDelete}
					p.keepUnknown(e)
					entries = append(entries, e)
				}
			}
			changed(revision, entries)
			events = events[n:]
		}
	}
	return p.conn.Wrap(cmp.Or(context.Cause(ctx), clientv3.ErrNoAvailableEndpoints), "watch the state of Placement")
}

// Commit implements ledger.Store.
func (p *Placement) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	load, refused := LoadOf(t.Riders)
	if len(refused) > 0 {
		return ledger.Outcome{Refused: refused}, nil
	}
	k := p.keys()
	head := k.head()
	compares := make([]clientv3.Cmp, len(t.If), len(t.If)+len(load.If))
	for i, c := range t.If {
		key := k.entry(c.Kind, c.ID)
		if c.Created {
			compares[i] = clientv3.Compare(clientv3.CreateRevision(key), "=", c.Revision)
		} else {
			compares[i] = kv.Unchanged(key, c.Revision)
		}
	}
	then := make([]clientv3.Op, 0, len(t.Then)+len(load.Then)+2)
	then = append(then, clientv3.OpGet(head))
	for _, w := range t.Then {
		key := k.entry(w.Kind, w.ID)
		if w.Delete {
			then = append(then, clientv3.OpDelete(key))
		} else {
			then = append(then, clientv3.OpPut(key, string(w.Value)))
		}
	}
	nonce := uuid.NewString()
	if then = append(then, load.Then...); len(t.Then) > 0 {
		then = append(then, clientv3.OpPut(head, nonce))
	}
	got, err := p.conn.Etcd.Txn(ctx).If(append(compares, load.If...)...).Then(then...).
		Else(clientv3.OpGet(head)).Commit()
	if err != nil {
		if err = p.refusal(p.conn.Wrap(err, "write the state of Placement")); errors.Is(err, ledger.ErrTooLarge) {
			load.Unsent()
		}
		return ledger.Outcome{}, err
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
	case string(last) == nonce: // the transport sent it twice, and the first one was done
		out.Done = true
	}
	if out.Done {
		load.Done(out.Revision)
		return out, nil
	}
	found, err := p.readAt(ctx, got.Header.Revision, load.Otherwise)
	if err != nil { // the riders settle this: the transport may have sent the transaction twice
		return out, err
	}
	out.Refused, err = load.Failed(found)
	return out, err
}

// readAt does the reads of a transaction that was not done. They are not part of that transaction, because for each
// transaction that is done, they would be written to the disks of all members.
func (p *Placement) readAt(ctx context.Context, revision int64, reads []clientv3.Op) ([]*etcdserverpb.ResponseOp,
	error) {
	if len(reads) == 0 {
		return nil, nil
	}
	for i := range reads {
		clientv3.WithRev(revision)(&reads[i])
	}
	got, err := p.conn.Etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, p.conn.Wrap(err, "read why the state of Placement was not written")
	}
	return got.Responses, nil
}

// refusal recognizes that etcd, or the transport, refused a transaction because of its size.
func (p *Placement) refusal(err error) error {
	_, fromEtcd := errors.AsType[rpctypes.EtcdError](err)
	if errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		!fromEtcd && status.Code(err) == codes.ResourceExhausted {
		return fmt.Errorf("%w: %w", ledger.ErrTooLarge, err)
	}
	return err
}
