package mdserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

// The script runs here with a device, an fstab and a mkfs of the test: what it decides depends on these alone.
func TestOnlyABlankVolumeIsFormatted(t *testing.T) {
	blkid, err := exec.LookPath("blkid")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prepare func(device string) error
		formats bool
	}{
		"blank":        {func(string) error { return nil }, true},
		"a text":       {func(device string) error { return at(device, 4096, "precious") }, false},
		"at its start": {func(device string) error { return at(device, 0, "p") }, false},
		"another file system": {func(device string) error {
			return exec.CommandContext(t.Context(), "mkfs.ext4", "-q", device).Run()
		}, false},
		"swap": {func(device string) error {
			return exec.CommandContext(t.Context(), "mkswap", device).Run()
		}, false},
		"tiny":      {func(device string) error { return os.Truncate(device, 4096) }, false},
		"no device": {os.Remove, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			device := filepath.Join(dir, "virtio-data")
			for file, text := range map[string]string{"virtio-data": "", "fstab": "UUID=x / ext4 noatime 0 1\n",
				"mkfs.xfs": "#!/bin/sh\necho formatted >" + dir + "/formatted\n",
				"mount":    "#!/bin/sh\nexit 0\n", "sleep": "#!/bin/sh\nexit 0\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(device, 16<<20); err != nil {
				t.Fatal(err)
			}
			if err := c.prepare(device); err != nil {
				t.Fatal(err)
			}
			parts := Guest{Mounts: []croft.Mount{{Volume: "data", Path: dir + "/mnt", Filesystem: "xfs"}}}.mountParts()
			if len(parts) != 1 || !strings.HasPrefix(string(parts[0].Data), "#cloud-boothook\n#!/bin/sh\n") {
				t.Fatalf("the parts: %q", parts)
			}
			script := strings.NewReplacer("/dev/disk/by-id/", dir+"/", "/etc/fstab", dir+"/fstab").
				Replace(string(parts[0].Data))
			run := exec.CommandContext(t.Context(), "sh", "-c", script)
			run.Env = []string{"PATH=" + dir + ":" + filepath.Dir(blkid) + ":/usr/bin:/bin"}
			out, err := run.CombinedOutput()
			if (err != nil) != (name == "no device") {
				t.Errorf("it ends with %v: %s", err, out)
			}
			if _, err := os.Stat(dir + "/formatted"); (err == nil) != c.formats {
				t.Errorf("it was formatted: %v, want %v: %s", err == nil, c.formats, out)
			}
			table, err := os.ReadFile(dir + "/fstab")
			if line := device + " " + dir + "/mnt auto defaults,nofail"; err != nil ||
				strings.Contains(string(table), line) != (name != "no device") {
				t.Errorf("fstab: %q, %v", table, err)
			}
		})
	}
}

func at(file string, offset int64, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteAt([]byte(text), offset)
	return err
}

func TestAGuestWithoutMountsGetsNoScript(t *testing.T) {
	if parts := (Guest{}).mountParts(); parts != nil {
		t.Errorf("the parts: %q", parts)
	}
}
