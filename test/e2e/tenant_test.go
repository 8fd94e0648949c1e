package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/compute/image"
)

// nobody is a user of every Debian that has no account in croft.
const nobody = 65534

// A stranger is a user without rights on this machine, who has the program, a URL and a token.
type stranger struct {
	t            *testing.T
	home, binary string
	url, token   string
}

// newStranger copies the program into a separate home directory.
func newStranger(t *testing.T, url, token string) *stranger {
	t.Helper()
	home := stateDir(t)
	binary := filepath.Join(home, "schedule")
	program, err := os.ReadFile(filepath.Join(binaries, "croft"))
	if err == nil {
		err = errors.Join(os.WriteFile(binary, program, 0o755), os.Chown(home, nobody, nobody))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &stranger{t, home, binary, url, token}
}

// run runs a program as the user, with only the search path from the machine's environment.
func (s *stranger) run(program string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.home, &out, &errs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "CROFT_URL=" + s.url, "CROFT_TOKEN=" + s.token,
		"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", program, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must is schedule for commands that must succeed.
func (s *stranger) must(args ...string) string {
	s.t.Helper()
	r := s.run(s.binary, args...)
	if r.exit != 0 {
		s.t.Fatalf("schedule %q: %v", args, r)
	}
	return r.stdout
}

// TestATenantsFirstInstance: with only a URL, a token and the program, a tenant gets a guest, reads its console, logs
// in and destroys it.
func TestATenantsFirstInstance(t *testing.T) {
	t.Parallel()
	listen := freePorts(t, 1)[0]
	c := newCloud(t, "cloud_api: {listen: \""+listen+"\"}\n")
	eventually(t, "the API of the cloud answers", func(ctx context.Context) error {
		return get(ctx, "http://"+listen+"/readyz", nil)
	})
	operate := func(args ...string) string {
		t.Helper()
		r := c.run("croft", args...)
		if r.exit != 0 {
			t.Fatalf("croft %q: %v", args, r)
		}
		return r.stdout
	}
	operate("project", "create", "lab")
	operate("quota", "set", "lab", "instances=1")
	small := fmt.Sprint("e2e-", os.Getpid()) // in the catalog of the machine, which tests share
	operate("image", "add", "--machine", small, guestImage)
	t.Cleanup(func() {
		if err := image.RemoveFromCatalog(image.MachineFiles()[0], nil, small); err != nil {
			t.Errorf("remove the image from the catalog: %v", err)
		}
	})
	token := strings.TrimSpace(operate("access", "create", "--project", "lab", "--user", "ann", "--role", "member"))

	begun := time.Now()
	ann := newStranger(t, "http://"+listen, token)
	if r := ann.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(ann.home, "id")); r.exit != 0 {
		t.Fatalf("ssh-keygen: %v", r)
	}
	made := strings.TrimSpace(ann.must("VCPU:1,MEMORY_MB:128,DISK_GB:1", small, "--name", "web", "--key",
		ann.home+"/id.pub", "--wait=ready", "--timeout", patience.String()))
	id, ok := strings.CutPrefix(made, "NOTIFIED TARGET, -, OF INSTANCE ") // only operators see the host
	if !ok {
		t.Fatalf("schedule printed %q", made)
	}
	if log := ann.must("console", "web"); !strings.Contains(log, id) {
		t.Errorf("the console does not say that the guest read its metadata:\n%s", log)
	}
	if got := ann.must("ssh", "--user", "root", "--identity", ann.home+"/id", "web", "hostname"); got != "web\n" {
		t.Errorf("in the guest, hostname says %q", got)
	}
	ann.attach("web")
	if r := ann.run(ann.binary, "VCPU:1,MEMORY_MB:128,DISK_GB:1", small); r.exit != 4 ||
		!strings.Contains(r.stderr, "instances") {
		t.Errorf("a second instance is over the quota: %v", r)
	}
	ann.must("destroy", "--wait", "web")
	t.Logf("from the token to the end in %v", time.Since(begun).Round(time.Second))
	c.nothingLeft(id)
}

// attach attaches a terminal to the console and leaves it again.
func (s *stranger) attach(name string) {
	s.t.Helper()
	if _, err := exec.LookPath("script"); err != nil {
		s.t.Skip("script (bsdutils) gives the console a terminal, and is not here")
	}
	r := s.run("sh", "-c", `printf '\r\035' | script -qec "./schedule console `+name+`" /dev/null`)
	if r.exit != 0 || !strings.Contains(r.stdout, "Ctrl-]") {
		s.t.Errorf("a terminal at the console: %v", r)
	}
}
