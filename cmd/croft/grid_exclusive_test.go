package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"croft/grid/watch"
	"croft/internal/filelock"
)

// A oneAtATime is a job that records where it runs, and whether another instance of it runs.
type oneAtATime struct {
	*watching
	dir string
}

// job returns the job's file. The kernel is the witness: the process that has the lock runs, frozen or not. The job
// then waits for a lock that the test holds, so it does nothing, and ends with the test in any case.
func (o *oneAtATime) job() string {
	return fmt.Sprintf("exclusive: true\nnetwork: host\ncommand: [/bin/sh, -c, %q]\n", fmt.Sprintf(
		"exec 9>>%[1]s/one; flock -n 9 || echo ${node.name} >>%[1]s/twice; echo ${node.name} >>%[1]s/runs; "+
			"exec flock -s %[1]s/alive true", o.dir))
}

func (o *oneAtATime) croft(args ...string) {
	o.Helper()
	all := append(append([]string{"grid"}, args...), "-C", o.op)
	if out, err := o.command("croft", all...).CombinedOutput(); err != nil {
		o.Fatalf("croft grid %q: %v\n%s", args, err, out)
	}
}

func (o *oneAtATime) read(name string) []string {
	text, _ := os.ReadFile(filepath.Join(o.dir, name))
	return strings.Fields(string(text))
}

func (o *oneAtATime) write(name, text string) {
	o.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o755); err != nil {
		o.Fatal(err)
	}
}

// where waits until the job has started the given number of times, and returns the number of its last node.
func (o *oneAtATime) where(times int) int {
	o.Helper()
	var runs []string
	o.until(fmt.Sprintf("it has begun %d times", times), func() bool {
		runs = o.read("runs")
		return len(runs) >= times
	})
	i, err := strconv.Atoi(strings.TrimPrefix(runs[len(runs)-1], "n"))
	if err != nil || len(runs) != times {
		o.Fatalf("it ran on %q: %v", runs, err)
	}
	return i
}

// freeze stops all processes on a machine, its sshd and its job: the kernel accepts connections to it, but no process
// answers.
func (o *oneAtATime) freeze(i int) {
	o.beats[i]()
	o.signal(i, syscall.SIGSTOP)
}

// thaw ends freeze.
func (o *oneAtATime) thaw(i int) {
	o.signal(i, syscall.SIGCONT)
	o.beat(i)
}

func (o *oneAtATime) signal(i int, s syscall.Signal) {
	if s == syscall.SIGSTOP {
		o.grid.Nodes[i].Suspend()
	} else {
		o.grid.Nodes[i].Resume()
	}
	files, _ := filepath.Glob(filepath.Join(o.grid.Nodes[i].State, "units", "*", "pid"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			o.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.Fields(string(text))[0])
		if err != nil {
			o.Fatal(err)
		}
		_ = syscall.Kill(-pid, s) // it may have ended
	}
}

// state returns the line with a node's state upstream.
func (o *oneAtATime) state(i int) string {
	for line := range strings.Lines(o.git(o.bare, "show", fmt.Sprintf("main:nodes/s%d/n%d.yaml", i/3, i))) {
		if strings.HasPrefix(line, "state: ") {
			return strings.Fields(line)[1]
		}
	}
	return "up"
}

// lease replaces the heartbeats of a node by the script that ends the job when no controller answers.
func (o *oneAtATime) lease(i int) {
	o.beats[i]()
	o.write("ctl", fmt.Sprintf("#!/bin/sh\n[ ! -e %s/cut ] || exit 255\n"+
		"exec croft grid beat -C %s --state %s --receive n%d\n", o.dir, o.op, o.store("a"), i))
	o.write("beat.sh", watch.Script)
	cmd := o.command("sh", filepath.Join(o.dir, "beat.sh"))
	cmd.Env = append(cmd.Env, "CONTROLLERS=a", "EVERY=1", "LEASE=6", "RUN="+filepath.Join(o.dir, "beat"),
		"SSH="+filepath.Join(o.dir, "ctl"), "STOP="+filepath.Join(o.dir, "off")+" "+o.grid.Nodes[i].State)
	o.start(cmd)
	o.until("it has a lease", func() bool {
		text, _ := os.ReadFile(filepath.Join(o.dir, "beat", "state"))
		return strings.TrimSpace(string(text)) == "started"
	})
}

