package etcdserver_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"croft"
	"croft/etcdstore/etcdserver"
)

// contentsOf lists the files below a directory with their modes and contents.
func contentsOf(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var text []byte
		if info.Mode().IsRegular() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		all += fmt.Sprintf("%s %s %x\n", path, info.Mode(), sha256.Sum256(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// startAsNobody starts a server as a user without rights; it is not expected to start.
func startAsNobody(t *testing.T, c etcdserver.Config) error {
	t.Helper()
	result := make(chan error)
	go func() {
		if os.Getuid() == 0 {
			runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
			if err := syscall.Setfsuid(65534); err != nil {
				result <- err
				return
			}
		}
		server, err := etcdserver.Start(t.Context(), c)
		if err == nil {
			server.Close()
		}
		result <- err
	}()
	return <-result
}

// By a mistake in the settings or in a mount, a directory may belong to another program or user, or be a file. A start
// reports this in one sentence with its remedy, and changes nothing.
func TestADirectoryThatIsNotEtcdsIsRefusedAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	good := written(t, "a")
	write := func(name string) func(string) error {
		return func(dir string) error {
			file := filepath.Join(dir, name)
			return errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("theirs"), 0o600))
		}
	}
	chmod := func(name string, mode os.FileMode) func(string) error {
		return func(dir string) error {
			return errors.Join(os.CopyFS(dir, os.DirFS(good)), os.Chmod(filepath.Join(dir, name), mode))
		}
	}
	const away, owner = "move it away, or give another state directory with --state-dir", "(chown -R, chmod -R u+rwX)"
	for _, c := range []struct {
		name         string
		make         func(dir string) error
		says, remedy string
		nobody       bool
	}{
		{"files of another program", write("ibdata1"), "ibdata1 in it is of another program", away, false},
		{"another program's files where the log would be", write("member/wal/0.log"),
			"member/wal/0.log in it is of another program", away, false},
		{"another program's files where the database would be", write("member/snap/index"),
			"member/snap/index in it is of another program", away, false},
		{"a file in its place", func(dir string) error { return os.WriteFile(dir, []byte("theirs"), 0o600) },
			"it is a file", away, false},
		{"a file in the place of member", write("member"), "member in it is a file", away, false},
		{"a file in the place of the log", write("member/wal"), "member/wal in it is a file", away, false},
		{"a directory in the place of the database", write("member/snap/db/x"), "member/snap/db in it is no file", away,
			false},
		{"a link to nothing", func(dir string) error { return os.Symlink("nowhere", dir) }, "a link", away, false},
		{"another program's etcd", func(dir string) error {
			server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0",
				Host: "k8s-control-1", Unsynced: true})
			if err == nil {
				server.Close()
			}
			return err
		}, `an etcd that croft did not start has its data there, under the name "k8s-control-1"`, away, false},
		{"a directory that cannot be read", chmod(".", 0), "permission denied", owner, true},
		{"a directory that cannot be written to", chmod(".", 0o500), "permission denied", owner, true},
		{"a log that takes no new files", chmod("member/wal", 0o500), "permission denied", owner, true},
		{"a database that cannot be reached", chmod("member/snap", 0), "permission denied", owner, true},
		{"a database that cannot be written to", chmod("member/snap/db", 0o400), "permission denied", owner, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "etcd")
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			config := etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0", Unsynced: true}
			start := func() error {
				server, err := etcdserver.Start(t.Context(), config)
				if err == nil {
					server.Close()
				}
				return err
			}
			if c.nobody {
				giveToNobody(t, dir)
				start = func() error { return startAsNobody(t, config) }
			}
			before, readable := "", !c.nobody || os.Getuid() == 0
			if readable {
				before = contentsOf(t, filepath.Dir(dir))
			}
			err := start()
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("got %v, want %q and %q", err, c.says, c.remedy)
			}
			if err := etcdserver.ClearUnfinished(dir); !c.nobody && !etcdserver.IsMember(dir) &&
				croft.KindOf(err) != croft.Invalid {
				t.Errorf("a join would clear it: %v", err)
			}
			if readable && contentsOf(t, filepath.Dir(dir)) != before {
				t.Errorf("the directory was\n%sand is\n%s", before, contentsOf(t, filepath.Dir(dir)))
			}
		})
	}
}

// giveToNobody makes the user nobody the owner of a directory and its content, and makes it accessible to that user.
func giveToNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return // only the modes matter
	}
	for above := filepath.Dir(dir); above != filepath.Clean(os.TempDir()) && above != "/"; above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Remains of a first start that was killed, and files that file systems keep in a directory, do not prevent the use of
// the directory.
func TestADirectoryOfAnUnfinishedStartIsUsed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etcd")
	for _, name := range []string{"lost+found", "member/snap", "member/wal.tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ballast", ".nfs0001", "member/.touch", "member/snap/tmp123",
		"member/wal.tmp/0.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: dir, Listen: "127.0.0.1:0", Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}
