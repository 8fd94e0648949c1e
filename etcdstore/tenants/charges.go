package tenants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/share"
	"croft/tenant"
)

// maxLinks is the maximum number of cached projects.
const maxLinks = 4096

// Charges charges projects for the records of transactions that others write, even of many projects at once. It caches
// the state after the last transaction, so that the next one needs no read. Transactions must be sequential.
type Charges struct {
	*Projects

	mu        sync.Mutex
	links     map[croft.Project]link // as last read
	entries   map[croft.Project][]entry
	defaults  tenant.Defaults
	contended bool // another process wrote first
	reads     map[croft.Project]*reads
}

// reads are the reads of a project for Check, which concurrent requests share, because the first count of a project
// takes long.
type reads struct{ plain, settled *share.Read[*chain] }

// NewCharges makes a Charges that has read nothing yet.
func NewCharges(p *Projects) *Charges {
	return &Charges{Projects: p, links: map[croft.Project]link{}, entries: map[croft.Project][]entry{},
		reads: map[croft.Project]*reads{}}
}

// Reasons why an instance cannot be part of a transaction until the caller has acted.
var (
	// ErrUnread reports that the data that decides about the project must be read, by Check.
	ErrUnread = errors.New("the quota of the project has to be read first")
	// ErrUnsettled reports that entries of an earlier instance with the same ID are not counted yet; SettleNow counts
	// them.
	ErrUnsettled = errors.New("the resources that an earlier instance released have to be counted first")
)

// Check reads the data that decides whether a project may have an instance. OverQuota: the error holds a
// *tenant.Refusal.
func (c *Charges) Check(ctx context.Context, inst croft.Instance) error {
	r := c.readsOf(inst.Project)
	read := func(ctx context.Context) (*chain, error) {
		found, err := c.readChain(ctx, inst.Project)
		if err == nil {
			c.remember(found)
		}
		return found, err
	}
	over := func(found *chain) error {
		return tenant.Admit(found.accounts(), found.defaults.Limits, tenant.AmountsOf(inst))
	}
	found, err := r.plain.Get(ctx, read)
	if err != nil || over(found) == nil {
		return err
	}
	// other usage may have ended meanwhile
	found, err = r.settled.Get(ctx, func(ctx context.Context) (*chain, error) {
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
		return read(ctx)
	})
	if err != nil {
		return err
	}
	return over(found)
}

// MayGrow returns nil if records of instances may be written now, and otherwise an error of the kind Unavailable with
// the reason.
func (c *Charges) MayGrow(ctx context.Context, inst croft.Instance) error {
	if err := c.conn.MayGrow(ctx); err != nil {
		return full(inst, err)
	}
	return nil
}

func (c *Charges) readsOf(project croft.Project) *reads {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reads) >= maxLines {
		clear(c.reads)
	}
	if c.reads[project] == nil {
		c.reads[project] = &reads{share.NewRead[*chain](), share.NewRead[*chain]()}
	}
	return c.reads[project]
}

// SettleNow settles all entries.
func (c *Charges) SettleNow(ctx context.Context) error { return c.settle(ctx) }

// remember caches the chain that was read, unless a transaction has left a newer state.
func (c *Charges) remember(read *chain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.links) >= maxLinks {
		clear(c.links)
		clear(c.entries)
	}
	if read.defaults.Generation >= c.defaults.Generation {
		c.defaults = read.defaults
	}
	if first := read.links[0]; first.asOf >= c.links[first.name].asOf {
		c.entries[first.name] = read.entries
	}
	// after its removal, a project has lower revisions than before, although they were read later
	for _, l := range read.links {
		if l.asOf >= c.links[l.name].asOf {
			c.links[l.name] = l
		}
	}
}

// Charged is the part of a transaction that charges for instances.
type Charged struct {
	If        []clientv3.Cmp
	Then      []clientv3.Op
	Otherwise []clientv3.Op // reads for Failed

	charges  *Charges
	insts    []croft.Instance
	firsts   []croft.Project // projects whose entries Otherwise reads
	names    []croft.Project // projects whose records and counters Otherwise reads
	settled  map[croft.Project]bool
	counters map[croft.Project]link
}

// Charge returns the part of the next transaction. refused has the instances that cannot be part of it: ErrUnread.
func (c *Charges) Charge(insts []croft.Instance) (part *Charged, refused map[croft.InstanceID]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &chargedBuilder{Charged: &Charged{charges: c, counters: map[croft.Project]link{},
		settled: map[croft.Project]bool{}},
		links: maps.Clone(c.links), counted: map[croft.Project]bool{}, seen: map[croft.Project]bool{}}
	refused = map[croft.InstanceID]error{}
	for _, inst := range insts {
		if !p.add(inst) {
			refused[inst.ID] = ErrUnread
		}
	}
	p.finish()
	return p.Charged, refused
}

// Done caches the state after the transaction, which was done at a revision.
func (p *Charged) Done(revision int64) {
	c := p.charges
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contended = false
	for name, l := range p.counters {
		l.counted, l.asOf = revision, revision
		c.links[name] = l
	}
	for name := range p.settled {
		delete(c.entries, name)
	}
}

