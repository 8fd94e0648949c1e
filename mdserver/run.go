package mdserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/wording"
	"croft/mdserver/linklocal"
)

// retry is the interval at which Run checks the bridge.
const retry = 2 * time.Second

// Run serves metadata on the bridge until ctx ends, which is no error. If the bridge does not exist yet, or disappears
// and returns, or another croft of this cloud serves it, Run waits and starts to serve when it can.
//
// Conflict: a program other than croft has the port. ErrOther, also a Conflict: the croft of another cloud has it.
// Invalid: the process has no permission to listen there. These errors are permanent, so Run returns.
func (s *Server) Run(ctx context.Context, bridge string, at netip.AddrPort) error {
	return s.run(ctx, at.String()+" of "+bridge, &s.trouble, placesOn(bridge),
		func() (net.Listener, error) { return s.listen(ctx, bridge, at) })
}

// RunIPv6 is like Run, at Address6, while the bridge has an IPv6 address of a kind that guests can have. Without such
// an address it waits silently.
func (s *Server) RunIPv6(ctx context.Context, bridge string) error {
	return s.run(ctx, Address6.String()+" of "+bridge, new(atomic.Pointer[error]), placesOn(bridge),
		func() (net.Listener, error) {
			switch has, err := linklocal.HasIPv6(bridge, Address6.Addr()); {
			case err != nil:
				return nil, err
			case !has:
				return nil, errNoIPv6
			}
			return s.listen(ctx, bridge, Address6)
		})
}

// errNoIPv6 is the error of a bridge without IPv6, which is the usual state.
var errNoIPv6 = croft.Errorf(croft.NotFound, "the bridge has no IPv6")

// Ready returns why guests are not served at Address; nil: this server or another server of croft serves them.
func (s *Server) Ready(context.Context) error {
	switch err := s.trouble.Load(); {
	case err == nil, errors.Is(*err, ErrServed):
		return nil
	default:
		return *err
	}
}

// Elsewhere reports whether another host's agent serves Address, so that guests of this host are not served.
func (s *Server) Elsewhere() bool {
	err := s.trouble.Load()
	return err != nil && errors.Is(*err, ErrSibling)
}

func (s *Server) run(ctx context.Context, where string, trouble *atomic.Pointer[error], places placeOf,
	listen func() (net.Listener, error)) error {
	log := s.config.Log
	logged := "" // the last logged message
	for {
		l, err := listen()
		if err == nil {
			logged = ""
			trouble.Store(nil)
			log.Info("metadata: serving guests at "+where, "op", "listen")
			err = s.serve(ctx, l, places)
		}
		if ctx.Err() != nil {
			return nil
		}
		trouble.Store(&err)
		if !mends(err) {
			return err
		}
		if err.Error() != logged && !errors.Is(err, errNoIPv6) {
			logged = err.Error()
			log.Warn("metadata: not serving guests, looking again every "+wording.Duration(retry), "op", "listen",
				"err", err)
		}
		if delay.For(ctx, retry) != nil {
			return nil
		}
	}
}

// mends reports whether the cause of the error may disappear.
func mends(err error) bool {
	return errors.Is(err, ErrServed) || errors.Is(err, ErrSibling) || errors.Is(err, croft.NotFound) ||
		errors.Is(err, croft.Unavailable)
}
