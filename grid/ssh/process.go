package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/internal/wording"
)

// chatterMax is how many bytes the files of a login shell may write before the program starts.
const chatterMax = 1 << 20

// writePatience is how long Wait leaves a write under way to end after the context has.
const writePatience = 5 * time.Second

// commandMax is how long a command may be: it has to fit into a message of the master.
const commandMax = muxMessageMax - 1<<10

var errChatter = fmt.Errorf("more than %d bytes before the program started", chatterMax)

// A process is a program on another machine.
type process struct {
	conn     *connection
	session  *mux
	in       io.Reader
	mark     string
	out, err *output
	ours     [3]*os.File // the ends of its streams; nil: it has no input
	result   chan error  // gets what Wait returns
}

// start starts a program.
func start(ctx context.Context, conn *connection, c machine.Command) (machine.Process, error) {
	p := &process{conn: conn, in: c.Stdin, mark: newMark(), result: make(chan error, 1)}
	p.out, p.err = newOutput(c.Stdout, p.mark), newOutput(c.Stderr, p.mark)
	command := wrapped(p.mark, c.Argv)
	if len(command) > commandMax {
		return nil, croft.Errorf(croft.Invalid, "%s: a command of %d bytes is too long, the limit is %d", conn.name,
			len(command), commandMax)
	}
	theirs, err := p.streams()
	defer closeAll(theirs)
	if err == nil {
		p.session, err = conn.session(ctx, command, theirs)
	} else {
		err = croft.Errorf(croft.Unavailable, "%s: make the streams of a program: %w", conn.name, err)
	}
	if err != nil {
		closeAll(p.ours)
		return nil, err
	}
	p.run(ctx)
	return p, nil
}

// streams makes the streams of the program, and returns the ends of the master.
func (p *process) streams() (theirs [3]*os.File, err error) {
	if p.in == nil {
		theirs[0], err = os.Open(os.DevNull)
	} else {
		theirs[0], p.ours[0], err = os.Pipe()
	}
	for i := 1; i < 3 && err == nil; i++ {
		p.ours[i], theirs[i], err = os.Pipe()
	}
	return theirs, err
}

func closeAll(files [3]*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing is written to it any more; nil is none
	}
}

// Wait implements machine.Process.
func (p *process) Wait() error { return <-p.result }

// feed copies the program's input. Nobody waits for it: its reader may block for ever.
func (p *process) feed() {
	defer p.ours[0].Close()
	_, err := io.Copy(&input{p}, p.in)
	if err != nil && !errors.Is(err, errInputEnded) {
		// an end of input would look like a whole one
		p.out.fail(fmt.Errorf("read the program's input: %w", err))
		p.session.Close()
	}
}

var errInputEnded = errors.New("the program reads no more")

// input writes to the program, and tells its errors from those of the reader.
type input struct{ p *process }

func (i *input) Write(b []byte) (int, error) {
	n, err := i.p.ours[0].Write(b)
	if err != nil {
		err = errInputEnded
	}
	return n, err
}

// run follows the program until it has ended, the context ends, or the connection breaks.
func (p *process) run(ctx context.Context) {
	if p.in != nil {
		go p.feed()
	}
	ended := make(chan error, 1)
	p.conn.work.Go(func() {
		defer p.conn.release()
		var copies sync.WaitGroup
		copies.Go(func() { p.out.copy(p.ours[1], p.session) })
		copies.Go(func() { p.err.copy(p.ours[2], p.session) })
		end := p.session.followed()
		if errors.Is(end, errNoEnd) && ctx.Err() == nil {
			p.conn.probe() // sessions end before the connection is known to have
		}
		copies.Wait()
		p.session.Close()
		ended <- end
	})
	p.conn.work.Go(func() {
		defer closeAll(p.ours)
		late := time.NewTimer(p.conn.shell)
		defer late.Stop()
		begun := p.out.begun
		for {
			select {
			case <-begun:
				begun = nil
				late.Stop()
				continue
			case <-late.C:
				p.conn.end(croft.Errorf(croft.Unavailable, "the login shell of %s did not start a program within %s: see "+
					"there whether its home directory, or a file that the shell reads, makes it wait", p.conn.name,
					wording.Duration(p.conn.shell)))
				continue
			case end := <-ended:
				p.result <- p.judge(end)
			case <-ctx.Done():
				p.session.Close()
				p.stop()
				p.result <- &machine.Lost{Err: ctx.Err()}
			case <-p.conn.done:
				p.stop()
				p.result <- &machine.Lost{Err: p.conn.cause}
			}
			return
		}
	})
}

