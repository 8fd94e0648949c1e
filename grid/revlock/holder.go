package revlock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/grid/machine"
)

// Times of a holder. One that hears nothing for quiet ends: its client is gone, or frozen.
const (
	beat  = 5 * time.Second
	quiet = 20 // seconds

	patience = 5 * time.Second // with a shell that is to end
)

// Options say for what a lock is taken.
type Options struct {
	Place
	Shared bool          // others may read too, and nobody may change the node
	Who    string        // user@host and process, for those who find it locked
	Plan   string        // the id of the plan
	Wait   time.Duration // for others to end; whole seconds
}

// Busy means that somebody else has the lock. Its kind is Conflict.
type Busy struct{ Holder string }

func (e *Busy) Error() string { return "it is locked by " + e.Holder }

// Unwrap returns the kind.
func (e *Busy) Unwrap() error { return croft.Conflict }

// Stale means that the node's epoch is another than the holder's: the lock was broken, or the node took a change back.
// Its kind is Conflict.
type Stale struct{ Mine, Theirs int64 }

func (e *Stale) Error() string {
	return fmt.Sprintf("its epoch is %d and no longer %d: the lock was broken, or a change was taken back", e.Theirs,
		e.Mine)
}

// Unwrap returns the kind.
func (e *Stale) Unwrap() error { return croft.Conflict }

// A Holder has the lock of one node while its connection stands. It is a machine.Machine whose programs run under the
// lock, one at a time. Once one was given up or lost, all others are Lost.
type Holder struct {
	options Options
	state   State
	epoch   int64
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the shell has ended
	out     stream
	err     stream

	order sync.Mutex // one order at a time
	input sync.Mutex // of to
	to    *os.File
	beats sync.WaitGroup

	mu   sync.Mutex
	lost error // why there are no more orders
}

var _ machine.Machine = (*Holder)(nil)

// Open takes the lock of a node and returns what the node stores. Errors: Busy, Unavailable with what the node lacks,
// Invalid if what it stores cannot be read, and those of the machine. ctx bounds the opening; Close ends the holder.
func Open(ctx context.Context, m machine.Machine, o Options) (*Holder, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	mark := newWord()
	mode := "-x"
	if o.Shared {
		mode = "-s"
	}
	argv := o.command("hold", settings{"mark": mark, "mode": mode, "who": o.Who + ", plan " + o.Plan,
		"wait": strconv.Itoa(int(o.Wait.Seconds())), "quiet": strconv.Itoa(quiet)})
	h := &Holder{options: o, ended: make(chan struct{})}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	noise := &bounded{max: 1 << 20, over: cancel}
	first := h.out.await(mark, noise)
	complaint := &bounded{max: 4 << 10}
	h.err.await(mark, complaint)
	from, to, err := os.Pipe() // not io.Pipe: a process of this machine gets it as it is, and ends by itself
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open a holder: %w", err)
	}
	h.to = to
	p, err := m.Start(life, machine.Command{Argv: argv, Stdin: from, Stdout: &h.out, Stderr: &h.err})
	if err != nil {
		cancel()
		_, _ = from.Close(), to.Close()
		return nil, err
	}
	h.beats.Go(func() {
		defer from.Close()
		err := p.Wait()
		if err == nil {
			err = errors.New("its shell ended")
		}
		h.lose(err)
		close(h.ended)
	})
	h.beats.Go(func() { _, _ = io.WriteString(to, functions) })
	if err := h.begun(ctx, first); err != nil {
		if noise.dropped {
			err = croft.Errorf(croft.Unavailable, "more than %d bytes came before its answer: does a file that its login "+
				"shell reads print without end?", noise.max)
		} else if exit, ok := errors.AsType[*machine.Exit](err); ok {
			exit.Stderr = oneLine(complaint.text.String())
		}
		_ = h.Close()
		return nil, err
	}
	h.beats.Go(h.beat)
	return h, nil
}

// begun waits for the answer of the shell.
func (h *Holder) begun(ctx context.Context, first <-chan string) error {
	answer, err := h.hear(ctx, first)
	if err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(answer, " ")
	switch kind {
	case "busy":
		by := "somebody who does not say so"
		if since, who, ok := strings.Cut(rest, " "); ok {
			parts := strings.SplitN(who, " ", 3)
			by = fmt.Sprintf("%s, since %s", oneLine(parts[len(parts)-1]), oneLine(since))
		}
		return &Busy{by}
	case "fail":
		return croft.Errorf(croft.Unavailable, "%s", strings.TrimSpace(oneLine(rest)))
	}
	boot, stored, _ := strings.Cut(rest, "|")
	h.state, err = parseState(strings.ReplaceAll(stored, "|", "\n"), boot)
	h.epoch = h.state.Epoch
	return err
}

