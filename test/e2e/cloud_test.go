package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/internal/testing/freeport"
)

// patience bounds every wait of a test. It is not a performance requirement: it only has to exceed what a busy
// machine needs.
const patience = 5 * time.Minute

// A cloud is one `croft up` with a separate state directory, ports and libvirt network, so that it shares nothing
// with other processes on the machine.
type cloud struct {
	t         *testing.T // the test that uses it now
	dir       string     // state directory
	home      string     // HOME of the users of schedule
	temporary string     // their TMPDIR
	network   string     // in libvirt, and the name of its bridge
	etcd      string     // host:port
	placement string
	api       string
	settings  string // file
	pools     string // URL of its manager of pools
	url       string // if set, the users of schedule reach the cloud by its API, with the token
	token     string
	log       *os.File
	process   *exec.Cmd // nil: not running
	exited    chan error
}

// newCloud starts a cloud that ends with the test. extra is appended to its settings.
func newCloud(t *testing.T, extra string) *cloud {
	t.Helper()
	c := &cloud{t: t, dir: stateDir(t), home: t.TempDir(), temporary: t.TempDir(),
		network: newNetwork(t)}
	// Last in, first out: the process ends before its domains are searched.
	t.Cleanup(func() { removeDomains(c.dir) })
	t.Cleanup(func() {
		c.end()
		c.log.Close()
	})
	c.begin(c.home, extra)
	return c
}

// begin writes settings and log into dir and starts the cloud.
func (c *cloud) begin(dir, extra string) {
	c.t.Helper()
	var err error
	if c.log, err = os.Create(filepath.Join(dir, "up.log")); err != nil {
		c.t.Fatal(err)
	}
	ports := freePorts(c.t, 3)
	c.etcd, c.placement, c.api = ports[0], ports[1], ports[2]
	c.settings = filepath.Join(dir, "compute.yaml")
	c.write(c.settings, c.settingsText()+extra)
	c.start()
}

func (c *cloud) settingsText() string {
	return fmt.Sprintf(`state_dir: %s
libvirt: {virt_type: qemu, emulated_architectures: [aarch64]}
network: {name: %s}
etcd: {listen: "%s", insecure: true}
placement: {listen: "%s"}
api: {listen: "%s"}
`, c.dir, c.network, c.etcd, c.placement, c.api)
}

func (c *cloud) write(path, text string) {
	c.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// start starts croft up and returns when it takes orders.
func (c *cloud) start() {
	c.t.Helper()
	c.process = exec.Command(filepath.Join(binaries, "croft"), "up", "--settings", c.settings)
	c.process.Stdout, c.process.Stderr = c.log, c.log
	c.process.Env = c.plainEnvironment()
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.process.Start(); err != nil {
		c.t.Fatal(err)
	}
	exited := make(chan error, 1)
	process := c.process
	go func() { exited <- process.Wait() }()
	c.exited = exited
	eventually(c.t, "croft up takes orders", func(ctx context.Context) error {
		select {
		case err := <-exited:
			exited <- err
			c.t.Fatalf("croft up ended: %v\n%s", err, c.logText())
		default:
		}
		return get(ctx, "http://"+c.api+"/readyz", nil)
	})
}

// signal sends s to croft up and waits until it has ended.
func (c *cloud) signal(s os.Signal) {
	c.t.Helper()
	if err := c.stop(s); err != nil {
		c.t.Error(err)
	}
}

// stop is signal, but returns an error.
func (c *cloud) stop(s os.Signal) error {
	if c.process == nil {
		return nil
	}
	defer func() { c.process = nil }()
	err := c.process.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-c.exited:
	case <-time.After(patience):
		_ = c.process.Process.Kill()
		<-c.exited
		err = errors.Join(err, fmt.Errorf("croft up goes on %v after %v", patience, s))
	}
	return err
}

// end stops croft up regularly and checks its log.
func (c *cloud) end() {
	c.signal(syscall.SIGTERM)
	c.lookAtLog()
}

// lookAtLog fails on data races, and shows the log if the test has failed.
func (c *cloud) lookAtLog() {
	log := c.logText()
	if strings.Contains(log, dataRace) {
		c.t.Error("croft up has a data race")
	}
	if c.t.Failed() {
		c.t.Logf("log of croft up:\n%s", log)
	}
}

// dataRace is what the race detector logs.
const dataRace = "WARNING: DATA RACE"

func (c *cloud) logText() string {
	if c.log == nil {
		return "there is none yet"
	}
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8000):])
}

// environment returns the environment of a user of this cloud without settings files. The race detector would delay
// the exit of each command by a second.
func (c *cloud) environment() []string {
	more := []string{"CROFT_ETCD_ENDPOINTS=http://" + c.etcd, "CROFT_PLACEMENT_ENDPOINT=http://" + c.placement}
	if c.url != "" {
		more = []string{"CROFT_URL=" + c.url, "CROFT_TOKEN=" + c.token}
	}
	return slices.Concat(c.plainEnvironment(), more, []string{"TMPDIR=" + c.temporary, "GORACE=atexit_sleep_ms=0"})
}

// plainEnvironment returns an environment without croft's settings.
func (c *cloud) plainEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "CROFT_") || strings.HasPrefix(s, "XDG_") || strings.HasPrefix(s, "HOME=")
	})
	return append(env, "HOME="+c.home)
}

// A result is a command's output and exit code.
type result struct {
	stdout, stderr string
	exit           int
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.exit, r.stdout, r.stderr)
}

// schedule runs the schedule command.
func (c *cloud) schedule(args ...string) result {
	c.t.Helper()
	return c.run("schedule", args...)
}

// run runs croft under one of its names.
func (c *cloud) run(name string, args ...string) result {
	c.t.Helper()
	return c.runWith(nil, name, args...)
}

// runWith is run with more variables in the environment.
func (c *cloud) runWith(more []string, name string, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, name), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.home, append(c.environment(), more...), &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		c.t.Errorf("%s %q: %v\n%s", name, args, err, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must is schedule for commands that must succeed; it returns stdout without its last newline.
func (c *cloud) must(args ...string) string {
	c.t.Helper()
	r := c.schedule(args...)
	if r.exit != 0 {
		c.t.Fatalf("schedule %q: %v", args, r)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// freePorts returns currently unused loopback addresses.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	all, err := freeport.Addresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
