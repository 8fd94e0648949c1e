package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"croft"
	"croft/internal/wording"
)

const (
	triesMax   = 6                      // of a connection that is reset before it says anything
	firstPause = 100 * time.Millisecond // between two tries; then twice as long each time
	loginLimit = 2 * time.Minute        // after the host key: an agent may ask its user
)

// silences is how many keepalives a machine may leave without an answer.
const silences = 3

// errRefused is what sshd does beyond its MaxStartups.
var errRefused = errors.New("reset before the handshake")

// A dialing establishes a connection to one machine.
type dialing struct {
	*target
	dialer *Dialer
	name   string // of the machine, in messages
}

// dial connects to a machine. name is for messages, pin the fingerprint of its host key, if that is pinned.
func (d *Dialer) dial(ctx context.Context, name string, w where, pin string) (*connection, error) {
	if err := checkPin(name, pin); err != nil {
		return nil, err
	}
	t, err := d.resolve(ctx, w)
	if err == nil {
		err = d.checkJumps(ctx, t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a := &dialing{t, d, name}
	var options []string
	if pin != "" {
		if options, err = a.pinned(ctx, pin); err != nil {
			return nil, err
		}
	}
	uncertified := ""
	if d.config.Credential != nil {
		key, err := d.config.Credential.KeyFile(ctx)
		if err != nil {
			uncertified = "; no certificate: " + err.Error()
		} else {
			options = append(options, "-i", key)
		}
	}
	socket, err := d.path("s")
	if err != nil {
		return nil, err
	}
	words, err := a.run(ctx, append(options, "-v", "-M", "-N", "-T", "-S", socket,
		"-o", "StrictHostKeyChecking=yes",
		"-o", fmt.Sprint("ControlPersist=", 2*int(endPatience.Seconds())), // it is kept by a connection
		"-o", "ServerAliveInterval="+inSeconds(d.config.Keepalive),
		"-o", fmt.Sprint("ServerAliveCountMax=", silences))...)
	if err != nil {
		return nil, a.explain(ctx, err, uncertified)
	}
	c, err := attach(ctx, name, socket, words, d.config)
	if err != nil {
		said := words.why()
		words.close()
		return nil, a.unavailable(fmt.Errorf("use its control socket: %w (%w)", err, said))
	}
	if err := d.keep(c); err != nil {
		c.end(errClosed)
		c.work.Wait()
		return nil, err
	}
	return c, nil
}

func (a *dialing) unavailable(err error) error {
	return croft.Errorf(croft.Unavailable, "%s: connect to %s: %w", a.name, a.target, err)
}

// A failure is a run of ssh that failed: its words.
type failure struct{ words string }

func (f *failure) Error() string { return cmp.Or(said(f.words), "the connection was closed") }

// run runs ssh until it has ended, or is a master in the background. It runs it again where sshd has too many others to
// answer, then one at a time. Errors: failure, else nothing is known of the machine.
func (a *dialing) run(ctx context.Context, args ...string) (*words, error) {
	var turn chan struct{} // nil: not taken yet
	pause := firstPause
	for try := 1; ; try++ {
		h, err := a.runOnce(ctx, args)
		var failed *failure
		if try == triesMax || !errors.As(err, &failed) || !isReset(failed.words) {
			return h, err
		}
		if turn == nil {
			turn = a.dialer.retries(a.target)
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause *= 2
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (a *dialing) runOnce(ctx context.Context, args []string) (*words, error) {
	select {
	case a.dialer.dials <- struct{}{}:
		defer func() { <-a.dialer.dials }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, a.timeout+loginLimit,
		fmt.Errorf("the login took more than %s", wording.Duration(loginLimit)))
	defer cancel()
	cmd, err := a.dialer.command(limited, a.where, append([]string{"-o", "BatchMode=yes",
		"-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "Tunnel=no", "-o", "VisualHostKey=no",
		"-o", "NoHostAuthenticationForLocalhost=no",
		"-o", "ConnectTimeout=" + inSeconds(a.timeout)}, args...)...)
	if err != nil {
		return nil, err
	}
	h, mouth, err := listen(cmd)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "run ssh: %w", err)
	}
	err = cmd.Start()
	_ = mouth.Close() // the process has it
	if err != nil {
		h.close()
		return nil, croft.Errorf(croft.Invalid, "run ssh: %w", err)
	}
	if err = cmd.Wait(); err == nil {
		return h, nil
	}
	killGroup(cmd) // what it has started
	text := h.all()
	h.close()
	if limited.Err() != nil {
		return nil, context.Cause(limited)
	}
	return nil, &failure{text}
}

// isolate keeps the user's terminal from a command, which then cannot ask for anything, and the terminal's signals.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append(os.Environ(), "SSH_ASKPASS_REQUIRE=never")
	cmd.Cancel = func() error {
		killGroup(cmd)
		return nil
	}
}

// killGroup kills a command and what it has started.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it may have ended

// inSeconds is a duration as an option of ssh.
func inSeconds(d time.Duration) string { return strconv.Itoa(int(wholeSeconds(d).Seconds())) }

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	return max(1, (d+time.Second-1)/time.Second) * time.Second
}
