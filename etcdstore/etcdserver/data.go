package etcdserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"croft"
	"croft/internal/filelock"
)

func database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// IsMember reports whether a directory holds the data of an etcd server, which then needs no Config.Cluster.
func IsMember(dir string) bool {
	log, _ := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	return len(log) > 0
}

// ClearUnfinished removes the files that a server's first start left in a directory if it wrote no log: etcd has no
// state there. Other errors are the same as for a start in this directory.
func ClearUnfinished(dir string) error {
	if err := checkDir(dir); err != nil || IsMember(dir) {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "member")); err != nil {
		return fmt.Errorf("remove the files of an unfinished start: %w", err)
	}
	return nil
}

// checkUnused detects another etcd that runs in a directory: a second one would silently wait for its end. Conflict.
func checkUnused(dir string) error {
	db, err := os.Open(database(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the data of the embedded etcd: %w", err)
	}
	defer db.Close() // also releases the lock
	err = filelock.Take(db)
	if errors.Is(err, filelock.ErrTaken) {
		return croft.Errorf(croft.Conflict, "embedded etcd: another process uses %s; stop it, or ask it by its address",
			dir)
	}
	if err != nil {
		return fmt.Errorf("lock the data of the embedded etcd in %s: %w", dir, err)
	}
	return nil
}

// afterRestore is by how much the revision is raised when a snapshot is restored, which must exceed the number of
// revisions since the snapshot. Watches from a later revision then list again.
const afterRestore = 1_000_000_000

// Restore creates the data of a single-member cluster from a snapshot, in dir, which must not exist. Invalid:
// the file is not a snapshot, or incomplete.
func Restore(file, dir string, host croft.HostID) error {
	if _, err := os.Stat(file); err != nil {
		return croft.Errorf(croft.Invalid, "read the snapshot: %w", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.Conflict, "%s is there already: move it out of the way first", dir)
	}
	const peer = "http://127.0.0.1:0" // until the server publishes its address
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: string(host), PeerURLs: []string{peer},
		InitialCluster: string(host) + "=" + peer, InitialClusterToken: "croft-" + string(croft.NewPartitionID()),
		RevisionBump: afterRestore, MarkCompacted: true,
	})
	if err != nil {
		if strings.Contains(err.Error(), "hash") { // the library names an option of its own program
			err = errors.New("its checksum at the end is missing")
		}
		return croft.Errorf(croft.Invalid, "restore %s, which may be no snapshot or not whole: %w; copy it again, or "+
			"take another file that `croft etcd snapshot` wrote", file, errors.Join(err, os.RemoveAll(dir)))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	return nil
}
