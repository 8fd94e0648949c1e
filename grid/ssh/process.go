package ssh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/grid/machine"
	"croft/internal/wording"
)

// chatterMax is how many bytes the files of a login shell may write before the program starts.
const chatterMax = 1 << 20

// writePatience is how long Wait leaves a write under way to end after the context has.
const writePatience = 5 * time.Second

var (
	errNoExec  = errors.New("sshd refuses to run programs")
	errChatter = fmt.Errorf("more than %d bytes before the program started", chatterMax)
)

// A process is a program on another machine.
type process struct {
	conn     *connection
	channel  ssh.Channel
	in       io.Reader
	mark     string
	out, err *output
	result   chan error // gets what Wait returns
}

func newProcess(conn *connection, channel ssh.Channel, c machine.Command) *process {
	p := &process{conn: conn, channel: channel, in: c.Stdin, mark: newMark(), result: make(chan error, 1)}
	p.out = newOutput(c.Stdout, p.mark)
	p.err = newOutput(c.Stderr, p.mark)
	return p
}

// Wait implements machine.Process.
func (p *process) Wait() error { return <-p.result }

// feed copies the program's input, which sshd takes once it has started something. Nobody waits for it: its reader may
// block for ever.
func (p *process) feed() {
	if p.in != nil {
		if _, err := io.Copy(&input{p}, p.in); err != nil && !errors.Is(err, errInputEnded) {
			// an end of input would look like a whole one
			p.out.fail(fmt.Errorf("read the program's input: %w", err))
			_ = p.channel.Close()
			return
		}
	}
	_ = p.channel.CloseWrite() // if it has ended, it needs none
}

var errInputEnded = errors.New("the program reads no more")

// input writes to the program, and tells its errors from those of the reader.
type input struct{ p *process }

func (i *input) Write(b []byte) (int, error) {
	n, err := i.p.channel.Write(b)
	if err != nil {
		err = errInputEnded
	}
	return n, err
}

// run follows the program until it has ended, the context ends, or the connection breaks.
func (p *process) run(ctx context.Context, requests <-chan *ssh.Request, accepted <-chan error) {
	ended := make(chan error, 1)
	p.conn.work.Go(func() {
		defer p.conn.release()
		var copies sync.WaitGroup
		copies.Go(func() { p.out.copy(p.channel, p.channel) })
		copies.Go(func() { p.err.copy(p.channel.Stderr(), p.channel) })
		end := followed(requests)
		if errors.Is(end, errNoEnd) {
			p.conn.probe() // sessions end before the connection is known to have
		}
		copies.Wait()
		_ = p.channel.Close() // the machine has closed it
		ended <- end
	})
	p.conn.work.Go(func() {
		refused := error(nil)
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
			case err := <-accepted:
				accepted = nil
				if refused = err; errors.Is(err, errNoExec) {
					_ = p.channel.Close()
				} else if err == nil {
					go p.feed()
				}
				continue
			case end := <-ended:
				p.result <- p.judge(end, refused)
			case <-ctx.Done():
				_ = p.channel.Close() // ends the input, and the output when it is written to next
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

// judge says how a program ended whose channel is closed. end is nil if sshd did not say.
func (p *process) judge(end, refused error) error {
	if errors.Is(refused, errNoExec) {
		return croft.Errorf(croft.Unavailable, "%s: %w", p.conn.name, refused)
	}
	for _, o := range []*output{p.out, p.err} {
		if failed, started := o.state(); failed != nil && started {
			return &machine.Lost{Err: fmt.Errorf("%s: %w", p.conn.name, failed)}
		} else if failed != nil {
			return croft.Errorf(croft.Unavailable, "%s: the program was not started: %w", p.conn.name, failed)
		}
	}
	var exit *machine.Exit
	if _, started := p.out.state(); !started {
		switch {
		case errors.Is(end, errNoEnd):
			return &machine.Lost{Err: fmt.Errorf("%s: %w", p.conn.name, end)}
		case errors.As(end, &exit):
			return croft.Errorf(croft.Unavailable, "%s: the program was not started: the login shell's files ended it, "+
				"or sshd forces another command (exit code %d)", p.conn.name, exit.Code)
		}
		return croft.Errorf(croft.Unavailable, "%s: the program was not started: the login shell's files ended it, or "+
			"sshd forces another command", p.conn.name)
	}
	if errors.Is(end, errNoEnd) {
		return &machine.Lost{Err: fmt.Errorf("%s: %w", p.conn.name, end)}
	}
	return end
}

var errNoEnd = errors.New("sshd ended the session without saying how the program ended")

// followed returns how the program ended: nil, an Exit, or errNoEnd.
func followed(requests <-chan *ssh.Request) error {
	end := errNoEnd
	for r := range requests {
		switch r.Type {
		case "exit-status":
			if len(r.Payload) == 4 {
				end = exit(int(min(binary.BigEndian.Uint32(r.Payload), 255))) // of a byte
			}
		case "exit-signal":
			var s struct {
				Signal     string
				CoreDumped bool
				Message    string
				Language   string
			}
			if ssh.Unmarshal(r.Payload, &s) == nil {
				end = exit(128 + signals[s.Signal])
			}
		}
		if r.WantReply {
			_ = r.Reply(false, nil) // as OpenSSH answers what it does not know
		}
	}
	return end
}

func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &machine.Exit{Code: code}
}

// signals has the numbers of RFC 4254's signals, on Linux.
var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15}

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

// copy reads the stream to its end. It closes the channel if its writer fails.
func (o *output) copy(from io.Reader, channel io.Closer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !o.pass(buffer[:n]) {
			_ = channel.Close() // the program's next write ends it
			_, _ = io.Copy(io.Discard, from)
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

// stop ends the passing on. A write under way may end, for some seconds.
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
