package e2e

import (
	"bytes"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// badRequests: while an instance runs, each bad request gets one clear sentence and the right exit code. The later
// destroy of the instance shows that they leave nothing behind.
func badRequests(c *cloud, taken string) {
	t := c.t
	big := filepath.Join(c.home, "big")
	c.write(big, strings.Repeat("#", 1<<20))
	chained := filepath.Join(c.home, "chained.qcow2")
	if err := command("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/hostname", chained,
		"1G"); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(c.home, "page.html")
	c.write(page, "<!DOCTYPE html><html><body>Not what you wanted</body></html>\n")

	for _, b := range []struct {
		name string
		args []string
		exit int
		says []string
	}{
		{"a typo in a class is named with the right word", []string{"resources=VPCU:1,MEMORY_MB:128,DISK_GB:1",
			guestImage}, 2, []string{"VPCU", "VCPU"}},
		{"a typo in a parameter is named with the right word",
			[]string{"resurces=VCPU:1,MEMORY_MB:128,DISK_GB:1", guestImage}, 2, []string{"resurces", "resources"}},
		{"an amount that is no number", []string{"resources=VCPU:one,MEMORY_MB:128,DISK_GB:1", guestImage}, 2,
			[]string{"VCPU", "one"}},
		{"a machine without memory", []string{"resources=VCPU:1,DISK_GB:1", guestImage}, 2, []string{"MEMORY_MB"}},
		{"an unknown image", []string{small, "debian-twelve"}, 3, []string{"debian-twelve"}},
		{"an unknown flag", []string{"--nmae", "x", small, guestImage}, 2, []string{"--nmae"}},
		{"a name that is none", []string{"--name", "no_such name", small, guestImage}, 2, []string{"no_such name"}},
		{"a taken name", []string{"--name", "hello", small, guestImage}, 5, []string{"hello"}},
		{"a taken UUID", []string{"--uuid", taken, small, guestImage}, 5, []string{taken}},
		{"a UUID that is none", []string{"--uuid", "7", small, guestImage}, 2, []string{"UUID"}},
		{"user-data of 1 MiB", []string{"--user-data", big, small, guestImage}, 2, []string{"user-data", "64 KiB"}},
		{"user-data that is not there", []string{"--user-data", "/no/such/file", small, guestImage}, 2,
			[]string{"/no/such/file"}},
		{"a key that is none", []string{"--key", "ssh-ed25519 nonsense", small, guestImage}, 2, []string{"key"}},
		{"an image with a wrong checksum", []string{"--wait", small, guestImage + "#sha256=" + strings.Repeat("0", 64)},
			2, []string{"checksum"}},
		{"a qcow2 with a backing file", []string{"--wait", small, chained}, 2, []string{"backing file"}},
		{"a web page instead of an image", []string{"--wait", small, page}, 2, []string{"page"}},
		{"an image file that is not there", []string{"--wait", small, "/no/such.qcow2"}, 3, []string{"/no/such.qcow2"}},
		{"more than there is", []string{"resources=VCPU:1,MEMORY_MB:1000000000,DISK_GB:1", guestImage}, 4,
			[]string{"MEMORY_MB"}},
		{"an unknown instance", []string{"nobody"}, 3, []string{"nobody"}},
		{"destroying an unknown instance", []string{"destroy", "nobody"}, 3, []string{"nobody"}},
	} {
		t.Run(b.name, func(t *testing.T) {
			r := c.schedule(b.args...)
			if r.exit != b.exit {
				t.Errorf("%v\nwant exit code %d", r, b.exit)
			}
			oneSentence(t, r, b.says)
		})
	}
}

// oneSentence requires the words on stderr, and no text that only a programmer of croft understands.
func oneSentence(t *testing.T, r result, words []string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(r.stderr, word) {
			t.Errorf("stderr does not say %q:\n%s", word, r.stderr)
		}
	}
	for _, word := range []string{"goroutine", "panic", "rpc error", "%!", "failed to"} {
		if strings.Contains(r.stderr, word) {
			t.Errorf("stderr says %q:\n%s", word, r.stderr)
		}
	}
}

// TestBadStarts: croft up exits immediately with one sentence.
func TestBadStarts(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := stateDir(t)
	ports := freePorts(t, 3)
	settings := func(dir, etcd, extra string) string {
		copied := *c
		copied.dir, copied.etcd, copied.placement, copied.api = dir, etcd, ports[1], ports[2]
		file := filepath.Join(t.TempDir(), "compute.yaml")
		c.write(file, copied.settingsText()+extra)
		return file
	}
	for _, b := range []struct {
		name, settings string
		exit           int
		says           []string
	}{
		{"a second one on the same state directory", settings(c.dir, ports[0], ""), 5, []string{c.dir, "process"}},
		{"a port in use", settings(other, taken.Addr().String(), ""), 5, []string{taken.Addr().String()}},
		{"an unknown key in the settings", settings(other, ports[0], "max_build: 2\n"), 2,
			[]string{"max_build", "max_builds", "compute.yaml"}},
		{"a settings file that is not there", "/no/such/compute.yaml", 2, []string{"/no/such/compute.yaml"}},
	} {
		t.Run(b.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "croft"), "up", "--settings", b.settings)
			cmd.Env, cmd.Stdout, cmd.Stderr = c.plainEnvironment(), &out, &errs
			_ = cmd.Run() // the exit code is checked below
			r := result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
			if r.exit != b.exit {
				t.Errorf("%v\nwant exit code %d", r, b.exit)
			}
			oneSentence(t, r, b.says)
		})
	}
}
