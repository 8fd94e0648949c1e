package compute_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"croft"
)

// Only QEMU's user, to whom libvirt gives a running guest's files, can read a metadata disk: it contains the user-data
// and the guest's private host key.
func TestNobodyElseReadsAnInstancesFiles(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.seeds = disks{"seeded": croft.MetadataNoCloud}
	agent := c.start()
	inst := c.request("seeded")
	c.await(inst, croft.StateRunning)
	c.modes(inst)
	c.stop()

	// As an earlier version created it.
	seed := filepath.Join(c.dir, string(inst.ID), "seed.iso")
	for path, mode := range map[string]fs.FileMode{c.dir: 0o755, filepath.Dir(seed): 0o755, seed: 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	c.start()
	c.modes(inst)
	if got := filepath.Dir(agent.ConsoleLog(inst.ID)); got != filepath.Dir(seed) {
		t.Errorf("the console's log is in %s", got)
	}
}

// modes fails the test if users other than the owner can list the directories of an instance or read its files.
func (c *cloud) modes(inst croft.Instance) {
	c.t.Helper()
	dir := filepath.Join(c.dir, string(inst.ID))
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		most := fs.FileMode(0o600)
		if e.IsDir() {
			most = 0o711 // QEMU's user passes through
		}
		if mode := info.Mode().Perm(); mode&^most != 0 {
			c.t.Errorf("%s has the mode %o, want %o at most", path, mode, most)
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "seed.iso")); err != nil || info.Size() == 0 {
		c.t.Errorf("the metadata disk: %v", err)
	}
}
