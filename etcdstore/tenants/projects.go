// Package tenants stores projects in etcd and counts their usage: records of instances are written together with the
// counters of their projects.
package tenants

import (
	"context"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/internal/delay"
	"croft/internal/wording"
	"croft/tenant"
	"croft/tenant/access"
)

// Projects stores projects and counts their usage.
type Projects struct {
	conn      *kv.Conn
	instances string // prefix of the records of instances
	owned     func(croft.Project) Owned
	sources   []Source // of further records that are charged
	kept      []Source // of records that Commit charges
}

// Owned are the keys of a project that other packages store.
type Owned struct {
	// the project is not removed while any of them exists; the first part is the names of its instances
	Kept []Part
	Rest []Part      // removed with the project: its SSH keys, its tokens, the properties of its images
	End  clientv3.Op // records that the project was removed
}

// Part is the prefix of the keys of one kind, and the name of that kind.
type Part struct{ Prefix, Noun string }

// none returns the conditions that no key of the parts exists.
func none(parts []Part) (all []clientv3.Cmp) {
	for _, part := range parts {
		all = append(all, kv.AbsentBelow(part.Prefix))
	}
	return all
}

// counts returns the reads that count the keys of the parts.
func counts(parts []Part) (all []clientv3.Op) {
	for _, part := range parts {
		all = append(all, clientv3.OpGet(part.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	return all
}

// counted returns the numbers of keys of the parts in words, from the answers to counts.
func counted(parts []Part, answers []*etcdserverpb.ResponseOp) (all []string) {
	for i, part := range parts {
		if n := answers[i].GetResponseRange().Count; n > 0 {
			all = append(all, wording.Count(n, part.Noun))
		}
	}
	return all
}

// NewProjects makes the store of projects. instances is the prefix of the records of instances; others are further
// sources of charges.
func NewProjects(c *kv.Conn, instances string, owned func(croft.Project) Owned, others ...Source) *Projects {
	return &Projects{conn: c, instances: instances, owned: owned, sources: others}
}

func (s *Projects) keys() Keys { return Keys(s.conn.Prefix) }

var _ tenant.Projects = (*Projects)(nil)

// List implements tenant.Projects.
func (s *Projects) List(ctx context.Context, scope access.Scope) ([]tenant.Tenant, error) {
	if scope.All() {
		return s.readProjects(ctx, 0)
	}
	names := slices.DeleteFunc(scope.Projects(), func(p croft.Project) bool { return p.Check() != nil })
	slices.Sort(names)
	return s.readNamed(ctx, slices.Compact(names))
}

// readNamed returns the named projects that have a record; it reads no other records.
func (s *Projects) readNamed(ctx context.Context, names []croft.Project) (all []tenant.Tenant, err error) {
	var ops []clientv3.Op
	for _, name := range names {
		ops = append(ops, clientv3.OpGet(s.keys().project(name)))
	}
	found, err := s.conn.GetMany(ctx, "read projects", ops)
	for _, stored := range slices.Concat(found...) {
		p, err := s.decodeProject(stored)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Tenant)
	}
	return all, err
}

// Identity returns the identity of a project; empty: it has no record.
func (s *Projects) Identity(ctx context.Context, p croft.Project) (croft.ProjectID, error) {
	all, err := s.readNamed(ctx, []croft.Project{p})
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].ID, nil
}

func (s *Projects) readProjects(ctx context.Context, revision int64) (all []tenant.Tenant, err error) {
	err = s.conn.ReadRange(ctx, "read the projects", s.keys().projects(), revision,
		func(stored *mvccpb.KeyValue) error {
			p, err := s.decodeProject(stored)
			all = append(all, p.Tenant)
			return err
		})
	return all, err
}

// Follow calls changed with the tree of all projects, and again after each change, until ctx ends. The tree is always
// complete, even while projects are read again, so that users do not temporarily lose their roles.
func (s *Projects) Follow(ctx context.Context, changed func(tenant.Tree)) error {
	return s.follow(ctx, s.newTail(), changed)
}

func (s *Projects) newTail() *kv.Tail {
	return s.conn.NewTail("the projects of this cloud", s.keys().projects())
}

// follow leaves out projects that cannot be decoded; readers of their records get the error.
func (s *Projects) follow(ctx context.Context, tail *kv.Tail, changed func(tenant.Tree)) error {
	return kv.FollowDecoded(ctx, tail, s.decodeProject, func(stored map[string]storedProject) {
		all := make([]tenant.Tenant, 0, len(stored))
		for _, p := range stored {
			all = append(all, p.Tenant)
		}
		changed(tenant.NewTree(all))
	})
}

func (s *Projects) decodeProject(r *mvccpb.KeyValue) (p storedProject, err error) {
	err = s.conn.Decode(r.Key, r.Value, &p)
	p.Limits = p.Limits.Known()
	p.Generation, p.Born, p.ID = r.ModRevision, r.CreateRevision, s.identify(p.Tenant, r.CreateRevision)
	return p, err
}

// identify returns the identity of the project whose record was first written at a revision.
func (s *Projects) identify(p tenant.Tenant, created int64) croft.ProjectID {
	return croft.NewProjectID(s.conn.Partition(), p.Name, created, p.Created)
}

// Create implements tenant.Projects. A project below another one must be empty, because the usage that it has already
// is not counted for its ancestors.
func (s *Projects) Create(ctx context.Context, p tenant.Tenant) (tenant.Tenant, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	k, stored := s.keys(), storedProject{Tenant: p}
	compares := []clientv3.Cmp{kv.Absent(k.project(p.Name))}
	var ops []clientv3.Op
	var parts []Part
	if p.Parent != "" {
		if _, err := s.find(ctx, p.Name); err == nil {
			return p, isThere(p.Name)
		}
		empty, err := s.isEmpty(ctx, p.Name)
		if err != nil {
			return p, err
		}
		above, err := s.readChain(ctx, p.Parent)
		if err != nil {
			return p, err
		}
		if above.links[0].recorded == 0 {
			return p, croft.Errorf(croft.NotFound, "create project %s: there is no project %s to put it below", p.Name,
				p.Parent)
		}
		stored.Above = append([]croft.Project{p.Parent}, above.links[0].record.Above...)
		if len(stored.Above) >= tenant.MaxDepth {
			return p, croft.Errorf(croft.Invalid, "create project %s: there are %d projects above it, at most %d may be",
				p.Name, len(stored.Above), tenant.MaxDepth-1)
		}
		compares = append(compares, kv.Created(k.project(p.Parent), above.links[0].created), empty,
			kv.AbsentBelow(k.entriesOf(p.Name)))
		owned := s.owned(p.Name)
		parts = slices.Concat(owned.Kept, owned.Rest) // operators may have used the name without a record
		compares = append(compares, none(parts)...)
		ops = append(ops, owned.End, clientv3.OpPut(k.below(p.Parent, p.Name), ""),
			clientv3.OpPut(k.used(p.Name), kv.Encode(count{Ready: true})))
		stores, err := s.storesNothing(ctx, p.Name)
		if err != nil {
			return p, err
		}
		compares = append(compares, stores)
		ops = append(ops, clientv3.OpPut(k.stored(p.Name), kv.Encode(storedCount{Rules: storedRules})))
	}
	stored.Generation, stored.ID = 0, ""
	value := kv.Encode(stored)
	charge := chargeOfProject(stored)
	revision, answers, err := s.Commit(ctx, Change{Project: charge.Project, Charge: charge.Amounts, If: compares,
		Then: append(ops, clientv3.OpPut(k.project(p.Name), value)),
		Else: append(counts(parts), clientv3.OpGet(k.project(p.Name), clientv3.WithCountOnly())),
		What: "create project " + string(p.Name)})
	if err != nil {
		return p, err
	}
	if revision == 0 {
		if answers[len(parts)].GetResponseRange().Count > 0 {
			return p, isThere(p.Name)
		}
		if found := counted(parts, answers); len(found) > 0 {
			return p, croft.Errorf(croft.Conflict, "create project %s below %s: there is already %s of this name: create it "+
				"without a parent, or remove these first", p.Name, p.Parent, wording.List(found))
		}
		return p, croft.Errorf(croft.Conflict, "create project %s below %s: one of them was changed by another "+
			"request: try again",
			p.Name, p.Parent)
	}
	p.Generation, p.Born, p.ID = revision, revision, s.identify(p, revision)
	return p, nil
}

func isThere(name croft.Project) error {
	return croft.Errorf(croft.Conflict, "there is a project %s already: choose another name", name)
}

// isEmpty returns the condition under which no usage is counted for a name. Conflict: some is.
func (s *Projects) isEmpty(ctx context.Context, name croft.Project) (clientv3.Cmp, error) {
	if err := s.settle(ctx); err != nil {
		return clientv3.Cmp{}, err
	}
	return nothingCounted(ctx, s, s.keys().used(name), "uses", name, func(n count) tenant.Amounts { return n.Used })
}

// nothingCounted returns the condition under which a counter of a name stays absent or without amounts. does is the
// verb for the counter: "uses" or "stores". Conflict: the counter has amounts.
func nothingCounted[T any](ctx context.Context, s *Projects, key, does string, name croft.Project,
	amounts func(T) tenant.Amounts) (clientv3.Cmp, error) {
	got, err := s.conn.Etcd.Get(ctx, key)
	if err != nil {
		return clientv3.Cmp{}, s.conn.Wrap(err, "read what project %s %s", name, does)
	}
	if len(got.Kvs) == 0 {
		return kv.Absent(key), nil
	}
	var n T
	if err := s.conn.Decode(got.Kvs[0].Key, got.Kvs[0].Value, &n); err != nil {
		return clientv3.Cmp{}, err
	}
	if counted := amounts(n); len(counted) > 0 {
		return clientv3.Cmp{}, croft.Errorf(croft.Conflict, "the name %s %s %s already, which would have to count for "+
			"the projects above it too: create it without a parent, or remove all that first", name, does, counted)
	}
	return kv.Unchanged(key, got.Kvs[0].ModRevision), nil
}

// Change implements tenant.Projects. When a membership ends, the member's tokens in the project are removed.
func (s *Projects) Change(ctx context.Context, p tenant.Tenant) (tenant.Tenant, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	for {
		stored, err := s.find(ctx, p.Name)
		if err != nil {
			return p, err
		}
		if stored.Generation != p.Generation {
			return p, changedMeanwhile(p.Name)
		}
		ifs, ops, err := s.endings(ctx, stored.Tenant, p)
		if err != nil {
			return p, err
		}
		id := stored.ID
		stored.Generation, stored.ID = 0, ""
		before := chargeOfProject(stored)
		stored.Note, stored.Members, stored.Limits = p.Note, p.Members, p.Limits
		key, value := s.keys().project(p.Name), kv.Encode(stored)
		charge := chargeOfProject(stored)
		revision, _, err := s.Commit(ctx, Change{Project: charge.Project, Charge: charge.Amounts.Minus(before.Amounts),
			If: append(ifs, kv.Unchanged(key, p.Generation)), Then: append(ops, clientv3.OpPut(key, value)),
			What: "change project " + string(p.Name)})
		if err != nil {
			return p, err
		}
		if revision != 0 {
			stored.Generation, stored.ID = revision, id
			return stored.Tenant, nil
		}
		if len(ifs) == 0 {
			return p, changedMeanwhile(p.Name)
		}
		if err := delay.For(ctx, rand.N(admitPause)); err != nil { // or a token was created or revoked
			return p, s.conn.Wrap(err, "change project %s", p.Name)
		}
	}
}

func changedMeanwhile(name croft.Project) error {
	return croft.Errorf(croft.Conflict, "project %s was changed by another request: look at it and try again", name)
}

func (s *Projects) find(ctx context.Context, name croft.Project) (storedProject, error) {
	stored, err := s.conn.Get(ctx, s.keys().project(name), "read project %s", name)
	switch {
	case err != nil:
		return storedProject{}, err
	case stored == nil:
		return storedProject{}, croft.Errorf(croft.NotFound, "there is no project %s", name)
	}
	return s.decodeProject(stored)
}

// Remove implements tenant.Projects. It removes the project's tokens too, which reduces the usage of its ancestors.
func (s *Projects) Remove(ctx context.Context, name croft.Project) error {
	if err := name.Check(); err != nil { // the name becomes part of keys
		return err
	}
	k, owned := s.keys(), s.owned(name)
	for {
		p, err := s.find(ctx, name)
		if err != nil {
			return err
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
		c, err := s.readChain(ctx, name)
		if err != nil {
			return err
		}
		tokens := tenant.Amounts{tenant.CountTokens: c.used(0)[tenant.CountTokens]}
		kept, err := s.readShelf(ctx, name)
		if err != nil {
			return err
		}
		stored := kept.links[0].count.Used
		if left := c.used(0).Minus(tokens); len(left) > 0 {
			return inUse(name, left, stored, nil)
		}
		_, ops := k.charge(c, tenant.Amounts{}.Minus(tokens)) // the project's own counter is deleted after that
		remove := append(ops[1:], clientv3.OpDelete(k.project(name)), clientv3.OpDelete(k.used(name)),
			clientv3.OpDelete(k.below(p.Parent, name)), owned.End)
		for _, part := range owned.Rest {
			remove = append(remove, clientv3.OpDelete(part.Prefix, clientv3.WithPrefix()))
		}
		back := stored.Plus(chargeOfProject(p).Amounts)
		ifs, recount := k.chargeShelf(kept, tenant.Amounts{}.Minus(back))
		remove = append(append(remove, recount[1:]...), clientv3.OpDelete(k.stored(name)))
		parts := append(slices.Clone(owned.Kept), Part{k.allBelow(name), "project"})
		done, err := s.conn.Etcd.Txn(ctx).
			If(append(append(append(k.compares(c), ifs...), none(parts)...), kv.AbsentBelow(k.entriesOf(name)),
				kv.Unchanged(k.project(name), p.Generation))...).
			Then(remove...).Else(counts(parts)...).Commit()
		switch {
		case err != nil:
			return s.conn.Wrap(err, "remove project %s", name)
		case done.Succeeded:
			return nil
		}
		if found := counted(parts, done.Responses); len(found) > 0 {
			return inUse(name, nil, stored, found)
		}
		if err := delay.For(ctx, rand.N(admitPause)); err != nil { // another process wrote first
			return s.conn.Wrap(err, "remove project %s", name)
		}
	}
}

// inUse returns the refusal to remove a project that is in use: it contains the usage and stored records of the project
// and its descendants. keeps lists other keys that prevent the removal; it is used only if there are no such amounts,
// because these keys were then created or removed just now.
func inUse(name croft.Project, used, stored tenant.Amounts, keeps []string) error {
	var all []string
	for _, kind := range []struct {
		count int64
		noun  string
	}{
		{used[tenant.CountInstances], "instance"}, {used[tenant.CountClusters], "cluster"},
		{used[tenant.CountVolumes], "volume"},
		{used[tenant.CountSnapshots], "snapshot"}, {used[tenant.CountImages], "image"},
		{used[tenant.CountPools], "pool"}, {used[tenant.CountTickets], "open ticket"},
		{stored[tenant.CountCredentials], "credential"}, {stored[tenant.CountAppliances], "appliance"},
	} {
		if kind.count > 0 {
			all = append(all, wording.Count(kind.count, kind.noun))
		}
	}
	if n := stored[tenant.CountProjects]; n > 0 {
		all = append(all, wording.Count(n, "project")+" below it")
	}
	if len(all) == 0 {
		all = keeps
	}
	return croft.Errorf(croft.Conflict, "project %s is not empty, it has %s: destroy and remove these first", name,
		wording.List(all))
}

// Defaults implements tenant.Projects.
func (s *Projects) Defaults(ctx context.Context) (tenant.Defaults, error) {
	return s.defaultsAt(ctx, 0)
}

func (s *Projects) defaultsAt(ctx context.Context, revision int64) (d tenant.Defaults, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().defaults(), clientv3.WithRev(revision))
	if err != nil {
		return d, s.conn.Wrap(err, "read the default limits")
	}
	if len(got.Kvs) > 0 {
		err = s.conn.Decode(got.Kvs[0].Key, got.Kvs[0].Value, &d)
		d.Limits = d.Limits.Known()
		d.Generation = got.Kvs[0].ModRevision
	}
	return d, err
}

// ReadAt returns all projects and the limits of the partition, at a revision.
func (s *Projects) ReadAt(ctx context.Context, revision int64) (all []tenant.Tenant, d tenant.Defaults, err error) {
	if d, err = s.defaultsAt(ctx, revision); err != nil {
		return nil, d, err
	}
	all, err = s.readProjects(ctx, revision)
	return all, d, err
}

// SetDefaults implements tenant.Projects.
func (s *Projects) SetDefaults(ctx context.Context, d tenant.Defaults) (tenant.Defaults, error) {
	if err := d.Limits.Check(); err != nil {
		return d, err
	}
	key, before := s.keys().defaults(), d.Generation
	d.Generation = 0
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(key, before)).Then(clientv3.OpPut(key, kv.Encode(d))).Commit()
	if err != nil {
		return d, s.conn.Wrap(err, "write the default limits")
	}
	if !done.Succeeded {
		return d, croft.Errorf(croft.Conflict, "the default limits were changed by another request: look at them "+
			"and try again")
	}
	d.Generation = done.Header.Revision
	return d, nil
}

