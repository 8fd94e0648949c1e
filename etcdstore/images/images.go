// Package images stores the catalog of images of the cloud in etcd. An image has one record, and one record for each
// host that is ordered to have a copy of its bytes, below the prefix of that host. A transaction that orders or ends a
// copy also changes the list of copies in the record of the image, so both agree at every revision.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

// Images is the store of images.
type Images struct {
	conn     *kv.Conn
	projects *tenants.Projects
	may      func() error // whether all programs of this cloud know the catalog
	others   Others
}

// Others has keys and reads of other stores.
type Others struct {
	Alive   func(croft.HostID) string                   // exists while the host's agent is alive
	Drained func(croft.HostID) string                   // exists while the host is drained
	Order   func(croft.HostID, croft.InstanceID) string // of an order
	Hosts   func(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// EndSnapshot orders the removal of a snapshot, from which an image was saved.
	EndSnapshot func(context.Context, croft.HostID, croft.VolumeID) error
}

// New makes the store of images, which creates records if may returns nil.
func New(c *kv.Conn, p *tenants.Projects, may func() error, o Others) *Images {
	return &Images{c, p, may, o}
}

func (s *Images) keys() Keys { return Keys(s.conn.Prefix) }

func amounts(gb int64) tenant.Amounts {
	a := tenant.Amounts{tenant.CountImages: 1}
	if gb > 0 {
		a[tenant.ImageGB] = gb
	}
	return a
}

// Charged returns the source of the charges for images.
func Charged(c *kv.Conn) tenants.Source {
	return tenants.Source{Prefix: Keys(c.Prefix).records(), Charge: func(key, value []byte) (tenants.Charge, error) {
		var i croft.Image
		err := c.Decode(key, value, &i)
		return tenants.Charge{Project: i.Project, Amounts: amounts(i.ChargedGB)}, err
	}}
}

// entry names one change of a charge.
func entry(i croft.Image) string { return fmt.Sprintf("image-%s-%d", i.ID, i.Revision) }

func (s *Images) decode(stored *mvccpb.KeyValue) (i croft.Image, err error) {
	err = s.conn.Decode(stored.Key, stored.Value, &i)
	i.Revision, i.CreateRevision = stored.ModRevision, stored.CreateRevision
	return i, err
}

func (s *Images) decodeCopy(stored *mvccpb.KeyValue) (c croft.ImageCopy, err error) {
	err = s.conn.Decode(stored.Key, stored.Value, &c)
	c.Revision = stored.ModRevision
	return c, err
}

func missing(name string) error {
	return croft.Errorf(croft.NotFound, "there is no image %.80q in the cloud's catalog; `croft image list` shows all", name)
}

func changed(i croft.Image) error {
	return croft.Errorf(croft.Conflict, "image %s was changed by another request: try again", i.Name)
}

// Get returns an image. NotFound.
func (s *Images) Get(ctx context.Context, id croft.ImageID) (croft.Image, error) {
	stored, err := s.conn.Get(ctx, s.keys().record(id), "read image %s", id)
	if err == nil && stored == nil {
		err = missing(string(id))
	}
	if err != nil {
		return croft.Image{}, err
	}
	return s.decode(stored)
}

// All returns all images, by project and name.
func (s *Images) All(ctx context.Context) (all []croft.Image, err error) {
	err = s.conn.ReadRange(ctx, "list the images", s.keys().records(), 0, func(stored *mvccpb.KeyValue) error {
		i, err := s.decode(stored)
		all = append(all, i)
		return err
	})
	slices.SortFunc(all, func(a, b croft.Image) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name))
	})
	return all, err
}

// Find returns the image that a name means for a project of this identity: its own image, else a public one, or with
// the name NAME@PROJECT one that this project shares with it. A UUID means any of these. NotFound.
func (s *Images) Find(ctx context.Context, p croft.Project, id croft.ProjectID, name string) (i croft.Image,
	err error) {
	if p.Check() != nil || strings.Contains(name, "/") { // they become parts of keys
		return i, missing(name)
	}
	found, err := croft.ParseImageID(name)
	if err != nil {
		names := []string{s.keys().Names(p) + name, s.keys().public() + name}
		if of, owner, is := strings.Cut(name, "@"); is {
			names = []string{s.keys().Names(croft.Project(owner)) + of}
		}
		if found, err = s.named(ctx, name, names...); err != nil {
			return i, err
		}
	}
	i, err = s.Get(ctx, found)
	if err == nil && i.Project != p && !i.Public && !i.Shared(p, id) {
		err = missing(name)
	}
	return i, err
}

