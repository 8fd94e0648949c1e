package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"croft"
)

// workerVariable holds the command that this test binary runs as a separate process, as words separated by blanks.
const workerVariable = "CROFT_IPAM_WORK"

// crashVariable holds the number of the file change before which the process exits.
const crashVariable = "CROFT_IPAM_CRASH"

const crashed = 99 // exit code

// worker runs the command that a test gave to a process, and returns the exit code.
func worker(work string) int {
	words := strings.Fields(work)
	if at, err := strconv.Atoi(os.Getenv(crashVariable)); err == nil {
		step = func(string, string) {
			if at--; at < 0 {
				os.Exit(crashed) // deferred calls do not run
			}
		}
	}
	d, err := Open(words[1])
	if err == nil {
		err = works[words[0]](d, words[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var works = map[string]func(d *Dir, words []string) error{
	"churn": func(d *Dir, words []string) error { // gets three addresses, frees one, again and again
		for i := range 8 {
			for slot := range 3 {
				if _, err := get(d, "web", Owner{"w" + words[0], slot}, netip.Addr{}); err != nil {
					return err
				}
			}
			if i < 7 {
				if _, err := free(d, Owner{"w" + words[0], i % 3}, i%2 == 0); err != nil {
					return err
				}
			}
		}
		return nil
	},
	"get": func(d *Dir, words []string) error {
		_, err := get(d, "web", Owner{words[0], 0}, netip.Addr{})
		return err
	},
	"free": func(d *Dir, words []string) error {
		_, err := free(d, Owner{words[0], 0}, words[1] == "hold")
		return err
	},
	"rest": func(d *Dir, words []string) error {
		return d.Change(context.Background(), func(n *Net) error {
			if _, err := n.Describe(prefix("10.0.0.0/8"), Change{AddTags: []string{"new"}}); err != nil {
				return err
			}
			if err := n.PutSet("s", "#new"); err != nil {
				return err
			}
			if err := n.PutAccess("a", "all4", "pool:web", "tcp", []string{"80"}, false); err != nil {
				return err
			}
			return n.Put(&Pool{Name: "other", Prefix: prefix("10.1.0.0/24"), Strategy: First, Hold: DefaultHold})
		})
	},
}

// process starts the test binary to do some work.
func process(t testing.TB, crash string, words ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVariable+"="+strings.Join(words, " "), crashVariable+"="+crash,
		"GORACE=atexit_sleep_ms=0") // otherwise each process takes a second to end
	return cmd
}

// TestManyProcessesAtOnce checks that no lease of concurrent processes is lost, and that no address is given twice.
func TestManyProcessesAtOnce(t *testing.T) {
	const processes = 16
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	var all sync.WaitGroup
	said := make([]string, processes)
	for i := range processes {
		cmd := process(t, "", "churn", d.root.Name(), strconv.Itoa(i))
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				said[i] = fmt.Sprintf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	for _, words := range said {
		if words != "" {
			t.Error(words)
		}
	}
	has := map[Owner]int{}
	for _, l := range read(t, d).Leases {
		if !l.Freed() {
			has[l.Owner]++
		}
	}
	for i := range processes {
		for slot := range 3 {
			if o := (Owner{fmt.Sprint("w", i), slot}); has[o] != 1 {
				t.Errorf("%s has %d addresses", o, has[o])
			}
		}
	}
	if len(has) != 3*processes {
		t.Errorf("%d owners", len(has))
	}
	if text := listing(t, d); strings.Contains(text, fresh) {
		t.Errorf("something is left:\n%s", text)
	}
}

// TestACrashAtAnyStep ends a process before each of its file changes. The next command must be able to read the files
// that are left, and repeating the work must have the result of an undisturbed run.
func TestACrashAtAnyStep(t *testing.T) {
	files := map[string]string{"net/pools/web.yaml": "{prefix: 10.0.0.0/24, hold: 1000000h}",
		"net/lease/v4/10.0.0.1": "-> ../../../alloc/a/0", "net/lease/v4/10.0.0.2": "-> ../../../alloc/b/0",
		"net/lease/v4/10.0.0.3":       "{freed: c/0, until: 2999-01-01T00:00:00Z}",
		"net/meta/v4/10.0.0.0_8.yaml": "tags: [old]\n"}
	for name, work := range map[string][]string{
		"a new lease": {"get", "n"}, "one that was freed": {"get", "c"}, "freed and held": {"free", "a", "hold"},
		"freed for all": {"free", "a", "now"}, "several files": {"rest"},
	} {
		undisturbed := tree(t, files)
		if out, err := process(t, "", append([]string{work[0], undisturbed.root.Name()}, work[1:]...)...).
			CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		want := withoutTimes(listing(t, undisturbed))
		for at := 0; ; at++ {
			d := tree(t, files)
			words := append([]string{work[0], d.root.Name()}, work[1:]...)
			cmd := process(t, strconv.Itoa(at), words...)
			out, err := cmd.CombinedOutput()
			if err == nil {
				if at < 1 {
					t.Errorf("%s changes files in %d steps: the test shows nothing", name, at)
				}
				break
			}
			if cmd.ProcessState.ExitCode() != crashed {
				t.Fatalf("%s, step %d: %v: %s", name, at, err, out)
			}
			n := read(t, d)
			if found, err := n.Check(); err != nil || len(found) > 0 {
				t.Errorf("%s, step %d: %q, %v", name, at, found, err)
			}
			if l := n.Leases[addr("10.0.0.2")]; l.Owner.Job != "b" || l.Freed() {
				t.Errorf("%s, step %d: another's lease is %v", name, at, l)
			}
			if work[0] == "rest" {
				continue // an error reports that the set, the rule or the pool already exists
			}
			if out, err := process(t, "", words...).CombinedOutput(); err != nil {
				t.Fatalf("%s, again after step %d: %v: %s", name, at, err, out)
			}
			if got := withoutTimes(listing(t, d)); got != want && !strings.Contains(got, fresh) {
				t.Errorf("%s, again after step %d:\n%swant\n%s", name, at, got, want)
			}
			if _, err := get(d, "web", Owner{"later", 0}, netip.Addr{}); err != nil {
				t.Errorf("%s, later: %v", name, err)
			}
			if text := listing(t, d); strings.Contains(text, fresh) {
				t.Errorf("%s, step %d: something is left:\n%s", name, at, text)
			}
		}
	}
}

// withoutTimes removes the until times of freed leases from a listing.
func withoutTimes(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "until:")
		lines = append(lines, before)
	}
	return strings.Join(lines, "\n")
}

// TestAKilledProcessLeavesNoLock: the next process gets the lock without waiting.
func TestAKilledProcessLeavesNoLock(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	for i := range 40 {
		cmd := process(t, "", "churn", d.root.Name(), strconv.Itoa(i))
		must(t, cmd.Start())
		for own := -1; own < i%4; { // until the process is at work; at the end it has three addresses
			own = 0
			for _, l := range read(t, d).Leases {
				if l.Owner.Job == fmt.Sprint("w", i) && !l.Freed() {
					own++
				}
			}
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		if _, err := get(d, "web", Owner{"mine", i}, netip.Addr{}); err != nil {
			t.Fatal(err)
		}
	}
	has := map[Owner]netip.Addr{}
	for a, l := range read(t, d).Leases {
		if other, twice := has[l.Owner]; twice && !l.Freed() {
			t.Errorf("%s has %s and %s", l.Owner, a, other)
		}
		if !l.Freed() {
			has[l.Owner] = a
		}
	}
	for i := range 40 {
		if !has[Owner{"mine", i}].IsValid() {
			t.Errorf("lease %d is lost", i)
		}
	}
}

func TestAChangeEndsWithItsContext(t *testing.T) {
	d := tree(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	err := d.Change(ctx, func(n *Net) error {
		cancel()
		return n.Put(&Pool{Name: "web", Prefix: prefix("10.0.0.0/24"), Strategy: First})
	})
	if err == nil || len(read(t, d).Pools) != 0 {
		t.Errorf("it says %v, and there are pools", err)
	}
	if _, err := Open(d.root.Name() + "/nowhere"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("no directory: %v", err)
	}
}
