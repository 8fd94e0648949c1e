package restic_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/compute/restic"
)

func repository(t *testing.T) (restic.Engine, backup.Access) {
	t.Helper()
	if missing := restic.Missing(); len(missing) > 0 {
		t.Skipf("%v are missing", missing)
	}
	a := backup.Access{Repository: filepath.Join(t.TempDir(), "repository"), Password: "secret of the store"}
	if err := os.Mkdir(a.Repository, 0o700); err != nil {
		t.Fatal(err)
	}
	e := restic.Engine{Cache: t.TempDir()}
	if err := e.Open(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return e, a
}

// movedAway moves a directory away while it is read.
type movedAway struct {
	io.Reader
	from, to string
	moved    bool
}

func (m *movedAway) Read(p []byte) (int, error) {
	if !m.moved {
		m.moved = true
		if err := os.Rename(m.from, m.to); err != nil {
			return 0, err
		}
	}
	return m.Reader.Read(p)
}

func TestARepositoryWhoseDirectoryGoesAwayDuringACopyGetsNoSecondOneAtItsPath(t *testing.T) {
	t.Parallel()
	e, a := repository(t)
	away := a.Repository + ".away"
	disk := &movedAway{Reader: bytes.NewReader(bytes.Repeat([]byte("a disk "), 1<<20)), from: a.Repository, to: away}
	snapshot, _, err := e.Copy(t.Context(), a, "one", "disk.raw", disk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Repository); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is at the path: %v", err)
	}
	if _, err := e.Kept(t.Context(), a, "one"); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("while it is away: %v", err)
	}
	if err := os.Rename(away, a.Repository); err != nil {
		t.Fatal(err)
	}
	if all, err := e.Kept(t.Context(), a, "one"); err != nil || len(all) != 1 ||
		!strings.HasPrefix(all[0], snapshot) {
		t.Errorf("it has %q, %v, want %s", all, err, snapshot)
	}
	if all, err := e.Kept(t.Context(), a, "two"); err != nil || len(all) != 0 {
		t.Errorf("of another backup it has %q, %v", all, err)
	}
}

func TestASnapshotThatARepositoryDoesNotHaveIsDamage(t *testing.T) {
	t.Parallel()
	e, a := repository(t)
	err := e.Read(t.Context(), a, strings.Repeat("9fa8", 16), "disk.raw", io.Discard)
	if !errors.Is(err, compute.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}
