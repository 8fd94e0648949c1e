package mdserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"croft"
)

// retry is how long Run waits before it looks at the bridge again.
const retry = 2 * time.Second

// Run serves metadata on the bridge until ctx ends, which is no error. Where the
// bridge does not exist yet, or goes away and comes back, or another croft serves
// it, Run waits and takes over when it can.
//
// Conflict: a program that is not croft's has the port. Invalid: the process may
// not listen there. Neither mends itself, so Run returns.
func (s *Server) Run(ctx context.Context, bridge string, at netip.AddrPort) error {
	return s.run(ctx, at.String()+" of "+bridge, func() (net.Listener, error) { return Listen(ctx, bridge, at) })
}

func (s *Server) run(ctx context.Context, where string, listen func() (net.Listener, error)) error {
	log := s.config.Log
	told := "" // the sentence that the log has already
	for {
		l, err := listen()
		if err == nil {
			told = ""
			log.Info("metadata: serving guests at "+where, "op", "listen")
			err = s.Serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !mends(err) {
			return err
		}
		if err.Error() != told {
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
