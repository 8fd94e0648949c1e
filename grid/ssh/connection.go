package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/wording"
)

// sessionsMax is what sshd allows by default, MaxSessions 10, with some reserve.
const sessionsMax = 8

// silences is how many keepalives a machine may leave without any sign of life.
const silences = 3

var errClosed = errors.New("closed by this side")

// A connection is a login on one machine, until it breaks.
type connection struct {
	name     string
	client   *ssh.Client
	shell    time.Duration // as Config.Shell
	sessions chan struct{} // has a value for each session
	freed    chan struct{} // gets a value when a session has ended
	done     chan struct{} // closed when it has ended
	work     sync.WaitGroup

	once  sync.Once
	cause error // why it ended; read after done
}

// watched knows when something was last received.
type watched struct {
	net.Conn
	last atomic.Int64 // in nanoseconds, of the monotonic clock
}

var began = time.Now()

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.last.Store(int64(time.Since(began)))
	}
	return n, err
}

// silent is how long nothing was received.
func (w *watched) silent() time.Duration { return time.Since(began) - time.Duration(w.last.Load()) }

// newConnection takes over a new connection, which it watches.
func newConnection(name string, client *ssh.Client, conn *watched, config Config) *connection {
	c := &connection{
		name: name, client: client, shell: config.Shell, done: make(chan struct{}),
		sessions: make(chan struct{}, sessionsMax), freed: make(chan struct{}, 1),
	}
	c.work.Go(func() {
		err := client.Wait()
		if err == nil {
			err = errors.New("closed by the machine")
		}
		c.end(err)
	})
	c.work.Go(func() { c.keepalive(config.Keepalive, conn) })
	return c
}

// end ends the connection for the given reason, unless it has ended.
func (c *connection) end(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.done)
		_ = c.client.Close() // nobody reads from it any more
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

// keepalive ends the connection when the machine gives no sign of life.
func (c *connection) keepalive(every time.Duration, conn *watched) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var asking atomic.Bool
	for {
		select {
		case <-c.done:
			return
		case <-ticks.C:
		}
		if silent := conn.silent(); silent > silences*every {
			c.end(croft.Errorf(croft.Unavailable, "no sign of life for %s",
				wording.Duration(silent.Round(time.Second/10))))
			return
		}
		if !asking.Swap(true) {
			c.work.Go(func() {
				defer asking.Store(false)
				_, _, _ = c.client.SendRequest("keepalive@openssh.com", true, nil) // any answer is one
			})
		}
	}
}

// sshd counts a session for a moment after it has ended. So one that it refuses is tried again after refusedPause at
// the latest, refusalsMax times if there is no other one to wait for.
const (
	refusedPause = 100 * time.Millisecond
	refusalsMax  = 20
)

// session opens a session. Where sshd allows fewer than we do, it waits until another one ends: nothing was started.
func (c *connection) session(ctx context.Context) (ssh.Channel, <-chan *ssh.Request, error) {
	if c.ended() {
		return nil, nil, c.lostBefore()
	}
	select {
	case c.sessions <- struct{}{}:
	case <-c.done:
		return nil, nil, c.lostBefore()
	case <-ctx.Done():
		return nil, nil, croft.Errorf(croft.Unavailable, "%s: wait for a session: %w", c.name, ctx.Err())
	}
	for refusals := 0; ; refusals++ {
		channel, requests, err := c.open(ctx)
		var refused *ssh.OpenChannelError
		switch {
		case err == nil:
			return channel, requests, nil
		case errors.As(err, &refused) && (len(c.sessions) > 1 || refusals < refusalsMax):
			select {
			case <-c.freed:
				continue
			case <-time.After(refusedPause):
				continue
			case <-c.done:
				err = c.cause
			case <-ctx.Done():
				err = ctx.Err()
			}
		case refused != nil:
			err = fmt.Errorf("sshd refuses it (is its MaxSessions 0?): %w", err)
		}
		if c.ended() {
			return nil, nil, c.lostBefore() // nobody waits for its sessions
		}
		if !errors.Is(err, errUnanswered) { // else the session counts until sshd has answered
			c.release()
		}
		return nil, nil, croft.Errorf(croft.Unavailable, "%s: open a session: %w", c.name, err)
	}
}

// release gives back the place of a session.
func (c *connection) release() {
	<-c.sessions
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// errUnanswered means that the context ended before sshd had answered.
var errUnanswered = errors.New("sshd has not answered")

// open opens a channel. Where that is errUnanswered, the place of the session is given back once sshd has answered.
func (c *connection) open(ctx context.Context) (ssh.Channel, <-chan *ssh.Request, error) {
	type opened struct {
		channel  ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	answer := make(chan opened, 1)
	// Nobody waits for this: the library's OpenChannel does not return if the connection breaks at the wrong moment.
	go func() {
		channel, requests, err := c.client.OpenChannel("session", nil)
		answer <- opened{channel, requests, err}
	}()
	select {
	case o := <-answer:
		return o.channel, o.requests, o.err
	case <-c.done:
		return nil, nil, c.cause
	case <-ctx.Done():
		c.work.Go(func() {
			select {
			case o := <-answer:
				if o.err == nil {
					_ = o.channel.Close() // nobody wants it any more
					ssh.DiscardRequests(o.requests)
				}
				c.release()
			case <-c.done:
			}
		})
		return nil, nil, fmt.Errorf("%w: %w", errUnanswered, ctx.Err())
	}
}

// probe ends the connection if it is broken, before the library says so. It returns when that is known.
func (c *connection) probe() {
	if _, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		c.end(err)
	}
}

// lostBefore is the error of a program that was not started since the connection is gone.
func (c *connection) lostBefore() error {
	return croft.Errorf(croft.Unavailable, "%s: the connection was lost before: %w", c.name, c.cause)
}
