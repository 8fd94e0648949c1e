package ssh

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/grid/machine"
	"croft/grid/unit"
)

// A Remote is a machine reached over one connection, which its first program opens. Up to 8 programs run at once, more
// wait for their turn. Once the connection has broken, every further program is Unavailable: nothing is started anew
// without somebody having looked.
type Remote struct {
	dialer *Dialer
	node   unit.Node
	turn   chan struct{} // has a value while somebody connects
	conn   *connection   // nil: not connected yet
}

var _ machine.Machine = (*Remote)(nil)

// Machine returns the machine of a node: this one, if the node is local.
func (d *Dialer) Machine(n unit.Node) machine.Machine {
	if n.Local {
		return machine.Local{}
	}
	return d.Remote(n)
}

// Remote returns the machine of a node. It is connected by its first program.
func (d *Dialer) Remote(n unit.Node) *Remote {
	return &Remote{dialer: d, node: n, turn: make(chan struct{}, 1)}
}

// Start implements machine.Machine. Besides Unavailable, its errors are Denied (the machine is not believed to be that
// one, or does not let us in) and Invalid (the ssh configuration, known hosts or the node's address are wrong); then
// nothing was started. A program that is not there is an Exit of 127.
//
// Only what the program writes is passed on, not what the login shell's files write before it starts. If the program
// never starts, since these files end the shell or sshd forces another command, Wait's error is Unavailable.
//
// Reads of c.Stdin are not ended with the program: a reader that blocks keeps a goroutine.
func (r *Remote) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	if len(c.Argv) == 0 || slices.ContainsFunc(c.Argv, func(a string) bool { return strings.Contains(a, "\x00") }) {
		return nil, croft.Errorf(croft.Invalid, "%s: a program has a name, and no argument a zero byte", r.node.Name)
	}
	conn, err := r.connected(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, conn, c)
}

// connected returns the connection, which it opens if there was none.
func (r *Remote) connected(ctx context.Context) (*connection, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "%s: wait for the connection: %w", r.node.Name, ctx.Err())
	}
	if r.conn != nil {
		if r.conn.ended() {
			return nil, r.conn.lostBefore()
		}
		return r.conn, nil
	}
	w, err := whereIs(r.node)
	if err != nil {
		return nil, err
	}
	r.conn, err = r.dialer.dial(ctx, r.node.Name, w, r.node.HostKey)
	return r.conn, err
}

// Connect connects, if that was not done yet. Errors: as Start's.
func (r *Remote) Connect(ctx context.Context) error {
	_, err := r.connected(ctx)
	return err
}

// Lost returns a channel that is closed when the connection has broken or was closed; nil: there is none yet.
func (r *Remote) Lost() <-chan struct{} {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.conn == nil {
		return nil
	}
	return r.conn.done
}

// Close ends the connection, and returns when all of its goroutines have ended. What runs over it is Lost.
func (r *Remote) Close() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.conn != nil {
		r.conn.end(errClosed)
		r.conn.work.Wait()
	}
}

// wrapped is the command for the login shell: a shell that writes a mark on both streams, which separates the program's
// output from that of the login shell's files, and runs the program. It waits for the program, since ssh does not
// report signals: the shell reports them as exit codes.
func wrapped(mark string, argv []string) string {
	script := "echo " + mark + "; echo " + mark + " >&2; \"$@\"; exit $?"
	return forLoginShell(machine.Quote(append([]string{"/bin/sh", "-c", script, "sh"}, argv...)...))
}

// forLoginShell makes a command of a POSIX shell one that csh, tcsh and fish take too. They give a newline, an
// exclamation mark or a backslash within single quotes a meaning, so a command that has one of these is sent as a
// format of printf, which /bin/sh expands.
func forLoginShell(command string) string {
	if !strings.ContainsAny(strings.ReplaceAll(command, `'\''`, ""), "\n!\\") {
		return "exec " + command
	}
	var format strings.Builder
	for _, c := range []byte(command) {
		if c == '\n' {
			format.WriteString(`\n`)
		} else if c == ' ' || strings.IndexByte(machine.Plain, c) >= 0 && c != '%' {
			format.WriteByte(c)
		} else {
			fmt.Fprintf(&format, `\%03o`, c)
		}
	}
	return `exec /bin/sh -c 'command=$(printf "` + format.String() + `"); eval "exec $command"'`
}

func newMark() string { return "croft-" + rand.Text() }
