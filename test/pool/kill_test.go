package pool_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft/internal/testing/patient"
	"croft/pool"
)

// childDir is set in processes that serve the directory that it names; childEnds is set if that server must give
// everything back.
const (
	childDir  = "CROFT_TEST_POOL_DIR"
	childEnds = "CROFT_TEST_POOL_ENDS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir, os.Getenv(childEnds) != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// killPools creates a directory for each resource.
const killPools = `
p:
  cmd_new: echo data; sleep 0.05; mkdir alive/$RESALLOC_NAME; sleep 0.05
  cmd_delete: rm -rf alive/$RESALLOC_NAME
  cmd_release: sleep 0.02
  tags: [a]
  max: 8
  max_prealloc: 3
  max_starting: 3
  reuse_opportunity_time: 5
`

// child runs a server and its clients. The observations of the clients are written to disk before they continue.
func child(dir string, ends bool) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m, end, err := manager(ctx, dir, true)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, here := m.Leader(); here {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("acting")
	if err := closeAll(ctx, m); err != nil {
		return err
	}
	if ends { // a file without pools removes drained pools only
		pools, err := m.Pools()
		for _, p := range pools {
			err = errors.Join(err, m.Drain(ctx, p.Name()))
		}
		err = errors.Join(err, allGone(ctx, m))
		stop()
		return errors.Join(err, end())
	}
	seen, err := os.OpenFile("seen", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for client := range 6 {
		go use(ctx, m, fmt.Sprint("box", client%2), seen)
	}
	select {} // until killed
}

// use takes tickets, records what they get, and returns them.
func use(ctx context.Context, m *pool.Manager, sandbox string, seen *os.File) {
	for {
		st, err := m.Open(ctx, pool.Opening{Tags: []string{"a"}, Sandbox: sandbox})
		if err == nil {
			st, err = m.Wait(ctx, st.ID)
		}
		if err != nil || !st.Ready() {
			continue
		}
		fmt.Fprintf(seen, "%d %d %s\n", st.ID, st.Resource, sandbox)
		time.Sleep(rand.N(20 * time.Millisecond))
		_ = m.Close(ctx, st.ID) // a ticket that stays open is closed at the end
	}
}

// closeAll closes the tickets of clients that ended with an earlier server.
func closeAll(ctx context.Context, m *pool.Manager) error {
	all, err := m.Tickets(false)
	if err != nil {
		return err
	}
	for _, t := range all {
		if err := m.Close(ctx, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// allGone waits, after the file has lost its pools, until all of them are removed.
func allGone(ctx context.Context, m *pool.Manager) error {
	ctx, cancel := context.WithTimeout(ctx, patient.Longest)
	defer cancel()
	for ctx.Err() == nil {
		pools, err := m.Pools()
		if err != nil || len(pools) == 0 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	left, err := m.Resources(false)
	return fmt.Errorf("resources are left: %+v (%w)", left, err)
}

// run starts a server on the directory and returns once it is active.
func run(t *testing.T, dir string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test failed
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "acting\n" {
		t.Fatalf("it says %q: %v", line, err)
	}
	return cmd
}

// If a server is killed at any moment, the next one cleans up: no machine is left, none is handed out twice, and no
// command keeps running.
func TestKilledServersLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "alive"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(killPools)
	for round := range 30 {
		if seen, _ := os.ReadFile(filepath.Join(dir, "seen")); round >= 5 && len(seen) > 0 {
			break // on a slow machine the first servers may serve no ticket
		}
		cmd := run(t, dir)
		time.Sleep(rand.N(time.Duration(1+round/5) * 900 * time.Millisecond)) // kill it at a random moment
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if alive, err := os.ReadDir(filepath.Join(dir, "alive")); err != nil || len(alive) > 8 {
			t.Errorf("%d machines are alive, more than max allows: %v", len(alive), err)
		}
	}
	write("")
	cmd := run(t, dir, childEnds+"=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the last server: %v", err)
	}
	checkLeft(t, dir)
}

// The output of a start whose server was killed is passed to the command that deletes the resource, and the start
// itself is ended.
func TestAStartOfAKilledServerIsDeletedWithItsData(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	// Starts that the next server makes before the pool is drained end at once, and have no data.
	write("p:\n  cmd_new: test ! -e made || exit 1; echo machine-of-$$ | tee made; sleep 1000\n" +
		"  cmd_delete: printf %s $RESALLOC_RESOURCE_DATA | base64 -d >> deleted\n  max: 1\n")
	cmd := run(t, dir)
	patient.Until(t, "something is started", func() bool { return strings.Contains(read("begun"), "machine-of-") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if pids := running(t, dir); len(pids) == 0 {
		t.Error("the start ended with its server: the test shows nothing")
	}
	write("")
	if err := run(t, dir, childEnds+"=1").Wait(); err != nil {
		t.Errorf("the next server: %v", err)
	}
	if made, deleted := read("made"), read("deleted"); made == "" || made != deleted {
		t.Errorf("it printed %q, and its deletion was told %q", made, deleted)
	}
	if pids := running(t, dir); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
}

func checkLeft(t *testing.T, dir string) {
	t.Helper()
	if alive, err := os.ReadDir(filepath.Join(dir, "alive")); err != nil || len(alive) > 0 {
		t.Errorf("machines are left: %v, %v", alive, err)
	}
	if pids := running(t, dir); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	text, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	box := map[string]string{}
	for line := range strings.Lines(string(text)) {
		part := strings.Fields(line)
		if len(part) != 3 {
			continue
		}
		if other := box[part[1]]; other != "" && other != part[2] {
			t.Errorf("resource %s was handed to %s and to %s", part[1], other, part[2])
		}
		box[part[1]] = part[2]
	}
	t.Logf("%d tickets were served, with %d resources", strings.Count(string(text), "\n"), len(box))
	if len(box) == 0 {
		t.Error("nothing was served: the test shows nothing")
	}
}

// running returns the hook processes that work in a directory.
func running(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		environ, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environ, []byte("CROFT_HOOK=")) {
			continue
		}
		if at, err := os.Readlink(filepath.Join(filepath.Dir(name), "cwd")); err == nil && at == dir {
			pids = append(pids, name)
		}
	}
	return pids
}
