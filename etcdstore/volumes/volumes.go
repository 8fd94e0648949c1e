// Package volumes stores the records of volumes in etcd. The record of a volume is below the prefix of its host: it is
// also the order about the volume for the agent there.
//
// A volume is attached while a key below its instance exists, and its record names the instance. The transaction that
// removes the record of an instance removes these keys too, so no volume stays attached to an instance that ended, or
// is attached to a later one with the same UUID. Only a change of the volume's record creates the key, so a compare of
// the record makes the attachment exclusive.
//
// The snapshots of an instance have records of the same kind, which are attached to the instance from their creation to
// their removal. A snapshot that is attached to none, because its instance ended, is to be removed.
package volumes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/schedule"
	"croft/tenant"
)

// Sessions gives requests a session, which lives as long as this process.
type Sessions struct {
	Begin  func(context.Context) (session string, lease clientv3.LeaseID, err error)
	Retire func(session string) // after a transaction of unknown outcome
	Key    func(session string) string
}

// Volumes is the store of volumes.
type Volumes struct {
	conn     *kv.Conn
	projects *tenants.Projects
	sessions Sessions
	may      func() error // whether all programs of this cloud know volumes
	others   Others
}

// Others has keys of other stores.
type Others struct {
	Instance func(croft.InstanceID) string // of an instance's record
	Alive    func(croft.HostID) string     // exists while the host's agent is alive
	Drained  func(croft.HostID) string     // exists while the host is drained
	Dead     func(croft.HostID) string     // of the death of a host
}

// New makes the store of volumes, which creates records if may returns nil.
func New(c *kv.Conn, p *tenants.Projects, s Sessions, may func() error, o Others) *Volumes {
	return &Volumes{c, p, s, may, o}
}

func (s *Volumes) keys() Keys { return Keys(s.conn.Prefix) }

// amounts returns the charge for a volume or a snapshot of a size.
func amounts(v croft.Volume, sizeGB int64) tenant.Amounts {
	count := tenant.CountVolumes
	if sizeGB == 0 { // given up
		return nil
	}
	if v.Snapshot != nil {
		count = tenant.CountSnapshots
	}
	return tenant.Amounts{count: 1, tenant.Measure(croft.DiskGB): sizeGB}
}

// Charged returns the source of the charges for volumes.
func Charged(c *kv.Conn) tenants.Source {
	return tenants.Source{Prefix: Keys(c.Prefix).Records(), Charge: func(key, value []byte) (tenants.Charge, error) {
		var v croft.Volume
		err := c.Decode(key, value, &v)
		return tenants.Charge{Project: v.Project, Amounts: amounts(v, v.SizeGB)}, err
	}}
}

// entry names one change of a charge.
func entry(v croft.Volume, revision int64) string { return fmt.Sprintf("volume-%s-%d", v.ID, revision) }

func (s *Volumes) decode(stored *mvccpb.KeyValue) (croft.Volume, error) {
	var v croft.Volume
	err := s.conn.Decode(stored.Key, stored.Value, &v)
	v.Revision, v.CreateRevision = stored.ModRevision, stored.CreateRevision
	return v, err
}

// read decodes records. A volume whose instance has ended is detached; a snapshot of such an instance is to be removed.
func (s *Volumes) read(ctx context.Context, stored []*mvccpb.KeyValue) ([]croft.Volume, error) {
	all := make([]croft.Volume, 0, len(stored))
	var ops []clientv3.Op
	for _, one := range stored {
		v, err := s.decode(one)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
		if v.Instance != "" {
			ops = append(ops, clientv3.OpGet(s.keys().attachment(v), clientv3.WithKeysOnly()))
		}
	}
	attached, err := s.conn.GetMany(ctx, "read which volumes are attached", ops)
	for i := range all {
		if err != nil || all[i].Instance == "" {
			continue
		}
		if len(attached[0]) == 0 {
			all[i].Instance, all[i].Detaching = "", false
			all[i].Removing = all[i].Removing || all[i].Snapshot != nil
		}
		attached = attached[1:]
	}
	return all, err
}

