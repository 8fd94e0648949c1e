package node

import (
	"os"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdserver"
)

// RestoreEtcd recreates the etcd of a host from a snapshot, as the only member of the cloud. Invalid: there is no
// such file. Conflict: the host runs, or has an etcd.
func RestoreEtcd(stateDir, snapshot string) error {
	if _, err := os.Stat(snapshot); err != nil {
		return croft.Errorf(croft.Invalid, "read the snapshot: %w", err)
	}
	return withStateDir(stateDir, func(dir *compute.StateDir) error {
		id, err := dir.HostID()
		if err == nil {
			err = etcdserver.Restore(snapshot, EtcdDir(dir.Path), id)
		}
		return err
	})
}
