package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft/grid/runtime/runtimetest"
	"croft/grid/ssh/sshtest"
	"croft/grid/watch"
	"croft/internal/testing/patient"
)

// watching is a cluster of real sshds with a real upstream, and the processes that watch it.
type watching struct {
	*testing.T
	grid     *sshtest.Grid
	bare, op string
	beats    map[int]func() // ends the beats of a node
}

// spoken is the output of a process so far.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (w *watching) git(dir string, args ...string) string {
	w.Helper()
	out, err := w.command("git", append([]string{"-C", dir, "-c", "user.name=op", "-c", "user.email=op@x"},
		args...)...).CombinedOutput()
	if err != nil {
		w.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *watching) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HOME="+w.grid.Home, "PATH="+w.grid.Bin+":"+os.Getenv("PATH"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts a process that ends with the test, and also when the test's process is killed.
func (w *watching) start(cmd *exec.Cmd) (*exec.Cmd, *spoken) {
	w.Helper()
	said := &spoken{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		end(cmd)
		if w.Failed() {
			w.Logf("%q said:\n%s", cmd.Args, said.text.String())
		}
	})
	return cmd, said
}

func end(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = cmd.Wait()
}

func (w *watching) until(what string, is func() bool) {
	w.Helper()
	patient.Until(w.T, what, is)
}

func (w *watching) store(name string) string { return filepath.Join(filepath.Dir(w.bare), name) }

func (w *watching) watcher(name string) (*exec.Cmd, *spoken) {
	return w.start(w.command("croft", "grid", "watch", "-C", w.op, "--state", w.store(name), "--name", name))
}

// out reports whether the upstream has a node as out.
func (w *watching) out(i int) bool {
	return strings.Contains(w.git(w.bare, "show", fmt.Sprintf("main:nodes/s%d/n%d.yaml", i/3, i)),
		"state: out  # watch ")
}

func (w *watching) kill(i int) {
	w.beats[i]()
	w.grid.Nodes[i].Kill()
}

