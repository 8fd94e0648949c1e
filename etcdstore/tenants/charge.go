package tenants

import (
	"context"
	"math/rand/v2"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/delay"
	"croft/tenant"
)

// ChargedWrite is a record that is written together with its charge.
type ChargedWrite struct {
	Project croft.Project
	Amounts tenant.Amounts
	Record  string         // key of the record, which must be absent; empty: only If decides
	ID      string         // differs from the IDs of all other records, past and present
	If      []clientv3.Cmp // further conditions
	Write   []clientv3.Op
	Else    []clientv3.Op // reads for Refused
	What    string        // for errors
	// Refused returns the error for the further condition that is not met; nil: all are met.
	Refused func(answers []*etcdserverpb.ResponseOp) error
}

// Write writes a record with its charge in one transaction, and returns the revision; 0: the record exists already.
// OverQuota: the error holds a *tenant.Refusal.
func (s *Projects) Write(ctx context.Context, w ChargedWrite) (revision int64, err error) {
	return s.writeCharged(ctx, charging{project: w.Project, amounts: w.Amounts, record: w.Record,
		entry: s.keys().entriesOf(w.Project) + w.ID + "/charged", write: w.Write, what: w.What, ifs: w.If,
		otherwise: w.Else, refused: w.Refused})
}

// GiveBack returns the operation that reduces the usage of a project, for the transaction that removes a record. The ID
// must differ from the IDs of all other records.
func (k Keys) GiveBack(c Charge, id string) clientv3.Op {
	return k.repay(c.Project, k.entriesOf(c.Project)+id+"/repaid", c.Amounts)
}

// charging is one record that is written together with its charge.
type charging struct {
	project   croft.Project
	amounts   tenant.Amounts
	record    string // key of the record, which must be absent; empty: only ifs decide
	entry     string // key of an entry for the same charge
	write     []clientv3.Op
	what      string // for errors
	ifs       []clientv3.Cmp
	otherwise []clientv3.Op
	refused   func([]*etcdserverpb.ResponseOp) error // nil: there are no further conditions

	// still returns an error if nothing may be written any more; nil: writing is always allowed. It is called after the
	// record of the project was read. The transaction compares that record, so the result also holds in the
	// transaction.
	still func(context.Context) error
}

// writeCharged writes a record with its charge in one transaction, and returns the revision; 0: the record exists
// already. OverQuota: the error holds a *tenant.Refusal.
func (s *Projects) writeCharged(ctx context.Context, w charging) (revision int64, err error) {
	if err := s.conn.MayGrow(ctx); err != nil {
		return 0, croft.Errorf(croft.KindOf(err), "%s: %w", w.what, err)
	}
	for settled := false; ; {
		c, err := s.readChain(ctx, w.project)
		if err != nil {
			return 0, err
		}
		if w.still != nil {
			if err := w.still(ctx); err != nil {
				return 0, err
			}
		}
		if err := tenant.Admit(c.accounts(), c.defaults.Limits, w.amounts); err != nil {
			if settled {
				return 0, err
			}
			if err := s.settle(ctx); err != nil { // other usage may have ended meanwhile
				return 0, err
			}
			settled = true
			continue
		}
		compares, ops := s.keys().chargeOnce(c, w)
		compares, reads := append(compares, w.ifs...), w.otherwise
		if w.record != "" {
			compares = append(compares, kv.Absent(w.record))
			reads = append([]clientv3.Op{clientv3.OpGet(w.record, clientv3.WithCountOnly())}, reads...)
		}
		done, err := s.conn.Etcd.Txn(ctx).If(compares...).Then(append(ops, w.write...)...).Else(reads...).Commit()
		if err != nil {
			return 0, s.conn.Wrap(err, "%s", w.what)
		}
		if done.Succeeded {
			return done.Header.Revision, nil
		}
		answers := done.Responses
		if w.record != "" {
			if answers[0].GetResponseRange().Count > 0 {
				return 0, nil
			}
			answers = answers[1:]
		}
		if w.refused != nil {
			if err := w.refused(answers); err != nil {
				return 0, err
			}
		}
		settled = false
		if err := delay.For(ctx, rand.N(admitPause)); err != nil { // another process wrote first
			return 0, s.conn.Wrap(err, "%s", w.what)
		}
	}
}

// chargeOnce returns the part of a transaction that charges a chain: it changes the counters, or, if there are no
// limits, writes an entry, so that transactions do not wait for each other.
func (k Keys) chargeOnce(c *chain, w charging) ([]clientv3.Cmp, []clientv3.Op) {
	if c.unlimited(w.amounts) {
		return k.uncounted(c), []clientv3.Op{clientv3.OpPut(w.entry, kv.Encode(tenant.Amounts{}.Minus(w.amounts)))}
	}
	_, ops := k.charge(c, w.amounts)
	return k.compares(c), ops
}
