package hosts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process runs until it is ended, at the latest with the test. Its output is shown if the test fails.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	log    string // file
	exited chan error
}

// begin starts cmd. If a process of the same name ran before, the new one appends to its log.
func (w *world) begin(name string, cmd *exec.Cmd) *process {
	w.t.Helper()
	p := &process{t: w.root, name: name, cmd: cmd, log: filepath.Join(w.dir, name+".log"), exited: make(chan error, 1)}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		w.t.Fatalf("start %s: %v", name, err)
	}
	go func() { p.exited <- cmd.Wait() }()
	w.root.Cleanup(p.finish)
	return p
}

// as returns the command of a test process with a role.
func (w *world) as(r role) *exec.Cmd {
	w.t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(plainEnvironment(), roleEnv+"="+string(text))
	return cmd
}

// end sends s and waits, then kills the process if it continues.
func (p *process) end(s syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(s)
	select {
	case err := <-p.exited:
		if exit, ok := errors.AsType[*exec.ExitError](err); s == syscall.SIGTERM && ok && exit.Exited() {
			p.t.Errorf("%s ended: %v", p.name, err)
		}
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
		p.t.Errorf("%s goes on %v after %v", p.name, patience, s)
	}
	p.cmd = nil
}

// client does not verify certificates: the tests only check whether a server answers.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// waitUntilReady returns when url answers 200; it fails the test if the process ends first.
func (p *process) waitUntilReady(url string) {
	p.t.Helper()
	eventually(p.t, p.name+" is ready", func(ctx context.Context) error {
		select {
		case err := <-p.exited:
			p.exited <- err
			p.t.Fatalf("%s ended: %v", p.name, err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	})
}

// raceRule is the line above and below the report of a race.
const raceRule = "=================="

// finish ends the process with the test, and checks its log.
func (p *process) finish() {
	p.end(syscall.SIGTERM)
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	for report := range strings.SplitSeq(string(text), raceRule) {
		switch {
		case strings.Contains(report, "panic:"):
			p.t.Errorf("%s panics", p.name)
		case !strings.Contains(report, "WARNING: DATA RACE"):
		case strings.Contains(report, "  croft/"):
			p.t.Errorf("%s has a data race", p.name)
		default: // such as etcd's, where Status reads the alarms while a snapshot replaces them
			p.t.Logf("%s has a data race between functions of another module:\n%s", p.name, report)
		}
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", p.name, text[max(0, len(text)-6000):])
	}
}

// plainEnvironment returns an environment without croft's settings.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "CROFT_") || strings.HasPrefix(s, "XDG_")
	})
}

// must runs a program and returns its output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// say writes one byte to a process that waits for it.
func say(t *testing.T, to io.Writer) {
	t.Helper()
	if _, err := to.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}