// hear waits for the last line of an answer.
func (h *Holder) hear(ctx context.Context, last <-chan string) (string, error) {
	select {
	case line := <-last:
		return line, nil
	case <-ctx.Done():
		h.lose(ctx.Err())
		return "", &machine.Lost{Err: ctx.Err()}
	case <-h.ended:
	}
	select {
	case line := <-last: // both may have happened
		return line, nil
	default:
		return "", h.loss()
	}
}

// lose gives the lock up; the first reason counts.
func (h *Holder) lose(err error) {
	h.mu.Lock()
	if h.lost == nil {
		h.lost = err
	}
	h.mu.Unlock()
	h.cancel()
	_ = h.to.Close()
}

// loss is nil while the holder takes orders.
func (h *Holder) loss() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := errors.AsType[*machine.Exit](h.lost); h.lost == nil || ok {
		return h.lost
	}
	if _, ok := errors.AsType[*machine.Lost](h.lost); ok {
		return h.lost
	}
	return &machine.Lost{Err: h.lost}
}

// beat says now and then that this client lives.
func (h *Holder) beat() {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = h.write("\n")
		case <-h.ended:
			return
		}
	}
}

func (h *Holder) write(text string) error {
	h.input.Lock()
	defer h.input.Unlock()
	_, err := io.WriteString(h.to, text)
	return err
}

// State is what the node stored when the lock was taken.
func (h *Holder) State() State { return h.state }

// Close gives the lock back, and returns when this side has ended. An order that runs is Lost.
func (h *Holder) Close() error {
	h.mu.Lock()
	if h.lost == nil {
		h.lost = errors.New("the lock was given back")
	}
	h.mu.Unlock()
	_ = h.to.Close() // the shell ends with its input
	select {
	case <-h.ended:
	case <-time.After(patience):
	}
	h.cancel()
	h.beats.Wait()
	return nil
}

// Begin stores, before anything else is changed, that the change of some nodes to a revision has begun. It raises the
// epoch.
func (h *Holder) Begin(ctx context.Context, revision string, with []string) error {
	if len(strings.Join(with, " ")) > maxWith {
		return croft.Errorf(croft.Invalid, "the names of the %d nodes that change at once are longer than %d bytes: use "+
			"--limit", len(with), maxWith)
	}
	next := State{Revision: revision, Previous: h.state.Revision, Epoch: h.epoch + 1, Phase: Applying,
		Plan: h.options.Plan, By: h.options.Who, With: with, BootNow: h.state.BootNow}
	if h.state.Phase != Done && h.state.Previous != "" {
		next.Previous = h.state.Previous // the last that was done
	}
	words := fmt.Sprintf("begin %s from %s, by %s", h.options.Plan, cmp.Or(Short(h.state.Revision), "nothing"),
		h.options.Who)
	err := h.system(ctx, words, "printf '%s\\n' "+machine.Quote(next.text())+" | keep rev", nil)
	if err == nil {
		h.epoch, h.state = next.Epoch, next
	}
	return stored(err)
}

// Commit stores that all steps for the node are done, and the document that is applied there now.
func (h *Holder) Commit(ctx context.Context, applied []byte) error {
	next := h.state
	next.Phase = Done
	err := h.system(ctx, "commit "+h.options.Plan, "commit "+machine.Quote(next.text()), applied)
	if err == nil {
		h.state = next
	}
	return stored(err)
}

// A Change is one that its node takes back unless it is confirmed in time.
type Change struct {
	ID    string // of the change among those of one holder: letters, digits and -
	Title string // for people, in one line
	After time.Duration
	Undo  string // a shell script that takes it back; it may be cut off and run again
	Keep  string // one that runs before the change, and puts what Undo needs into the directory $kept
}

// Arm has the node run a script in some time unless Confirm comes before, over another connection. Until then the node
// stays locked, whatever becomes of this holder. When the node takes the change back it raises the epoch. If the node
// restarts meanwhile, whoever looks is told, and whoever takes its lock has it taken back. Conflict: Keep says why the
// change could not be taken back.
func (h *Holder) Arm(ctx context.Context, c Change) error {
	err := h.system(ctx, "arm "+c.ID, fmt.Sprintf("arm %s %d %s %s", machine.Quote(c.ID), int(c.After.Seconds()),
		machine.Quote(oneLine(c.Title)), machine.Quote(c.Keep)), []byte(c.Undo))
	if exit, ok := errors.AsType[*machine.Exit](err); ok && exit.Code == cannotKeep {
		return croft.Errorf(croft.Conflict, "%s", strings.TrimSpace(exit.Stderr))
	}
	return stored(err)
}

// cannotKeep is the exit code of a script that could not keep what is not there.
const cannotKeep = 71

