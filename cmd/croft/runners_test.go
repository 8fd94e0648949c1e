package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft/grid/ssh/sshtest"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/pool/runner/runnertest"
)

// machineMain is the program test-machine, which makes machines for pools: a real sshd in a directory.
//
//	test-machine new DIR KEY   starts one for the owner of the public key, and prints its address and host key
//	test-machine serve DIR KEY is the machine
//	test-machine delete DIR    ends it with everything that runs on it
func machineMain() {
	if err := machine(os.Args[1], os.Args[2], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func machine(verb, dir string, given []string) error {
	switch verb {
	case "new":
		serve := exec.Command(os.Args[0], append([]string{"serve"}, given...)...)
		serve.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := serve.StdoutPipe()
		if err != nil {
			return err
		}
		if err := serve.Start(); err != nil {
			return err
		}
		text := make([]byte, 4096)
		n, err := out.Read(text) // one write
		_, _ = os.Stdout.Write(text[:n])
		return err
	case "serve":
		runtime.LockOSThread() // sshd ends with the thread that starts it
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		grid, stop, err := sshtest.New(dir, sshtest.Options{Env: map[string]string{"MACHINE": filepath.Base(dir),
			"PATH": os.Getenv("PATH")}})
		if err != nil {
			return err
		}
		defer stop()
		key, err := os.ReadFile(given[1])
		if err == nil {
			err = os.WriteFile(grid.AuthorizedKeys(), key, 0o600)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600)
		}
		if err != nil {
			return err
		}
		n := grid.Nodes[0]
		host, err := os.ReadFile(filepath.Join(n.Dir, "host_key.pub"))
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s:%s\n%s", n.Unit.User, n.Host, n.Port, host)
		<-ended
		stop()
		return os.RemoveAll(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	for _, err := os.Stat(dir); err == nil; _, err = os.Stat(dir) {
		if syscall.Kill(pid, syscall.SIGTERM) != nil {
			return nil
		}
		<-time.After(5 * time.Millisecond)
	}
	return nil
}

// runnerOutput is what a program prints.
type runnerOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *runnerOutput) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *runnerOutput) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// runnerWorld is a pool of machines that are real SSH servers, with its manager.
type runnerWorld struct {
	*testing.T
	dir, server, key string
}

// command returns croft with arguments, in an environment without the user's settings.
func (w *runnerWorld) command(more []string, args ...string) *exec.Cmd {
	w.Helper()
	croft, err := exec.LookPath("croft")
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(croft, args...)
	cmd.Dir = w.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CROFT_") }),
		"HOME="+w.dir, "XDG_STATE_HOME="+w.dir+"/state", "XDG_CONFIG_HOME="+w.dir+"/config",
		"CROFT_POOL_ENDPOINTS="+w.server, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, more...)
	return cmd
}

// start starts a program that ends with the test.
func (w *runnerWorld) start(cmd *exec.Cmd) (said *runnerOutput, stop func(syscall.Signal) error) {
	w.Helper()
	said = &runnerOutput{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	end := sync.OnceValue(cmd.Wait)
	stop = func(s syscall.Signal) error {
		_ = cmd.Process.Signal(s) // it may have ended
		return end()
	}
	w.Cleanup(func() {
		_ = stop(syscall.SIGTERM)
		if w.Failed() {
			w.Logf("%q said:\n%s", cmd.Args[1:], said)
		}
	})
	return said, stop
}

// alive returns the names of the machines that exist.
func (w *runnerWorld) alive() (names []string) {
	found, _ := filepath.Glob(filepath.Join(w.dir, "machines", "*", "pid")) // the pattern is valid
	for _, pid := range found {
		names = append(names, filepath.Base(filepath.Dir(pid)))
	}
	return names
}

// gone waits until machines are deleted.
func (w *runnerWorld) gone(names ...string) {
	w.Helper()
	patient.Until(w.T, fmt.Sprintf("the machines %q are gone", names), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(w.alive(), name) })
	})
}

// kill ends a machine behind the manager's back.
func (w *runnerWorld) kill(name string) {
	w.Helper()
	if err := exec.Command("test-machine", "delete", filepath.Join(w.dir, "machines", name)).Run(); err != nil {
		w.Fatal(err)
	}
}

