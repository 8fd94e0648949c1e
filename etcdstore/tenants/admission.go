package tenants

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/delay"
	"croft/tenant"
)

// Requests of one process for the same project are admitted together: requests that arrive during a transaction share
// the next one. So within a process a project's counter has one writer at a time, and many requests need fewer
// transactions than if each wrote its own record.

const (
	// maxAdmitted and maxAdmittedBytes limit one transaction: etcd allows DefaultTxnOps operations and comparisons, and
	// 1.5 MiB. maxAdmitted counts comparisons: three for each instance and two for each of its MACs.
	maxAdmitted      = 116
	maxAdmittedBytes = 768 << 10
	// maxLines is the maximum number of projects whose counters are cached.
	maxLines = 256
)

// Records holds the functions that write the records of instances.
type Records struct {
	// Session returns the session of this process, and creates it if necessary.
	Session func(ctx context.Context) (session string, lease clientv3.LeaseID, err error)
	// Lost is called when the outcome of a transaction under a session is unknown.
	Lost func(err error, session string, lease clientv3.LeaseID)
	// Keys returns the keys of an instance's record and name; SessionKey returns the key of a session.
	Keys       func(inst croft.Instance) (record, name string)
	SessionKey func(session string) string
	// MACs returns the comparisons that no other instance has the MACs of an instance, and reads of the instances that
	// have each MAC.
	MACs func(inst croft.Instance) (free []clientv3.Cmp, reads []clientv3.Op)
	// Write returns the operations that write the record and its keys.
	Write func(inst croft.Instance) []clientv3.Op
}

// Admissions admits requests: it writes the records of instances together with the charges of their projects.
type Admissions struct {
	*Projects
	records Records
	work    *sync.WaitGroup // counts the goroutines that serve lines

	mu    sync.Mutex
	lines map[croft.Project]*admissionLine
}

// NewAdmissions makes an Admissions. work counts its goroutines.
func NewAdmissions(p *Projects, r Records, work *sync.WaitGroup) *Admissions {
	return &Admissions{Projects: p, records: r, work: work}
}

type admissionLine struct {
	waiting []*admission
	busy    bool   // a goroutine serves the line, and owns the following fields
	chain   *chain // as last read; nil: unknown
}

// admission is one request to write a record.
type admission struct {
	ctx      context.Context
	inst     croft.Instance
	done     chan struct{}
	revision int64 // of the record
	session  string
	err      error
}

// Admit writes the record of an instance, its name and its charge in one transaction, and returns the record. Conflict:
// the ID or the name is taken. OverQuota: the error holds a *tenant.Refusal.
func (s *Admissions) Admit(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if err := s.conn.MayGrow(ctx); err != nil {
		return inst, full(inst, err)
	}
	a := &admission{ctx: ctx, inst: inst, done: make(chan struct{})}
	s.mu.Lock()
	line := s.line(inst.Project)
	line.waiting = append(line.waiting, a)
	if !line.busy {
		line.busy = true
		s.work.Go(func() { s.serveLine(line) })
	}
	s.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		if s.withdraw(line, a) {
			return inst, s.conn.Wrap(ctx.Err(), "write the record of instance %s", inst.ID)
		}
		<-a.done // ends soon: a transaction that no request waits for is canceled
	}
	if a.err != nil {
		return inst, a.err
	}
	inst.State, inst.Session = croft.StateScheduling, a.session
	inst.Revision, inst.CreateRevision = a.revision, a.revision
	return inst, nil
}

// full returns the error for an instance whose record does not fit in etcd. It is not NoCapacity, because that would
// make schedulers try other hosts.
func full(inst croft.Instance, err error) error {
	return croft.Errorf(croft.Unavailable, "write the record of instance %s: %s", inst.ID, err)
}

// line returns a project's line. The caller holds the mutex.
func (s *Admissions) line(name croft.Project) *admissionLine {
	line, ok := s.lines[name]
	if ok {
		return line
	}
	if len(s.lines) >= maxLines {
		maps.DeleteFunc(s.lines, func(_ croft.Project, l *admissionLine) bool { return !l.busy })
	}
	if s.lines == nil {
		s.lines = map[croft.Project]*admissionLine{}
	}
	line = &admissionLine{}
	s.lines[name] = line
	return line
}

// withdraw removes a request from its line, and reports whether it was still waiting there.
func (s *Admissions) withdraw(line *admissionLine, one *admission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(line.waiting, one)
	if i >= 0 {
		line.waiting = slices.Delete(line.waiting, i, i+1)
	}
	return i >= 0
}

// next takes the requests for one transaction from a line. None: the line is no longer served.
func (s *Admissions) next(line *admissionLine) []*admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, compares, size := 0, 0, 0
	for n < len(line.waiting) {
		compares += 3 + 2*len(MACs(line.waiting[n].inst))
		size += len(line.waiting[n].inst.Spec.UserData) + 4<<10 // a record without user-data is smaller
		if n > 0 && (compares > maxAdmitted || size > maxAdmittedBytes) {
			break
		}
		n++
	}
	batch := line.waiting[:n:n]
	line.waiting = line.waiting[n:]
	if n == 0 {
		line.waiting, line.busy = nil, false
	}
	return batch
}