// Failed caches the stored state, from the answers to Otherwise. refused has the instances that cannot be part of the
// next transaction either: ErrUnsettled.
func (p *Charged) Failed(answers []*etcdserverpb.ResponseOp) (refused map[croft.InstanceID]error, err error) {
	c := p.charges
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range p.firsts {
		one, err := c.fill([]croft.Project{name}, append([]*etcdserverpb.ResponseOp{answers[0], answers[1+i]},
			p.linkAnswers(answers, name)...))
		if err != nil {
			return nil, err
		}
		c.defaults, c.entries[name] = one.defaults, one.entries
	}
	for _, name := range p.names {
		one, err := c.fill([]croft.Project{name}, append([]*etcdserverpb.ResponseOp{answers[0], noEntries},
			p.linkAnswers(answers, name)...))
		if err != nil {
			return nil, err
		}
		now := one.links[0]
		if was := c.links[name]; was.counted != now.counted {
			c.contended = true
		}
		c.links[name] = now
	}
	refused = map[croft.InstanceID]error{}
	for i, about := range answers[len(answers)-len(p.insts):] {
		if about.GetResponseRange().Count > 0 {
			refused[p.insts[i].ID] = ErrUnsettled
		}
	}
	return refused, nil
}

// noEntries is the answer for a project without entries.
var noEntries = &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{
	ResponseRange: &etcdserverpb.RangeResponse{}}}

func (p *Charged) linkAnswers(answers []*etcdserverpb.ResponseOp, name croft.Project) []*etcdserverpb.ResponseOp {
	at := 1 + len(p.firsts) + 2*slices.Index(p.names, name)
	return answers[at : at+2]
}

// chargedBuilder builds a Charged.
type chargedBuilder struct {
	*Charged
	links   map[croft.Project]link // state after the transaction
	counted map[croft.Project]bool // the transaction writes the counter
	seen    map[croft.Project]bool // the transaction compares the record
}

// add adds the charge of an instance; false: the cached data about its project is incomplete.
func (p *chargedBuilder) add(inst croft.Instance) bool {
	c := p.charges
	chain := &chain{defaults: c.defaults, entries: c.entries[inst.Project]}
	for name := range p.chainOf(inst.Project) {
		l, known := p.links[name]
		if !known || !l.count.Ready {
			return false
		}
		chain.links = append(chain.links, l)
	}
	if len(chain.links) == 0 {
		return false
	}
	if p.settled[inst.Project] {
		chain.entries = nil
	}
	more := tenant.AmountsOf(inst)
	if tenant.Admit(chain.accounts(), c.defaults.Limits, more) != nil {
		return false
	}
	about := c.keys().entriesAbout(inst)
	p.If, p.insts = append(p.If, kv.AbsentBelow(about)), append(p.insts, inst)
	if c.contended && chain.unlimited(more) {
		p.Then = append(p.Then, clientv3.OpPut(c.keys().charged(inst), kv.Encode(tenant.Amounts{}.Minus(more))))
	} else {
		p.count(inst.Project, chain, more)
	}
	if !slices.Contains(p.firsts, inst.Project) {
		p.firsts = append(p.firsts, inst.Project)
	}
	for _, l := range chain.links {
		p.seen[l.name] = true
	}
	return true
}

// chainOf returns a project and its ancestors.
func (p *chargedBuilder) chainOf(project croft.Project) func(yield func(croft.Project) bool) {
	return slices.Values(append([]croft.Project{project}, p.links[project].record.Above...))
}

// count adds more to the counters of a chain, and settles its entries.
func (p *chargedBuilder) count(project croft.Project, c *chain, more tenant.Amounts) {
	for i, l := range c.links {
		l.count.Used = c.used(i).Plus(more)
		p.links[l.name], p.counted[l.name] = l, true
	}
	if p.settled[project] {
		return
	}
	p.settled[project] = true
	for _, e := range c.entries {
		p.If = append(p.If, kv.Unchanged(string(e.key), e.revision))
		p.Then = append(p.Then, clientv3.OpDelete(string(e.key)))
	}
}

// finish adds the comparisons and reads that the instances share.
func (p *chargedBuilder) finish() {
	k, c := p.charges.keys(), p.charges
	p.If = append(p.If, kv.Unchanged(k.defaults(), c.defaults.Generation))
	p.Otherwise = []clientv3.Op{clientv3.OpGet(k.defaults())}
	for _, name := range p.firsts {
		p.Otherwise = append(p.Otherwise, clientv3.OpGet(k.entriesOf(name), clientv3.WithPrefix(),
			clientv3.WithLimit(maxEntries)))
	}
	p.names = slices.Sorted(maps.Keys(p.seen))
	for _, name := range p.names {
		was := c.links[name]
		p.If = append(p.If, kv.Unchanged(k.project(name), was.recorded))
		if p.counted[name] {
			p.counters[name] = p.links[name]
			p.If = append(p.If, kv.Unchanged(k.used(name), was.counted))
			p.Then = append(p.Then, clientv3.OpPut(k.used(name), kv.Encode(p.links[name].count)))
		} else {
			// Existence is enough: the identity of the project is compared above.
			p.If = append(p.If, kv.Exists(k.used(name)))
		}
		p.Otherwise = append(p.Otherwise, clientv3.OpGet(k.project(name)), clientv3.OpGet(k.used(name)))
	}
	for _, inst := range p.insts {
		p.Otherwise = append(p.Otherwise, clientv3.OpGet(k.entriesAbout(inst), clientv3.WithPrefix(),
			clientv3.WithCountOnly()))
	}
}