// newRunnerWorld starts the manager.
func newRunnerWorld(t *testing.T) *runnerWorld {
	t.Helper()
	if !haveSshd() {
		t.Skip("no OpenSSH is installed")
	}
	dir, err := os.MkdirTemp("", "runners-") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address, err := freeport.Address("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	w := &runnerWorld{T: t, dir: dir, server: "http://" + address, key: filepath.Join(dir, "key")}
	if _, err := sshtest.NewKey(w.key); err != nil {
		t.Fatal(err)
	}
	machines := filepath.Join(dir, "machines")
	pools := fmt.Sprintf("ci:\n  cmd_new: test-machine new %[1]s/$RESALLOC_NAME %[2]s.pub\n"+
		"  cmd_delete: test-machine delete %[1]s/$RESALLOC_NAME\n  tags: [ci]\n  max: 4\n  max_prealloc: 1\n"+
		"  max_starting: 2\n", machines, w.key)
	if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range w.alive() {
			w.kill(name)
		}
	})
	w.start(w.command(nil, "serve", "pool", "--pools", "pools.yaml", "--state-dir", "manager", "--listen", address))
	patient.Until(t, "the pool has a machine", func() bool { return len(w.alive()) > 0 })
	return w
}

// together is a script that ends only if the other one of the same directory runs at the same time, and says on which
// machine.
func together(dir, own, other string) string {
	return fmt.Sprintf("touch %[1]s/%[2]s; until [ -e %[1]s/%[3]s ]; do sleep 0.02; done; echo machine=$MACHINE", dir, own,
		other)
}

var machineName = regexp.MustCompile(`machine=(\S+)`)

func machineIn(t *testing.T, text string) string {
	t.Helper()
	found := machineName.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no machine in %q", text)
	}
	return found[1]
}

// TestEachJobOfACIHasItsOwnMachine runs workflows on GitHub's stand-in, and GitLab's custom executor by its documented
// contract, with real SSH servers as machines.
func TestEachJobOfACIHasItsOwnMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many SSH servers")
	}
	w := newRunnerWorld(t)
	t.Run("GitHub", func(t *testing.T) { w := *w; w.T = t; w.testGitHub() })
	t.Run("GitLab", func(t *testing.T) { w := *w; w.T = t; w.testGitLab() })
	t.Run("bad input", func(t *testing.T) { w := *w; w.T = t; w.testRefusals() })
}

