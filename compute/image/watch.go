package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"croft"
	"croft/internal/wording"
)

// statusError returns the error for a response without an image.
func statusError(resp *http.Response) error {
	answer := fmt.Sprintf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return croft.Errorf(croft.NotFound, "%s: check the address", answer)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return croft.Errorf(croft.Invalid, "%s: the server requires a login, and images are fetched without one", answer)
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return croft.Errorf(croft.Unavailable, "%s: try again later", answer)
	}
	return croft.Errorf(croft.Invalid, "%s, which is not an image", answer)
}

// errStalled is the reason why a watch ended its request.
var errStalled = errors.New("stalled")

// watch ends a request when the server sends no data for too long.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	after  time.Duration
}

func (c *client) watch(ctx context.Context) (context.Context, *watch) {
	w := &watch{after: c.stall}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(c.stall, func() { w.cancel(errStalled) })
	return w.ctx, w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// reader resets the timeout with every read.
func (w *watch) reader(r io.Reader) io.Reader { return watched{w, r} }

type watched struct {
	w *watch
	r io.Reader
}

func (r watched) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.after)
	}
	return n, err
}

// explain gives a network error its kind and message. An error that has a kind, such as a refused redirect,
// is unchanged.
func (w *watch) explain(err error) error {
	if errors.Is(context.Cause(w.ctx), errStalled) {
		return croft.Errorf(croft.Unavailable, "the server sent nothing for %s: try again later",
			wording.Duration(w.after))
	}
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if croft.KindOf(err) != "" {
		return err
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return croft.Errorf(croft.Unavailable,
			"no server %s was found: check the name and this host's network", dns.Name)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF):
		return croft.Errorf(croft.Unavailable, "the server cut the connection: try again later")
	case errors.Is(err, syscall.ECONNREFUSED):
		return croft.Errorf(croft.Unavailable,
			"the server refuses the connection (%w): check the address, or try again later", err)
	}
	return croft.Errorf(croft.Unavailable, "the server cannot be reached: %w", err)
}
