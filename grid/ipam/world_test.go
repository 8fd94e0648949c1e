package ipam

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if work := os.Getenv(workerVariable); work != "" {
		os.Exit(worker(work))
	}
	goleak.VerifyTestMain(m)
}

// tree makes a directory with these files. A text that starts with -> is the target of a symlink.
func tree(t testing.TB, files map[string]string) *Dir {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if to, is := strings.CutPrefix(text, "-> "); is {
			must(t, os.Symlink(to, at))
		} else {
			must(t, os.WriteFile(at, []byte(text), 0o644))
		}
	}
	return open(t, root)
}

func open(t testing.TB, root string) *Dir {
	t.Helper()
	d, err := Open(root)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// get gives an owner an address, as a separate process would.
func get(d *Dir, pool string, o Owner, at netip.Addr) (got netip.Addr, err error) {
	err = d.Change(context.Background(), func(n *Net) error {
		l, err := n.Get(pool, o, at)
		got = l.Addr
		return err
	})
	return got, err
}

// free frees all of an owner's addresses.
func free(d *Dir, o Owner, hold bool) (freed []Lease, err error) {
	err = d.Change(context.Background(), func(n *Net) error {
		freed = n.Free(func(l Lease) bool { return l.Owner == o }, hold)
		return nil
	})
	return freed, err
}

func read(t testing.TB, d *Dir) *Net {
	t.Helper()
	n, err := d.Read()
	must(t, err)
	return n
}

// listing returns every file below net/ with its text, and every symlink with its target.
func listing(t testing.TB, d *Dir) string {
	t.Helper()
	var b strings.Builder
	root := d.root.Name()
	must(t, filepath.WalkDir(filepath.Join(root, "net"), func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, at)
		if to, err := os.Readlink(at); err == nil {
			fmt.Fprintf(&b, "%s -> %s\n", name, to)
			return nil
		}
		text, err := os.ReadFile(at)
		fmt.Fprintf(&b, "%s: %q\n", name, text)
		return err
	}))
	return b.String()
}