func (s *Admissions) serveLine(line *admissionLine) {
	for {
		batch := s.next(line)
		if len(batch) == 0 {
			return
		}
		ctx, release := whileAnyWaits(batch)
		s.admitTogether(ctx, line, batch)
		release()
	}
}

// whileAnyWaits returns a context that ends when every request of a batch has been given up.
func whileAnyWaits(batch []*admission) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(batch[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(batch)))
	var stops []func() bool
	for _, a := range batch {
		stops = append(stops, context.AfterFunc(a.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(a.ctx))
			}
		}))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

func (a *admission) end(err error) {
	a.err = err
	close(a.done)
}

// admitTogether decides every request of a batch; all of them are for one project.
func (s *Admissions) admitTogether(ctx context.Context, line *admissionLine, batch []*admission) {
	session, lease, err := s.prepareAdmission(ctx, line, batch[0].inst.Project)
	settled, contended := false, false
	for ; len(batch) > 0; batch = s.waitedFor(batch) {
		if err == nil && line.chain == nil {
			line.chain, err = s.readChain(ctx, batch[0].inst.Project)
		}
		if err != nil {
			line.chain = nil
			s.endAll(batch, err)
			return
		}
		now, later, over := admissible(line.chain, batch)
		if len(over) > 0 && !settled { // other usage may have ended meanwhile
			settled, err, line.chain = true, s.settle(ctx), nil
			continue
		}
		for _, a := range over {
			a.end(a.err)
		}
		batch = later
		if len(now) == 0 {
			continue
		}
		w := admissionWrite{chain: line.chain, batch: now, session: session, lease: lease,
			byEntry: contended && line.chain.unlimited(amountsOf(now))}
		left, refusal := s.writeAdmitted(ctx, line, w)
		// another process wrote first
		if contended = len(left) == len(now); contended && !w.byEntry && refusal == nil {
			refusal = delay.For(ctx, rand.N(admitPause))
			settled = false
		}
		batch, err = append(left, later...), refusal
	}
}

// prepareAdmission creates the session of this process and, concurrently, reads the project's chain.
func (s *Admissions) prepareAdmission(ctx context.Context, line *admissionLine, name croft.Project) (session string,
	lease clientv3.LeaseID, err error) {
	var reading sync.WaitGroup
	var read error
	if line.chain == nil {
		reading.Go(func() { line.chain, read = s.readChain(ctx, name) })
	}
	session, lease, err = s.records.Session(ctx)
	reading.Wait()
	return session, lease, cmp.Or(err, read)
}

// waitedFor ends the requests that were given up, and returns the others.
func (s *Admissions) waitedFor(batch []*admission) []*admission {
	return slices.DeleteFunc(batch, func(a *admission) bool {
		gone := a.ctx.Err() != nil
		if gone {
			s.endAll([]*admission{a}, nil)
		}
		return gone
	})
}

// endAll ends requests with an error, or, if the context of a request has ended, with that context's error.
func (s *Admissions) endAll(batch []*admission, err error) {
	for _, a := range batch {
		if own := a.ctx.Err(); own != nil {
			a.end(s.conn.Wrap(own, "write the record of instance %s", a.inst.ID))
		} else {
			a.end(err)
		}
	}
}

// amountsOf returns the sum of the charges of a batch.
func amountsOf(batch []*admission) tenant.Amounts {
	sum := tenant.Amounts{}
	for _, a := range batch {
		sum = sum.Plus(tenant.AmountsOf(a.inst))
	}
	return sum
}

// admissible divides a batch by the quotas: requests that may be written now; requests that must wait because an
// earlier one has the same ID, name or MAC; and requests that are over quota, with their errors.
func admissible(c *chain, batch []*admission) (now, later, over []*admission) {
	accounts := c.accounts()
	taken := map[string]bool{}
	for _, a := range batch {
		if taken[string(a.inst.ID)] || taken["/"+a.inst.Name] ||
			slices.ContainsFunc(MACs(a.inst), func(mac string) bool { return taken[mac] }) {
			later = append(later, a)
			continue
		}
		more := tenant.AmountsOf(a.inst)
		if a.err = tenant.Admit(accounts, c.defaults.Limits, more); a.err != nil {
			over = append(over, a)
			continue
		}
		for i := range accounts {
			accounts[i].Used = accounts[i].Used.Plus(more)
		}
		taken[string(a.inst.ID)], taken["/"+a.inst.Name] = true, true
		for _, mac := range MACs(a.inst) {
			taken[mac] = true
		}
		now = append(now, a)
	}
	return now, later, over
}

// admissionWrite is one attempt to write the records of a batch.
type admissionWrite struct {
	chain   *chain
	batch   []*admission
	session string
	lease   clientv3.LeaseID
	byEntry bool // charge by entries, which compare no counter; only possible without limits
}

