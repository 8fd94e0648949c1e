package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
	"croft/internal/wording"
)

const (
	triesMax   = 6                      // of a connection that is reset before it says anything
	firstPause = 100 * time.Millisecond // between two tries; then twice as long each time
	loginLimit = 2 * time.Minute        // after the host key: an agent may ask its user
	ourVersion = "SSH-2.0-croft"
)

// errRefused is what sshd does beyond its MaxStartups.
var errRefused = errors.New("reset before the handshake")

// A dialing establishes a connection to one machine.
type dialing struct {
	*target
	dialer   *Dialer
	name     string // of the machine, in messages
	via      *connection
	login    *login
	verifier *verifier
}

// dial connects to a machine, through others where the configuration says so. name is for messages, pin the
// fingerprint of its host key, if that is pinned.
func (d *Dialer) dial(ctx context.Context, name string, w where, pin string) (*connection, error) {
	route, err := d.route(w, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var via *connection
	so := ""
	for _, t := range route[:len(route)-1] {
		so += t.String() + " "
		if via, err = d.shared(ctx, so, t, via); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return d.connect(ctx, name, route[len(route)-1], via, pin)
}

// connect makes one connection; via is nil or what it goes through.
func (d *Dialer) connect(ctx context.Context, name string, t *target, via *connection, pin string) (*connection,
	error) {
	v, err := newVerifier(t, name, pin)
	if err != nil {
		return nil, err
	}
	g := newLogin(ctx, t, d.config.Credential)
	defer g.close()
	a := &dialing{t, d, name, via, g, v}
	pause := firstPause
	for try := 1; ; try++ {
		c, err := a.handshakes(ctx)
		if !errors.Is(err, errRefused) || try == triesMax {
			return c, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause *= 2
		case <-ctx.Done():
			return nil, a.unavailable(ctx.Err())
		}
	}
}

func (a *dialing) unavailable(err error) error {
	return croft.Errorf(croft.Unavailable, "%s: connect to %s: %w", a.name, a.target, err)
}

// handshakes tries one algorithm of host keys after the other where the pinned key is of a type that the machine does
// not show first.
func (a *dialing) handshakes(ctx context.Context) (*connection, error) {
	a.verifier.seen = nil
	for algorithms := a.verifier.algorithms(); ; {
		c, shown, err := a.handshake(ctx, algorithms)
		if !errors.Is(err, errOther) {
			return c, err
		}
		tried := algorithmsOf(shown)
		algorithms = slices.DeleteFunc(algorithms, func(name string) bool { return slices.Contains(tried, name) })
		if len(tried) == 0 || len(algorithms) == 0 {
			return nil, a.verifier.notPinned()
		}
	}
}

// handshake makes one connection. shown is the type of the host key.
func (a *dialing) handshake(ctx context.Context, algorithms []string) (c *connection, shown string, err error) {
	select {
	case a.dialer.dials <- struct{}{}:
		defer func() { <-a.dialer.dials }()
	case <-ctx.Done():
		return nil, "", a.unavailable(ctx.Err())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	judge := &judge{verifier: a.verifier}
	judge.timer = time.AfterFunc(a.timeout, func() { cancel(judge.late(a.timeout)) })
	defer judge.timer.Stop()
	raw, err := a.open(ctx)
	if err != nil {
		if context.Cause(ctx) != nil {
			err = context.Cause(ctx)
		}
		return nil, "", a.failed(ctx, judge, err)
	}
	conn := &watched{Conn: raw}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	client, channels, requests, err := ssh.NewClientConn(conn, a.knownAs, &ssh.ClientConfig{
		User: a.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(a.login.signers...)}, ClientVersion: ourVersion,
		Config:            ssh.Config{Ciphers: a.ciphers, MACs: a.macs, KeyExchanges: a.exchanges},
		HostKeyAlgorithms: algorithms,
		HostKeyCallback:   judge.check,
	})
	if !unwatch() && err == nil { // the context ended just now
		_ = client.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // it is of no use
		return nil, judge.keyType(), a.failed(ctx, judge, err)
	}
	c, err = a.dialer.keep(a.name, ssh.NewClient(client, channels, requests), conn)
	return c, "", err
}

func (a *dialing) open(ctx context.Context) (net.Conn, error) {
	address := net.JoinHostPort(a.host, a.port)
	if a.via != nil {
		return a.via.client.DialContext(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, a.network, address)
}

// failed says why there is no connection.
func (a *dialing) failed(ctx context.Context, j *judge, err error) error {
	believed, denied := j.result()
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case denied != nil:
		return denied
	case context.Cause(ctx) != nil:
		return a.unavailable(context.Cause(ctx))
	case !believed && errors.As(err, &negotiation) && len(a.verifier.seen) > 0:
		return a.verifier.notPinned() // it has no key of another type to show
	case !believed && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		return a.unavailable(fmt.Errorf("%w: %w", errRefused, err))
	case believed && strings.Contains(err.Error(), "unable to authenticate"):
		return croft.Errorf(croft.Denied, "%s: %s does not let us in: %s", a.name, a.target, a.login.tell())
	case believed:
		return croft.Errorf(croft.Unavailable, "%s: log in to %s: %w (%s)", a.name, a.target, err, a.login.tell())
	}
	return a.unavailable(err)
}

// A judge watches one handshake: the library may still ask it when the handshake was given up.
type judge struct {
	verifier *verifier
	timer    *time.Timer

	mu       sync.Mutex
	shown    string // type of the host key
	believed bool
	denied   error
}

func (j *judge) check(host string, remote net.Addr, key ssh.PublicKey) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.shown = key.Type()
	if j.denied = j.verifier.check(host, remote, key); j.denied != nil {
		return j.denied
	}
	j.believed = true
	j.timer.Reset(loginLimit)
	return nil
}

func (j *judge) result() (believed bool, denied error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.believed, j.denied
}

func (j *judge) keyType() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shown
}

func (j *judge) late(limit time.Duration) error {
	if believed, _ := j.result(); believed {
		return croft.Errorf(croft.Unavailable, "the login took more than %s", wording.Duration(loginLimit))
	}
	return croft.Errorf(croft.Unavailable, "no answer within %s", wording.Duration(limit))
}