// stop makes sure that nothing more is written to the streams.
func (p *process) stop() {
	p.out.stop()
	p.err.stop()
}

// judge says how a program ended whose session is closed.
func (p *process) judge(end error) error {
	for _, o := range []*output{p.out, p.err} {
		if failed, started := o.state(); failed != nil && started {
			return &machine.Lost{Err: fmt.Errorf("%s: %w", p.conn.name, failed)}
		} else if failed != nil {
			return croft.Errorf(croft.Unavailable, "%s: the program was not started: %w", p.conn.name, failed)
		}
	}
	_, started := p.out.state()
	var exit *machine.Exit
	switch {
	case errors.Is(end, errNoEnd) && p.conn.ended():
		return &machine.Lost{Err: p.conn.cause}
	case errors.Is(end, errNoEnd):
		return &machine.Lost{Err: fmt.Errorf("%s: %w", p.conn.name, end)}
	case started:
		return end
	case errors.As(end, &exit):
		return croft.Errorf(croft.Unavailable, "%s: the program was not started: the login shell's files ended it, "+
			"or sshd forces another command (exit code %d)", p.conn.name, exit.Code)
	}
	return croft.Errorf(croft.Unavailable, "%s: the program was not started: the login shell's files ended it, or "+
		"sshd forces another command", p.conn.name)
}

var errNoEnd = errors.New("sshd ended the session without saying how the program ended")

func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &machine.Exit{Code: code}
}

// An output passes on what comes after the mark. Before that, only the mark's length is kept.
type output struct {
	mark []byte

	mu      sync.Mutex // is held during a write
	to      io.Writer  // nil: thrown away
	stopped bool
	started bool // the mark was seen
	dropped int  // bytes before it
	tail    []byte
	failed  error         // of the writer or reader
	begun   chan struct{} // closed when the mark was seen
}

func newOutput(to io.Writer, mark string) *output {
	return &output{to: to, mark: []byte(mark + "\n"), begun: make(chan struct{})}
}

// copy reads the stream to its end. It closes the session if its writer fails.
func (o *output) copy(from *os.File, session *mux) {
	defer from.Close() // the program's next write ends it
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !o.pass(buffer[:n]) {
			session.Close()
			return
		}
		if err != nil {
			return
		}
	}
}

// pass passes on a part of the stream. False: no more of it is wanted.
func (o *output) pass(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped || o.failed != nil {
		return false
	}
	if !o.started {
		o.tail = append(o.tail, p...)
		at := bytes.Index(o.tail, o.mark)
		if at < 0 {
			if o.dropped += len(p); o.dropped > chatterMax {
				o.failed = errChatter
			}
			o.tail = append([]byte(nil), o.tail[max(0, len(o.tail)-len(o.mark)):]...)
			return o.failed == nil
		}
		p, o.tail, o.started = o.tail[at+len(o.mark):], nil, true
		close(o.begun)
	}
	if o.to == nil || len(p) == 0 {
		return true
	}
	if _, err := o.to.Write(p); err != nil {
		o.failed = fmt.Errorf("pass on the program's output: %w", err)
		return false
	}
	return true
}

func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
}

// stop ends the forwarding of output, and waits some seconds for a write in progress.
func (o *output) stop() {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stopped = true
	}()
	select {
	case <-stopped:
	case <-time.After(writePatience):
	}
}

func (o *output) state() (failed error, started bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed, o.started
}