// below returns the volumes whose records are below a prefix.
func (s *Volumes) below(ctx context.Context, prefix string) ([]croft.Volume, error) {
	var stored []*mvccpb.KeyValue
	if err := s.conn.ReadRange(ctx, "list the volumes", prefix, 0, func(one *mvccpb.KeyValue) error {
		stored = append(stored, one)
		return nil
	}); err != nil {
		return nil, err
	}
	return s.read(ctx, stored)
}

// missing is the error about a volume that does not exist.
func missing(name string) error {
	return croft.Errorf(croft.NotFound, "there is no volume %.80q; `croft volume list` shows all", name)
}

// at returns the volume with a record at a key. NotFound.
func (s *Volumes) at(ctx context.Context, key, name string) (croft.Volume, error) {
	stored, err := s.conn.Get(ctx, key, "read the volume %s", name)
	if err != nil {
		return croft.Volume{}, err
	}
	if stored == nil {
		return croft.Volume{}, missing(name)
	}
	all, err := s.read(ctx, []*mvccpb.KeyValue{stored})
	if err != nil {
		return croft.Volume{}, err
	}
	return all[0], nil
}

// Find returns a project's volume. NotFound.
func (s *Volumes) Find(ctx context.Context, project croft.Project, name string) (croft.Volume, error) {
	if project.Check() != nil || strings.Contains(name, "/") {
		return croft.Volume{}, missing(name)
	}
	place, err := s.conn.Get(ctx, s.keys().Names(project)+name, "look for the volume %s", name)
	if err != nil {
		return croft.Volume{}, err
	}
	if place == nil {
		return croft.Volume{}, missing(name)
	}
	return s.at(ctx, s.keys().Records()+string(place.Value), name)
}

// List returns the volumes of a project, by name; with an empty project, all volumes.
func (s *Volumes) List(ctx context.Context, project croft.Project) (all []croft.Volume, err error) {
	if project == "" {
		all, err = s.below(ctx, s.keys().Records())
		all = slices.DeleteFunc(all, func(v croft.Volume) bool { return v.Snapshot != nil })
	} else {
		all, err = s.named(ctx, s.keys().Names(project))
	}
	slices.SortFunc(all, func(a, b croft.Volume) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project))
	})
	return all, err
}

// named returns the volumes or snapshots whose names are below a prefix.
func (s *Volumes) named(ctx context.Context, prefix string) ([]croft.Volume, error) {
	var ops []clientv3.Op
	note := func(name *mvccpb.KeyValue) error {
		ops = append(ops, clientv3.OpGet(s.keys().Records()+string(name.Value)))
		return nil
	}
	if err := s.conn.ReadRange(ctx, "list the volumes", prefix, 0, note); err != nil {
		return nil, err
	}
	found, err := s.conn.GetMany(ctx, "list the volumes", ops)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, slices.Concat(found...))
}

