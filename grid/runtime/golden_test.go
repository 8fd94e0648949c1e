package runtime

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/grid/unit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// full is a unit with every field set.
func full(runtime string) unit.Unit {
	u := unit.Unit{
		Cluster: "0123456789abcdef0123456789abcdef", Job: "web/front@7", Slot: 2, Runtime: runtime,
		Image:   unit.Image{Rootfs: "/srv/web"},
		Command: []string{"/bin/httpd", "-f", "it's", `"$x"`}, Env: map[string]string{"B": "two words", "A": "%h"},
		User: "1000:1000", Files: []unit.File{{Path: "/etc/key", Mode: 0o400, Content: "s3cret", Digest: "1",
			Secret: true}},
		SecretEnv: []unit.SecretVar{{Name: "PW", Content: "u:s3cret@h", Digest: "2"}},
		Mounts:    []unit.Mount{{From: "/srv/data", To: "/data"}, {From: "/srv/static", To: "/static", ReadOnly: true}},
		Ports:     []unit.Port{{Node: 80, Unit: 80, Protocol: "tcp"}},
		Network:   "none", CPU: 1.5, Memory: 64 << 20, Options: map[string]string{"stop_seconds": "3"},
	}
	if runtime == "docker" || runtime == "podman" || runtime == "quadlet" {
		u.Network, u.Image = "bridge", unit.Image{Registry: "example.org/web:1"}
		u.Ports = []unit.Port{{Address: "::1", Node: 8080, Unit: 80, Protocol: "tcp"}, {Node: 53, Unit: 5353,
			Protocol: "udp"}}
		u.Address = "10.88.0.9"
	}
	if runtime == "vm" {
		u = unit.Unit{Cluster: u.Cluster, Job: u.Job, Slot: u.Slot, Runtime: "vm", Files: u.Files,
			VM: &unit.VM{VCPUs: 2, Memory: 1 << 30, Disk: 10 << 30, Image: "/srv/debian.qcow2", Network: "bridge:br0",
				VirtType: "kvm"}}
	}
	return u
}

// TestCommands compares the arguments that runtimes give to programs, including runtimes that cannot run on every
// machine.
func TestCommands(t *testing.T) {
	t.Parallel()
	for name, variable := range map[string]string{"systemd-run": "run", "systemd-nspawn": "run", "process": "run",
		"runc": "run",
		"crun": "run", "quadlet": "file", "podman": "flags", "docker": "flags"} {
		t.Run(name, func(t *testing.T) {
			r, err := Config{}.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			u := full(name)
			if err := r.check(u); err != nil {
				t.Fatal(err)
			}
			v, err := r.values(u)
			if err != nil {
				t.Fatal(err)
			}
			words, err := r.point.List(variable, v)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", strings.NewReplacer("\uE000", "<", "\uE001", ">").Replace(strings.Join(words,
				"\n")+"\n"))
		})
	}
	for name, value := range map[string]string{"oci.json": "oci", "domain.xml": "vm.xml"} {
		t.Run(name, func(t *testing.T) {
			r, u := (&Runtime{}), full("runc")
			if value == "vm.xml" {
				u = full("vm")
			}
			var err error
			if r, err = (Config{}).Open(u.Runtime); err != nil {
				t.Fatal(err)
			}
			v, err := r.values(u)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, strings.NewReplacer("\uE000", "<", "\uE001", ">").Replace(v[value].(string)+"\n"))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-update rewrites it):\n%s", file, diff)
	}
}

// TestShippedRuntimes: each runtime renders all its scripts, for a unit and for an orphan, and shows no secret.
func TestShippedRuntimes(t *testing.T) {
	t.Parallel()
	names, err := Config{}.Names()
	if err != nil || len(names) != 9 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r, err := Config{}.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			u := full(name)
			orphan := unit.Unit{Cluster: u.Cluster, Job: u.Job, Slot: u.Slot, Runtime: name}
			for _, u := range []unit.Unit{u, orphan, {}} {
				v, err := r.values(u)
				if err != nil {
					t.Fatal(err)
				}
				for _, verb := range r.point.Verbs() {
					text, err := r.point.Shell(verb, v)
					if err != nil {
						t.Errorf("%s: %v", verb, err)
					}
					if strings.Contains(text, "s3cret") {
						t.Errorf("%s has the content of a secret file", verb)
					}
				}
			}
			_, script, err := r.Undo(&u, &orphan)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(script, "\uE000") {
				t.Error("a value that the machine has to give is left")
			}
		})
	}
}

func TestUnitsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, runtime string
		change        func(u *unit.Unit)
		says          string
	}{
		{"docker and a directory", "docker", func(u *unit.Unit) { u.Image = unit.Image{Rootfs: "/x"} },
			"pack it as an archive"},
		{"a process and a registry", "process", func(u *unit.Unit) { u.Image = unit.Image{Registry: "x"} },
			"no way to fetch"},
		{"nspawn without an image", "systemd-nspawn", func(u *unit.Unit) { u.Image = unit.Image{} }, "needs an image"},
		{"a process with a network of its own", "process", func(u *unit.Unit) { u.Network = "bridge" },
			"network of its node"},
		{"an unknown network", "process", func(u *unit.Unit) { u.Network = "lan" }, "neither host, bridge nor none"},
		{"ports that differ on the node's network", "process", func(u *unit.Unit) {
			u.Network, u.Ports = "host", []unit.Port{{Node: 80, Unit: 8080}}
		}, "write 8080"},
		{"a mount with dots", "process", func(u *unit.Unit) { u.Mounts[0].To = "/a/../b" }, "without .."},
		{"a relative file", "process", func(u *unit.Unit) { u.Files[0].Path = "etc/x" }, "absolute path"},
		{"nothing to run", "process", func(u *unit.Unit) { u.Command = nil }, "no command"},
		{"no seconds", "process", func(u *unit.Unit) { u.Options["stop_seconds"] = "$(id)" }, "no number"},
		{"a container that is a machine", "podman", func(u *unit.Unit) { u.VM = &unit.VM{} }, "write runtime vm"},
		{"a machine that is none", "vm", func(u *unit.Unit) { u.VM = nil }, "section vm"},
		{"a secret of two lines in a file of variables", "podman", func(u *unit.Unit) {
			u.SecretEnv[0].Content = "two\nlines"
		}, "of several lines"},
		{"a machine with mounts", "vm", func(u *unit.Unit) { u.Mounts = []unit.Mount{{From: "/a", To: "/b"}} },
			"its own disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Config{}.Open(c.runtime)
			if err != nil {
				t.Fatal(err)
			}
			u := full(c.runtime)
			c.change(&u)
			err = r.check(u)
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "web/front@7") {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
	for name, u := range map[string]unit.Unit{
		"a zero byte":         {Command: []string{"a\x00b"}},
		"a private character": {Command: []string{"a\uE000home\uE001"}},
	} {
		r, err := Config{}.Open("process")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.values(u); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Config{StateDir: "/a b"}).Open("process"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a state directory with a space: %v", err)
	}
}