// txn returns the transaction, and the chain after it, without its new revisions.
func (w admissionWrite) txn(k Keys, r Records) (compares []clientv3.Cmp, ops, otherwise []clientv3.Op, after *chain) {
	compares, otherwise, after = k.compares(w.chain), k.reads(w.chain.names()), w.chain
	if w.byEntry {
		compares = k.uncounted(w.chain)
	}
	ops = append(ops, clientv3.OpPut(r.SessionKey(w.session), "", clientv3.WithLease(w.lease)))
	more := tenant.Amounts{}
	for _, a := range w.batch {
		inst := a.inst
		inst.State, inst.Session = croft.StateScheduling, w.session
		record, name := r.Keys(inst)
		free, reads := r.MACs(inst)
		compares = append(append(compares, kv.Absent(record), kv.Absent(name), kv.AbsentBelow(k.entriesAbout(inst))),
			free...)
		ops = append(ops, r.Write(inst)...)
		otherwise = append(append(otherwise, clientv3.OpGet(record, clientv3.WithCountOnly()), clientv3.OpGet(name),
			clientv3.OpGet(k.entriesAbout(inst), clientv3.WithPrefix(), clientv3.WithCountOnly())), reads...)
		charge := tenant.AmountsOf(inst)
		if more = more.Plus(charge); w.byEntry {
			ops = append(ops, clientv3.OpPut(k.charged(inst), kv.Encode(tenant.Amounts{}.Minus(charge))))
		}
	}
	if !w.byEntry {
		var charges []clientv3.Op
		after, charges = k.charge(w.chain, more)
		ops = append(ops, charges...)
	}
	return compares, ops, otherwise, after
}

// writeAdmitted writes records, names and charges. It ends the decided requests, and returns the others: all of them if
// the chain had changed; line.chain then is up to date.
func (s *Admissions) writeAdmitted(ctx context.Context, line *admissionLine, w admissionWrite) (left []*admission,
	err error) {
	compares, ops, otherwise, after := w.txn(s.keys(), s.records)
	done, err := s.conn.Etcd.Txn(ctx).If(compares...).Then(ops...).Else(otherwise...).Commit()
	switch {
	case err != nil:
		s.records.Lost(err, w.session, w.lease) // the records may have been written already, or will be later
		line.chain = nil
		s.endAll(w.batch, s.conn.Wrap(err, "write the records of instances"))
		return nil, nil
	case done.Succeeded:
		if line.chain = after; !w.byEntry {
			line.chain = after.at(done.Header.Revision)
		}
		for _, a := range w.batch {
			a.session, a.revision = w.session, done.Header.Revision
			a.end(nil)
		}
		return nil, nil
	}
	names := w.chain.names()
	if line.chain, err = s.fill(names, done.Responses); err != nil {
		return w.batch, err
	}
	if !line.chain.complete() {
		line.chain = nil
	}
	unsettled := false
	rest := done.Responses[len(s.keys().reads(names)):]
	for _, a := range w.batch {
		n := 3 + len(MACs(a.inst))
		answers := rest[:n]
		rest = rest[n:]
		if err := TakenBy(a.inst, answers[0].GetResponseRange().Count > 0, answers[1], answers[3:]); err != nil {
			a.end(err)
			continue
		}
		left = append(left, a)
		unsettled = unsettled || answers[2].GetResponseRange().Count > 0
	}
	if unsettled { // entries of an earlier instance with the same ID
		line.chain = nil
		err = s.settle(ctx)
	}
	return left, err
}

// MACs returns the addresses of the network interfaces that the request for an instance names, in their order. If the
// request names no network, it returns one address, although the host may give the instance more interfaces.
func MACs(inst croft.Instance) []string {
	all := make([]string, max(1, len(inst.Spec.Networks)))
	for n := range all {
		all[n] = inst.ID.MAC(n).String()
	}
	return all
}

// TakenBy returns the error if another instance has the ID, the name or a MAC of a request, determined from whether the
// ID has a record, and from the answers about the name and each MAC; nil: all are free.
func TakenBy(inst croft.Instance, recorded bool, name *etcdserverpb.ResponseOp, macs []*etcdserverpb.ResponseOp) error {
	holder := kv.First(name)
	if holder != nil && string(holder.Value) != string(inst.ID) {
		return &croft.TakenError{What: "name", By: string(holder.Value), Text: fmt.Sprintf("the name %s is taken by "+
			"instance %s; choose another or destroy that one", inst.Name, holder.Value)}
	}
	if recorded || holder != nil {
		return &croft.TakenError{What: "id", By: string(inst.ID), Text: fmt.Sprintf("there is an instance %s already; "+
			"choose another UUID or none", inst.ID)}
	}
	for n, holders := range macs {
		for _, holder := range holders.GetResponseRange().Kvs {
			// it may belong to another project, so the error does not name it
			if path.Base(string(holder.Key)) != string(inst.ID) {
				return croft.Errorf(croft.Conflict, "the MAC address %s that follows from the UUID %s is in use by another "+
					"instance; choose another UUID or none", MACs(inst)[n], inst.ID)
			}
		}
	}
	return nil
}
