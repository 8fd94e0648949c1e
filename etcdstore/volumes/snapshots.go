package volumes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/schedule"
)

// CreateSnapshot writes the record of a snapshot of an instance and its volumes that is not claimed yet, its name and
// its charge, under a session. The records of the instance and of the volumes must not have changed. Conflict: they
// have, or the name is taken. OverQuota. ErrClosed: the host is silent.
func (s *Volumes) CreateSnapshot(ctx context.Context, v croft.Volume, inst croft.Instance, disks []croft.Volume) (
	croft.Volume, error) {
	if err := v.Project.Check(); err != nil { // it becomes part of a key
		return v, err
	}
	if err := s.may(); err != nil {
		return v, err
	}
	name, alive := s.keys().snapshot(v.Project, v.Instance, v.Name), s.others.Alive(v.Host)
	type record struct {
		key      string
		revision int64
	}
	based := []record{{s.others.Instance(inst.ID), inst.Revision}}
	for _, disk := range disks {
		based = append(based, record{s.keys().record(disk), disk.Revision})
	}
	w := tenants.ChargedWrite{Record: s.keys().record(v), Amounts: amounts(v, v.SizeGB), ID: entry(v, 0),
		If: []clientv3.Cmp{kv.Absent(name), kv.Exists(alive)}, // existence is enough, as for volumes
		Write: []clientv3.Op{clientv3.OpPut(name, string(v.Host)+"/"+string(v.ID)),
			clientv3.OpPut(s.keys().attachment(v), string(v.Host))},
		Else: []clientv3.Op{clientv3.OpGet(name, clientv3.WithCountOnly()),
			clientv3.OpGet(alive, clientv3.WithCountOnly())},
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			switch {
			case answers[0].GetResponseRange().Count > 0:
				return croft.Errorf(croft.Conflict, "the instance has a snapshot %s already: choose another name", v.Name)
			case answers[1].GetResponseRange().Count == 0:
				return croft.Errorf(croft.Unavailable, "%w: its host is silent", schedule.ErrClosed)
			}
			for i, on := range based {
				if now := kv.First(answers[2+i]); now == nil || now.ModRevision != on.revision {
					return croft.Errorf(croft.Conflict, "the instance or its volumes were changed by another request: try again")
				}
			}
			return nil
		}}
	// Rewriting the records makes a concurrent change fail that has not seen the snapshot: a move of the instance, or a
	// detachment of a volume.
	for _, on := range based {
		w.If = append(w.If, kv.Unchanged(on.key, on.revision))
		w.Write = append(w.Write, clientv3.OpPut(on.key, "", clientv3.WithIgnoreValue()))
		w.Else = append(w.Else, clientv3.OpGet(on.key, clientv3.WithKeysOnly()))
	}
	return s.charge(ctx, v, w)
}

// Snapshots returns the snapshots of a project's instances, sorted by instance and age, the oldest first.
func (s *Volumes) Snapshots(ctx context.Context, project croft.Project) (all []croft.Volume, err error) {
	if project == "" {
		all, err = s.below(ctx, s.keys().Records())
		all = slices.DeleteFunc(all, func(v croft.Volume) bool { return v.Snapshot == nil || v.SizeGB == 0 })
	} else if err = project.Check(); err == nil {
		all, err = s.named(ctx, s.keys().Snapshots(project))
	}
	slices.SortFunc(all, func(a, b croft.Volume) int {
		return cmp.Or(cmp.Compare(a.Snapshot.Instance, b.Snapshot.Instance),
			cmp.Compare(a.CreateRevision, b.CreateRevision))
	})
	return all, err
}

