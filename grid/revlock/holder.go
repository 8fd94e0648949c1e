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

// Times of a holder. A holder that receives nothing for the time quiet ends itself: its client is gone or frozen.
const (
	beat  = 5 * time.Second
	quiet = 20 // seconds

	patience = 5 * time.Second // for a shell to end
)

// Options say what a lock is taken for.
type Options struct {
	Place
	Shared bool          // a read lock: others may read too, and nobody may change the node
	Who    string        // user@host and process, shown to those who find the node locked
	Plan   string        // the id of the plan
	Wait   time.Duration // how long to wait for other holders to end; whole seconds
}

// Busy is the error when another client holds the lock. Its kind is Conflict.
type Busy struct{ Holder string }

func (e *Busy) Error() string { return "it is locked by " + e.Holder }

// Unwrap returns the kind.
func (e *Busy) Unwrap() error { return croft.Conflict }

// Stale is the error when the node's epoch differs from the holder's: the lock was broken, or the node undid a change.
// Its kind is Conflict.
type Stale struct{ Mine, Theirs int64 }

func (e *Stale) Error() string {
	return fmt.Sprintf("its epoch is %d and no longer %d: the lock was broken, or a change was taken back", e.Theirs,
		e.Mine)
}

// Unwrap returns the kind.
func (e *Stale) Unwrap() error { return croft.Conflict }

// A Holder holds the lock of one node while its connection stands. It is a machine.Machine whose programs run under the
// lock, one at a time. After a program was canceled or lost, every later one fails with Lost.
type Holder struct {
	options Options
	state   State
	epoch   int64
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the shell has ended
	out     stream
	err     stream

	order sync.Mutex // held while an order runs
	input sync.Mutex // protects writes to to
	to    *os.File
	beats sync.WaitGroup

	mu   sync.Mutex
	lost error // why the holder accepts no more orders
}

var _ machine.Machine = (*Holder)(nil)

// Open takes the lock of a node and reads the node's record. Errors: Busy; Unavailable with what the node lacks;
// Invalid if the record cannot be read; and the errors of the machine. ctx limits only Open; Close ends the holder.
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
	// not io.Pipe: a local process gets the file itself, so that its end does not depend on a copying goroutine
	from, to, err := os.Pipe()
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

