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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
)

// A fact records the state of one instance according to the answers to commands.
type fact struct {
	created   bool            // an answer said it was scheduled
	refused   bool            // an answer said there was no capacity
	doomed    bool            // its destroy was requested
	destroyed bool            // its destroy was acknowledged
	force     bool            // by force: its guest may outlive its record
	wants     map[string]bool // possible wanted states
	active    int             // commands in flight that change its wanted state
	mixed     bool            // several are in flight, so their order is unknown
}

type facts struct {
	mu  sync.Mutex
	all map[string]*fact
}

func newFacts() *facts { return &facts{all: map[string]*fact{}} }

// change updates the fact of an instance.
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

// lastCommands is the number of commands, with their output, that a failed run shows.
const lastCommands = 20

// A journal lists all commands, in the order in which they ended.
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

// An actor types commands, one after the other, some of which are killed.
type actor struct {
	w    *world
	n    int
	r    *rand.Rand
	made int
	env  []string // in addition to that of all clients
	dead []string // UUIDs of instances that are certainly gone and may be reused
}

// A result is the outcome of a command.
type result struct {
	code int // -1: killed
	out  string
}

func (r result) ok() bool { return r.code == croft.ExitOK }

// explained reports whether a fault can cause this result: the command was killed, or its error has a kind that names
// the fault. All commands here are well-formed, so exit 1 is an unclassified error, 2 a panic, and 66 a data race.
func (r result) explained(name string, args []string) bool {
	switch r.code {
	case -1, croft.ExitOK, croft.ExitNotFound, croft.ExitNoCapacity, croft.ExitConflict, croft.ExitUnavailable:
		return true
	}
	return r.code == croft.ExitFailure && name == "croft" && args[0] == "audit" // the audit found a difference
}

// run runs a command to its end; if calm, it is not killed.
func (a *actor) run(calm bool, name string, args ...string) result {
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.Env, cmd.Dir = append(a.w.clientEnvironment(), a.env...), a.w.dir
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
	a.w.count(fmt.Sprintf("exit %2d: %s", r.code, action(name, args)))
	a.w.journal.write("client %d, %v, %s, exit %d: %s %s\n%s", a.n, time.Since(begun).Round(time.Millisecond), fate,
		r.code, name, strings.Join(args, " "), r.out)
	if !r.explained(name, args) {
		a.w.breach("no fault explains exit %d of client %d, %s: %s %s\n%s", r.code, a.n, fate, name,
			strings.Join(args, " "), r.out)
	}
	return r
}

// action returns the words of a command that say what it does.
func action(name string, args []string) string {
	words := []string{name}
	for _, arg := range args[:min(2, len(args))] {
		switch {
		case strings.Contains(arg, ":"):
			return "schedule QUERY"
		case len(words) == 1, name == "croft" && arg != "--fix":
			words = append(words, arg)
		}
	}
	for _, flag := range []string{"--move", "--off", "--confirm-off", "--on", "--shared", "--in-place", "--as"} {
		if slices.Contains(args, flag) {
			words = append(words, flag)
		}
	}
	return strings.Join(words, " ")
}

// disturb kills or suspends a command at a random moment, most often during its actual work.
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

// pause returns the length of a suspension: half of them are longer than a lease, up to 40 s.
func (w *world) pause(r *rand.Rand) time.Duration {
	longest := min(40*time.Second, w.length/4)
	if r.IntN(2) == 0 {
		longest = min(longest, 4*time.Second)
	}
	return time.Second + time.Duration(r.Int64N(int64(longest-time.Second)))
}

// user creates, changes and destroys instances until ctx ends.
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
		case dice < 73: // another actor's
			others := a.w.ledger.pick(func(i croft.Instance) bool {
				return i.State == croft.StateScheduled && !isKept(i)
			})
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

// size returns a query, with more of a request's options.
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

// request requests one instance, sometimes with the UUID of an instance that is gone.
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

// several requests a few instances concurrently.
func (a *actor) several() {
	a.told(a.run(false, "schedule", append(a.size(), "--name", a.name(), "--count", fmt.Sprint(2+a.r.IntN(6)))...))
}

// burst requests many instances concurrently, and destroys those that exist.
func (a *actor) burst() {
	a.made = a.r.IntN(1 << 30) // no actor uses the number twice
	name := a.name()
	a.told(a.run(false, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", name, "--count",
		fmt.Sprint(10+a.r.IntN(20)), "--ephemeral"))
	for _, inst := range a.w.ledger.pick(func(i croft.Instance) bool { return strings.HasPrefix(i.Name, name+"-") }) {
		a.destroy(inst)
	}
}

// told records which instances a command reported as scheduled, even if it was killed later.
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
		// A stop or start of an instance already in that state writes nothing, so it does not settle earlier
		// doubts.
		if r.ok() && !f.mixed && (verb == "reboot" || verb == "rebuild" || len(f.wants) == 1) {
			f.wants = map[string]bool{want: true}
		}
		if f.active--; f.active <= 0 {
			f.active, f.mixed = 0, false
		}
	})
}