// newOneAtATime returns a cluster that runs the job and is watched; said is the output of the watch.
func newOneAtATime(t *testing.T) (o *oneAtATime, said *spoken) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, program := range []string{"git", "flock", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: scripts/install-deps test installs it", program)
		}
	}
	o = &oneAtATime{dir: t.TempDir(), watching: &watching{T: t}}
	alive, err := os.Create(filepath.Join(o.dir, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = alive.Close() })
	if err := filelock.Take(alive); err != nil {
		t.Fatal(err)
	}
	// off ends the processes on a machine. The fence reads its result from the file answer first: 0 is yes, 1 no, 3
	// unknown.
	o.write("off", "#!/bin/sh\nfor f in \"$1\"/units/*/pid; do\n\t[ -e \"$f\" ] || continue\n\tread -r pid _ <\"$f\"\n"+
		"\tkill -9 -\"$pid\" 2>/dev/null\n\twhile kill -0 -\"$pid\" 2>/dev/null; do sleep 0.05; done\ndone\nexit 0\n")
	o.write("answer", "3")
	o.write("fence", fmt.Sprintf("#!/bin/sh\ncode=$(cat %[1]s/answer)\necho \"$1=$code\" >>%[1]s/asked\n"+
		"[ \"$code\" = 0 ] || exit \"$code\"\nexec %[1]s/off \"$2\"\n", o.dir))
	o.watching = newWatching(t, 6, map[string]string{
		"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nvcs: git\nruntime: process\ntimeouts: {dial: 2}\n" +
			"watch: {every: 1, grace: 12, term: 30, fence: off}\n",
		"jobs/db.yaml": o.job(),
		"hardpoints/fence/off.yaml": fmt.Sprintf("fence:\n  argv: [%s/fence, \"${name}\", \"${var.state}\"]\n  no: 1\n"+
			"  unknown: 3\n  timeout: 1m\n", o.dir),
		"nodes/_.yaml": "id: -1\nvar: {state: \"${state_dir}\"}\n",
	})
	o.croft("apply")
	_, said = o.watcher("a")
	o.until("a leads", func() bool { return said.has("leader=a leads=true") })
	return o, said
}

// moved checks that the job has left a node for another one, and never ran twice.
func (o *oneAtATime) moved(first int) {
	o.Helper()
	second := o.where(2)
	if second == first || o.state(first) != "out" {
		o.Errorf("it went from n%d to n%d; the first one is %s", first, second, o.state(first))
	}
	if twice := o.read("twice"); len(twice) > 0 {
		o.Errorf("it ran twice, the second time on %q", twice)
	}
}

// TestAnExclusiveJobNeverRunsTwice: the job's node is cut off, and the fence cannot tell whether it is off, so the
// node's own lease ends the job. Only then the job starts elsewhere.
func TestAnExclusiveJobNeverRunsTwice(t *testing.T) {
	o, _ := newOneAtATime(t)
	first := o.where(1)
	o.lease(first)

	// The node is cut off: it reaches no controller, and no client reaches it. The job runs on there until the lease
	// ends.
	o.write("cut", "")
	o.grid.Nodes[first].Suspend()
	o.moved(first)
}

// TestAnExclusiveJobOfAFrozenNodeWaitsForTheFence: the node has no lease, and may continue at any time. The job does
// not move until the node's fence confirms that the node is off, and nothing is written about the node, because it has
// no other slots that could leave it.
func TestAnExclusiveJobOfAFrozenNodeWaitsForTheFence(t *testing.T) {
	o, said := newOneAtATime(t)
	first := o.where(1)
	before := o.git(o.bare, "rev-parse", "main")
	o.freeze(first)
	for _, answer := range []string{"3", "1"} {
		o.write("answer", answer)
		o.until("the fence has answered twice", func() bool {
			return strings.Count(strings.Join(o.read("asked"), " "), fmt.Sprintf("n%d=%s", first, answer)) >= 2
		})
		if runs := o.read("runs"); len(runs) != 1 || o.git(o.bare, "rev-parse", "main") != before {
			t.Fatalf("the fence ends with %s, and it ran on %q; n%d is %s", answer, runs, first, o.state(first))
		}
	}
	if !said.has(fmt.Sprintf("n%d is dead, and its 1 slots of exclusive jobs stay there", first)) {
		t.Error("the watch does not say why nothing moves")
	}

	o.write("answer", "0")
	o.moved(first)
	o.thaw(first)
	o.git(o.op, "pull", "-q", "origin", "main")
	o.croft("node", "up", fmt.Sprint("n", first))
	o.git(o.op, "commit", "-qam", "it is back")
	o.git(o.op, "push", "-q", "origin", "HEAD:main")
	o.croft("apply")
	if twice, runs := o.read("twice"), o.read("runs"); len(twice) > 0 || len(runs) != 2 {
		t.Errorf("the node goes on: it ran twice on %q, and ran on %q", twice, runs)
	}
}
