package watch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/internal/testing/patient"
)

// supervisor runs node.sh as a process. Its controller is a file that contains the reply.
type supervisor struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

func supervise(t *testing.T, env ...string) *supervisor {
	t.Helper()
	s := &supervisor{t: t, dir: t.TempDir()}
	s.put("ssh", "#!/bin/sh\nread -r line\necho \"$line\" >>"+s.dir+"/lines\ncat "+s.dir+"/reply 2>/dev/null\n")
	if err := os.Chmod(s.path("ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.put("node.sh", Script)
	s.cmd = exec.Command("sh", s.path("node.sh"))
	s.cmd.Env = append(os.Environ(), append([]string{"CONTROLLERS=ctl1", "EVERY=1", "LEASE=2", "RUN=" + s.path("run"),
		"SSH=" + s.path("ssh"), "STOP=rm -f " + s.path("running") + "; touch " + s.path("stopped"),
		"START=touch " + s.path("running")}, env...)...)
	s.cmd.Dir = s.dir
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = s.cmd.Wait()
	})
	return s
}

func (s *supervisor) path(name string) string { return filepath.Join(s.dir, name) }

func (s *supervisor) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name)+".new", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path(name)+".new", s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *supervisor) has(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

func (s *supervisor) lastLine() string {
	text, _ := os.ReadFile(s.path("lines"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

func TestANodesJobsEndWithItsLease(t *testing.T) {
	s := supervise(t, "REV=rev")
	s.put("rev", "revision git:"+strings.Repeat("a", 40)+"\nepoch 3\n")
	patient.Until(t, "without a lease the jobs are stopped at once", func() bool { return s.has("stopped") })
	if s.has("running") {
		t.Error("they run without a lease")
	}
	s.put("reply", "granted 2\n")
	patient.Until(t, "with a lease they run", func() bool { return s.has("running") })
	b, err := ParseBeat(s.lastLine())
	if err != nil || b.Lease != 2*time.Second {
		t.Errorf("the beat %q: %+v, %v", s.lastLine(), b, err)
	}
	patient.Until(t, "the revision is told", func() bool { return strings.Contains(s.lastLine(), " git:aaaa") })
	if err := os.Remove(s.path("reply")); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "when no controller answers they are stopped", func() bool { return !s.has("running") })
	s.put("reply", "granted 2\n")
	patient.Until(t, "they run again", func() bool { return s.has("running") })
	s.put("reply", "refused out\n")
	patient.Until(t, "when the lease is refused they are stopped", func() bool { return !s.has("running") })
	s.put("reply", "granted 200\n")
	lines := s.lastLine()
	patient.Until(t, "another reply", func() bool { return s.lastLine() != lines })
	lines = s.lastLine()
	patient.Until(t, "another one", func() bool { return s.lastLine() != lines })
	if s.has("running") {
		t.Error("a lease that was not asked for is taken")
	}
	s.put("reply", "granted 2\n")
	patient.Until(t, "they run once more", func() bool { return s.has("running") })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil || s.has("running") {
		t.Errorf("it was told to end: %v, and the jobs run: %v", err, s.has("running"))
	}
}

func TestAFrozenOrKilledSupervisorAsksForNoLease(t *testing.T) {
	s := supervise(t)
	s.put("reply", "granted 2\n")
	patient.Until(t, "the jobs run", func() bool { return s.has("running") })
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "the beats say that nothing ends the jobs",
		func() bool { return strings.HasSuffix(s.lastLine(), " 0") })
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	patient.Until(t, "the senders end too", func() bool { return syscall.Kill(-s.cmd.Process.Pid, 0) != nil })
}

func TestWhenStoppingFailsTheLastResortIsTaken(t *testing.T) {
	s := supervise(t, "STOP=exit 1", "LAST=touch last")
	patient.Until(t, "the last resort", func() bool { return s.has("last") })
}

// TestWhatStartsJobsEndsWithTheLease: a START that hangs must not continue after STOP has ended all jobs.
func TestWhatStartsJobsEndsWithTheLease(t *testing.T) {
	s := supervise(t, "START=sh -c 'echo $$ >began.new; mv began.new began; exec sleep 600'; :")
	s.put("reply", "granted 2\n")
	patient.Until(t, "the jobs are being started", func() bool { return s.has("began") })
	for _, name := range []string{"reply", "stopped"} { // nothing was stopped if the first beat got the lease
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	patient.Until(t, "the lease has run out", func() bool { return s.has("stopped") })
	text, err := os.ReadFile(s.path("began"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(state), ") Z") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("what starts the jobs goes on: %s", state)
	}
}

func TestALeaseWithoutAWayToStopIsRefused(t *testing.T) {
	out, err := exec.Command("env", "CONTROLLERS=c", "LEASE=5", "RUN="+t.TempDir(), "sh", "-c", Script).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "LEASE=5 without STOP") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestHostileBeats(t *testing.T) {
	good := Beat{Boot: "b-1", Count: 7, Revision: "git:0a", Load: 0.5, Lease: 2 * time.Second}
	if b, err := ParseBeat(good.String()); err != nil || b != good {
		t.Errorf("%q is read as %+v, %v", good.String(), b, err)
	}
	for name, line := range map[string]string{
		"nothing":                "",
		"another word":           "beet b 1 - 0 0",
		"too few words":          "beat b 1 - 0",
		"too many":               "beat b 1 - 0 0 x",
		"a path for a boot":      "beat ../../x 1 - 0 0",
		"control characters":     "beat \x1b[2J 1 - 0 0",
		"no count":               "beat b -1 - 0 0",
		"a count too great":      "beat b 99999999999999999999 - 0 0",
		"no revision":            "beat b 1 $(reboot) 0 0",
		"a load that is none":    "beat b 1 - NaN 0",
		"an infinite load":       "beat b 1 - Inf 0",
		"a negative one":         "beat b 1 - -1 0",
		"a lease for ever":       "beat b 1 - 0 99999",
		"a long line":            "beat " + strings.Repeat("b", 300) + " 1 - 0 0",
		"bytes that are no text": "beat \xff\xfe 1 - 0 0",
	} {
		if b, err := ParseBeat(line); err == nil || strings.ContainsAny(err.Error(), "\x1b\n") ||
			len(err.Error()) > 300 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

func FuzzParseBeat(f *testing.F) {
	f.Add("beat b 1 - 0 0")
	f.Add("beat 0e-1 18446744073709551615 git:00 1e5 3600")
	f.Fuzz(func(t *testing.T, line string) {
		b, err := ParseBeat(line)
		if err != nil {
			return
		}
		if again, err := ParseBeat(b.String()); err != nil || again.Boot != b.Boot || again.Count != b.Count ||
			again.Lease != b.Lease {
			t.Errorf("%q becomes %q, read as %+v, %v", line, b.String(), again, err)
		}
	})
}

func TestWhatAReceiverAnswers(t *testing.T) {
	now := time.Minute
	store, err := OpenStore(t.TempDir(), Clock{Boot: "boot", Now: func() time.Duration { return now }})
	if err != nil {
		t.Fatal(err)
	}
	say := func(line string, want Reply) {
		t.Helper()
		if got, err := store.Receive("web1", line, 30*time.Second); err != nil || got != want {
			t.Errorf("%q is answered %q, %v, want %q", line, got, err, want)
		}
	}
	say("beat b 1 - 0 0", Taken)
	say("beat b 1 - 0 0", Old)
	say("beat b 2 - 0 30", Standby)
	lead := func(renewed, until time.Duration) {
		t.Helper()
		if err := store.remember(&memory{ClockBoot: "boot", Renewed: renewed, Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	lead(now, now+time.Second)
	say("beat b 3 - 0 30", Granted(30*time.Second))
	say("beat b 4 - 0 31", TooLong)
	say("beat other 1 - 0 0", Taken)
	say("rm -rf /", Bad)
	if err := store.revoke("web1", now-1); err == nil {
		t.Error("a lease is revoked though a beat has come since")
	}
	if err := store.revoke("web1", now); err != nil {
		t.Error(err)
	}
	say("beat other 2 - 0 30", Revoked)
	say("beat other 3 - 0 0", Revoked)
	if err := store.restore("web1"); err != nil {
		t.Error(err)
	}
	say("beat other 4 - 0 30", Granted(30*time.Second))
	now += time.Second // the leader has not renewed
	say("beat other 5 - 0 30", Standby)

	// The leader has a record of two minutes.
	lead(now-time.Second, now+2*time.Minute-time.Second)
	say("beat other 12004 - 0 30", Standby) // the last beat before that record had the count 4
	lead(now, now+2*time.Minute)
	now += time.Second
	say("beat other 24003 - 0 30", Granted(30*time.Second))
	say("beat other 24004 - 0 30", Standby) // two minutes have passed on the node's clock, though not on this one
	say("beat third 1 - 0 30", Standby)     // no beat of this boot shows how long ago the record was made
	lead(now, now+2*time.Minute)
	say("beat third 2 - 0 30", Granted(30*time.Second))
	for _, name := range []string{"", "..", "a/b", "A", strings.Repeat("a", 64)} {
		if _, err := store.Receive(name, "beat b 1 - 0 0", 0); err == nil {
			t.Errorf("a beat of %q is taken", name)
		}
	}
	r, err := store.read("web1")
	if err != nil || r.Granted != now || r.Arrived != now {
		t.Errorf("kept is %+v, %v", r, err)
	}
	later := &Store{store.dir, Clock{Boot: "next boot", Now: func() time.Duration { return time.Second }}}
	if r, err := later.read("web1"); err != nil || r.Arrived != 0 || r.Granted != 0 {
		t.Errorf("after a boot of the controller: %+v, %v", r, err)
	}
}

func TestAReceiverEndsWithWhatIsNoBeat(t *testing.T) {
	clock, err := SystemClock()
	if err != nil {
		t.Fatal(err)
	}
	store, err := OpenStore(t.TempDir(), clock)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"junk\nbeat b 1 - 0 0\n", strings.Repeat("x", 1<<20)} {
		var out strings.Builder
		err := store.Serve(t.Context(), "web1", strings.NewReader(line), &out, rules)
		if err == nil || out.String() != string(Bad)+"\n" {
			t.Errorf("%.20q: %q, %v", line, out.String(), err)
		}
	}
	var out strings.Builder
	err = store.Serve(t.Context(), "web1", strings.NewReader("beat b 1 - 0 0\nbeat b 2 - 0 0\n"), &out, rules)
	if want := fmt.Sprintf("%s\n%s\n", Taken, Taken); err != nil || out.String() != want {
		t.Errorf("two beats: %q, %v", out.String(), err)
	}
}
