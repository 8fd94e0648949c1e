package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"croft"
)

// Snapshot writes all that etcd holds to w, with a checksum at its end, as one member
// has it: as of one moment, and no write that was acknowledged before is missing.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) (size int64, err error) {
	// A member that is behind would leave out what the others have acknowledged; it
	// answers this only once it has caught up.
	if _, err := s.etcd.Get(ctx, homeKey); err != nil {
		return 0, s.wrap(err, "read %s", homeKey)
	}
	stream, err := s.etcd.Snapshot(ctx)
	if err != nil {
		return 0, s.wrap(err, "take a snapshot")
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if size, err = io.Copy(w, stream); err != nil {
		return size, s.wrap(err, "take a snapshot")
	}
	return size, nil
}

// afterRestore is by how much the revision is raised when a snapshot is restored: more
// than anybody wrote since it was taken. Who watches from a later one lists again then.
const afterRestore = 1_000_000_000

// Restore makes the data of a server that is the only one of its cluster, in dir, which
// must not exist, from a snapshot. Invalid: the file is none, or not whole.
func Restore(file, dir string, host croft.HostID) error {
	if _, err := os.Stat(file); err != nil {
		return croft.Errorf(croft.Invalid, "read the snapshot: %w", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.Conflict, "%s is there already: move it out of the way first", dir)
	}
	const peer = "http://127.0.0.1:0" // until the server says where it is
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: string(host), PeerURLs: []string{peer},
		InitialCluster: string(host) + "=" + peer, InitialClusterToken: "croft-" + string(croft.NewPartitionID()),
		RevisionBump: afterRestore, MarkCompacted: true,
	})
	if err != nil {
		return croft.Errorf(croft.Invalid, "restore %s, which may be no snapshot or not whole: %w", file,
			errors.Join(err, os.RemoveAll(dir)))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	return nil
}
