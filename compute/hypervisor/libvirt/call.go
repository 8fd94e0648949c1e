package libvirt

import (
	"context"
	"errors"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/internal/meter"
	"croft/internal/span"
	"croft/internal/wording"
)

// call runs f, which may block in libvirt, until ctx ends or Config.CallTimeout expires. f must free its libvirt
// objects and return plain data, because its result is dropped if the caller has gone. Errors start with the attempted
// action, what.
//
// Calls about one instance are serialized. An abandoned call continues in libvirt, and later calls about the instance
// wait until it or its connection has ended: a definition must not take effect after a removal.
func call[T any](ctx context.Context, n *connection, what task, f func(*libvirt.Connect) (T, error)) (T, error) {
	begun := time.Now()
	ctx, end := span.Start(ctx, "libvirt: "+what.verb)
	value, err := attempt(ctx, n, what, f)
	if croft.KindOf(err) == croft.NotFound {
		end(nil) // an error, too, is an answer of libvirt
	} else {
		end(err)
	}
	n.metrics.calls.WithLabelValues(what.verb, meter.Result(err)).Observe(time.Since(begun).Seconds())
	return value, err
}

func attempt[T any](ctx context.Context, n *connection, what task, f func(*libvirt.Connect) (T, error)) (T, error) {
	var none T
	late := func(err error) (T, error) {
		if errors.Is(err, errSlow) {
			return none, croft.Errorf(croft.Unavailable, "%s: %w within %v", what, err, wording.Duration(n.timeout))
		}
		return none, croft.Errorf(croft.Unavailable, "%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.timeout, errSlow)
	defer cancel()
	if ctx.Err() != nil {
		return late(context.Cause(ctx))
	}
	leave, err := n.enter(ctx, what)
	if err != nil {
		return late(err)
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	err = n.spawn(func() {
		defer leave()
		s, err := n.session()
		if err != nil {
			done <- answer{err: err}
			return
		}
		defer s.drop()
		value, err := f(s.conn)
		if lostConnection(err) {
			s.lose()
		}
		done <- answer{value, err}
	})
	if err != nil {
		leave()
		return none, err
	}
	select {
	case a := <-done:
		if a.err != nil {
			return none, explain(what, a.err)
		}
		return a.value, nil
	case <-ctx.Done():
		return late(context.Cause(ctx))
	}
}

var errSlow = errors.New("libvirt did not answer")

// do is call for operations without a result.
func do(ctx context.Context, n *connection, what task, f func(*libvirt.Connect) error) error {
	_, err := call(ctx, n, what, func(c *libvirt.Connect) (struct{}, error) { return struct{}{}, f(c) })
	return err
}
