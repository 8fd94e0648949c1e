package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/internal/meter"
	"croft/internal/span"
)

// call runs f, which may block in libvirt, for as long as ctx and CallTimeout
// allow. f must free what it takes from libvirt and return plain data, because
// nobody looks at what it returns once the caller has gone. what is attempted begins
// the error.
//
// Calls about one instance are made one after the other. A call that its caller has
// abandoned goes on in libvirt, and whatever comes later about the instance waits for its end, or
// that of its connection: a definition must not take effect after a removal.
func call[T any](ctx context.Context, d *Driver, what task, f func(*libvirt.Connect) (T, error)) (T, error) {
	begun := time.Now()
	ctx, end := span.Start(ctx, "libvirt: "+what.verb)
	value, err := callIt(ctx, d, what, f)
	if croft.KindOf(err) == croft.NotFound {
		end(nil) // that is an answer
	} else {
		end(err)
	}
	d.metrics.calls.WithLabelValues(what.verb, meter.Result(err)).Observe(time.Since(begun).Seconds())
	return value, err
}

// task says in the infinitive what is attempted, and with what.
type task struct {
	verb, object string
	instance     croft.InstanceID // empty: it is about no instance
}

func (t task) String() string { return strings.TrimSpace(t.verb + " " + t.object) }

func callIt[T any](ctx context.Context, d *Driver, what task, f func(*libvirt.Connect) (T, error)) (T, error) {
	var none T
	late := func(err error) (T, error) {
		if errors.Is(err, errSlow) {
			return none, croft.Errorf(croft.Unavailable, "%s: %w within %v", what, err, d.config.CallTimeout)
		}
		return none, croft.Errorf(croft.Unavailable, "%s: %w", what, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.config.CallTimeout, errSlow)
	defer cancel()
	if ctx.Err() != nil {
		return late(context.Cause(ctx))
	}
	leave, err := d.enter(ctx, what)
	if err != nil {
		return late(err)
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	err = d.spawn(func() {
		defer leave()
		s, err := d.session()
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

// enter waits until what was asked before about the instance has ended, then for one of the
// calls that may be inside libvirt at once. leave gives both back.
func (d *Driver) enter(ctx context.Context, what task) (leave func(), err error) {
	end := func() {}
	if what.instance != "" {
		if end, err = d.turns.Take(ctx, what.instance); err != nil {
			return nil, fmt.Errorf("an earlier call about it has not ended: %w", err)
		}
	}
	select {
	case d.slots <- struct{}{}:
		return func() { <-d.slots; end() }, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// spawn runs f in a goroutine that Close waits for.
func (d *Driver) spawn(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return croft.Errorf(croft.Unavailable, "the connection to libvirt has been closed")
	}
	d.calls.Go(f)
	return nil
}

// do is call for what returns nothing.
func do(ctx context.Context, d *Driver, what task, f func(*libvirt.Connect) error) error {
	_, err := call(ctx, d, what, func(c *libvirt.Connect) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// is reports whether err is libvirt's, with one of these codes.
func is(err error, codes ...libvirt.ErrorNumber) bool {
	e, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if e.Code == code {
			return true
		}
	}
	return false
}

// lostConnection reports whether err says that the connection is gone, which may
// be before the close callback says so.
func lostConnection(err error) bool {
	e, ok := errors.AsType[libvirt.Error](err)
	return ok && e.Domain == libvirt.FROM_RPC && !is(err, libvirt.ERR_OPERATION_DENIED, libvirt.ERR_AUTH_FAILED,
		libvirt.ERR_NO_SUPPORT)
}

// explain gives an error of libvirt its kind, by its code, and keeps its words.
func explain(what task, err error) error {
	if croft.KindOf(err) != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	e, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	if lostConnection(err) {
		return croft.Errorf(croft.Unavailable, "%s: the connection to libvirt is lost: %w", what, words(err))
	}
	switch e.Code {
	case libvirt.ERR_NO_DOMAIN, libvirt.ERR_NO_NETWORK:
		return croft.Errorf(croft.NotFound, "%s: %w", what, words(err))
	case libvirt.ERR_DOM_EXIST, libvirt.ERR_NETWORK_EXIST:
		return croft.Errorf(croft.Conflict, "%s: %w", what, words(err))
	case libvirt.ERR_XML_ERROR, libvirt.ERR_XML_DETAIL, libvirt.ERR_XML_INVALID_SCHEMA,
		libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_INVALID_ARG, libvirt.ERR_INVALID_MAC:
		return croft.Errorf(croft.Invalid, "%s: %w", what, words(err))
	case libvirt.ERR_OPERATION_TIMEOUT, libvirt.ERR_OPERATION_ABORTED, libvirt.ERR_NO_CONNECT,
		libvirt.ERR_OPERATION_DENIED, libvirt.ERR_AUTH_FAILED, libvirt.ERR_AUTH_UNAVAILABLE:
		return croft.Errorf(croft.Unavailable, "%s: %w", what, words(err))
	}
	return fmt.Errorf("%s: %w", what, words(err))
}

// words is err with libvirt's message alone, without the numbers around it.
func words(err error) error {
	if e, ok := errors.AsType[libvirt.Error](err); ok {
		return &wordsError{e}
	}
	return err
}

type wordsError struct{ err libvirt.Error }

func (e *wordsError) Error() string { return e.err.Message }
func (e *wordsError) Unwrap() error { return e.err }

// unreachable says of an error of opening what to do about it.
func (d *Driver) unreachable(err error) error {
	e, _ := errors.AsType[libvirt.Error](err)
	switch {
	case strings.Contains(e.Message, "libvirt.so"): // dlopen has no code of its own
		return croft.Errorf(croft.Unavailable, "libvirt is not installed here: install libvirt-daemon-system (%s)",
			e.Message)
	case is(err, libvirt.ERR_AUTH_FAILED, libvirt.ERR_AUTH_UNAVAILABLE, libvirt.ERR_OPERATION_DENIED,
		libvirt.ERR_AUTH_CANCELLED):
		return croft.Errorf(croft.Unavailable,
			"libvirt at %s refuses this user: run as root or join the group libvirt (%s)", d.config.URI, e.Message)
	}
	return croft.Errorf(croft.Unavailable, "libvirt does not answer at %s: start libvirtd (%w)", d.config.URI,
		words(err))
}
