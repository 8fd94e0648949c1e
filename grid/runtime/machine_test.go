package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
	"croft/internal/testing/libvirttest"
	"croft/internal/testing/patient"
)

func wantUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, croft.Unavailable) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestVirtualMachines(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "virsh", "qemu-img", "qemu-system-x86_64")
	libvirttest.Start(t)
	disks, err := os.MkdirTemp("", "croft-grid-vm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(disks + "/f-*")
		if len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		_ = os.RemoveAll(disks)
	})
	if err := os.Chmod(disks, 0o711); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(disks, "image.raw")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	runtimetest.Run(t, runtimetest.Suite{
		Name: "vm", Machine: machine.Local{}, StateDir: stateDir(t), NoInside: true,
		Change: func(_ *testing.T, u *unit.Unit) {
			u.Image, u.Command, u.Env = unit.Image{}, nil, nil
			u.VM = &unit.VM{VCPUs: 1, Memory: 32 << 20, Disk: 4 << 20, Image: image, Network: "default",
				VirtType: "qemu",
				UserData: "#cloud-config\nhostname: it's\n"}
			u.Options = map[string]string{"disks": disks, "stop_seconds": "0"}
			u.Files = []unit.File{{Path: "/etc/secret", Mode: 0o400, Content: "s3cret", Digest: "1", Secret: true}}
		},
		Stranger: func(t *testing.T, name string) {
			cmd := exec.Command("virsh", "--quiet", "--connect", libvirttest.URI, "define", "/dev/stdin")
			cmd.Stdin = strings.NewReader(`<domain type="qemu"><name>` + name +
				`</name><memory unit="MiB">32</memory><os><type>hvm</type></os></domain>`)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("define a stranger: %v: %s", err, out)
			}
			t.Cleanup(func() { libvirttest.Virsh(t, "undefine", name) })
		},
		Reboot: func(t *testing.T, u unit.Unit) { libvirttest.Virsh(t, "destroy", u.Name()) },
	})
	t.Run("libvirt that does not answer is no absence", func(t *testing.T) {
		s := runtimetest.Suite{Name: "vm", Machine: machine.Local{}, StateDir: stateDir(t),
			Repository: fstest.MapFS{"hardpoints/runtime/vm.yaml": {Data: []byte(
				"extends: vm\nvariables:\n  uri: qemu+unix:///system?socket=/nowhere\n")}}}
		u := unit.Unit{Cluster: "0123456789abcdef0123456789abcdef", Job: "web", Runtime: "vm"}
		wantUnavailable(t, "stop", s.Open(t).Stop(context.Background(), s.Machine, u))
		wantUnavailable(t, "remove", s.Open(t).Remove(context.Background(), s.Machine, u))
	})
}

// TestAGuestOfAJobBootsAndShutsDown: a kernel boots in the domain that croft defines, the guest finds its user-data,
// and the power button shuts it down.
func TestAGuestOfAJobBootsAndShutsDown(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "virsh", "qemu-img", "qemu-system-x86_64")
	libvirttest.Start(t)
	image := libvirttest.Guest(t)
	s := runtimetest.Suite{Name: "vm", Machine: machine.Local{}, StateDir: stateDir(t),
		Change: func(_ *testing.T, u *unit.Unit) {
			u.Image, u.Command, u.Env = unit.Image{}, nil, nil
			u.VM = &unit.VM{VCPUs: 1, Memory: 256 << 20, Disk: 1 << 30, Image: image, Network: "default",
				VirtType: "qemu", UserData: "#!/bin/sh\necho user-data of $(hostname)\n"}
			u.Options = map[string]string{"disks": filepath.Dir(image), "stop_seconds": "120"}
		}}
	u := s.Unit(t)
	r := s.Open(t)
	do := func(verbs ...func(context.Context, machine.Machine, unit.Unit) error) {
		t.Helper()
		for _, verb := range verbs {
			if err := verb(t.Context(), s.Machine, u); err != nil {
				t.Fatal(err)
			}
		}
	}
	says := func(what string) {
		t.Helper()
		var said bytes.Buffer
		patient.Until(t, "the guest says "+what, func() bool {
			said.Reset()
			return r.Logs(t.Context(), s.Machine, u, 1000, &said) == nil && strings.Contains(said.String(), what)
		})
	}
	do(r.Prepare, r.Create, r.Start)
	says("user-data of " + u.Cluster[:8] + "-web-front-7-2")
	do(r.Stop)
	says("power button: off")
	if got := libvirttest.Virsh(t, "domstate", "--reason", u.Name()); !strings.Contains(got, "(shutdown)") {
		t.Errorf("it did not power off by itself: %s", got)
	}
}
