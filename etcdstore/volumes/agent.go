package volumes

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/etcdstore/internal/kv"
)

var _ compute.Volumes = (*Volumes)(nil)

// WatchVolumes implements compute.Volumes.
func (s *Volumes) WatchVolumes(ctx context.Context, host croft.HostID, wake func(croft.VolumeID)) error {
	return s.conn.Follow(ctx, s.keys().On(host), func() {}, func(stored *mvccpb.KeyValue, _ bool) {
		wake(croft.VolumeID(kv.Last(stored.Key)))
	})
}

// HostVolumes returns the volumes of a host.
func (s *Volumes) HostVolumes(ctx context.Context, host croft.HostID) ([]croft.Volume, error) {
	return s.below(ctx, s.keys().On(host))
}

// Volume implements compute.Volumes.
func (s *Volumes) Volume(ctx context.Context, host croft.HostID, id croft.VolumeID) (croft.Volume, error) {
	return s.at(ctx, s.keys().record(croft.Volume{Host: host, ID: id}), string(id))
}

// update changes a record, again after concurrent changes. A record that next does not change is not written.
func (s *Volumes) update(ctx context.Context, host croft.HostID, id croft.VolumeID,
	change func(*croft.Volume)) error {
	for {
		v, err := s.Volume(ctx, host, id)
		if err != nil {
			return err
		}
		next := v
		if change(&next); kv.Encode(next) == kv.Encode(v) {
			return nil
		}
		if _, err := s.write(ctx, v, next, kv.Txn{}); !errors.Is(err, croft.Conflict) {
			return err
		}
	}
}

// MadeVolume implements compute.Volumes.
func (s *Volumes) MadeVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, sizeGB int64) error {
	return s.update(ctx, host, id, func(v *croft.Volume) { v.MadeGB, v.Error = max(v.MadeGB, sizeGB), "" })
}

// FailedVolume implements compute.Volumes.
func (s *Volumes) FailedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, why string) error {
	return s.update(ctx, host, id, func(v *croft.Volume) { v.Error = why })
}

// DetachedVolume implements compute.Volumes.
func (s *Volumes) DetachedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID,
	from croft.InstanceID) error {
	for {
		v, err := s.Volume(ctx, host, id)
		if err != nil || v.Instance != from || !v.Detaching {
			return err
		}
		if _, err := s.Detached(ctx, v); !errors.Is(err, croft.Conflict) {
			return err
		}
	}
}

// EndSnapshot orders the removal of a snapshot, unless its instance is being rolled back to it. One that is gone is no
// error.
func (s *Volumes) EndSnapshot(ctx context.Context, host croft.HostID, id croft.VolumeID) error {
	err := s.update(ctx, host, id, func(v *croft.Volume) {
		if v.Snapshot != nil && v.Snapshot.Rollback == "" {
			v.Removing, v.Error = true, ""
		}
	})
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	return err
}

// ForgetVolume implements compute.Volumes.
func (s *Volumes) ForgetVolume(ctx context.Context, host croft.HostID, id croft.VolumeID) error {
	for {
		v, err := s.Volume(ctx, host, id)
		if errors.Is(err, croft.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Forget(ctx, v); !errors.Is(err, croft.Conflict) || !v.Removing {
			return err
		}
	}
}

// Assigned returns the comparisons and operations that attach the volumes of a request, in the transaction that gives
// the instance its host, and the reads for Unassigned. It settles the claims of new volumes. Volumes that are attached
// to the instance already only must not have changed; its host becomes the keeper of the ones on shared storage.
func (k Keys) Assigned(inst croft.Instance) (compares []clientv3.Cmp, ops, reads []clientv3.Op) {
	for _, v := range inst.Volumes {
		key := k.record(v)
		compares = append(compares, kv.Unchanged(key, v.Revision))
		reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		next := v
		switch {
		case v.Host == inst.Host:
		case v.Storage != "": // any host that mounts the storage can have it
			next = v.KeptBy(inst.Host)
		case v.Instance == inst.ID: // it was lost with its host, and is made again from a backup
			next.Host, next.MadeGB, next.Error = inst.Host, 0, ""
		}
		if v.Instance != inst.ID {
			next.Instance, next.ClaimedGB, next.Session = inst.ID, v.SizeGB, ""
		}
		if v.Instance != inst.ID || v.Host != next.Host {
			ops = append(append(ops, k.replace(v, next)...), clientv3.OpPut(k.attachment(next), string(next.Host)))
		}
	}
	return compares, ops, reads
}

// Unassigned returns the error if a volume of a request has changed, according to the answers to the reads of Assigned.
func Unassigned(inst croft.Instance, answers []*mvccpb.KeyValue) error {
	for i, v := range inst.Volumes {
		if answers[i] == nil || answers[i].ModRevision != v.Revision {
			return changed(v)
		}
	}
	return nil
}

// Carried returns the comparisons and operations with which the transaction that starts a move holds the volumes of an
// instance: changes that are based on an earlier read of them fail.
func (k Keys) Carried(all []croft.Volume) (compares []clientv3.Cmp, ops []clientv3.Op) {
	for _, v := range all {
		key := k.record(v)
		compares = append(compares, kv.Unchanged(key, v.Revision))
		ops = append(ops, clientv3.OpPut(key, "", clientv3.WithIgnoreValue()))
	}
	return compares, ops
}

// ReadRecord returns the operation that reads the record of a volume.
func (k Keys) ReadRecord(v croft.Volume) clientv3.Op { return clientv3.OpGet(k.record(v)) }

// Moved returns the comparison and the operations that make a volume one of another host.
func (k Keys) Moved(v croft.Volume, to croft.HostID) (clientv3.Cmp, []clientv3.Op) {
	next := v.KeptBy(to)
	return kv.Unchanged(k.record(v), v.Revision), append(k.replace(v, next),
		clientv3.OpPut(k.attachment(next), string(to)))
}