// named returns the image that the first of the keys of names that exists leads to. NotFound.
func (s *Images) named(ctx context.Context, name string, keys ...string) (croft.ImageID, error) {
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(key))
	}
	found, err := s.conn.GetMany(ctx, "look for the image "+name, ops)
	if err != nil {
		return "", err
	}
	for _, one := range slices.Concat(found...) {
		return croft.ImageID(one.Value), nil
	}
	return "", missing(name)
}

// Usable returns the images that a project of this identity may use: its own ones, then those that are shared with it,
// then the public ones, each sorted by name.
func (s *Images) Usable(ctx context.Context, p croft.Project, id croft.ProjectID) ([]croft.Image, error) {
	if err := p.Check(); err != nil { // it becomes part of keys
		return nil, err
	}
	var ids []croft.ImageID
	for _, source := range []struct {
		prefix string
		id     func(*mvccpb.KeyValue) string
	}{
		{s.keys().Names(p), func(one *mvccpb.KeyValue) string { return string(one.Value) }},
		{s.keys().sharedWith(p), func(one *mvccpb.KeyValue) string { return kv.Last(one.Key) }},
		{s.keys().public(), func(one *mvccpb.KeyValue) string { return string(one.Value) }},
	} {
		if err := s.conn.ReadRange(ctx, "list the images", source.prefix, 0, func(one *mvccpb.KeyValue) error {
			if found := croft.ImageID(source.id(one)); !slices.Contains(ids, found) {
				ids = append(ids, found)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	var ops []clientv3.Op
	for _, one := range ids {
		ops = append(ops, clientv3.OpGet(s.keys().record(one)))
	}
	found, err := s.conn.GetMany(ctx, "read the images", ops)
	if err != nil {
		return nil, err
	}
	var all []croft.Image
	for _, stored := range slices.Concat(found...) {
		i, err := s.decode(stored)
		if err != nil {
			return nil, err
		}
		if i.Project == p || i.Public || i.Shared(p, id) {
			all = append(all, i)
		}
	}
	rank := func(i croft.Image) int {
		switch {
		case i.Project == p:
			return 0
		case i.Shared(p, id):
			return 1
		}
		return 2
	}
	slices.SortFunc(all, func(a, b croft.Image) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// names returns the keys that lead to an image, with their values.
func (s *Images) names(i croft.Image) map[string]string {
	keys := map[string]string{s.keys().Names(i.Project) + i.Name: string(i.ID)}
	if i.Public {
		keys[s.keys().public()+i.Name] = string(i.ID)
	}
	for _, share := range i.Shares {
		keys[s.keys().sharedWith(share.Project)+string(i.ID)] = string(share.ID)
	}
	return keys
}

// rename returns the operations that make the keys which lead to an image those of its next version, and the keys that
// must be absent.
func (s *Images) rename(was, next croft.Image) (free []clientv3.Cmp, ops []clientv3.Op) {
	before, after := map[string]string{}, s.names(next)
	if was.ID != "" {
		before = s.names(was)
	}
	for key := range before {
		if _, stays := after[key]; !stays {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	for key, value := range after {
		if _, has := before[key]; !has {
			free = append(free, kv.Absent(key))
			ops = append(ops, clientv3.OpPut(key, value))
		}
	}
	return free, ops
}

// Create writes the record of an image, its names, its charge, and the order for its first copy. Conflict: the name is
// taken. OverQuota. Unavailable: the host takes no orders.
func (s *Images) Create(ctx context.Context, i croft.Image, first croft.ImageCopy) (croft.Image, error) {
	if err := i.Project.Check(); err != nil { // it becomes part of a key
		return i, err
	}
	if err := s.may(); err != nil {
		return i, err
	}
	i.Copies = []croft.HostID{first.Host}
	record := s.keys().record(i.ID)
	free, ops := s.rename(croft.Image{}, i)
	name, public := s.keys().Names(i.Project)+i.Name, s.keys().public()+i.Name
	revision, err := s.projects.Write(ctx, tenants.ChargedWrite{Project: i.Project, Amounts: amounts(i.ChargedGB),
		Record: record, ID: entry(i), What: "write the record of image " + i.Name,
		// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
		If: append(free, kv.Exists(s.others.Alive(first.Host)), kv.Absent(s.others.Drained(first.Host))),
		Write: append(ops, clientv3.OpPut(record, kv.Encode(i)),
			clientv3.OpPut(s.keys().copyOn(first.Host, i.ID), kv.Encode(first))),
		Else: []clientv3.Op{clientv3.OpGet(name, clientv3.WithCountOnly()),
			clientv3.OpGet(public, clientv3.WithCountOnly()),
			clientv3.OpGet(s.others.Alive(first.Host), clientv3.WithCountOnly()),
			clientv3.OpGet(s.others.Drained(first.Host), clientv3.WithCountOnly())},
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			count := func(n int) int64 { return answers[n].GetResponseRange().Count }
			switch {
			case count(0) > 0:
				return croft.Errorf(croft.Conflict, "project %s has an image %s already: choose another name, or remove that "+
					"one first", i.Project, i.Name)
			case i.Public && count(1) > 0:
				return croft.Errorf(croft.Conflict, "there is a public image %s already: choose another name", i.Name)
			case count(2) == 0 || count(3) > 0:
				return croft.Errorf(croft.Unavailable, "host %s is silent or drained", first.Host)
			}
			return nil
		}})
	if err == nil && revision == 0 {
		err = changed(i)
	}
	if err != nil {
		return i, err
	}
	i.Revision, i.CreateRevision = revision, revision
	return i, nil
}

// write commits a change of an image as read. Conflict: it has changed since, or a name is taken.
func (s *Images) write(ctx context.Context, was, next croft.Image, more kv.Txn) (croft.Image, error) {
	key := s.keys().record(was.ID)
	free, ops := s.rename(was, next)
	if back := was.ChargedGB - next.ChargedGB; back > 0 {
		ops = append(ops, tenants.Keys(s.conn.Prefix).GiveBack(tenants.Charge{Project: was.Project,
			Amounts: tenant.Amounts{tenant.ImageGB: back}}, entry(was)))
	}
	more.If = append(append(more.If, free...), kv.Unchanged(key, was.Revision))
	more.Then = append(append(more.Then, ops...), clientv3.OpPut(key, kv.Encode(next)))
	more.Else = append(more.Else, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	revision, answers, err := s.conn.Commit(ctx, more, "write the record of image %s", was.Name)
	if err == nil && revision == 0 {
		err = changed(was)
		now := kv.First(answers[len(answers)-1])
		if next.Public && !was.Public && now != nil && now.ModRevision == was.Revision {
			err = croft.Errorf(croft.Conflict, "there is a public image %s already", next.Name)
		}
	}
	if err != nil {
		return was, err
	}
	next.Revision = revision
	return next, nil
}

// Change writes the next version of an image, which has the same project, name, copies and at most the same charge.
// Conflict: it has changed.
func (s *Images) Change(ctx context.Context, was, next croft.Image) (croft.Image, error) {
	return s.write(ctx, was, next, kv.Txn{})
}

// Copies returns the orders for the copies of an image; the ones that ended meanwhile are left out.
func (s *Images) Copies(ctx context.Context, i croft.Image) (all []croft.ImageCopy, err error) {
	var ops []clientv3.Op
	for _, host := range i.Copies {
		ops = append(ops, clientv3.OpGet(s.keys().copyOn(host, i.ID)))
	}
	found, err := s.conn.GetMany(ctx, "read the copies of image "+i.Name, ops)
	if err != nil {
		return nil, err
	}
	for _, stored := range slices.Concat(found...) {
		c, err := s.decodeCopy(stored)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// HostCopies returns the orders for copies on a host, which may have ended for their images.
func (s *Images) HostCopies(ctx context.Context, host croft.HostID) (all []croft.ImageCopy, err error) {
	prefix := s.keys().allCopies()
	if host != "" {
		prefix = s.keys().copiesOn(host)
	}
	err = s.conn.ReadRange(ctx, "list the copies of images", prefix, 0, func(stored *mvccpb.KeyValue) error {
		c, err := s.decodeCopy(stored)
		all = append(all, c)
		return err
	})
	return all, err
}

// AddCopy orders a copy of an image on a further host. Conflict: the image has changed, or the host still removes an
// earlier copy. Unavailable: the host takes no orders.
func (s *Images) AddCopy(ctx context.Context, i croft.Image, c croft.ImageCopy) (croft.Image, error) {
	next, key := i, s.keys().copyOn(c.Host, i.ID)
	next.Copies = append(slices.Clone(i.Copies), c.Host)
	// Existence is enough, as for the first copy.
	return s.write(ctx, i, next, kv.Txn{If: []clientv3.Cmp{kv.Absent(key), kv.Exists(s.others.Alive(c.Host)),
		kv.Absent(s.others.Drained(c.Host))},
		Then: []clientv3.Op{clientv3.OpPut(key, kv.Encode(c))}})
}

// condemn returns the comparisons and operations that order the removal of copies, as read.
func (s *Images) condemn(copies []croft.ImageCopy) (t kv.Txn) {
	for _, c := range copies {
		key := s.keys().copyOn(c.Host, c.Image)
		t.If = append(t.If, kv.Unchanged(key, c.Revision))
		c.Removing, c.Error = true, ""
		t.Then = append(t.Then, clientv3.OpPut(key, kv.Encode(c)))
	}
	return t
}

// DropCopies writes the next version of an image without copies on some hosts, and orders their removal, which their
// hosts carry out when they are alive again. Conflict: the image or a copy has changed.
func (s *Images) DropCopies(ctx context.Context, was, next croft.Image, hosts ...croft.HostID) (croft.Image, error) {
	copies, err := s.Copies(ctx, was)
	if err != nil {
		return was, err
	}
	copies = slices.DeleteFunc(copies, func(c croft.ImageCopy) bool { return !slices.Contains(hosts, c.Host) })
	next.Copies = slices.DeleteFunc(slices.Clone(was.Copies), func(h croft.HostID) bool {
		return slices.Contains(hosts, h)
	})
	return s.write(ctx, was, next, s.condemn(copies))
}

// Remove removes an image, its names and its charge, and orders the removal of all copies. Conflict: it has changed.
func (s *Images) Remove(ctx context.Context, i croft.Image) error {
	copies, err := s.Copies(ctx, i)
	if err != nil {
		return err
	}
	t := s.condemn(copies)
	for key := range s.names(i) {
		t.Then = append(t.Then, clientv3.OpDelete(key))
	}
	charge := tenants.Charge{Project: i.Project, Amounts: amounts(i.ChargedGB)}
	t.If = append(t.If, kv.Unchanged(s.keys().record(i.ID), i.Revision))
	t.Then = append(t.Then, clientv3.OpDelete(s.keys().record(i.ID)),
		tenants.Keys(s.conn.Prefix).GiveBack(charge, entry(i)))
	revision, _, err := s.conn.Commit(ctx, t, "remove image %s", i.Name)
	if err == nil && revision == 0 {
		err = changed(i)
	}
	return err
}

// Complete records that all chunks of an upload were sent. Conflict: the copy has changed.
func (s *Images) Complete(ctx context.Context, c croft.ImageCopy) error {
	next := c
	next.Complete, next.Error = true, ""
	return s.writeCopy(ctx, c, next)
}

// Start gives a host that is to save an image the snapshot to save it from. Conflict: the copy has changed.
func (s *Images) Start(ctx context.Context, c croft.ImageCopy, snapshot croft.VolumeID) error {
	next := c
	next.Snapshot = snapshot
	return s.writeCopy(ctx, c, next)
}

func (s *Images) writeCopy(ctx context.Context, was, next croft.ImageCopy) error {
	key := s.keys().copyOn(was.Host, was.Image)
	revision, _, err := s.conn.Commit(ctx, kv.Txn{If: []clientv3.Cmp{kv.Unchanged(key, was.Revision)},
		Then: []clientv3.Op{clientv3.OpPut(key, kv.Encode(next))}}, "write the order for a copy of image %s", was.Image)
	if err == nil && revision == 0 {
		err = croft.Errorf(croft.Conflict, "the copy of image %s was changed by another request: try again", was.Image)
	}
	return err
}

// ForgetHost removes the orders for copies on a host that was forgotten. The images no longer name it, see DropCopies.
func (s *Images) ForgetHost(ctx context.Context, host croft.HostID) error {
	copies, err := s.HostCopies(ctx, host)
	for _, c := range copies {
		if err != nil {
			return err
		}
		if c.Removing {
			err = s.forget(ctx, c)
		}
	}
	return err
}

func (s *Images) forget(ctx context.Context, c croft.ImageCopy) error {
	key := s.keys().copyOn(c.Host, c.Image)
	_, _, err := s.conn.Commit(ctx, kv.Txn{If: []clientv3.Cmp{kv.Unchanged(key, c.Revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)}}, "remove the order for a copy of image %s", c.Image)
	return err
}

// checkKey refuses texts that would lead to another key.
func checkKey(id croft.ImageID) error {
	if strings.Contains(string(id), "/") {
		return missing(string(id))
	}
	return nil
}

var errGone = errors.New("the image or the order for its copy is gone")
