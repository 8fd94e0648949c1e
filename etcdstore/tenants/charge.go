package tenants

import (
	"context"
	"math/rand/v2"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/delay"
	"croft/tenant"
)

// charging is one record that is written together with what its project is charged for it.
type charging struct {
	project croft.Project
	amounts tenant.Amounts
	record  string // key of the record, which must be absent
	entry   string // key of an entry that says the same
	write   []clientv3.Op
	what    string // for errors

	// still returns an error if nothing may be written any more; nil: it always may. It is asked after the record of
	// the project was read, which the transaction compares, and so holds in the transaction too.
	still func(context.Context) error
}

// writeCharged writes a record with its charge in one transaction. False: there is such a record already. OverQuota:
// the error holds a *tenant.Refusal.
func (s *Projects) writeCharged(ctx context.Context, w charging) (written bool, err error) {
	for settled := false; ; {
		c, err := s.readChain(ctx, w.project)
		if err != nil {
			return false, err
		}
		if w.still != nil {
			if err := w.still(ctx); err != nil {
				return false, err
			}
		}
		if err := tenant.Admit(c.accounts(), c.defaults.Limits, w.amounts); err != nil {
			if settled {
				return false, err
			}
			if err := s.settle(ctx); err != nil { // others may have given something back
				return false, err
			}
			settled = true
			continue
		}
		compares, ops := s.keys().chargeOnce(c, w)
		done, err := s.conn.Etcd.Txn(ctx).If(append(compares, kv.Absent(w.record))...).Then(append(ops, w.write...)...).
			Else(clientv3.OpGet(w.record, clientv3.WithCountOnly())).Commit()
		if err != nil {
			return false, s.conn.Wrap(err, "%s", w.what)
		}
		if done.Succeeded || done.Responses[0].GetResponseRange().Count > 0 {
			return done.Succeeded, nil
		}
		settled = false
		if err := delay.For(ctx, rand.N(admitPause)); err != nil { // another process was faster
			return false, s.conn.Wrap(err, "%s", w.what)
		}
	}
}

// chargeOnce returns the part of a transaction that charges a chain: its counters, or an entry where nothing is
// limited, so that nobody waits.
func (k Keys) chargeOnce(c *chain, w charging) ([]clientv3.Cmp, []clientv3.Op) {
	if c.unlimited() {
		return k.uncounted(c), []clientv3.Op{clientv3.OpPut(w.entry, kv.Encode(tenant.Amounts{}.Minus(w.amounts)))}
	}
	_, ops := k.charge(c, w.amounts)
	return k.compares(c), ops
}