// Limits implements pool.Quotas.
func (s *Projects) Limits(ctx context.Context, name croft.Project) ([]tenant.Account, tenant.Limits, error) {
	c, err := s.readChain(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	all := c.accounts()
	for i := range all {
		all[i].Used = nil
	}
	return all, c.defaults.Limits, nil
}

// Admit implements tenant.Quotas.
func (s *Projects) Admit(ctx context.Context, name croft.Project, more tenant.Amounts) error {
	for settled := false; ; settled = true {
		c, err := s.readChain(ctx, name)
		if err != nil {
			return err
		}
		if err := tenant.Admit(c.accounts(), c.defaults.Limits, more); err == nil || settled {
			return err
		}
		if err := s.settle(ctx); err != nil { // other usage may have ended meanwhile
			return err
		}
	}
}

// Accounts implements tenant.Projects.
func (s *Projects) Accounts(ctx context.Context, names ...croft.Project) ([]tenant.Account, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	var all []tenant.Account
	for _, name := range names {
		c, err := s.readChain(ctx, name)
		if err != nil {
			return nil, err
		}
		kept, err := s.readShelf(ctx, name)
		if err != nil {
			return nil, err
		}
		account := c.accounts()[0]
		account.Stored = kept.links[0].count.Used
		all = append(all, account)
	}
	return all, nil
}

// storedProject is the value of a project's record. Parents never change, so the whole chain is stored.
type storedProject struct {
	tenant.Tenant

	Above []croft.Project `json:"above,omitempty"` // nearest ancestor first
}