// beat sends the beats of a node to both controllers until its function in beats is called.
func (w *watching) beat(i int) {
	w.Helper()
	settings, err := watch.ReadSettings(w.op)
	if err != nil {
		w.Fatal(err)
	}
	clock, err := watch.SystemClock()
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var all sync.WaitGroup
	for _, controller := range []string{"a", "b"} {
		store, err := watch.OpenStore(w.store(controller), clock)
		if err != nil {
			w.Fatal(err)
		}
		in, out := io.Pipe()
		all.Go(func() {
			defer in.Close()
			if err := store.Serve(ctx, fmt.Sprint("n", i), in, io.Discard, settings.Rules); err != nil {
				w.Errorf("the beats of n%d: %v", i, err)
			}
		})
		all.Go(func() {
			defer out.Close()
			tick := time.NewTicker(settings.Rules.Every)
			defer tick.Stop()
			for n := 1; ctx.Err() == nil; n++ {
				if _, err := fmt.Fprintf(out, "beat b %d - 0 0\n", n); err != nil {
					return
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	w.beats[i] = func() { cancel(); all.Wait() }
	w.Cleanup(w.beats[i])
}

// newWatching creates nodes in sites of three, placed and pushed, whose beats go to two controllers. more are files
// that replace, or are added to, those of the cluster.
func newWatching(t *testing.T, nodes int, more map[string]string) *watching {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: scripts/install-deps test installs it")
	}
	w := &watching{T: t, grid: sshtest.Start(t, sshtest.Options{Nodes: nodes}), beats: map[int]func(){}}
	var states []string
	for _, n := range w.grid.Nodes {
		states = append(states, n.State)
	}
	runtimetest.Reap(t, states...)
	top := t.TempDir()
	w.bare, w.op = filepath.Join(top, "up.git"), filepath.Join(top, "op")
	w.git(top, "init", "-q", "--bare", "-b", "main", w.bare)
	w.git(top, "clone", "-q", w.bare, w.op)
	files := map[string]string{
		"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nruntime: process\nwatch: {every: 1, grace: 4, term: 8}\n",
		"nodes/_.yaml": "id: -1\n",
	}
	maps.Copy(files, more)
	for i, n := range w.grid.Nodes {
		files[fmt.Sprintf("nodes/s%d/_.yaml", i/3)] = fmt.Sprintf("id: %d\n", -2-i/3)
		files[fmt.Sprintf("nodes/s%d/n%d.yaml", i/3, i)] = fmt.Sprintf(
			"# machine %d\nid: %d\naddress: %s\nuser: %s\nstate_dir: %s\n", i, i, n.Unit.Address, n.Unit.User, n.State)
	}
	for name, text := range files {
		file := filepath.Join(w.op, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := w.command("croft", "grid", "place", "-C", w.op).CombinedOutput(); err != nil {
		t.Fatalf("place: %v\n%s", err, out)
	}
	w.git(w.op, "add", "-A")
	w.git(w.op, "commit", "-qm", "begin")
	w.git(w.op, "push", "-q", "-u", "origin", "HEAD:main")
	for i := range w.grid.Nodes {
		w.beat(i)
	}
	return w
}

// TestWatchesAreFrozenAndKilled: two watches of one cluster; machines of the cluster are killed, and so are the
// watches.
func TestWatchesAreFrozenAndKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	// Its slots run immediately on their nodes: the nodes that were put out just before count only for ten graces.
	w := newWatching(t, 9, map[string]string{"jobs/web.yaml": "replicas: 6\nimage: {rootfs: /}\n" +
		"command: [/bin/sleep, '600']\n"})
	a, saidA := w.watcher("a")
	w.until("a leads", func() bool { return saidA.has("leader=a leads=true") })
	b, saidB := w.watcher("b")
	w.until("b stands by", func() bool { return saidB.has("leader=a leads=false") })
	w.kill(0)
	w.until("n0 is out", func() bool { return w.out(0) })
	if got := w.git(w.bare, "log", "-1", "--format=%an %s", "main"); got != "a grid watch: n0 out" {
		t.Errorf("the commit is %q", got)
	}
	if all := w.git(w.bare, "ls-tree", "-r", "main", "alloc/web/"); strings.Count(all, "120000") != 6 {
		t.Errorf("the slots are %q", all)
	}

	if err := a.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.kill(3)
	w.until("n3 is out", func() bool { return w.out(3) })
	commits := w.git(w.bare, "log", "--format=%an", "main")
	if commits != "b\na\nop" {
		t.Errorf("the commits are of %q", commits)
	}
	if err := a.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.until("a stands by", func() bool { return saidA.has("leader=b leads=false") })
	if now := w.git(w.bare, "log", "--format=%an", "main"); now != commits {
		t.Errorf("a was thawed, and the commits are of %q", now)
	}

	end(b)
	w.kill(6)
	w.until("n6 is out", func() bool { return w.out(6) })
	if now := w.git(w.bare, "log", "-1", "--format=%an", "main"); now != "a" {
		t.Errorf("b was killed, and the commit is of %s", now)
	}
	w.kill(7)
	w.until("the fourth is held", func() bool { return saidA.has("something is held") })
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(); err != nil {
		t.Errorf("a was told to end: %v", err)
	}
	if w.out(7) {
		t.Error("n7 is out, and more than a third are lost")
	}
	once := w.command("croft", "grid", "watch", "-C", w.op, "--state", w.store("a"), "--name", "a", "--once", "-o",
		"json")
	found, err := once.Output()
	if code := once.ProcessState.ExitCode(); code != 2 && code != 4 || // 4: what was pushed counts on n7
		!strings.Contains(string(found), "more than a third") {
		t.Errorf("--once: %v\n%s", err, found)
	}
}
