package adopt

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
	"croft/internal/testing/libvirttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// usePodman configures podman with storage for this test alone, and with settings that also work on machines that are
// containers.
func usePodman(t *testing.T) func(argv ...string) {
	t.Helper()
	runtimetest.Need(t, "podman", "runc")
	dir, err := os.MkdirTemp("", "croft-adopt-")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"CONTAINERS_CONF": "[engine]\nruntime = \"runc\"\n[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
		"CONTAINERS_STORAGE_CONF": "[storage]\ndriver = \"overlay\"\ngraphroot = \"" + dir +
			"/storage\"\nrunroot = \"" + dir + "/run\"\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name, file)
	}
	t.Cleanup(func() {
		_ = exec.Command("podman", "rm", "--all", "--force", "--time", "0").Run()
		_ = exec.Command("umount", dir+"/storage/overlay").Run()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return func(argv ...string) {
		t.Helper()
		out, err := machine.Output(context.Background(), machine.Local{}, bytes.NewReader(runtimetest.Archive(t)),
			append([]string{"podman"}, argv...)...)
		if err != nil {
			t.Fatalf("podman %q: %v: %s", argv, err, out)
		}
	}
}

func TestContainersOfPodman(t *testing.T) {
	podman := usePodman(t)
	podman("import", "--quiet", "-", "localhost/tiny:1")
	dir := t.TempDir()
	podman("create", "--name=Web_1", "--network=host", "--env=PRICE=5$", "--user=1000", "--volume="+dir+":/data:ro",
		"--memory=64m", "--stop-timeout=3", "localhost/tiny:1", "sleep", "it's $x")
	podman("create", "--name=ours", "--label=croft.grid.cluster=x", "--network=host", "localhost/tiny:1", "sleep", "1")
	podman("create", "--name=special", "--privileged", "--network=none", "localhost/tiny:1", "sleep", "1")
	list, err := List(t.Context(), machine.Local{}, "podman")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	want := Found{Runtime: "podman", Name: "Web_1", Unit: unit.Unit{
		Runtime: "podman", Image: unit.Image{Registry: "localhost/tiny:1"}, Command: []string{"sleep", "it's $x"},
		Env: map[string]string{"PRICE": "5$"}, User: "1000", Network: "host", Memory: 64 << 20,
		Mounts: []unit.Mount{{From: dir, To: "/data", ReadOnly: true}}, Options: map[string]string{"stop_seconds": "3"},
	}}
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(list[1].Not, "; "); !strings.Contains(got, "privileged") {
		t.Errorf("what cannot be said: %q", got)
	}
	text, err := list[0].File("node1")
	if err != nil {
		t.Fatal(err)
	}
	const file = `# Adopted: Web_1 of podman on node1.
runtime: podman
image:
  registry: localhost/tiny:1
command:
  - sleep
  - it's $$x
env:
  PRICE: 5$$
user: "1000"
mounts:
  - DIR:/data:ro
network: host
limits:
  memory: 67108864
options:
  stop_seconds: "3"
replicas: 1
policy: pin(node1)
`
	if diff := cmp.Diff(strings.ReplaceAll(file, "DIR", dir), string(text)); diff != "" {
		t.Error(diff)
	}
	if got := list[0].Path("node1"); got != "jobs/adopted/node1/web_1.yaml" {
		t.Errorf("its path is %s", got)
	}
}

func TestDomainsOfLibvirt(t *testing.T) {
	runtimetest.Need(t, "virsh")
	libvirttest.Start(t)
	const name = "croft-adopt-test"
	file := filepath.Join(t.TempDir(), "x.raw")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 3<<20); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("virsh", "--quiet", "--connect", libvirttest.URI, "define", "/dev/stdin")
	cmd.Stdin = strings.NewReader(`<domain type="qemu"><name>` + name + `</name><memory unit="MiB">64</memory><vcpu>2</vcpu>
<os><type>hvm</type></os><devices><disk type="file" device="disk"><driver name="qemu" type="raw"/>
<source file="` + file + `"/><target dev="vda" bus="virtio"/></disk>
<interface type="network"><source network="default"/></interface></devices></domain>`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { libvirttest.Virsh(t, "undefine", name) })
	list, err := List(t.Context(), machine.Local{}, "vm")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Name != name {
			continue
		}
		want := &unit.VM{VCPUs: 2, Memory: 64 << 20, Disk: 3 << 20, Image: file, Network: "default", VirtType: "qemu"}
		if diff := cmp.Diff(want, f.Unit.VM); diff != "" || f.Running {
			t.Errorf("%s\n%+v", diff, f)
		}
		if got := strings.Join(f.Not, "; "); !strings.Contains(got, "the disk "+file+": ") {
			t.Errorf("what cannot be said: %q", got)
		}
		return
	}
	t.Errorf("it is not in %+v", list)
}

