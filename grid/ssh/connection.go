package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"croft"
	"croft/grid/machine"
)

// sessionsMax is what sshd allows by default, MaxSessions 10, with some reserve.
const sessionsMax = 8

// endPatience is how long a master may take to end before it is killed.
const endPatience = 2 * time.Second

var errClosed = errors.New("closed by this side")

// A connection is a login on one machine, until it breaks: a master of ssh in the background. The master ends with this
// process too, some seconds after its last connection by the control socket.
type connection struct {
	name     string
	shell    time.Duration // as Config.Shell
	socket   string        // of the master
	words    *words        // what the master says
	monitor  *mux          // keeps the master, and ends with it
	pid      int           // of the master
	sessions chan struct{} // has a value for each session
	freed    chan struct{} // gets a value when a session has ended
	done     chan struct{} // closed when it has ended
	work     sync.WaitGroup

	once  sync.Once
	cause error // why it ended; read after done
}

// attach connects to a master that was started just now, and watches it.
func attach(ctx context.Context, name, socket string, words *words, config Config) (*connection, error) {
	m, err := dialMux(ctx, socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, m.Close)
	pid, err := m.master()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	c := &connection{name: name, shell: config.Shell, socket: socket, words: words, monitor: m, pid: pid,
		sessions: make(chan struct{}, sessionsMax), freed: make(chan struct{}, 1), done: make(chan struct{})}
	c.work.Go(c.watch)
	return c, nil
}

// watch waits until the master has ended.
func (c *connection) watch() {
	for {
		_, _, err := c.monitor.receive()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = syscall.Kill(c.pid, syscall.SIGKILL) // as the connection shows, it is still that process
		}
		if err != nil {
			break
		}
	}
	c.monitor.Close()
	c.end(c.words.why())
	c.words.close()
	_ = os.Remove(c.socket) // a master that was killed has left it
}

// end ends the connection for the given reason, unless it has ended.
func (c *connection) end(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.done)
		c.monitor.terminate()
		_ = c.monitor.conn.SetReadDeadline(time.Now().Add(endPatience)) // closed: then it needs none
	})
}

func (c *connection) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// probe finds out whether the master is still there: sessions end before the connection is known to have.
func (c *connection) probe() {
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	m, err := dialMux(ctx, c.socket)
	if err != nil {
		c.end(c.words.why())
		return
	}
	m.Close()
}

// lostBefore is the error of a program that was not started since the connection is gone.
func (c *connection) lostBefore() error {
	return croft.Errorf(croft.Unavailable, "%s: the connection was lost before: %w", c.name, c.cause)
}

// sshd counts a session for a moment after it has ended. So one that it refuses is tried again after refusedPause at
// the latest, refusalsMax times if there is no other one to wait for.
const (
	refusedPause = 100 * time.Millisecond
	refusalsMax  = 20
)

// session has the login shell run a command in a session of its own. Where sshd allows fewer than we do, it waits until
// another one ends. The error is Lost if the command may have been started.
func (c *connection) session(ctx context.Context, command string, streams [3]*os.File) (*mux, error) {
	if c.ended() {
		return nil, c.lostBefore()
	}
	select {
	case c.sessions <- struct{}{}:
	case <-c.done:
		return nil, c.lostBefore()
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "%s: wait for a session: %w", c.name, ctx.Err())
	}
	for refusals := 0; ; refusals++ {
		m, err := c.open(ctx, command, streams)
		var no *refused
		if !errors.As(err, &no) {
			return m, err
		}
		if len(c.sessions) == 1 && refusals >= refusalsMax {
			c.release()
			return nil, croft.Errorf(croft.Unavailable,
				"%s: open a session: sshd refuses it (is its MaxSessions 0?): %w", c.name, no)
		}
		select {
		case <-c.freed:
		case <-time.After(refusedPause):
		case <-c.done:
			return nil, c.lostBefore() // nobody waits for its sessions
		case <-ctx.Done():
			c.release()
			return nil, croft.Errorf(croft.Unavailable, "%s: open a session: %w", c.name, ctx.Err())
		}
	}
}

// open opens a session. Unless the error is refused, it has given back the place of a session that is not opened, or
// does so as soon as the master has answered: a master that finds nobody to answer to ends.
func (c *connection) open(ctx context.Context, command string, streams [3]*os.File) (*mux, error) {
	m, err := dialMux(ctx, c.socket)
	if err != nil {
		c.release()
		if ctx.Err() != nil {
			return nil, croft.Errorf(croft.Unavailable, "%s: open a session: %w", c.name, ctx.Err())
		}
		c.end(c.words.why())
		return nil, c.lostBefore()
	}
	answer := make(chan error, 1)
	c.work.Go(func() { answer <- m.start(command, streams) })
	select {
	case err = <-answer:
	case <-c.done:
		err = c.cause
	case <-ctx.Done():
		c.work.Go(func() {
			select {
			case <-answer:
			case <-c.done:
			}
			m.Close()
			c.release()
		})
		return nil, &machine.Lost{Err: ctx.Err()}
	}
	if err == nil {
		return m, nil
	}
	m.Close()
	if errors.As(err, new(*refused)) {
		return nil, err
	}
	c.release()
	c.end(c.words.why())
	return nil, &machine.Lost{Err: c.lost()}
}

// release gives back the place of a session.
func (c *connection) release() {
	<-c.sessions
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// lost is the error of a program that ran when the connection ended.
func (c *connection) lost() error { return fmt.Errorf("%s: %w", c.name, c.cause) }
