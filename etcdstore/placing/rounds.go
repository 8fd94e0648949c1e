// Package placing writes instances in the transactions in which the ledger of croft's own Placement claims for them:
// claim, record, name, charge of the project, order, memberships and seats are written together or not at all. Requests
// that arrive during one transaction share the next.
package placing

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/internal/delay"
	"croft/placement/ledger"
)

// Sessions creates and ends the sessions of this process.
type Sessions struct {
	// Begin returns the session, and creates it if necessary.
	Begin func(ctx context.Context) (session string, lease clientv3.LeaseID, err error)
	// Retire lets a session expire, so that the next Begin creates another one.
	Retire func(session string)
	Key    func(session string) string
}

// BatchWriter writes instances through one ledger.
type BatchWriter struct {
	conn     *kv.Conn
	ledger   *ledger.Ledger
	charges  *tenants.Charges
	sessions Sessions

	mu      sync.Mutex
	current session
}

// session is the key of a session, which every transaction compares. After the key is deleted, all transactions under
// it are settled: they are done, or never will be.
type session struct {
	name    string
	created int64 // revision
}

// New makes a Rounds. The Store of the ledger must be the Placement on the same etcd.
func New(c *kv.Conn, l *ledger.Ledger, p *tenants.Projects, s Sessions) *BatchWriter {
	return &BatchWriter{conn: c, ledger: l, charges: tenants.NewCharges(p), sessions: s}
}

// Piece is the part of a transaction that writes one instance, except for claim and charge.
type Piece struct {
	Record    string // key of the record
	If        []clientv3.Cmp
	Then      []clientv3.Op
	Otherwise []clientv3.Op
	// Alone lists names that only one piece of a transaction may have.
	Alone []string
	// Mine reports whether a stored record is the one that Then writes, even if it was changed since.
	Mine func(record []byte) bool
	// Refused returns the error for the comparison of If that did not hold, determined from the record, which may be
	// nil, and the answers to Otherwise; nil: they all hold.
	Refused func(record *mvccpb.KeyValue, answers []*etcdserverpb.ResponseOp) error
}

// rider is a request that is being written.
type rider struct {
	rounds  *BatchWriter
	inst    croft.Instance
	piece   Piece
	session session
	// The result of the last transaction. Only the store may access it until ChangeWith returns.
	unsure   bool // it is unknown whether the transaction was done
	revision int64
}

// Size implements ledger.Rider. It includes the comparison of the record, and the ones that are shared with other
// riders of the session and the project.
func (r *rider) Size() int { return max(len(r.piece.If)+4, len(r.piece.Then)+1) }

// Alone implements ledger.Rider.
func (r *rider) Alone() []string { return r.piece.Alone }

// claimRules are the rules of the newest microversion of Placement.
var claimRules = ledger.ClaimRules{Generations: true, Types: true,
	Refuse: func(text string) error { return croft.Errorf(croft.Invalid, "%s", text) }}

// Write claims and writes an instance, and returns the revision of its record. OverQuota: the error holds a
// *tenant.Refusal. *ledger.Error: the claim was refused. Other errors come from Piece.Refused, or are Unavailable: etcd
// does not answer. After an error nothing was written, and nothing will be, unless the error says that the outcome is
// unknown: then it may be written until the session has expired.
func (r *BatchWriter) Write(ctx context.Context, inst croft.Instance, claim ledger.ClaimRequest, p Piece) (int64,
	error) {
	if err := r.charges.MayGrow(ctx, inst); err != nil {
		return 0, err
	}
	var unread patience
	for {
		now, err := r.session(ctx)
		if err != nil {
			return 0, err
		}
		one := &rider{rounds: r, inst: inst, piece: p, session: now}
		err = r.ledger.ChangeWith(ctx, one, func(t *ledger.Tx) error { return t.Claim(claimRules, claim) })
		switch {
		case one.revision != 0: // even if the ledger has not read the change in time
			return one.revision, nil
		case one.unsure:
			return r.settle(ctx, one, err)
		case errors.Is(err, tenants.ErrUnread):
			if err = r.charges.Check(ctx, inst); err == nil {
				err = unread.wait(ctx)
			}
		case errors.Is(err, tenants.ErrUnsettled):
			err = r.charges.SettleNow(ctx)
		case errors.Is(err, errNoSession):
			r.sessions.Retire(now.name)
			err = nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// patience slows down a request whose transaction is repeatedly refused because of data that was just read: the first
// retry is immediate, and later ones wait longer each time.
type patience time.Duration

// mostPatience is the maximum of one wait.
const mostPatience = 100 * time.Millisecond

func (p *patience) wait(ctx context.Context) error {
	pause := time.Duration(*p)
	*p = patience(min(max(2*pause, time.Millisecond), mostPatience))
	return delay.For(ctx, pause)
}

// errNoSession reports that the key of the session was deleted, for example after a pause of this machine.
var errNoSession = errors.New("the session is gone")

// session returns the current session, with its key.
func (r *BatchWriter) session(ctx context.Context) (session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, lease, err := r.sessions.Begin(ctx)
	if err != nil || name == r.current.name {
		return r.current, err
	}
	key := r.sessions.Key(name)
	done, err := r.conn.Etcd.Txn(ctx).Then(clientv3.OpPut(key, "", clientv3.WithLease(lease)),
		clientv3.OpGet(key)).Commit()
	if err != nil {
		r.sessions.Retire(name)
		return session{}, r.conn.Wrap(err, "begin a session")
	}
	r.current = session{name, kv.First(done.Responses[1]).CreateRevision}
	return r.current, nil
}

// settleTime is the time limit of the fence.
const settleTime = 5 * time.Second

// settle finds out the outcome of a request whose outcome is unknown. It fences by deleting the key of the request's
// session, which the transaction compares.
func (r *BatchWriter) settle(ctx context.Context, one *rider, cause error) (int64, error) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	r.sessions.Retire(one.session.name)
	done, err := r.conn.Etcd.Txn(after).Then(clientv3.OpDelete(r.sessions.Key(one.session.name)),
		clientv3.OpGet(one.piece.Record)).Commit()
	if err != nil {
		return 0, croft.Errorf(croft.Unavailable, "whether it was done is not known, because etcd stopped answering: look "+
			"for instance %s before you try again: %v; %w", one.inst.ID, cause, r.conn.Wrap(err, "settle it"))
	}
	if record := kv.First(done.Responses[1]); record != nil && one.piece.Mine(record.Value) {
		return record.ModRevision, nil
	}
	return 0, croft.Errorf(croft.Unavailable, "etcd did not answer, and nothing was written: %v", cause)
}