func TestJobNames(t *testing.T) {
	for name, want := range map[string]string{"web": "web", "Web 1/x": "web-1-x", "...": "vm", "": "vm", "-a-": "a",
		strings.Repeat("x", 100): strings.Repeat("x", 60)} {
		if got := (Found{Runtime: "vm", Name: name}).JobName(); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func TestRuntimesThatAreNotThere(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := os.Symlink("/bin/sh", filepath.Join(os.Getenv("PATH"), "sh")); err != nil {
		t.Fatal(err)
	}
	for _, name := range Runtimes {
		if list, err := List(t.Context(), machine.Local{}, name); len(list) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	if _, err := List(t.Context(), machine.Local{}, "lxc"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("lxc: %v", err)
	}
}

func TestInstancesOfACloud(t *testing.T) {
	gib := int64(1) << 30
	for _, c := range []struct {
		name string
		st   croft.Status
		want unit.VM
		not  []string // properties reported as not expressible
	}{
		{"an image of the host", croft.Status{Instance: croft.Instance{Name: "web", Spec: croft.Spec{
			Image:     "/srv/debian.qcow2#sha256=00",
			Resources: croft.Resources{croft.VCPU: 2, croft.MemoryMB: 2048, croft.DiskGB: 5}}}},
			unit.VM{VCPUs: 2, Memory: 2 * gib, Disk: 5 * gib, Image: "/srv/debian.qcow2", Network: "default",
				VirtType: "kvm"}, nil},
		{"an image of the web, and what only a cloud has", croft.Status{Host: &croft.Host{VirtType: "qemu"},
			Instance: croft.Instance{Name: "web", Spec: croft.Spec{Image: "https://example.org/a/b.qcow2?x#sums=y",
				GuestSettings: croft.GuestSettings{UserData: []byte("#!"), Keys: []string{"k"},
					Restart: croft.RestartNever},
				InstanceSettings: croft.InstanceSettings{Networks: []string{"blue", "red"},
					Affinities: []croft.Affinity{{}}},
				Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 1024, croft.DiskGB: 1},
				Policy:    &croft.CrushPolicy{}}}},
			unit.VM{VCPUs: 1, Memory: gib, Disk: gib, Image: "/var/lib/libvirt/images/b.qcow2", Network: "blue",
				VirtType: "qemu"},
			[]string{"https://example.org/a/b.qcow2", "the network blue", "further network red", "user-data", "keys",
				"groups", "CRUSH", "again never"}},
	} {
		f := Instance(c.st)
		if diff := cmp.Diff(&c.want, f.Unit.VM); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		said := strings.Join(f.Not, "; ")
		for _, not := range c.not {
			if !strings.Contains(said, not) {
				t.Errorf("%s: %q does not say %q", c.name, said, not)
			}
		}
		if c.not == nil && len(f.Not) != 1 {
			t.Errorf("%s: %q", c.name, said)
		}
	}
}