// AttachedTo returns the volumes that are attached to an instance, and its snapshots, by name.
func (s *Volumes) AttachedTo(ctx context.Context, id croft.InstanceID) (all []croft.Volume, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().to(id), clientv3.WithPrefix())
	if err != nil {
		return nil, s.conn.Wrap(err, "read which volumes are attached to instance %s", id)
	}
	var ops []clientv3.Op
	for _, one := range got.Kvs {
		ops = append(ops, clientv3.OpGet(s.keys().Records()+string(one.Value)+"/"+kv.Last(one.Key)))
	}
	found, err := s.conn.GetMany(ctx, "read the volumes", ops)
	if err != nil {
		return nil, err
	}
	all, err = s.read(ctx, slices.Concat(found...))
	slices.SortFunc(all, func(a, b croft.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(all, func(v croft.Volume) bool { return v.Instance != id }), err
}

// write commits a change of a record as read, and returns the record as stored. Conflict: it has changed since.
func (s *Volumes) write(ctx context.Context, was, next croft.Volume, more kv.Txn) (croft.Volume, error) {
	more.If = append(more.If, kv.Unchanged(s.keys().record(was), was.Revision))
	more.Then = append(more.Then, s.keys().replace(was, next)...)
	revision, _, err := s.conn.Commit(ctx, more, "write the record of volume %s", was.Name)
	if err == nil && revision == 0 {
		err = changed(was)
	}
	if err != nil {
		return was, err
	}
	next.Revision = revision
	return next, nil
}

func changed(v croft.Volume) error {
	return croft.Errorf(croft.Conflict, "%s %s was changed by another request: try again", v.Noun(), v.Name)
}

// Create writes the record of a volume that is not claimed yet, its name and its charge, under a session. Conflict: the
// name is taken. OverQuota.
func (s *Volumes) Create(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	if err := v.Project.Check(); err != nil { // it becomes part of a key
		return v, err
	}
	if err := s.may(); err != nil {
		return v, err
	}
	name := s.keys().Names(v.Project) + v.Name
	return s.charge(ctx, v, tenants.ChargedWrite{Record: s.keys().record(v), Amounts: amounts(v, v.SizeGB),
		ID: entry(v, 0),
		// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
		If:    []clientv3.Cmp{kv.Absent(name), kv.Exists(s.others.Alive(v.Host)), kv.Absent(s.others.Drained(v.Host))},
		Write: []clientv3.Op{clientv3.OpPut(name, string(v.Host)+"/"+string(v.ID))},
		Else: []clientv3.Op{clientv3.OpGet(name, clientv3.WithCountOnly()),
			clientv3.OpGet(s.others.Alive(v.Host), clientv3.WithCountOnly()),
			clientv3.OpGet(s.others.Drained(v.Host), clientv3.WithCountOnly())},
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			if answers[0].GetResponseRange().Count > 0 {
				return croft.Errorf(croft.Conflict, "there is a volume %s already: choose another name", v.Name)
			}
			if answers[1].GetResponseRange().Count == 0 || answers[2].GetResponseRange().Count > 0 {
				return croft.Errorf(croft.Unavailable, "%w: host %s is silent or drained", schedule.ErrClosed, v.Host)
			}
			return nil
		}})
}

// Enlarge writes the size that a volume is to have, and its charge, under a session. Conflict: the record has changed.
// OverQuota.
func (s *Volumes) Enlarge(ctx context.Context, v croft.Volume, sizeGB int64) (croft.Volume, error) {
	key, next := s.keys().record(v), v
	next.SizeGB = sizeGB
	return s.charge(ctx, next, tenants.ChargedWrite{Amounts: amounts(v, sizeGB).Minus(amounts(v, v.SizeGB)),
		ID: entry(v, v.Revision), If: []clientv3.Cmp{kv.Unchanged(key, v.Revision)},
		Else: []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())},
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			if now := kv.First(answers[0]); now == nil || now.ModRevision != v.Revision {
				return changed(v)
			}
			return nil
		}})
}

// charge completes and does a write of a record.
func (s *Volumes) charge(ctx context.Context, v croft.Volume, w tenants.ChargedWrite) (croft.Volume, error) {
	session, lease, err := s.sessions.Begin(ctx)
	if err != nil {
		return v, err
	}
	v.Session = session
	w.Project, w.What = v.Project, "write the record of "+v.Noun()+" "+v.Name
	w.Write = append(w.Write, clientv3.OpPut(s.keys().record(v), kv.Encode(v)),
		clientv3.OpPut(s.sessions.Key(session), "", clientv3.WithLease(lease)))
	revision, err := s.projects.Write(ctx, w)
	if err == nil && revision == 0 {
		err = changed(v)
	}
	if err != nil {
		if kv.MayBeWritten(err) {
			s.sessions.Retire(session) // the caretaker undoes the request if it was written
		}
		return v, err
	}
	v.Revision, v.CreateRevision = revision, cmp.Or(v.CreateRevision, revision)
	return v, nil
}

