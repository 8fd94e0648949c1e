// Package partitions stores data about partitions other than home, and their imports, each below its own key; and reads
// home as one snapshot. The rows of an import are written under their own key. One transaction then makes the import
// visible, so that readers never see a part of one.
package partitions

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation"
	"croft/etcdstore/internal/kv"
)

// Partitions is the store of partitions.
type Partitions struct {
	conn *kv.Conn
	keys Keys
	home Home
}

// New makes the store of partitions below a prefix, which include home.
func New(c *kv.Conn, k Keys, h Home) *Partitions { return &Partitions{c, k, h} }

var (
	_ federation.Store = (*Partitions)(nil)
	_ federation.Draft = (*draft)(nil)
)

// entry is the value of a partition's key in the registry.
type entry struct {
	Alias string    `json:"alias"`
	Added time.Time `json:"added"`
}

// head is the value of the key that names the visible import of a partition.
type head struct {
	Draft string `json:"draft"` // name of the draft that has the rows
	federation.Imported
}

// known is a partition as read, with the values that a change of it compares.
type known struct {
	federation.Partition
	entry entry
	head  head
	shown int64 // revision of the head; 0: there is no head
}

// List implements federation.Store.
func (s *Partitions) List(ctx context.Context) ([]federation.Partition, error) {
	all, _, err := s.read(ctx)
	var out []federation.Partition
	for _, p := range all {
		out = append(out, p.Partition)
	}
	return out, err
}

// read returns all partitions by alias, and the revision at which it read them.
func (s *Partitions) read(ctx context.Context) (all []known, revision int64, err error) {
	prefix := s.keys.registry()
	got, err := s.conn.Etcd.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, s.conn.Wrap(err, "list the partitions")
	}
	for _, stored := range got.Kvs {
		p := known{Partition: federation.Partition{ID: croft.PartitionID(kv.Last(stored.Key))}}
		if err := s.conn.Decode(stored.Key, stored.Value, &p.entry); err != nil {
			return nil, 0, err
		}
		p.Alias = p.entry.Alias
		if err := s.readHead(ctx, &p, got.Header.Revision); err != nil {
			return nil, 0, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b known) int { return cmp.Compare(a.Alias, b.Alias) })
	return all, got.Header.Revision, s.readPeers(ctx, all, got.Header.Revision)
}

// readHead reads the visible import of a partition, at a revision.
func (s *Partitions) readHead(ctx context.Context, p *known, revision int64) error {
	got, err := s.conn.Etcd.Get(ctx, s.keys.head(p.ID), clientv3.WithRev(revision))
	if err != nil {
		return s.conn.Wrap(err, "read the import of partition %s", p.ID)
	}
	for _, stored := range got.Kvs {
		if err := s.conn.Decode(stored.Key, stored.Value, &p.head); err != nil {
			return err
		}
		p.Imported, p.shown = &p.head.Imported, stored.ModRevision
	}
	return nil
}

// Rows implements federation.Store.
func (s *Partitions) Rows(ctx context.Context, id croft.PartitionID, kind federation.Kind,
	each func(json.RawMessage) error) error {
	got, err := s.conn.Etcd.Get(ctx, s.keys.head(id))
	if err != nil {
		return s.conn.Wrap(err, "read the import of partition %s", id)
	}
	if len(got.Kvs) == 0 {
		return croft.Errorf(croft.NotFound, "nothing was imported of partition %s", id)
	}
	var h head
	if err := s.conn.Decode(got.Kvs[0].Key, got.Kvs[0].Value, &h); err != nil {
		return err
	}
	return s.conn.ReadRange(ctx, "read what was imported", s.keys.kind(id, h.Draft, kind), got.Header.Revision,
		func(stored *mvccpb.KeyValue) error { return each(stored.Value) })
}

// Remove implements federation.Store. A partition that is no peer is forgotten.
func (s *Partitions) Remove(ctx context.Context, id croft.PartitionID) error {
	key := s.keys.partition(id)
	forget := clientv3.OpTxn([]clientv3.Cmp{kv.Absent(s.peerKeys().peer(id))},
		[]clientv3.Op{clientv3.OpDelete(key)}, nil)
	// Existence is enough: the caller removes the import of whatever has this UUID now.
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Exists(key)).
		Then(clientv3.OpDelete(s.keys.imported(id), clientv3.WithPrefix()), forget).Commit()
	switch {
	case err != nil:
		return s.conn.Wrap(err, "remove partition %s", id)
	case !done.Succeeded:
		return croft.Errorf(croft.NotFound, "partition %s was removed meanwhile", id)
	}
	return nil
}

// draft is an import that is not visible yet. Its key exists until its rows are removed.
type draft struct {
	store *Partitions
	id    croft.PartitionID
	name  string
	rows  map[federation.Kind]int
}

// Begin implements federation.Store.
func (s *Partitions) Begin(ctx context.Context, id croft.PartitionID) (federation.Draft, error) {
	d := &draft{s, id, uuid.NewString(), map[federation.Kind]int{}}
	_, err := s.conn.Etcd.Put(ctx, d.key(), kv.Encode(time.Now().UTC().Truncate(time.Second)))
	if err != nil {
		return nil, s.conn.Wrap(err, "start the import of partition %s", id)
	}
	return d, nil
}

