package volumes

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
)

// Keys builds the keys of volumes; it is the prefix of the partition. The list of all keys is in etcdstore.
type Keys string

// Records returns the prefix of the records of volumes.
func (k Keys) Records() string { return string(k) + "volumes/records/" }

// On returns the prefix of the records of the volumes on a host.
func (k Keys) On(h croft.HostID) string       { return k.Records() + string(h) + "/" }
func (k Keys) record(v croft.Volume) string   { return k.On(v.Host) + string(v.ID) }
func (k Keys) names() string                  { return string(k) + "volumes/names/" }
func (k Keys) attached() string               { return string(k) + "volumes/attached/" }
func (k Keys) to(i croft.InstanceID) string   { return k.attached() + string(i) + "/" }
func (k Keys) lost(i croft.InstanceID) string { return string(k) + "volumes/lost/" + string(i) + "/" }

// attachment returns the key that exists as long as a volume is attached to its instance. That of a snapshot exists as
// long as the record of its instance.
func (k Keys) attachment(v croft.Volume) string {
	if v.Snapshot != nil && v.Snapshot.Lost {
		return k.lost(v.Snapshot.Instance) + string(v.ID)
	}
	return k.to(v.Instance) + string(v.ID)
}

// replace returns the operations that store a record in the place of another one of the same volume, which may have
// another host, below which the record then is.
func (k Keys) replace(was, next croft.Volume) []clientv3.Op {
	put := clientv3.OpPut(k.record(next), kv.Encode(next))
	if next.Host == was.Host {
		return []clientv3.Op{put}
	}
	return []clientv3.Op{clientv3.OpDelete(k.record(was)), put,
		clientv3.OpPut(k.Names(next.Project)+next.Name, string(next.Host)+"/"+string(next.ID))}
}

// Names returns the prefix of the names of a project's volumes.
func (k Keys) Names(p croft.Project) string { return k.names() + string(p) + "/" }

// Snapshots returns the prefix of the names of the snapshots of a project's instances.
func (k Keys) Snapshots(p croft.Project) string {
	return string(k) + "volumes/snapshots/" + string(p) + "/"
}

// snapshot returns the key of the name of an instance's snapshot.
func (k Keys) snapshot(p croft.Project, i croft.InstanceID, name string) string {
	return k.Snapshots(p) + string(i) + "/" + name
}

// ReadAttached returns the operation that reads which volumes are attached to an instance.
func (k Keys) ReadAttached(i croft.InstanceID) clientv3.Op {
	return clientv3.OpGet(k.to(i), clientv3.WithPrefix(), clientv3.WithKeysOnly())
}

// NoneAttached compares that no volume is attached to an instance.
func (k Keys) NoneAttached(i croft.InstanceID) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(k.to(i)), "=", 0).WithPrefix()
}

// DetachAll returns the operations that detach all volumes and snapshots of an instance, for the transaction that
// removes its record.
func (k Keys) DetachAll(i croft.InstanceID) []clientv3.Op {
	return []clientv3.Op{clientv3.OpDelete(k.to(i), clientv3.WithPrefix()),
		clientv3.OpDelete(k.lost(i), clientv3.WithPrefix())}
}
