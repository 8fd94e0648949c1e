package etcdserver

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"croft"
)

// damaged returns the error for files with which etcd cannot start. what names the files and the damage.
func damaged(dir, what string) error {
	return croft.Errorf(croft.Unavailable, "the files of the embedded etcd in %s are damaged: %s; %s", dir, what,
		remedy(dir))
}

// remedy returns advice about damaged files, as a clause.
func remedy(dir string) string {
	return fmt.Sprintf("move %s away, then make it anew from a snapshot with `croft etcd restore FILE`, "+
		"or, where other members of etcd run, start croft up again: it gets the data from them", dir)
}

// guarded calls do, and converts a panic to an error, including a fault at an address of a mapped file that was
// truncated.
func guarded[T any](do func() (T, error)) (_ T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	return do()
}

// startEtcd calls embed.StartEtcd, which panics because of some kinds of damaged files.
func startEtcd(cfg *embed.Config) (*embed.Etcd, error) {
	var failed error
	etcd, err := guarded(func() (*embed.Etcd, error) {
		etcd, err := embed.StartEtcd(cfg)
		failed = err
		return etcd, err
	})
	switch {
	case err == nil:
		return etcd, nil
	case failed == nil: // it panicked
		return nil, damaged(cfg.Dir, "etcd cannot read them: "+err.Error())
	}
	return nil, fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
}

// examine reads the files of a server that is not running, and returns an error if etcd would not start with them, or
// would wait forever. It changes nothing. An unfinished first start is no damage. Invalid: another program's etcd wrote
// them; name is the name that this server would have.
func examine(dir, name string) error {
	logs, _ := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	size := int64(-1)
	if info, err := os.Stat(database(dir)); err == nil {
		size = info.Size()
	}
	if len(logs) == 0 && size <= 0 {
		return nil
	}
	var db *contents
	if size >= 0 {
		var err error
		if db, err = guarded(func() (*contents, error) { return readDatabase(database(dir)) }); err != nil {
			return damaged(dir, fmt.Sprintf("the database member/snap/db cannot be read (%v)", err))
		}
	}
	if len(logs) == 0 {
		if db.applied == 0 {
			return nil
		}
		return damaged(dir, "the log is missing: member/wal has no *.wal")
	}
	log, err := guarded(func() (*logged, error) { return readLog(dir, logs) })
	if err != nil {
		return damaged(dir, fmt.Sprintf("the log in member/wal cannot be read (%v)", err))
	}
	if err := compare(dir, log, db); err != nil {
		return err
	}
	return checkOwner(dir, name, log, db)
}

// compare returns an error if log and database do not belong together.
func compare(dir string, log *logged, db *contents) error {
	switch {
	case db == nil && log.from > 0:
		return damaged(dir, "the database member/snap/db is missing")
	case db == nil:
		return nil // the log contains everything
	case len(db.members) > 0 && !db.members[log.member] && !log.tellsOf(db.members):
		return damaged(dir,
			"log and database are of two different servers: member/wal or member/snap was copied from elsewhere")
	case db.applied > log.last:
		return damaged(dir, fmt.Sprintf(
			"the log in member/wal was cut short: it ends at entry %d, and the database has entry %d", log.last,
			db.applied))
	}
	return nil
}

// contents is the description that a database contains.
type contents struct {
	applied uint64          // the last entry of the log that the database includes
	members map[string]bool // IDs of the members of its cluster, including removed ones

	names map[string]string // of the members that have started, by their IDs
}

// readDatabase reads a database that no process uses.
func readDatabase(path string) (_ *contents, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	found := &contents{members: map[string]bool{}, names: map[string]string{}}
	err = db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("it was cut short: it has %d bytes of %d", info.Size(), tx.Size())
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if at := meta.Get([]byte("consistent_index")); len(at) == 8 {
				found.applied = binary.BigEndian.Uint64(at)
			}
		}
		for _, name := range []string{"members", "members_removed"} {
			if b := tx.Bucket([]byte(name)); b != nil {
				err := b.ForEach(func(id, about []byte) error {
					found.members[string(id)] = true
					var m struct{ Name string }
					if json.Unmarshal(about, &m) == nil && m.Name != "" { // a removed member has no name
						found.names[string(id)] = m.Name
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	return found, err
}

// logged is the content of the log.
type logged struct {
	member     string          // the ID of the server, in the form in which the database stores it
	from, last uint64          // the entry of the snapshot on which the log is based, and the last entry
	added      map[string]bool // the IDs of members that its entries add
}

// tellsOf reports whether the log starts at the creation of the cluster and contains all of these members. A host that
// joins receives the history of the cluster in parts: until it has the entry that adds itself, its database only
// contains the former members.
func (l *logged) tellsOf(members map[string]bool) bool {
	if l.from > 0 { // a snapshot for a joining host includes that host
		return false
	}
	for id := range members {
		if !l.added[id] {
			return false
		}
	}
	return true
}

// readLog reads the log from its newest snapshot on. An incomplete end is no damage: etcd truncates it.
func readLog(dir string, files []string) (*logged, error) {
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			return nil, fmt.Errorf("%s is empty", filepath.Base(file))
		}
	}
	log := zap.NewNop()
	at := filepath.Join(dir, "member", "wal")
	marks, err := wal.ValidSnapshotEntries(log, at)
	if err != nil {
		return nil, err
	}
	if len(marks) == 0 {
		return nil, errors.New("it has no beginning")
	}
	from := newest(dir, marks)
	r, err := wal.OpenForRead(log, at, from)
	if err != nil {
		return nil, err
	}
	metadata, _, entries, err := r.ReadAll()
	_ = r.Close() // always fails for a log that was opened for reading
	if err != nil {
		return nil, err
	}
	var about etcdserverpb.Metadata
	if err := proto.Unmarshal(metadata, &about); err != nil {
		return nil, err
	}
	found := &logged{member: fmt.Sprintf("%x", about.GetNodeID()), from: from.GetIndex(), last: from.GetIndex(),
		added: map[string]bool{}}
	for _, e := range entries {
		var change raftpb.ConfChange
		if e.GetType() != raftpb.EntryConfChange || proto.Unmarshal(e.GetData(), &change) != nil {
			continue
		}
		if kind := change.GetType(); kind == raftpb.ConfChangeAddNode || kind == raftpb.ConfChangeAddLearnerNode {
			found.added[fmt.Sprintf("%x", change.GetNodeId())] = true
		}
	}
	if n := len(entries); n > 0 {
		found.last = entries[n-1].GetIndex()
	}
	return found, nil
}

// newest returns the newest snapshot that the log names and whose file exists and is intact; the first mark of a log,
// which has no file, stands for the start of the history.
func newest(dir string, marks []*walpb.Snapshot) *walpb.Snapshot {
	for i := len(marks) - 1; i > 0; i-- {
		name := fmt.Sprintf("%016x-%016x.snap", marks[i].GetTerm(), marks[i].GetIndex())
		if _, err := snap.Read(zap.NewNop(), filepath.Join(dir, "member", "snap", name)); err == nil {
			return marks[i]
		}
	}
	return marks[0]
}

// Members returns how many members the cluster of a directory has, as far as its server knows; 0: unknown.
func Members(dir string) int {
	n, err := guarded(func() (n int, err error) {
		db, err := bolt.Open(database(dir), 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return n, db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket([]byte("members")); b != nil {
				n = b.Stats().KeyN
			}
			return nil
		})
	})
	if err != nil {
		return 0
	}
	return n
}
