package kill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
)

// A fact is what commands were told about one instance.
type fact struct {
	created   bool            // an answer said that it was scheduled
	refused   bool            // an answer said that there was no room
	doomed    bool            // somebody asked for its end
	destroyed bool            // and was told that it ends
	force     bool            // by force, so that its guest may outlive its record
	wants     map[string]bool // what it may be wanted as
	active    int             // commands under way that change what it is wanted as
	mixed     bool            // several are, so that their order is not known
}

type facts struct {
	mu  sync.Mutex
	all map[string]*fact
}

func newFacts() *facts { return &facts{all: map[string]*fact{}} }

// change does something to what is known of an instance.
func (f *facts) change(id string, do func(*fact)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of, known := f.all[id]
	if !known {
		of = &fact{wants: map[string]bool{string(croft.WantRunning): true}}
		f.all[id] = of
	}
	do(of)
}

func (f *facts) forced(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id] != nil && f.all[id].force
}

// lastCommands is how many commands a run that fails shows with all they said.
const lastCommands = 20

// A journal is what all commands did, in the order in which they ended.
type journal struct {
	mu   sync.Mutex
	file *os.File
	last []string
}

func newJournal(t *testing.T, name string) *journal {
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &journal{file: f}
}

func (j *journal) write(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entry := time.Now().Format("15:04:05.000") + " " +
		strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n    ")
	fmt.Fprintln(j.file, entry)
	j.last = append(j.last[max(0, len(j.last)+1-lastCommands):], entry)
}

// end returns the last entries.
func (j *journal) end() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.last, "\n")
}

// An actor is somebody who types commands, one after the other, some of which end in the middle.
type actor struct {
	w    *world
	n    int
	r    *rand.Rand
	made int
	dead []string // UUIDs of instances that are gone for sure, which may be used again
}

// A result is what a command came to.
type result struct {
	code int // -1 where it was killed
	out  string
}

func (r result) ok() bool { return r.code == croft.ExitOK }

// explained tells whether a fault may end a command so: it was killed, or its error has a kind that names what it met.
// Every command here is well-formed, so exit 1 is an error that nobody classified, 2 a panic, and 66 a data race.
func (r result) explained(name string, args []string) bool {
	switch r.code {
	case -1, croft.ExitOK, croft.ExitNotFound, croft.ExitNoCapacity, croft.ExitConflict, croft.ExitUnavailable:
		return true
	}
	return r.code == croft.ExitFailure && name == "croft" && args[0] == "audit" // it found a difference
}

// run runs a command to its end; in calm times nobody kills it.
func (a *actor) run(calm bool, name string, args ...string) result {
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.Env, cmd.Dir = a.w.clientEnvironment(), a.w.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		a.w.t.Errorf("start %s: %v", name, err)
		return result{code: -1}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	fate := "lived"
	if !calm {
		fate = a.disturb(cmd.Process, ended)
	}
	err := <-ended
	r := result{out: out.String()}
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		r.code = exit.ExitCode() // -1: by a signal
	}
	a.w.count(fmt.Sprintf("%s %s exit %d", name, args[0], r.code))
	a.w.journal.write("client %d, %v, %s, exit %d: %s %s\n%s", a.n, time.Since(begun).Round(time.Millisecond), fate,
		r.code, name, strings.Join(args, " "), r.out)
	if !r.explained(name, args) {
		a.w.breach("no fault explains exit %d of client %d, %s: %s %s\n%s", r.code, a.n, fate, name,
			strings.Join(args, " "), r.out)
	}
	return r
}

// disturb kills or suspends a command at some moment, most often while it does what it is for.
func (a *actor) disturb(p *os.Process, ended chan error) (fate string) {
	moment := time.Duration(a.r.Int64N(int64(400 * time.Millisecond)))
	if a.r.IntN(4) == 0 {
		moment *= 8
	}
	dice, length := a.r.IntN(100), a.w.pause(a.r)
	if dice >= 25 {
		return "lived"
	}
	select {
	case err := <-ended:
		ended <- err
		return "lived"
	case <-time.After(moment):
	}
	if dice < 12 {
		_ = p.Signal(syscall.SIGKILL)
		return fmt.Sprintf("killed after %v", moment.Round(time.Millisecond))
	}
	_ = p.Signal(syscall.SIGSTOP)
	a.w.sleep(length)
	_ = p.Signal(syscall.SIGCONT)
	return fmt.Sprintf("suspended after %v for up to %v", moment.Round(time.Millisecond), length.Round(time.Second))
}

// pause is how long something is suspended: half of them for longer than a lease, up to 40 s.
func (w *world) pause(r *rand.Rand) time.Duration {
	longest := min(40*time.Second, w.length/4)
	if r.IntN(2) == 0 {
		longest = min(longest, 4*time.Second)
	}
	return time.Second + time.Duration(r.Int64N(int64(longest-time.Second)))
}

