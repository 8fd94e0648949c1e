package kill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A disk is a separate file system that can be frozen.
type disk struct{ dir string }

// newDisk mounts a fresh ext4 at dir if the machine permits it; otherwise it returns nil and the reason.
func newDisk(t *testing.T, dir, name string) (*disk, error) {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(insideEnv) == "" {
		return nil, fmt.Errorf("only root can mount and freeze file systems")
	}
	file := at + ".ext4"
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	// Sparse, and larger than the disk that an agent there offers.
	if err := f.Truncate(64 << 30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-J", "size=64", file},
		{"mount", "-o", "loop", file, at},
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(line, " "), err, out)
		}
	}
	d := &disk{dir: at}
	t.Cleanup(d.unmount)
	return d, nil
}

// freeze blocks all writes for a time. The shell itself thaws the disk, so that this happens even if the test is
// killed.
func (d *disk) freeze(for_ time.Duration) error {
	script := fmt.Sprintf("fsfreeze -f '%[1]s' && sleep %.1[2]f; fsfreeze -u '%[1]s'", d.dir, for_.Seconds())
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("freeze %s: %w: %s", d.dir, err, out)
	}
	return nil
}

func (d *disk) unmount() {
	_ = exec.Command("umount", "--lazy", d.dir).Run() // unmounted with the last process of this namespace
	_ = os.Remove(d.dir + ".ext4")
}
