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
)

// A oneAtATime is a job that says where it runs, and whether another one of it does.
type oneAtATime struct {
	*watching
	dir string
}

// job is the job's file. The kernel is the witness: whoever has the lock runs, frozen or not.
func (o *oneAtATime) job() string {
	return fmt.Sprintf("exclusive: true\nnetwork: host\ncommand: [/bin/sh, -c, %q]\n", fmt.Sprintf(
		"exec 9>>%[1]s/one; flock -n 9 || echo ${node.name} >>%[1]s/twice; echo ${node.name} >>%[1]s/runs; "+
			"while :; do sleep 0.1 9>&-; done", o.dir))
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

// where waits until the job has begun so many times, and returns the number of its last node.
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

// unplug ends the sshd of a node, and nothing else: as in a network that has failed, nobody can dial it, and its job
// goes on.
func (o *oneAtATime) unplug(i int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err == nil && string(name) == "sshd\n" && strings.Contains(string(text), o.grid.Nodes[i].Dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// state is the line of a node's state upstream.
func (o *oneAtATime) state(i int) string {
	for line := range strings.Lines(o.git(o.bare, "show", fmt.Sprintf("main:nodes/s%d/n%d.yaml", i/3, i))) {
		if strings.HasPrefix(line, "state: ") {
			return strings.Fields(line)[1]
		}
	}
	return "up"
}

// lease replaces the beats of a node by the script that ends the job when no controller answers.
func (o *oneAtATime) lease(i int) {
	name := fmt.Sprint("n", i)
	end(o.beats[name])
	o.write("ctl", fmt.Sprintf("#!/bin/sh\n[ ! -e %s/cut ] || exit 255\n"+
		"exec croft grid beat -C %s --state %s --receive %s\n", o.dir, o.op, o.store("a"), name))
	o.write("beat.sh", watch.Script)
	cmd := o.command("sh", filepath.Join(o.dir, "beat.sh"))
	cmd.Env = append(cmd.Env, "CONTROLLERS=a", "EVERY=1", "LEASE=6", "RUN="+filepath.Join(o.dir, "beat"),
		"SSH="+filepath.Join(o.dir, "ctl"), "STOP="+filepath.Join(o.dir, "off")+" "+o.grid.Nodes[i].State)
	o.beats[name], _ = o.start(cmd)
	o.until("it has a lease", func() bool {
		text, _ := os.ReadFile(filepath.Join(o.dir, "beat", "state"))
		return strings.TrimSpace(string(text)) == "started"
	})
}

// TestAnExclusiveJobNeverRunsTwice: its node is cut off, and the fence cannot tell, so the node's own lease ends the
// job. It starts elsewhere, and only then.
func TestAnExclusiveJobNeverRunsTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for _, program := range []string{"git", "flock", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: scripts/install-deps test installs it", program)
		}
	}
	o := &oneAtATime{dir: t.TempDir()}
	o.watching = &watching{T: t}
	// off ends what runs on a machine. The fence asks the file answer first: 0 is yes, 1 no, 3 that it does not know.
	o.write("off", "#!/bin/sh\nfor f in \"$1\"/units/*/pid; do\n\t[ -e \"$f\" ] || continue\n\tread -r pid _ <\"$f\"\n"+
		"\tkill -9 -\"$pid\" 2>/dev/null\n\twhile kill -0 -\"$pid\" 2>/dev/null; do sleep 0.05; done\ndone\nexit 0\n")
	o.write("answer", "3")
	o.write("fence", fmt.Sprintf("#!/bin/sh\necho \"$1\" >>%[1]s/asked\ncode=$(cat %[1]s/answer)\n"+
		"[ \"$code\" = 0 ] || exit \"$code\"\nexec %[1]s/off \"$2\"\n", o.dir))
	o.watching = newWatching(t, map[string]string{
		"cluster.yaml": "id: '0123456789abcdef0123456789abcdef'\nvcs: git\nruntime: process\ntimeouts: {dial: 2}\n" +
			"watch: {every: 1, grace: 12, term: 30, fence: off}\n",
		"jobs/db.yaml": o.job(),
		"hardpoints/fence/off.yaml": fmt.Sprintf("fence:\n  argv: [%s/fence, \"${name}\", \"${var.state}\"]\n  no: 1\n"+
			"  unknown: 3\n  timeout: 1m\n", o.dir),
		"nodes/_.yaml": "id: -1\nvar: {state: \"${state_dir}\"}\n",
	})
	if out, err := o.command("croft", "grid", "apply", "-C", o.op).CombinedOutput(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		for _, n := range o.grid.Nodes {
			_ = o.command(filepath.Join(o.dir, "off"), n.State).Run()
		}
	})
	_, said := o.watcher("a")
	o.until("a leads", func() bool { return said.has("leader=a leads=true") })
	first := o.where(1)
	o.lease(first)

	// Cut off: it hears no controller, and nobody can dial it. The job runs on there until the lease ends.
	o.write("cut", "")
	o.unplug(first)
	second := o.where(2)
	if second == first || o.state(first) != "out" {
		t.Errorf("it went from n%d to n%d; the first one is %s", first, second, o.state(first))
	}

	if twice := o.read("twice"); len(twice) > 0 {
		t.Errorf("it ran twice, the second time on %q", twice)
	}
}
