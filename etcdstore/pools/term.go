package pools

import (
	"context"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/pool"
	"croft/tenant"
)

// term is the term of the leader whose key was created at revision. Each of its transactions rewrites the head and
// compares that the head is unchanged since the previous transaction. So, once a later transaction is done, a
// transaction of unknown outcome either has been done or never will be: it cannot undo later writes, and its charges
// are made only once.
type term struct {
	*Pools
	revision int64

	mu      sync.Mutex
	begun   bool // the following fields are set, after the first read
	limit   int  // maximum number of operations in a transaction
	head    storedHead
	headAt  int64            // revision of the head; 0: the head does not exist
	balance *tenants.Balance // of the written records
	unknown *unsettled       // a transaction of unknown outcome; nil: none
}

// storedHead is the value of the head.
type storedHead struct {
	pool.Head

	// number of the transaction that wrote it; each attempted transaction has its own
	Attempt int64 `json:"attempt,omitempty"`
}

// unsettled is the number of a transaction, and the charges of its records.
type unsettled struct {
	number  int64
	charges map[string]tenants.Charge
}

// next returns the head for the next transaction.
func (t *term) next() storedHead {
	t.head.Attempt++
	return t.head
}

// Load implements pool.Term.
func (t *term) Load(ctx context.Context) (pool.Snapshot, error) {
	from, head, headAt, err := t.read(ctx)
	if err != nil {
		return from, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin(from, head, headAt)
	return from, nil
}

// read reads the whole state. It reads all pages at the revision of the first page.
func (t *term) read(ctx context.Context) (from pool.Snapshot, head storedHead, headAt int64, err error) {
	const what = "read the pools"
	got, err := t.conn.Etcd.Get(ctx, t.keys.head())
	if err != nil {
		return from, head, 0, t.conn.Wrap(err, what)
	}
	for _, stored := range got.Kvs {
		if err := t.conn.Decode(stored.Key, stored.Value, &head); err != nil {
			return from, head, 0, err
		}
		headAt = stored.ModRevision
	}
	from.Head = head.Head
	revision := got.Header.Revision
	if from.Pools, err = kv.ReadAll[pool.Record](ctx, t.conn, what, t.keys.Records(), revision); err != nil {
		return from, head, 0, err
	}
	if from.Resources, err = kv.ReadAll[pool.Resource](ctx, t.conn, what, t.keys.resources(), revision); err != nil {
		return from, head, 0, err
	}
	from.Tickets, err = kv.ReadAll[pool.Ticket](ctx, t.conn, what, t.keys.Tickets(), revision)
	return from, head, headAt, err
}

// begin takes the read state as the current state, unless this term has already written. The caller holds the mutex.
func (t *term) begin(from pool.Snapshot, head storedHead, headAt int64) {
	if t.begun {
		return
	}
	t.begun, t.head, t.headAt = true, head, headAt
	charged := map[string]tenants.Charge{}
	for _, p := range from.Pools {
		charged[t.keys.record(p.Settings.Name)] = chargeOfPool(p)
	}
	for _, ticket := range from.Tickets {
		charged[t.keys.ticket(ticket.ID)] = chargeOfTicket(ticket)
	}
	t.balance.Written(charged)
}

// chargeOfTicket returns the charge for a ticket, until it ends.
func chargeOfTicket(t pool.Ticket) tenants.Charge {
	if t.State != pool.TicketOpen {
		return tenants.Charge{}
	}
	return tenants.Charge{Project: t.Project, Amounts: tenant.Amounts{tenant.CountTickets: 1}}
}

// chargeOfPool returns the charge for a pool, until its last resource is deleted.
func chargeOfPool(p pool.Record) tenants.Charge {
	return tenants.Charge{Project: p.Settings.Project, Amounts: tenant.Amounts{tenant.CountPools: 1}}
}

// Charged returns the sources of the charges for stored pools and tickets.
func Charged(c *kv.Conn, k Keys) []tenants.Source {
	return []tenants.Source{
		{Prefix: k.Records(), Charge: func(key, value []byte) (tenants.Charge, error) {
			var p pool.Record
			err := c.Decode(key, value, &p)
			return chargeOfPool(p), err
		}},
		{Prefix: k.Tickets(), Charge: func(key, value []byte) (tenants.Charge, error) {
			var t pool.Ticket
			err := c.Decode(key, value, &t)
			return chargeOfTicket(t), err
		}},
	}
}

// change is one operation of a batch.
type change struct {
	op     clientv3.Op
	counts bool // its record has the charge in the field charge from now on
	charge tenants.Charge
}

const (
	// maxBytes is the maximum number of bytes that one transaction writes: etcd's servers accept 1.5 MiB by default.
	maxBytes = 1 << 20
	// maxCharged is the maximum number of projects that one transaction charges, because each adds conditions.
	maxCharged = 5
)

// Commit implements pool.Term.
func (t *term) Commit(ctx context.Context, b pool.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.begun {
		from, head, headAt, err := t.read(ctx)
		if err != nil {
			return err
		}
		t.begin(from, head, headAt)
	}
	if t.limit == 0 {
		limit, err := t.reach.MaxTxnOps(ctx)
		if err != nil {
			return err
		}
		t.limit = limit
	}
	changes := t.changes(b)
	if b.Head != nil {
		t.head.Head = *b.Head // the first transaction writes it
	} else if len(changes) == 0 {
		return nil
	}
	for first := true; first || len(changes) > 0; first = false {
		n := t.fitting(changes)
		if err := t.write(ctx, changes[:n]); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

// fitting returns how many changes fit in one transaction.
func (t *term) fitting(changes []change) int {
	size, charged := 0, map[croft.Project]bool{}
	for i, c := range changes {
		size += len(c.op.KeyBytes()) + len(c.op.ValueBytes())
		if c.counts {
			for _, name := range t.balance.Touched(string(c.op.KeyBytes()), c.charge) {
				charged[name] = true
			}
		}
		if i+1+maxCharged >= t.limit || i > 0 && (size > maxBytes || len(charged) > maxCharged) {
			return max(i, 1)
		}
	}
	return len(changes)
}

// changes returns the operations of a batch, in the order required by pool.Batch.
func (t *term) changes(b pool.Batch) (all []change) {
	put := func(key string, v any) change { return change{op: clientv3.OpPut(key, kv.Encode(v))} }
	counted := func(c change, charge tenants.Charge) change {
		c.counts, c.charge = true, charge
		return c
	}
	for _, p := range b.Pools {
		all = append(all, counted(put(t.keys.record(p.Settings.Name), p), chargeOfPool(p)))
	}
	ended, open := b.TicketsByEnd()
	for _, ticket := range ended {
		all = append(all, counted(put(t.keys.ticket(ticket.ID), ticket), chargeOfTicket(ticket)))
	}
	for _, r := range b.Resources {
		all = append(all, put(t.keys.resource(r.ID), r))
	}
	for _, ticket := range open {
		all = append(all, counted(put(t.keys.ticket(ticket.ID), ticket), chargeOfTicket(ticket)))
	}
	gone := func(key string) change { return counted(change{op: clientv3.OpDelete(key)}, tenants.Charge{}) }
	for _, id := range b.GoneTickets {
		all = append(all, gone(t.keys.ticket(id)))
	}
	for _, id := range b.GoneResources {
		all = append(all, change{op: clientv3.OpDelete(t.keys.resource(id))})
	}
	for _, name := range b.GonePools {
		all = append(all, gone(t.keys.record(name)))
	}
	return all
}

// write commits one transaction of the leader.
func (t *term) write(ctx context.Context, changes []change) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	var ops []clientv3.Op
	charges := map[string]tenants.Charge{}
	for _, c := range changes {
		if ops = append(ops, c.op); c.counts {
			charges[string(c.op.KeyBytes())] = c.charge
		}
	}
	for {
		head := t.next()
		// unique: no two transactions that are done replace the same head
		compares, more, err := t.balance.Charge(ctx, "round-"+strconv.FormatInt(t.headAt, 10), charges)
		if err != nil {
			return err
		}
		written, err := t.commit(ctx, head, compares, append(more, ops...), charges)
		if written || err != nil {
			return err
		}
		t.balance.Stale() // a project was added to or removed from a chain
	}
}

// commit tries one transaction. False: the conditions of the charges are not met.
func (t *term) commit(ctx context.Context, head storedHead, compares []clientv3.Cmp, ops []clientv3.Op,
	charges map[string]tenants.Charge) (written bool, err error) {
	done, err := t.replace(ctx, head, compares, ops...)
	if err != nil {
		t.unknown = &unsettled{head.Attempt, charges}
		return false, err
	}
	if done.Succeeded {
		t.headAt = done.Header.Revision
		t.balance.Written(charges)
		return true, nil
	}
	stored := kv.First(done.Responses[1])
	if !t.lasts(done) || stored != nil && stored.ModRevision != t.headAt || stored == nil && t.headAt != 0 {
		return false, replaced()
	}
	return false, nil
}

// replace writes the head, and does more, if this term lasts and the head is unchanged since the previous transaction.
func (t *term) replace(ctx context.Context, head storedHead, compares []clientv3.Cmp,
	ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	key := t.keys.head()
	leads := clientv3.Compare(clientv3.CreateRevision(t.keys.leader()), "=", t.revision)
	done, err := t.conn.Etcd.Txn(ctx).If(append(compares, leads, kv.Unchanged(key, t.headAt))...).
		Then(append([]clientv3.Op{clientv3.OpPut(key, kv.Encode(head))}, ops...)...).
		Else(clientv3.OpGet(t.keys.leader()), clientv3.OpGet(key)).Commit()
	if err != nil {
		return nil, t.conn.Wrap(err, "write the state of the pools")
	}
	return done, nil
}

// lasts reports whether this term lasts, according to the answer to a transaction that was not done.
func (t *term) lasts(answer *clientv3.TxnResponse) bool {
	leader := kv.First(answer.Responses[0])
	return leader != nil && leader.CreateRevision == t.revision
}

func replaced() error {
	return croft.Errorf(croft.Conflict, "write the state of the pools: another server acts for them now")
}

// settle finds out whether a transaction of unknown outcome was done, by means of a transaction after which that one
// cannot be done any more. The outcome of the latter may be unknown too: the number in the head tells which transaction
// was done.
func (t *term) settle(ctx context.Context) error {
	if t.unknown == nil {
		return nil
	}
	done, err := t.replace(ctx, t.next(), nil)
	if err != nil {
		return err
	}
	if done.Succeeded {
		t.headAt, t.unknown = done.Header.Revision, nil
		return nil
	}
	stored := kv.First(done.Responses[1])
	if !t.lasts(done) || stored == nil {
		return replaced()
	}
	var head storedHead
	if err := t.conn.Decode(stored.Key, stored.Value, &head); err != nil {
		return err
	}
	if head.Attempt == t.unknown.number {
		t.balance.Written(t.unknown.charges)
	}
	t.headAt, t.unknown = stored.ModRevision, nil
	return nil
}