// FindSnapshot returns a snapshot of an instance. NotFound.
func (s *Volumes) FindSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error) {
	missing := croft.Errorf(croft.NotFound, "instance %s has no snapshot %.80q; `croft snapshot list` shows all", inst.Name,
		name)
	if strings.Contains(name, "/") {
		return croft.Volume{}, missing
	}
	place, err := s.conn.Get(ctx, s.keys().snapshot(inst.Project, inst.ID, name), "look for the snapshot %s", name)
	if err != nil {
		return croft.Volume{}, err
	}
	if place == nil {
		return croft.Volume{}, missing
	}
	return s.at(ctx, s.keys().Records()+string(place.Value), name)
}

// Lose returns the comparisons and operations that mark the snapshots of an instance as lost, for the transaction that
// marks the instance. It has no snapshots afterwards, but they keep their records and names until GiveUpLost, or until
// the record of the instance is removed. dead, unless it is empty, is the host that was declared dead: the locks of the
// instance's volumes on shared storage may be taken from it.
func Lose(ctx context.Context, c *kv.Conn, id croft.InstanceID, dead croft.HostID) (compares []clientv3.Cmp,
	ops []clientv3.Op, err error) {
	s := &Volumes{conn: c}
	all, err := s.AttachedTo(ctx, id)
	for _, v := range all {
		if v.Storage != "" && dead != "" {
			compares = append(compares, kv.Unchanged(s.keys().record(v), v.Revision))
			ops = append(ops, s.keys().replace(v, v.TakenFrom(dead))...)
		}
		if v.Snapshot == nil {
			continue
		}
		next, snapshot := v, *v.Snapshot
		snapshot.Lost, snapshot.Rollback = true, ""
		next.Snapshot = &snapshot
		key := s.keys().record(v)
		compares = append(compares, kv.Unchanged(key, v.Revision))
		ops = append(ops, clientv3.OpDelete(s.keys().attachment(v)), clientv3.OpPut(key, kv.Encode(next)),
			clientv3.OpPut(s.keys().attachment(next), string(v.Host)))
	}
	return compares, ops, err
}

// GiveUpLost removes the name and the charge of a lost snapshot. What remains of its record is the order for its host
// to remove what it still has of the snapshot. Conflict: the record has changed.
func (s *Volumes) GiveUpLost(ctx context.Context, v croft.Volume) error {
	next := v
	next.SizeGB, next.ClaimedGB, next.MadeGB, next.Instance, next.Removing = 0, 0, 0, "", true
	_, err := s.write(ctx, v, next, kv.Txn{Then: s.unname(v)})
	return err
}

// RollBack orders that the disks of a snapshot replace the present ones. Conflict: the record has changed.
func (s *Volumes) RollBack(ctx context.Context, v croft.Volume, how croft.Rollback) (croft.Volume, error) {
	next, snapshot := v, *v.Snapshot
	snapshot.Rollback = how
	next.Snapshot, next.Error = &snapshot, ""
	return s.write(ctx, v, next, kv.Txn{})
}

// TookSnapshot implements compute.Volumes.
func (s *Volumes) TookSnapshot(ctx context.Context, host croft.HostID, id croft.VolumeID, how croft.Snapshot) error {
	return s.update(ctx, host, id, func(v *croft.Volume) {
		if v.Snapshot == nil || v.MadeGB > 0 {
			return
		}
		snapshot := *v.Snapshot
		snapshot.Taken, snapshot.Method, snapshot.Note = how.Taken, how.Method, how.Note
		v.Snapshot, v.MadeGB, v.Error = &snapshot, v.ClaimedGB, ""
	})
}

// RolledBack implements compute.Volumes.
func (s *Volumes) RolledBack(ctx context.Context, host croft.HostID, id croft.VolumeID, at time.Time,
	why string) error {
	return s.update(ctx, host, id, func(v *croft.Volume) {
		if v.Snapshot == nil || v.Snapshot.Rollback == "" {
			return
		}
		snapshot := *v.Snapshot
		snapshot.Rollback = ""
		if why == "" {
			snapshot.RolledBack = at
		}
		v.Snapshot, v.Error = &snapshot, why
	})
}