// processesWith returns the files of this name in /proc that have a text.
func processesWith(file, text string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/" + file) // the pattern is valid
	for _, path := range all {
		if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

func (w *runnerWorld) testGitHub() {
	hub := &runnertest.GitHub{}
	server := httptest.NewServer(hub)
	w.Cleanup(server.Close)
	hub.URL = server.URL
	token := filepath.Join(w.dir, "token")
	if err := os.WriteFile(token, []byte(runnertest.Token), 0o600); err != nil {
		w.Fatal(err)
	}
	said, end := w.start(w.command(nil, "pool", "runner", "github", "--url", server.URL+"/example",
		"--token-file", token, "--label", "croft", "--label", "linux", "--tag", "ci", "--ssh-key", w.key, "--max", "3",
		"--name", "ci", "--poll", "1s", "--lease", "10s"))
	idle := func() bool {
		return slices.ContainsFunc(hub.Runners(), func(r runnertest.Runner) bool { return r.Online && r.Job == nil })
	}
	patient.Until(w.T, "a runner waits", idle)

	// all processes of the machines and of the command are on this one
	secret := base64.StdEncoding.EncodeToString([]byte(server.URL))[:4*(len(server.URL)/3)] // begins the configuration
	if in := processesWith("environ", secret); len(in) == 0 {
		w.Error("no process has the configuration of the runner, so this looks for something else")
	}
	if in := processesWith("cmdline", secret); len(in) != 0 {
		w.Errorf("the arguments of %q have the configuration of the runner", in)
	}

	hub.Queue("build", together(w.dir, "a", "b"), "croft")
	hub.Queue("test", together(w.dir, "b", "a"), "croft", "linux")
	hub.Queue("deploy", "echo machine=$MACHINE; exit 3", "croft")
	had := map[string]bool{}
	var machines []string
	for name, code := range map[string]int{"build": 0, "test": 0, "deploy": 3} {
		patient.Until(w.T, "job "+name+" is done", func() bool { return hub.Job(name).State == "done" })
		j := hub.Job(name)
		if j.Code != code {
			w.Errorf("job %s ended with %d, want %d: %s", name, j.Code, code, j.Output)
		}
		machines = append(machines, machineIn(w.T, j.Output))
		had[machines[len(machines)-1]] = true
	}
	if len(had) != 3 {
		w.Errorf("three jobs had the machines %q", machines)
	}
	w.gone(machines...)

	marker := filepath.Join(w.dir, "doomed")
	hub.Queue("doomed", "echo $MACHINE > "+marker+".part; mv "+marker+".part "+marker+"; exec sleep 1000", "croft")
	var victim string
	patient.Until(w.T, "the job runs", func() bool {
		text, err := os.ReadFile(marker)
		victim = strings.TrimSpace(string(text))
		return err == nil
	})
	w.kill(victim)
	patient.Until(w.T, "GitHub has lost the job", func() bool { return hub.Job("doomed").State == "lost" })
	patient.Until(w.T, "the log says that the machine is lost", func() bool {
		return strings.Contains(said.String(), "a job did not end well") && strings.Contains(said.String(), "is lost")
	})
	hub.Queue("after", "echo machine=$MACHINE", "croft")
	patient.Until(w.T, "the next job is done", func() bool { return hub.Job("after").State == "done" })
	if machineIn(w.T, hub.Job("after").Output) == victim {
		w.Errorf("the next job had the machine that died, %s", victim)
	}

	if err := end(syscall.SIGTERM); err != nil {
		w.Errorf("SIGTERM: %v", err)
	}
	if left := hub.Runners(); len(left) != 0 {
		w.Errorf("GitHub has the runners %+v after the end", left)
	}
	if list := w.tickets(); len(list) != 0 {
		w.Errorf("the tickets %v are open after the end", list)
	}
	if strings.Contains(said.String(), runnertest.Token) || strings.Contains(said.String(), "JITCONFIG") {
		w.Error("the log has a secret")
	}
}

// tickets returns the numbers of the open tickets.
func (w *runnerWorld) tickets() (open []int64) {
	w.Helper()
	text, err := w.command(nil, "pool", "ticket", "list", "-o", "json").Output()
	var list []struct {
		ID    int64  `json:"id"`
		State string `json:"state"`
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		w.Fatalf("list tickets: %v: %s", err, text)
	}
	for _, t := range list {
		if t.State == "OPEN" {
			open = append(open, t.ID)
		}
	}
	return open
}

// gitlabStep calls a step for a job as GitLab Runner does, and returns its exit code.
func (w *runnerWorld) gitlabStep(job, step string, args ...string) (code int, stdout, stderr string) {
	w.Helper()
	dir := filepath.Join(w.dir, "job"+job)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.Fatal(err)
	}
	response := filepath.Join(dir, "response.json")
	if err := os.WriteFile(response, fmt.Appendf(nil, `{"id": %s, "token": "glcbt-%s", "job_info": {"name": "x"}}`, job, job),
		0o600); err != nil {
		w.Fatal(err)
	}
	cmd := w.command([]string{"JOB_RESPONSE_FILE=" + response, "BUILD_FAILURE_EXIT_CODE=101",
		"SYSTEM_FAILURE_EXIT_CODE=102", "BUILD_EXIT_CODE_FILE=" + filepath.Join(dir, "code"), "TMPDIR=" + dir,
		"CUSTOM_ENV_CI_JOB_ID=1", // as a job of a malicious user sets it
		"CUSTOM_ENV_CI_SERVER_URL=https://gitlab.example", "CUSTOM_ENV_CI_RUNNER_ID=7"},
		append([]string{"pool", "runner", "gitlab", step}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		w.Fatal(err)
	}
	return 0, out.String(), errs.String()
}

// gitlabStage runs a script as a stage of a job.
func (w *runnerWorld) gitlabStage(job, stage, script string) (code int, stdout, stderr string) {
	w.Helper()
	file := filepath.Join(w.dir, "script-"+job+"-"+stage)
	if err := os.WriteFile(file, []byte("#!/usr/bin/env bash\nset -eo pipefail\n"+script+"\n"), 0o700); err != nil {
		w.Fatal(err)
	}
	return w.gitlabStep(job, "run", "--ssh-key", w.key, file, stage)
}

func (w *runnerWorld) testGitLab() {
	code, stdout, _ := w.gitlabStep("1", "config")
	var config struct {
		BuildsDir string `json:"builds_dir"`
		Driver    struct{ Name string }
	}
	if err := json.Unmarshal([]byte(stdout), &config); err != nil || code != 0 || config.BuildsDir == "" ||
		config.Driver.Name != "croft" {
		w.Errorf("config ended with %d, and printed %s", code, stdout)
	}
	prepare := func(job string) {
		w.Helper()
		if code, _, stderr := w.gitlabStep(job, "prepare", "--tag", "ci", "--ssh-key", w.key); code != 0 {
			w.Fatalf("prepare of job %s ended with %d: %s", job, code, stderr)
		}
	}
	prepare("1")
	one := w.tickets()
	prepare("1")
	if again := w.tickets(); len(one) != 1 || !slices.Equal(again, one) {
		w.Errorf("two calls of prepare have the tickets %v, then %v", one, again)
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "state", "croft", "runner", "*.json"))
	if err != nil || len(files) != 1 {
		w.Fatalf("the files of jobs are %q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		w.Errorf("the mode of %s is %v, %v", files[0], info.Mode(), err)
	}

	prepare("2")
	var machines [2]string
	var both sync.WaitGroup
	for i := range machines {
		both.Go(func() {
			code, stdout, stderr := w.gitlabStage(fmt.Sprint(i+1), "build_script",
				together(w.dir, fmt.Sprint("c", i), fmt.Sprint("c", 1-i)))
			if code != 0 {
				w.Errorf("job %d ended with %d: %s", i+1, code, stderr)
			}
			machines[i] = stdout
		})
	}
	both.Wait()
	for i, text := range machines {
		machines[i] = machineIn(w.T, text)
	}
	if machines[0] == machines[1] {
		w.Errorf("two jobs had the machine %s", machines[0])
	}
	code, stdout, _ = w.gitlabStage("1", "after_script", "echo machine=$MACHINE; cat") // it has no input
	if code != 0 || machineIn(w.T, stdout) != machines[0] {
		w.Errorf("the next stage ended with %d, and printed %s", code, stdout)
	}
	for _, want := range []int{3, 255} {
		code, _, stderr := w.gitlabStage("1", "build_script", fmt.Sprint("echo bad >&2; exit ", want))
		text, err := os.ReadFile(filepath.Join(w.dir, "job1", "code"))
		if code != 101 || err != nil || strings.TrimSpace(string(text)) != fmt.Sprint(want) ||
			strings.TrimSpace(stderr) != "bad" {
			w.Errorf("a script that fails with %d ends with %d and %q, %v: %s", want, code, text, err, stderr)
		}
	}
	for script, want := range map[string]int{"sleep 1000 & echo begun": 0, "sleep 1000 & printf begun; exit 4": 101,
		"(sleep 1000; echo late) & echo begun >&2; echo begun": 0} {
		code, stdout, stderr := w.gitlabStage("1", "build_script", script)
		if code != want || strings.TrimSpace(stdout) != "begun" {
			w.Errorf("%q ends with %d, want %d, and prints %q and %q", script, code, want, stdout, stderr)
		}
	}
	w.kill(machines[1])
	code, _, stderr := w.gitlabStage("2", "after_script", "true")
	if code != 102 || !strings.Contains(stderr, "croft: ") {
		w.Errorf("a stage on a dead machine ends with %d: %s", code, stderr)
	}
	for range 2 {
		for _, job := range []string{"1", "2", "3"} {
			if code, _, stderr := w.gitlabStep(job, "cleanup"); code != 0 || stderr != "" {
				w.Errorf("cleanup of job %s ends with %d: %s", job, code, stderr)
			}
		}
	}
	if left := w.tickets(); len(left) != 0 {
		w.Errorf("the tickets %v are open after cleanup", left)
	}
	w.gone(machines[:]...)
	if left, _ := filepath.Glob(filepath.Join(w.dir, "state", "croft", "runner", "*")); len(left) != 0 {
		w.Errorf("%q are left", left)
	}
	if code, _, stderr := w.gitlabStage("1", "build_script", "true"); code != 102 ||
		!strings.Contains(stderr, "the step prepare has not run") {
		w.Errorf("a stage without prepare ends with %d: %s", code, stderr)
	}
	if code, _, stderr := w.gitlabStep("4", "prepare", "--tag", "nothing"); code != 102 ||
		!strings.Contains(stderr, "no pool has the tag nothing") {
		w.Errorf("prepare with an unknown tag ends with %d: %s", code, stderr)
	}
	if code, _, _ := w.gitlabStep("4", "cleanup"); code != 0 || len(w.tickets()) != 0 {
		w.Errorf("cleanup after it ends with %d, and the tickets %v are open", code, w.tickets())
	}
}

func (w *runnerWorld) testRefusals() {
	hub := &runnertest.GitHub{}
	server := httptest.NewServer(hub)
	w.Cleanup(server.Close)
	hub.URL = server.URL
	wrong := filepath.Join(w.dir, "wrong")
	if err := os.WriteFile(wrong, []byte("ghp_wrong"), 0o600); err != nil {
		w.Fatal(err)
	}
	open := filepath.Join(w.dir, "open")
	if err := os.WriteFile(open, []byte("ghp_wrong"), 0o644); err != nil { //nolint:gosec // which is refused
		w.Fatal(err)
	}
	right := filepath.Join(w.dir, "right")
	if err := os.WriteFile(right, []byte(runnertest.Token), 0o600); err != nil {
		w.Fatal(err)
	}
	given := func(more ...string) []string {
		return append([]string{"pool", "runner", "github"}, more...)
	}
	url, file, label, tag := "--url="+server.URL+"/example", "--token-file="+wrong, "--label=x", "--tag=ci"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{given(file, label, tag), 2, "with --url"},
		{given(url, label, tag), 2, "with --token-file"},
		{given(url, file, tag), 2, "with --label"},
		{given(url, file, label), 2, "with --tag"},
		{given(url, file, label, tag, "--max=0"), 2, "use --max from 1 on"},
		{given(url, file, label, tag, "--idle=5"), 2, "5 idle runners of at most 4"},
		{given(url, file, label, tag, "--lease=1s"), 2, "--lease: use 10s or more"},
		{given(url, file, label, tag, "--ssh-key=nowhere"), 2, "--ssh-key: stat nowhere"},
		{given(url, file, label, tag, "--name=a b"), 2, "cannot begin the names of runners"},
		{given("--url=http://github.example/x", file, label, tag), 2, "use https://"},
		{given("--url=https://github.com/a/b/c", file, label, tag), 2, "neither an organization nor a repository"},
		{given(url, "--token-file=nowhere", label, tag), 2, "read the token of GitHub: open nowhere"},
		{given(url, "--token-file="+open, label, tag), 2, "open has the mode 0644, so that other users"},
		{given(url, file, label, tag), 7, "GitHub does not accept the token in " + wrong + ": Bad credentials (401)"},
		{given(url, "--token-file="+right, label, "--tag=nothing", "--idle=2"), 4, "no pool has the tag nothing"},
		{[]string{"pool", "runner", "gitlab", "config-toml"}, 2, "with --tag"},
		{[]string{"pool", "runner", "gitlab", "prepare", "--tag=ci"}, 2, "the variable JOB_RESPONSE_FILE is not set"},
	} {
		text, err := w.command(nil, c.args...).CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.ExitCode() != c.code || !strings.Contains(string(text), c.says) {
			w.Errorf("%q ends with %v and says %s, want %d and %q", c.args[2:], err, text, c.code, c.says)
		}
	}
	if n := w.tickets(); len(n) != 0 {
		w.Errorf("commands that were refused opened the tickets %v", n)
	}
	text, err := w.command(nil, "pool", "runner", "gitlab", "config-toml", "--tag=a b", "--ssh-key=key",
		"--user=me").Output()
	for _, want := range []string{`  executor = "custom"`, "    prepare_exec = \"",
		`"gitlab", "prepare", "--tag", "a b", "--user=me"`,
		`"--ssh-key=` + w.dir + `/key"]`, `    cleanup_args = ["pool", "runner", "gitlab", "cleanup"]`} {
		if err != nil || !strings.Contains(string(text), want) {
			w.Errorf("config-toml prints %s, %v, want %s", text, err, want)
		}
	}
}
