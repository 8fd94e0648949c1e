package placing

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/placement/ledger"
)

// Load is the addition of the riders of one transaction of the ledger to that transaction.
type Load struct {
	If        []clientv3.Cmp
	Then      []clientv3.Op
	Otherwise []clientv3.Op // reads for Failed, at the revision of the failed transaction

	riders   []*rider
	sessions []session
	charged  *tenants.Charged
}

// LoadOf returns the addition of the riders to a transaction. refused has the riders that cannot be part of it, with
// the reason; if there are any, the transaction must not be sent.
func LoadOf(riders []ledger.Rider) (l *Load, refused map[ledger.Rider]error) {
	l = &Load{}
	if len(riders) == 0 {
		return l, nil
	}
	var insts []croft.Instance
	for _, one := range riders {
		r := one.(*rider) // this store accepts only riders of this type
		l.riders, insts = append(l.riders, r), append(insts, r.inst)
	}
	charged, unread := l.riders[0].rounds.charges.Charge(insts)
	if len(unread) > 0 {
		return nil, l.byID(unread)
	}
	l.charged = charged
	known := map[session]bool{}
	for _, r := range l.riders {
		if !known[r.session] {
			known[r.session] = true
			l.addSession(r.rounds.sessions.Key(r.session.name), r.session)
		}
	}
	for _, r := range l.riders {
		l.If = append(append(l.If, kv.Absent(r.piece.Record)), r.piece.If...)
		l.Then = append(l.Then, r.piece.Then...)
		l.Otherwise = append(append(l.Otherwise, clientv3.OpGet(r.piece.Record)), r.piece.Otherwise...)
		r.unsure = true
	}
	l.If, l.Then = append(l.If, charged.If...), append(l.Then, charged.Then...)
	l.Otherwise = append(l.Otherwise, charged.Otherwise...)
	return l, nil
}

func (l *Load) addSession(key string, s session) {
	l.sessions = append(l.sessions, s)
	l.If = append(l.If, clientv3.Compare(clientv3.CreateRevision(key), "=", s.created))
	l.Otherwise = append(l.Otherwise, clientv3.OpGet(key))
}

// byID returns the errors of instances by rider.
func (l *Load) byID(errs map[croft.InstanceID]error) map[ledger.Rider]error {
	all := map[ledger.Rider]error{}
	for _, r := range l.riders {
		if err := errs[r.inst.ID]; err != nil {
			all[r] = err
		}
	}
	return all
}

// Unsent records that the transaction was refused as a whole, so that its outcome is known.
func (l *Load) Unsent() {
	for _, r := range l.riders {
		r.unsure = false
	}
}

// Done records that the transaction was done at a revision.
func (l *Load) Done(revision int64) {
	for _, r := range l.riders {
		r.unsure, r.revision = false, revision
	}
	if l.charged != nil {
		l.charged.Done(revision)
	}
}

// Failed records that the transaction was not done, and evaluates the answers to Otherwise. refused has the riders that
// must not be part of the next attempt, with the answers to their requests.
func (l *Load) Failed(answers []*etcdserverpb.ResponseOp) (refused map[ledger.Rider]error, err error) {
	l.Unsent()
	if len(l.riders) == 0 {
		return nil, nil
	}
	gone := map[session]bool{}
	for i, s := range l.sessions {
		if key := kv.First(answers[i]); key == nil || key.CreateRevision != s.created {
			gone[s] = true
		}
	}
	answers = answers[len(l.sessions):]
	refused = map[ledger.Rider]error{}
	for _, r := range l.riders {
		n := 1 + len(r.piece.Otherwise)
		record := kv.First(answers[0])
		switch why := r.piece.Refused(record, answers[1:n]); {
		case record != nil && r.piece.Mine(record.Value): // the transport sent it twice, and the first one was done
			r.revision, refused[r] = record.ModRevision, nil
		case why != nil:
			refused[r] = why
		case gone[r.session]:
			refused[r] = errNoSession
		}
		answers = answers[n:]
	}
	unsettled, err := l.charged.Failed(answers)
	for r, err := range l.byID(unsettled) {
		if _, decided := refused[r]; !decided {
			refused[r] = err
		}
	}
	return refused, err
}
