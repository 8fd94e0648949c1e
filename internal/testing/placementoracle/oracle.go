// Package placementoracle runs OpenStack's own Placement, for tests that compare croft's with it: Debian's
// placement-api under uwsgi, on SQLite, without Keystone.
package placementoracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"croft/internal/testing/freeport"
)

// Packages are the Debian packages that Start needs.
const Packages = "placement-api python3-placement uwsgi-core uwsgi-plugin-python3"

// patience limits the time to the server's first answer, which is long because it imports many Python modules.
const patience = 2 * time.Minute

// Start runs a Placement with an empty database and returns its address. It handles one request at a time, accepts the
// token "admin" and ends with the test. If Placement is not installed, Start skips the test with a message.
func Start(t testing.TB) string {
	t.Helper()
	for _, program := range []string{"placement-manage", "uwsgi"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: apt-get install %s", program, Packages)
		}
	}
	dir := memoryDir(t)
	config := filepath.Join(dir, "placement.conf")
	text := "[api]\nauth_strategy = noauth2\n[placement_database]\nconnection = sqlite:///" +
		filepath.Join(dir, "placement.db") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// This must precede the start of the server, which also creates the tables, but incorrectly.
	if out, err := exec.CommandContext(t.Context(), "placement-manage", "--config-file", config, "db",
		"sync").CombinedOutput(); err != nil {
		t.Fatalf("placement-manage db sync: %v\n%s", err, out)
	}
	address := freeport.For(t, "127.0.0.1")
	serve(t, dir, address)
	return "http://" + address
}

// memoryDir creates a directory, in memory if possible, because SQLite syncs often.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "placement-oracle-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serve starts uwsgi and waits until it answers.
func serve(t testing.TB, dir, address string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command("uwsgi", "--plugin", "python3", "--http-socket", address, "--wsgi-file",
		"/usr/bin/placement-api",
		"--processes", "1", "--threads", "1", "--master", "--lazy-apps", "--need-app", "--die-on-term", "--no-orphans",
		"--disable-logging",
		"--buffer-size", "65535", "--listen", "100")
	cmd.Env = append(os.Environ(), "OS_PLACEMENT_CONFIG_DIR="+dir)
	cmd.Stdout, cmd.Stderr = &log, &log
	// A separate process group, so that the workers end with it, however the test ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start uwsgi: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("stop uwsgi: %v", err)
		}
		<-ended
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := answers(ctx, "http://"+address, ended); err != nil {
		ended <- err // so that the clean-up receives it
		t.Fatalf("uwsgi with Placement: %v\n%s", err, log.String())
	}
}

// answers waits for the first answer.
func answers(ctx context.Context, url string, ended <-chan error) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return fmt.Errorf("answers %s", resp.Status)
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
