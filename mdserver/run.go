package mdserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"croft"
	"croft/mdserver/linklocal"
)

// retry is how long Run waits before it looks at the bridge again.
const retry = 2 * time.Second

// Run serves metadata on the bridge until ctx ends, which is no error. Where the
// bridge does not exist yet, or goes away and comes back, or another croft serves
// it, Run waits and takes over when it can.
//
// Conflict: a program that is not croft's has the port. ErrOther, a Conflict too: the croft
// of another cloud has it. Invalid: the process may
// not listen there. None of these mends itself, so Run returns.
func (s *Server) Run(ctx context.Context, bridge string, at netip.AddrPort) error {
	return s.run(ctx, at.String()+" of "+bridge, &s.trouble, placesOn(bridge),
		func() (net.Listener, error) { return s.listen(ctx, bridge, at) })
}

// RunIPv6 is Run at Address6, for as long as the bridge has an IPv6 address that
// guests can have the like of. Without one it waits, and says nothing of it.
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

// errNoIPv6 is how most bridges are.
var errNoIPv6 = croft.Errorf(croft.NotFound, "the bridge has no IPv6")

// Ready returns why guests are not served at Address; nil where they are, by this server
// or another of croft's.
func (s *Server) Ready(context.Context) error {
	switch err := s.trouble.Load(); {
	case err == nil, errors.Is(*err, ErrServed):
		return nil
	default:
		return *err
	}
}

func (s *Server) run(ctx context.Context, where string, trouble *atomic.Pointer[error], places placeOf,
	listen func() (net.Listener, error)) error {
	log := s.config.Log
	told := "" // the sentence that the log has already
	for {
		l, err := listen()
		if err == nil {
			told = ""
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
		if err.Error() != told && !errors.Is(err, errNoIPv6) {
			told = err.Error()
			log.Warn("metadata: not serving guests, looking again every "+retry.String(), "op", "listen", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// mends tells whether what is wrong may come right without anybody's doing.
func mends(err error) bool {
	return errors.Is(err, ErrServed) || errors.Is(err, croft.NotFound) || errors.Is(err, croft.Unavailable)
}