// user makes, changes and destroys instances until ctx ends.
func (a *actor) user(ctx context.Context) {
	for ctx.Err() == nil {
		mine := a.w.ledger.pick(func(i croft.Instance) bool { return strings.HasPrefix(i.Name, a.prefix()) })
		switch dice := a.r.IntN(100); {
		case len(mine) < 2, len(mine) < 8 && dice < 30:
			a.request()
		case len(mine) < 8 && dice < 40:
			a.several()
		case dice < 70 || len(mine) >= 8 && dice < 80:
			a.destroy(mine[a.r.IntN(len(mine))])
		case dice < 73: // somebody else's
			others := a.w.ledger.pick(func(i croft.Instance) bool { return i.State == croft.StateScheduled })
			if len(others) > 0 {
				a.change(others[a.r.IntN(len(others))])
			}
		default:
			a.change(mine[a.r.IntN(len(mine))])
		}
	}
}

func (a *actor) prefix() string { return fmt.Sprintf("c%d-", a.n) }

func (a *actor) name() string {
	a.made++
	return fmt.Sprintf("%s%d", a.prefix(), a.made)
}

// size is a query, with more of the options that a request may have.
func (a *actor) size() []string {
	args := []string{fmt.Sprintf("VCPU:%d,MEMORY_MB:64,DISK_GB:1", 1+a.r.IntN(2))}
	if a.r.IntN(2) == 0 {
		args = append(args, "--ephemeral")
	}
	switch a.r.IntN(8) {
	case 0:
		args = append(args, "--anti-affinity", fmt.Sprintf("apart%d", a.r.IntN(4)))
	case 1:
		args = append(args, "--affinity", fmt.Sprintf("together%d", a.r.IntN(4)))
	case 2:
		args = append(args, "--anti-affinity", fmt.Sprintf("scattered%d:soft", a.r.IntN(3)))
	}
	return args
}

var notified = regexp.MustCompile(`NOTIFIED TARGET, \S+, OF INSTANCE ([0-9a-f-]{36})`)

// request asks for one instance; now and then with the UUID of one that is gone.
func (a *actor) request() {
	id := string(croft.NewInstanceID())
	if len(a.dead) > 0 && a.r.IntN(4) == 0 {
		id, a.dead = a.dead[0], a.dead[1:]
	}
	a.w.facts.change(id, func(f *fact) { *f = fact{wants: map[string]bool{string(croft.WantRunning): true}} })
	r := a.run(false, "schedule", append(a.size(), "--name", a.name(), "--uuid", id)...)
	a.told(r)
	if r.code == croft.ExitNoCapacity && !notified.MatchString(r.out) {
		a.w.facts.change(id, func(f *fact) { f.refused = true })
	}
}

// several asks for some at once.
func (a *actor) several() {
	a.told(a.run(false, "schedule", append(a.size(), "--name", a.name(), "--count", fmt.Sprint(2+a.r.IntN(6)))...))
}

// burst asks for many at once, and destroys what is there of them.
func (a *actor) burst() {
	a.made = a.r.IntN(1 << 30) // no actor has the number twice
	name := a.name()
	a.told(a.run(false, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", name, "--count",
		fmt.Sprint(10+a.r.IntN(20)), "--ephemeral"))
	for _, inst := range a.w.ledger.pick(func(i croft.Instance) bool { return strings.HasPrefix(i.Name, name+"-") }) {
		a.destroy(inst)
	}
}

// told notes which instances a command said were scheduled, also one that was killed later.
func (a *actor) told(r result) {
	for _, line := range notified.FindAllStringSubmatch(r.out, -1) {
		a.w.facts.change(line[1], func(f *fact) { f.created = true })
	}
}

func (a *actor) destroy(inst croft.Instance) {
	id := string(inst.ID)
	args := []string{"destroy", id}
	force, wait := a.r.IntN(8) == 0, a.r.IntN(2) == 0
	if force {
		args = append(args, "--force")
	}
	if wait {
		args = append(args, "--wait", "--timeout", "20s")
	}
	a.w.facts.change(id, func(f *fact) { f.doomed, f.force = true, f.force || force })
	r := a.run(false, "schedule", args...)
	if !r.ok() {
		return
	}
	a.w.facts.change(id, func(f *fact) { f.destroyed = true })
	if wait && !a.w.facts.forced(id) {
		a.dead = append(a.dead, id)
	}
}

// change stops, starts, reboots or rebuilds an instance.
func (a *actor) change(inst croft.Instance) {
	id := string(inst.ID)
	verb := []string{"stop", "start", "reboot", "rebuild"}[a.r.IntN(4)]
	want := string(croft.WantRunning)
	if verb == "stop" {
		want = string(croft.WantStopped)
	}
	a.w.facts.change(id, func(f *fact) {
		f.active++
		f.mixed = f.mixed || f.active > 1
		f.wants[want] = true
	})
	r := a.run(false, "schedule", verb, id)
	a.w.facts.change(id, func(f *fact) {
		// A stop or start that finds what it wants writes nothing, and so ends no doubt about those before.
		if r.ok() && !f.mixed && (verb == "reboot" || verb == "rebuild" || len(f.wants) == 1) {
			f.wants = map[string]bool{want: true}
		}
		if f.active--; f.active <= 0 {
			f.active, f.mixed = 0, false
		}
	})
}
