package etcdserver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/etcdstore/etcdserver"
)

// written returns the directory of a server that was written to and closed.
func written(t *testing.T, value string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "etcd")
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0", Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := server.Client()
	defer client.Close()
	for i := range 40 {
		if _, err := client.Put(t.Context(), fmt.Sprintf("/key/%d", i), strings.Repeat(value, 2000)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Files are damaged as by a power loss, a full disk or a mistaken copy. A start names the damage and its remedy, in one
// sentence, and neither panics nor waits. Damage that etcd itself repairs is no error.
func TestDamagedFilesAreNamedWithTheirRemedy(t *testing.T) {
	t.Parallel()
	good, other := written(t, "a"), written(t, "b")
	log := func(dir string) string {
		all, _ := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		return all[len(all)-1]
	}
	db := func(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
	flip := func(file string, at int64) error {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		b := make([]byte, 64)
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		for i := range b {
			b[i] ^= 0xff
		}
		_, err = f.WriteAt(b, at)
		return err
	}
	for _, c := range []struct {
		name   string
		damage func(dir string) error
		says   string // empty: the server starts
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"an empty log", func(dir string) error { return os.Truncate(log(dir), 0) }, ".wal is empty"},
		{"a log cut short", func(dir string) error { return os.Truncate(log(dir), 3001) }, "wal was cut short"},
		{"a log cut to its first bytes", func(dir string) error { return os.Truncate(log(dir), 5) },
			"the log in member/wal cannot be read"},
		{"no log", func(dir string) error { return os.Remove(log(dir)) }, "the log is missing"},
		{"flipped bytes in the log", func(dir string) error { return flip(log(dir), 2500) }, "the log in member/wal"},
		{"a database cut short", func(dir string) error { return os.Truncate(db(dir), 20480) },
			"the database member/snap/db cannot be read"},
		{"an empty database", func(dir string) error { return os.Truncate(db(dir), 0) },
			"the database member/snap/db cannot be read"},
		{"flipped bytes at the beginning of the database", func(dir string) error {
			return flip(db(dir), 0) // then the second of its two meta pages is used
		}, ""},
		{"a database without a beginning", func(dir string) error {
			return os.WriteFile(db(dir), make([]byte, 65536), 0o600)
		}, "the database member/snap/db cannot be read"},
		{"the log of another server", func(dir string) error {
			text, err := os.ReadFile(log(other))
			if err != nil {
				return err
			}
			return os.WriteFile(log(dir), text, 0o600)
		}, ""}, // servers with the same first entries have the same ID
		{"a first start that did not finish", func(dir string) error {
			return os.RemoveAll(filepath.Join(dir, "member"))
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "etcd")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			server, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0", Unsynced: true})
			if err == nil {
				server.Close()
			}
			switch {
			case c.says == "" && err != nil:
				t.Errorf("it does not start: %v", err)
			case c.says != "" && (croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "`croft etcd restore FILE`") || !strings.Contains(err.Error(), dir)):
				t.Errorf("got %v, want %q and the remedy", err, c.says)
			}
		})
	}
}

// A member that waits for others ends as soon as its context does.
func TestAStartWithoutAMajorityEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := etcdserver.Config{Dir: filepath.Join(t.TempDir(), "etcd"), Listen: "127.0.0.1:0", Unsynced: true}
	server, err := etcdserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	_, err = client.MemberAdd(t.Context(), []string{"http://127.0.0.1:1"})
	client.Close()
	server.Close()
	if err != nil {
		t.Fatal(err)
	}
	if n := etcdserver.Members(c.Dir); n != 2 {
		t.Errorf("its files name %d members, want 2", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := etcdserver.Start(ctx, c); ended <- err }()
	select {
	case err := <-ended:
		if ctx.Err() == nil {
			t.Fatalf("it did not wait for the other member: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it goes on waiting after its context ended")
	}
}

// A host that joins receives the history of the cluster in parts, and may be killed between two of them.
func TestAJoinThatWasKilledIsNoDamage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sentence       string
		from           uint64
		added, members []string
		damaged        bool
	}{
		{"a database has the server itself", 0, []string{"a", "b"}, []string{"a", "b"}, false},
		{"a database is empty", 0, []string{"a"}, nil, false},
		{"the entry of the server itself is not applied yet", 0, []string{"a", "b"}, []string{"a"}, false},
		{"the entry of the server itself has not arrived yet", 0, []string{"a"}, []string{"a"}, false},
		{"the database is of another cluster", 0, []string{"a", "b"}, []string{"x"}, true},
		{"a database from a snapshot lacks the server itself", 7, []string{"a"}, []string{"a"}, true},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			err := etcdserver.BelongTogether("b", c.from, c.added, c.members)
			if (err != nil) != c.damaged {
				t.Errorf("they belong together: %v", err)
			}
		})
	}
}