func (d *draft) key() string { return d.store.keys.draft(d.id, d.name) }

func (d *draft) overtaken() error {
	return croft.Errorf(croft.Conflict, "partition %s was imported by another request meanwhile, or removed: look "+
		"at `croft partition list`, and import again", d.id)
}

// Add implements federation.Draft.
func (d *draft) Add(ctx context.Context, rows ...federation.Row) error {
	var ops []clientv3.Op
	for _, r := range rows {
		key := d.store.keys.row(d.id, d.name, r.Kind, d.rows[r.Kind])
		d.rows[r.Kind]++
		ops = append(ops, clientv3.OpPut(key, string(r.Row)))
	}
	// Existence is enough: the name of a draft is a random UUID.
	done, err := d.store.conn.Etcd.Txn(ctx).If(kv.Exists(d.key())).Then(ops...).Commit()
	if err != nil {
		return d.store.conn.Wrap(err, "import partition %s", d.id)
	}
	if !done.Succeeded {
		return d.overtaken()
	}
	return nil
}

// Show implements federation.Draft.
func (d *draft) Show(ctx context.Context, settle func([]federation.Partition, *federation.Partition) (
	federation.Partition, error)) (federation.Partition, error) {
	for {
		c, err := d.change(ctx)
		if err != nil {
			return federation.Partition{}, err
		}
		if c.next, err = settle(c.others, c.current()); err != nil {
			return c.next, err
		}
		shown, err := d.show(ctx, c)
		if err != nil {
			return c.next, err
		}
		if shown {
			for _, name := range c.stale {
				_ = (&draft{d.store, d.id, name, nil}).Discard(ctx) // otherwise the next import does this
			}
			return c.next, nil
		}
	}
}

// change holds the data that Show reads, and the record that it writes.
type change struct {
	revision int64
	others   []federation.Partition
	former   known // this partition as read; without an ID: it is not known yet
	next     federation.Partition
	stale    []string // drafts to remove
}

func (c *change) current() *federation.Partition {
	if c.former.ID == "" {
		return nil
	}
	return &c.former.Partition
}

// change reads the data for Show. Conflict: the draft was removed.
func (d *draft) change(ctx context.Context) (*change, error) {
	all, revision, err := d.store.read(ctx)
	if err != nil {
		return nil, err
	}
	c := &change{revision: revision}
	for _, p := range all {
		if p.ID == d.id {
			c.former = p
		} else {
			c.others = append(c.others, p.Partition)
		}
	}
	prefix := d.store.keys.drafts(d.id)
	got, err := d.store.conn.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithRev(revision))
	if err != nil {
		return nil, d.store.conn.Wrap(err, "list the imports of partition %s", d.id)
	}
	for _, stored := range got.Kvs {
		c.stale = append(c.stale, kv.Last(stored.Key))
	}
	own := slices.Index(c.stale, d.name)
	if own < 0 {
		return nil, d.overtaken()
	}
	c.stale = slices.Delete(c.stale, own, own+1)
	if former := c.former.head.Draft; former != "" {
		c.stale = append(c.stale, former)
	}
	return c, nil
}

// show makes the draft visible, unless something has changed. The import that was visible before becomes a draft, to be
// removed.
func (d *draft) show(ctx context.Context, c *change) (bool, error) {
	k, e := d.store.keys, entry{Alias: c.next.Alias, Added: c.former.entry.Added}
	if e.Added.IsZero() {
		e.Added = time.Now().UTC().Truncate(time.Second)
	}
	ops := []clientv3.Op{clientv3.OpPut(k.partition(d.id), kv.Encode(e)),
		clientv3.OpPut(k.head(d.id), kv.Encode(head{d.name, *c.next.Imported})), clientv3.OpDelete(d.key())}
	if former := c.former.head.Draft; former != "" {
		ops = append(ops, clientv3.OpPut(k.draft(d.id, former), kv.Encode(e.Added)))
	}
	registry := unchangedBelow(k.registry(), c.revision)
	done, err := d.store.conn.Etcd.Txn(ctx).
		// Existence is enough: the name of a draft is a random UUID.
		If(kv.Exists(d.key()), kv.Unchanged(k.head(d.id), c.former.shown), registry).Then(ops...).Commit()
	if err != nil {
		return false, d.store.conn.Wrap(err, "show the import of partition %s", d.id)
	}
	return done.Succeeded, nil
}

// Discard implements federation.Draft. It compares that the draft has not become visible, because the outcome of Show
// may be unknown.
func (d *draft) Discard(ctx context.Context) error {
	k := d.store.keys
	// Existence is enough: the name of a draft is a random UUID.
	_, err := d.store.conn.Etcd.Txn(ctx).If(kv.Exists(d.key())).
		Then(clientv3.OpDelete(d.key()), clientv3.OpDelete(k.rows(d.id, d.name), clientv3.WithPrefix())).Commit()
	if err != nil {
		return d.store.conn.Wrap(err, "remove an import of partition %s that was not completed", d.id)
	}
	return nil
}
