package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"encoding/json"

	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
	"croft/internal/testing/sample"
)

// A killer kills this process at one of its requests to nodes: before the request is sent, or just after.
type killer struct {
	apply.Locker
	at   int64 // position among all requests; even: before request at/2, odd: after it was sent
	seen *atomic.Int64
}

func (k killer) Open(ctx context.Context, m machine.Machine, n unit.Node, shared bool, plan string,
	wait time.Duration) (apply.Holder, error) {
	k.step(nil)
	h, err := k.Locker.Open(ctx, m, n, shared, plan, wait)
	if err != nil {
		return nil, err
	}
	return killedHolder{h, k}, nil
}

// atConfirm is the point at which a change works and is about to be confirmed.
const atConfirm = -2

// Confirm implements apply.Locker.
func (k killer) Confirm(ctx context.Context, m machine.Machine, n unit.Node, id string) (revlock.Verdict, error) {
	if k.at == atConfirm {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return k.Locker.Confirm(ctx, m, n, id)
}

// step counts one request, and kills the process if the request is the chosen one. start sends the request.
func (k killer) step(start func()) {
	if n := k.seen.Add(1) - 1; k.at >= 0 && n == k.at/2 {
		if k.at%2 == 1 && start != nil {
			start()
			time.Sleep(time.Duration(k.at%5) * 5 * time.Millisecond) // kill at different points of the request
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

type killedHolder struct {
	apply.Holder
	k killer
}

func (h killedHolder) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	h.k.step(func() { _, _ = h.Holder.Start(ctx, c) })
	return h.Holder.Start(ctx, c)
}

func (h killedHolder) Begin(ctx context.Context, revision string, with []string) error {
	h.k.step(func() { go func() { _ = h.Holder.Begin(ctx, revision, with) }() })
	return h.Holder.Begin(ctx, revision, with)
}

func (h killedHolder) Commit(ctx context.Context, applied []byte) error {
	h.k.step(func() { go func() { _ = h.Holder.Commit(ctx, applied) }() })
	return h.Holder.Commit(ctx, applied)
}

// applyOnce is the main function of the process that is killed. It prints the number of its requests.
func applyOnce() int {
	var in struct {
		Home string
		Want plan.Desired
		At   int64
	}
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for n := range in.Want.Nodes { // JSON does not contain the fields that say how to apply a unit
		for i := range in.Want.Nodes[n].Units {
			u := &in.Want.Nodes[n].Units[i]
			u.Exclusive = u.Job == "db"
			if u.Job == "sure" {
				u.Confirm = 3600
			}
		}
	}
	c, d := config(in.Home, "killed")
	defer d.Close()
	var seen atomic.Int64
	c.Locker = killer{c.Locker, in.At, &seen}
	g, err := apply.New(c)
	if err == nil {
		defer g.Close()
		var p plan.Plan
		var found []plan.Observed
		if p, found, err = g.Plan(context.Background(), in.Want, plan.Options{}); err == nil {
			_, err = g.Apply(context.Background(), in.Want, p, found, apply.Choice{})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(seen.Load())
	return 0
}

// killed runs an apply in a process that kills itself at a request, or atConfirm; -1: the process does not kill itself.
// It returns the number of the process's requests, and whether it was killed.
func (b *bed) killed(want plan.Desired, at int64) (accesses int64, dead bool) {
	b.t.Helper()
	in, err := json.Marshal(map[string]any{"Home": b.ssh.Home, "Want": want, "At": at})
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.CommandContext(b.t.Context(), os.Args[0])
	sockets, err := os.MkdirTemp("/tmp", "k") // which a killed process leaves; a socket's path is short
	if err != nil {
		b.t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	cmd.Env = append(os.Environ(), "CROFT_APPLY_BED=1", "XDG_RUNTIME_DIR="+sockets)
	cmd.Stdin = strings.NewReader(string(in))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return 0, true
	}
	if err != nil {
		b.t.Fatalf("apply: %v: %s", err, complaint.String())
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return n, false
}

// TestKilledAtEveryStep kills an apply with SIGKILL before and during each of its requests to nodes. The next apply
// must lead to the same state as an undisturbed one.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	before := func(i int) plan.Desired {
		return b.want("a1", map[string][]string{"n1": {"web/0:1", "db/0:1"}, "n2": {"web/1:1"}})
	}
	after := b.want("a2", map[string][]string{"n2": {"web/1:2"}, "n3": {"web/0:2", "db/0:1"}})
	reset := func() {
		b.must(b.want("a2", nil))
		back := before(0)
		g := b.grid("reset")
		defer g.Close()
		p, found, err := g.Plan(t.Context(), back, plan.Options{})
		if err == nil {
			_, err = g.Apply(t.Context(), back, p, found, apply.Choice{Force: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reset()
	accesses, _ := b.killed(after, -1)
	undisturbed := b.runs(after)
	var points []int64 // before and during each request
	for at := range 2 * accesses {
		points = append(points, at)
	}
	for _, at := range sample.OneIn(t, 8, points) {
		reset()
		if _, dead := b.killed(after, at); !dead {
			t.Errorf("point %d: it was not killed", at)
			continue
		}
		b.eventually(after, at)
		if got := b.runs(after); !equal(got, undisturbed) {
			t.Errorf("killed at point %d, the next apply leads to\n%s\nan undisturbed one to\n%s", at,
				strings.Join(got, "\n"), strings.Join(undisturbed, "\n"))
		}
	}
}

// eventually applies want with retries: the locks of killed processes are released once sshd notices their end.
func (b *bed) eventually(want plan.Desired, at int64) {
	b.t.Helper()
	g := b.grid("next")
	defer g.Close()
	for try := 0; ; try++ {
		_, err := b.apply(g, want)
		var refused *apply.Refused
		if err == nil {
			return
		}
		if !errors.As(err, &refused) || try == 20 {
			b.t.Fatalf("after the kill at point %d: %v", at, err)
		}
	}
}