// Settle records that the size of a volume is claimed. Conflict: the record has changed.
func (s *Volumes) Settle(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	next := v
	next.ClaimedGB, next.Session = v.SizeGB, ""
	return s.write(ctx, v, next, kv.Txn{})
}

// Retire implements volumes.Store of the scheduler.
func (s *Volumes) Retire(session string) { s.sessions.Retire(session) }

// Fence rewrites an unchanged record and returns it as stored: no pending write that compares it can succeed
// afterwards. NotFound: it is gone.
func (s *Volumes) Fence(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	key := s.keys().record(v)
	_, answers, err := s.conn.Commit(ctx, kv.Txn{If: []clientv3.Cmp{kv.Unchanged(key, v.Revision)},
		Then: []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithIgnoreValue()), clientv3.OpGet(key)},
		Else: []clientv3.Op{clientv3.OpGet(key)}}, "settle the record of volume %s", v.Name)
	if err != nil {
		s.sessions.Retire(v.Session)
		return v, err
	}
	now := kv.First(answers[len(answers)-1])
	if now == nil {
		return v, missing(v.Name)
	}
	return s.decode(now)
}

// GiveUp ends a request whose size is not claimed: the volume gets the size that it had, or its record is removed if it
// had none, and the project is repaid. Conflict: the record has changed.
func (s *Volumes) GiveUp(ctx context.Context, v croft.Volume) error {
	if v.ClaimedGB == 0 {
		return s.remove(ctx, v)
	}
	next := v
	next.SizeGB, next.Session = v.ClaimedGB, ""
	back := tenants.Charge{Project: v.Project, Amounts: amounts(v, v.SizeGB).Minus(amounts(v, v.ClaimedGB))}
	_, err := s.write(ctx, v, next, kv.Txn{Then: []clientv3.Op{
		tenants.Keys(s.conn.Prefix).GiveBack(back, entry(v, v.Revision))}})
	return err
}

// remove removes a record, its name and its charge. Conflict: the record has changed.
func (s *Volumes) remove(ctx context.Context, v croft.Volume) error {
	key := s.keys().record(v)
	then := []clientv3.Op{clientv3.OpDelete(key)}
	if v.SizeGB > 0 { // otherwise it was given up, and another snapshot may have its name
		then = append(then, s.unname(v)...)
	}
	revision, _, err := s.conn.Commit(ctx, kv.Txn{If: []clientv3.Cmp{kv.Unchanged(key, v.Revision)}, Then: then},
		"remove %s %s", v.Noun(), v.Name)
	if err == nil && revision == 0 {
		err = changed(v)
	}
	return err
}

// unname returns the operations that remove the name and the charge of a volume or a snapshot, and the attachment of a
// snapshot.
func (s *Volumes) unname(v croft.Volume) []clientv3.Op {
	ops := []clientv3.Op{tenants.Keys(s.conn.Prefix).GiveBack(
		tenants.Charge{Project: v.Project, Amounts: amounts(v, v.SizeGB)}, entry(v, v.Revision))}
	if v.Snapshot == nil {
		return append(ops, clientv3.OpDelete(s.keys().Names(v.Project)+v.Name))
	}
	of := v.Snapshot.Instance
	return append(ops, clientv3.OpDelete(s.keys().snapshot(v.Project, of, v.Name)),
		clientv3.OpDelete(s.keys().to(of)+string(v.ID)), clientv3.OpDelete(s.keys().lost(of)+string(v.ID)))
}

// Condemn orders the removal of a snapshot, or of a volume, which must not be attached. Conflict: the record has
// changed.
func (s *Volumes) Condemn(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	next := v
	next.Removing, next.Error = true, ""
	return s.write(ctx, v, next, kv.Txn{})
}

