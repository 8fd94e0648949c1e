// Package node runs one process of the cloud: all of croft up, or a part of it (the agent of a host, the metadata
// server, Placement). It opens the stores and servers in the settings, starts the parts in an order in which each may
// rely on earlier ones, and ends them in the reverse order.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"croft"
)

// Parts are the running parts of a process. They end in the reverse order of their start, so that
// each may rely on the earlier ones until its own end.
type Parts struct {
	Self    *Self // health and metrics of the process; nil at first
	running []*part
	failed  chan error // the first failure; later ones are returned by End
}

type part struct {
	name   string
	cancel context.CancelFunc
	ended  chan error
}

func NewParts() *Parts { return &Parts{failed: make(chan error, 1)} }

// Start runs a part until End, or until it fails. The end of ctx does not end the part: it is the signal to end
// all parts in order.
func (p *Parts) Start(ctx context.Context, name string, run func(context.Context) error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &part{name: name, cancel: cancel, ended: make(chan error, 1)}
	p.running = append(p.running, one)
	go func() {
		err := run(own)
		if own.Err() == nil {
			select {
			case p.failed <- stopped(name, err):
			default:
			}
			err = nil // already reported
		}
		one.ended <- err
	}()
}

func stopped(name string, err error) error {
	if err == nil {
		return fmt.Errorf("%s ended unexpectedly", name)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Wait returns when ctx ends (nil) or a part fails.
func (p *Parts) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.failed:
		return err
	}
}

// End ends all parts, the last one first.
func (p *Parts) End() error {
	var errs []error
	for i := len(p.running) - 1; i >= 0; i-- {
		one := p.running[i]
		one.cancel()
		if err := <-one.ended; err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("end %s: %w", one.name, err))
		}
	}
	p.running = nil
	return errors.Join(errs...)
}

// unlessStopped returns the error that ended a start; nil: ctx has ended. In that case the start was interrupted, and
// its errors have no other meaning.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Listen opens the TCP address of a setting, with limits on its connections. Conflict: it is in use.
func Listen(ctx context.Context, address, setting string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, croft.Errorf(croft.Conflict, "%s: %s is in use; stop the program that listens there, or set "+
			"another address",
			setting, address)
	}
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s: %w", setting, err)
	}
	return limited(l), nil
}

// Serve serves h on l until ctx ends. In-flight requests get a second to finish, then their contexts end: some
// would continue forever.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := newServer(requests, h)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := shutdown(ctx, server, time.Second)
	if err != nil {
		endRequests()
		err = shutdown(ctx, server, 4*time.Second)
	}
	if err != nil {
		err = server.Close()
	}
	<-ended
	return err
}

// quietHandshakes drops log lines about failed TLS handshakes: the client sees the failure, and any client may cause
// one.
type quietHandshakes struct{ slog.Handler }

// Handle implements slog.Handler.
func (h quietHandshakes) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func shutdown(ctx context.Context, server *http.Server, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return server.Shutdown(ctx)
}

// areFree refuses configured addresses that are in use. Conflict.
func areFree(ctx context.Context, needed map[string]string) error {
	for setting, address := range needed {
		if address == "" {
			continue
		}
		l, err := Listen(ctx, address, setting)
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("%s: %w", setting, err)
		}
	}
	return nil
}