func stored(err error) error {
	if exit, ok := errors.AsType[*machine.Exit](err); ok {
		return croft.Errorf(croft.Unavailable, "write its state directory (is the disk full?): %w", exit)
	}
	return err
}

// system runs a function of the node's side.
func (h *Holder) system(ctx context.Context, words, script string, stdin []byte) error {
	complaint := &bounded{max: 4 << 10}
	p, err := h.run(ctx, "system", words, script, machine.Command{Stdin: bytes.NewReader(stdin), Stderr: complaint})
	if err != nil {
		return err
	}
	err = p.Wait()
	if exit, ok := errors.AsType[*machine.Exit](err); ok {
		exit.Stderr = complaint.text.String()
	}
	return err
}

// Start implements machine.Machine. The program is Lost if ctx ends before it does, and so is the lock.
func (h *Holder) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	if len(c.Argv) == 0 {
		return nil, croft.Errorf(croft.Invalid, "no program is given")
	}
	return h.run(ctx, "run", strings.Join(c.Argv[:min(len(c.Argv), 3)], " "), machine.Quote(c.Argv...), c)
}

// run sends an order. The order mutex is held until the process was waited for.
func (h *Holder) run(ctx context.Context, kind, words, script string, c machine.Command) (machine.Process, error) {
	in, size, err := sized(c.Stdin)
	if err != nil {
		return nil, fmt.Errorf("read what is to be sent: %w", err)
	}
	h.order.Lock()
	if err := h.loss(); err != nil {
		h.order.Unlock()
		_ = in.Close()
		return nil, err
	}
	bound := newWord()
	p := &process{h: h, ctx: ctx, sent: make(chan error, 1)}
	p.out, p.err = h.out.await(bound, c.Stdout), h.err.await(bound, c.Stderr)
	words = strings.TrimSpace(oneLine(words))
	line := fmt.Sprintf("%s %d %d %s %s\n%s\n", kind, h.epoch, size, bound, words, lineOf(script))
	h.beats.Go(func() {
		defer in.Close()
		h.input.Lock()
		defer h.input.Unlock()
		_, err := io.WriteString(h.to, line)
		if err == nil {
			_, err = io.CopyN(h.to, in, size)
		}
		if err != nil {
			h.lose(fmt.Errorf("send an order: %w", err)) // the node waits for the rest
		}
		p.sent <- err
	})
	return p, nil
}

// lineOf writes a script as the format of printf %b has it, in one line.
func lineOf(script string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(script)
}

// sized returns a reader, and how many bytes it has.
func sized(r io.Reader) (io.ReadCloser, int64, error) {
	switch r := r.(type) {
	case nil:
		return io.NopCloser(strings.NewReader("")), 0, nil
	case interface {
		io.Reader
		Len() int
	}:
		return io.NopCloser(r), int64(r.Len()), nil
	}
	var head bytes.Buffer
	if n, err := io.CopyN(&head, r, 1<<20); err != nil {
		if errors.Is(err, io.EOF) {
			return io.NopCloser(&head), n, nil
		}
		return nil, 0, err
	}
	f, err := os.CreateTemp("", "croft-order-")
	if err != nil {
		return nil, 0, err
	}
	_ = os.Remove(f.Name()) // it lives as long as it is open
	size, err := io.Copy(f, io.MultiReader(&head, r))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// process is an order that was sent.
type process struct {
	h        *Holder
	ctx      context.Context
	out, err <-chan string
	sent     chan error
}

// Wait implements machine.Process.
func (p *process) Wait() error {
	defer p.h.order.Unlock()
	answer, err := p.h.hear(p.ctx, p.out)
	if err == nil {
		_, err = p.h.hear(p.ctx, p.err)
	}
	if err == nil {
		err = <-p.sent
	}
	if err != nil {
		if _, ok := errors.AsType[*machine.Lost](err); !ok {
			err = &machine.Lost{Err: err}
		}
		return err
	}
	kind, rest, _ := strings.Cut(answer, " ")
	switch kind {
	case "stale":
		theirs, _ := strconv.ParseInt(rest, 10, 64)
		err = &Stale{p.h.epoch, theirs}
		p.h.lose(err)
		return err
	case "full":
		return croft.Errorf(croft.Unavailable, "nothing is done there, since it cannot be noted in %s: is the disk full?",
			rest)
	}
	if err := errors.Join(p.h.out.failure(), p.h.err.failure()); err != nil {
		return err
	}
	if code, err := strconv.Atoi(rest); kind != "exit" || err != nil || code < 0 || code > 255 {
		err := fmt.Errorf("its holder answers %.80q", answer)
		p.h.lose(err)
		return &machine.Lost{Err: err}
	} else if code != 0 {
		return &machine.Exit{Code: code}
	}
	return nil
}