// Forget removes the record of a volume that is to be removed and has no file. Conflict: it changed.
func (s *Volumes) Forget(ctx context.Context, v croft.Volume) error {
	if !v.Removing {
		return croft.Errorf(croft.Conflict, "volume %s is not to be removed", v.Name)
	}
	return s.remove(ctx, v)
}

// Attach attaches a volume that is attached to none to an instance on its host, whose record must not have changed. The
// host of the instance becomes the keeper of a volume on shared storage. Conflict.
func (s *Volumes) Attach(ctx context.Context, v croft.Volume, inst croft.Instance) (croft.Volume, error) {
	next := v
	if v.Storage != "" && v.Host != inst.Host {
		next = v.KeptBy(inst.Host)
	}
	next.Instance, next.Detaching, next.Error = inst.ID, false, ""
	return s.write(ctx, v, next, kv.Txn{
		If: []clientv3.Cmp{kv.Unchanged(s.others.Instance(inst.ID), inst.Revision)},
		// Rewriting the record of the instance makes a move fail that has not seen the volume.
		Then: []clientv3.Op{clientv3.OpPut(s.others.Instance(inst.ID), "", clientv3.WithIgnoreValue()),
			clientv3.OpPut(s.keys().attachment(next), string(next.Host))}})
}

// Keep implements volumes.Store of the scheduler.
func (s *Volumes) Keep(ctx context.Context, v croft.Volume, was croft.Host, to croft.HostID) (croft.Volume, error) {
	next, record := v, s.keys().record(v)
	// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
	txn := kv.Txn{If: []clientv3.Cmp{kv.Unchanged(record, v.Revision), kv.Exists(s.others.Alive(to))},
		Else: []clientv3.Op{clientv3.OpGet(record, clientv3.WithKeysOnly())}}
	switch {
	case was.IsDead():
		next = next.TakenFrom(v.Host)
		txn.If = append(txn.If, kv.Created(s.others.Dead(v.Host), was.Death.CreateRevision))
	case was.ID == "": // it was removed from the cloud for good
		next = next.TakenFrom(v.Host)
		txn.If = append(txn.If, kv.Absent(s.others.Alive(v.Host)))
	}
	next = next.KeptBy(to)
	txn.Then = s.keys().replace(v, next)
	revision, answers, err := s.conn.Commit(ctx, txn, "give volume %s another keeper", v.Name)
	if err != nil {
		return v, err
	}
	if revision == 0 {
		if now := kv.First(answers[0]); now == nil || now.ModRevision != v.Revision {
			return v, changed(v)
		}
		return v, croft.Errorf(croft.Unavailable, "its host came back, or the one that was to take it over went silent, "+
			"at this moment: try again")
	}
	next.Revision, next.CreateRevision = revision, revision
	return next, nil
}

// TakeFrom notes that a host that was declared dead may have the lock of a volume on shared storage. Conflict: the
// record has changed, or the host was taken back.
func (s *Volumes) TakeFrom(ctx context.Context, v croft.Volume, dead croft.Host) error {
	if !dead.IsDead() {
		return croft.Errorf(croft.Conflict, "host %s was not declared dead", dead.Name)
	}
	_, err := s.write(ctx, v, v.TakenFrom(dead.ID), kv.Txn{If: []clientv3.Cmp{
		kv.Created(s.others.Dead(dead.ID), dead.Death.CreateRevision)}})
	return err
}

// Detach orders that a volume is detached from its instance. Conflict: the record has changed.
func (s *Volumes) Detach(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	next := v
	next.Detaching = true
	return s.write(ctx, v, next, kv.Txn{})
}

// Detached records that a volume is attached to no instance any more. Conflict: the record has changed.
func (s *Volumes) Detached(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	next := v
	next.Instance, next.Detaching, next.Error = "", false, ""
	return s.write(ctx, v, next, kv.Txn{Then: []clientv3.Op{clientv3.OpDelete(s.keys().attachment(v))}})
}