// begun waits for the shell's first answer and reads the node's record from it.
func (h *Holder) begun(ctx context.Context, first <-chan string) error {
	answer, err := h.hear(ctx, first)
	if err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(answer, " ")
	switch kind {
	case "busy":
		by := "an unknown holder"
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

// lose gives the lock up and records the reason, unless one is recorded.
func (h *Holder) lose(err error) {
	h.mu.Lock()
	if h.lost == nil {
		h.lost = err
	}
	h.mu.Unlock()
	h.cancel()
	_ = h.to.Close()
}

// loss returns why the holder accepts no more orders, or nil while it does.
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

// beat writes an empty line every few seconds, so that the holder knows that its client lives.
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

// State returns the node's record as of Open, with the changes that this holder made to it.
func (h *Holder) State() State { return h.state }

// Close releases the lock and returns when the goroutines of this side have ended. An order that is still running ends
// with Lost.
func (h *Holder) Close() error {
	h.mu.Lock()
	if h.lost == nil {
		h.lost = errors.New("the lock was given back")
	}
	h.mu.Unlock()
	_ = h.to.Close() // the shell ends when its input does
	select {
	case <-h.ended:
	case <-time.After(patience):
	}
	h.cancel()
	h.beats.Wait()
	return nil
}

// Begin records on the node, before anything else is changed, that a change to a revision began, and which nodes it
// concerns. It increases the epoch.
func (h *Holder) Begin(ctx context.Context, revision string, with []string) error {
	if len(strings.Join(with, " ")) > maxWith {
		return croft.Errorf(croft.Invalid, "the names of the %d nodes that change at once are longer than %d bytes: use "+
			"--limit", len(with), maxWith)
	}
	next := State{Revision: revision, Previous: h.state.Revision, Epoch: h.epoch + 1, Phase: Applying,
		Plan: h.options.Plan, By: h.options.Who, With: with, BootNow: h.state.BootNow}
	if h.state.Phase != Done && h.state.Previous != "" {
		next.Previous = h.state.Previous // the last revision that was applied completely
	}
	words := fmt.Sprintf("begin %s from %s, by %s", h.options.Plan, cmp.Or(Short(h.state.Revision), "nothing"),
		h.options.Who)
	err := h.system(ctx, words, "printf '%s\\n' "+machine.Quote(next.text())+" | keep rev", nil)
	if err == nil {
		h.epoch, h.state = next.Epoch, next
	}
	return stored(err)
}

// Commit records on the node that all its steps are done, and stores the applied document.
func (h *Holder) Commit(ctx context.Context, applied []byte) error {
	next := h.state
	next.Phase = Done
	err := h.system(ctx, "commit "+h.options.Plan, "commit "+machine.Quote(next.text()), applied)
	if err == nil {
		h.state = next
	}
	return stored(err)
}

// A Change is one that the node undoes unless it is confirmed in time.
type Change struct {
	ID    string // unique among the changes of one holder: letters, digits and -
	Title string // for people, in one line
	After time.Duration
	Undo  string // a shell script that undoes the change; it may be cut off and run again
	Keep  string // a script that runs before the change and stores what Undo needs in the directory $kept
}

// Arm makes the node run c.Undo after c.After unless Confirm comes first, over another connection. Until then the node
// stays locked, even if this holder is lost. The node increases the epoch when it undoes the change. If the node
// restarts meanwhile, Look reports the change as Unwatched, and the next client that takes the node's lock makes the
// node undo it. Conflict: the script c.Keep failed, so the change could not be undone; the error is what it printed.
func (h *Holder) Arm(ctx context.Context, c Change) error {
	err := h.system(ctx, "arm "+c.ID, fmt.Sprintf("arm %s %d %s %s", machine.Quote(c.ID), int(c.After.Seconds()),
		machine.Quote(oneLine(c.Title)), machine.Quote(c.Keep)), []byte(c.Undo))
	if exit, ok := errors.AsType[*machine.Exit](err); ok && exit.Code == cannotKeep {
		return croft.Errorf(croft.Conflict, "%s", strings.TrimSpace(exit.Stderr))
	}
	return stored(err)
}

// cannotKeep is the exit code of a Keep script that found nothing to keep.
const cannotKeep = 71

func stored(err error) error {
	if exit, ok := errors.AsType[*machine.Exit](err); ok {
		return croft.Errorf(croft.Unavailable, "write its state directory (is the disk full?): %w", exit)
	}
	return err
}

// system runs a function of node.sh under the lock.
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

// Start implements machine.Machine. If ctx ends before the program does, the program and the lock are Lost.
func (h *Holder) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	if len(c.Argv) == 0 {
		return nil, croft.Errorf(croft.Invalid, "no program is given")
	}
	return h.run(ctx, "run", strings.Join(c.Argv[:min(len(c.Argv), 3)], " "), machine.Quote(c.Argv...), c)
}

// run sends an order. The mutex order stays locked until the process was waited for.
func (h *Holder) run(ctx context.Context, kind, words, script string, c machine.Command) (machine.Process, error) {
	in, size, err := sized(c.Stdin)
	if err != nil {
		return nil, fmt.Errorf("read the data to send: %w", err)
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
			h.lose(fmt.Errorf("send an order: %w", err)) // the node still waits for the rest
		}
		p.sent <- err
	})
	return p, nil
}

// lineOf writes a script in one line, escaped for printf %b.
func lineOf(script string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(script)
}

// sized returns a reader of the same bytes, and their number.
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
	_ = os.Remove(f.Name()) // the file exists while it is open
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
