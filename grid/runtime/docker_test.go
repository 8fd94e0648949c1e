package runtime_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
)

// A daemon is a separate dockerd for the test. Its state is in a directory of the test, and the networks and the
// firewall of the machine stay unchanged.
type daemon struct {
	dir, socket string
	process     *exec.Cmd
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "croft-docker-")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir, socket: "unix://" + filepath.Join(dir, "docker.sock")}
	t.Cleanup(func() {
		d.stop(t, syscall.SIGTERM)
		// If containers used the machine's network, its handle stays mounted.
		mounted, _ := filepath.Glob(filepath.Join(dir, "exec", "netns", "*"))
		for _, m := range mounted {
			_ = syscall.Unmount(m, syscall.MNT_DETACH)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d.start(t)
	return d
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.process = exec.Command("dockerd", "--host", d.socket, "--pidfile", filepath.Join(d.dir, "pid"), "--data-root",
		filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "exec"), "--bridge", "none",
		"--iptables=false",
		"--ip6tables=false", "--live-restore=false")
	d.process.Stdout, d.process.Stderr = log, log
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.process.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if exec.Command("docker", "--host", d.socket, "version").Run() == nil {
			return
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd does not answer: %s", text[max(0, len(text)-2000):])
		}
	}
}

func (d *daemon) stop(t *testing.T, how syscall.Signal) {
	t.Helper()
	if d.process == nil {
		return
	}
	if err := d.process.Process.Signal(how); err != nil {
		t.Error(err)
	}
	_ = d.process.Wait()
	d.process = nil
}

func TestDocker(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "dockerd", "docker", "containerd", "runc")
	d := startDaemon(t)
	run := func(t *testing.T, args ...string) {
		t.Helper()
		out, err := machine.Output(context.WithoutCancel(t.Context()), machine.Local{},
			bytes.NewReader(runtimetest.Archive(t)),
			append([]string{"docker", "--host", d.socket}, args...)...)
		if err != nil {
			t.Errorf("docker %q: %v: %s", args, err, out)
		}
	}
	runtimetest.Run(t, runtimetest.Suite{
		Name: "docker", Machine: machine.Local{}, StateDir: stateDir(t),
		Repository: fstest.MapFS{"hardpoints/runtime/docker.yaml": {Data: []byte(
			"extends: docker\nvariables:\n  docker: [docker, --host, \"" + d.socket + "\"]\n")}},
		Adopts: true,
		Stranger: func(t *testing.T, name string) {
			run(t, "import", "-", "stranger")
			run(t, "create", "--name", name, "--network=host", "stranger", "true")
			t.Cleanup(func() {
				_, _ = machine.Output(context.Background(), machine.Local{}, nil, "docker", "--host", d.socket, "rm",
					"--force", name)
			})
		},
		// The daemon stops its containers, as a shutdown of the machine does.
		Reboot: func(t *testing.T, _ unit.Unit) {
			d.stop(t, syscall.SIGTERM)
			d.start(t)
		},
		Survives: true,
	})
	t.Run("a daemon that does not answer is no absence", func(t *testing.T) {
		s := runtimetest.Suite{Name: "docker", Machine: machine.Local{}, StateDir: stateDir(t),
			Repository: fstest.MapFS{"hardpoints/runtime/docker.yaml": {Data: []byte(
				"extends: docker\nvariables:\n  docker: [docker, --host, \"unix:///nowhere\"]\n")}}}
		r := s.Open(t)
		u := unit.Unit{Cluster: "0123456789abcdef0123456789abcdef", Job: "web", Runtime: "docker"}
		for name, err := range map[string]error{
			"stop": r.Stop(t.Context(), s.Machine, u), "remove": r.Remove(t.Context(), s.Machine, u),
		} {
			wantUnavailable(t, name, err)
		}
		_, err := r.List(t.Context(), s.Machine, u.Cluster)
		wantUnavailable(t, "list", err)
	})
}
