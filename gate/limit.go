package gate

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"croft"
)

// What one host may take of the control process: the calls and streams under way, and
// how fast it asks, in units of a call of up to 4 KiB. One that asks faster waits, one
// that does more at once is refused; so a host cannot take what others need, and an
// honest one, whose Client keeps within that, does not notice.
const (
	mostCalls   = 64
	mostStreams = 8
	perSecond   = 200
	atOnce      = 2000
	unit        = 4 << 10
)

var errCrowded = croft.Errorf(croft.Unavailable, "this host asks for too much at once; ask again in a moment")

// allowance is that of one host. There are as many as hosts have called.
type allowance struct {
	rate           *rate.Limiter
	calls, streams chan struct{} // a token for each under way
	complaints     rate.Sometimes
}

func (s *Server) allowance(of croft.HostID) *allowance {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.allowed[of]
	if !ok {
		a = &allowance{
			rate:  rate.NewLimiter(perSecond, atOnce),
			calls: make(chan struct{}, mostCalls), streams: make(chan struct{}, mostStreams),
			complaints: rate.Sometimes{Interval: time.Minute},
		}
		s.allowed[of] = a
	}
	return a
}

// enter begins a call, follow a stream.
func (a *allowance) enter() (leave func(), err error)  { return take(a.calls) }
func (a *allowance) follow() (leave func(), err error) { return take(a.streams) }

func take(places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, errCrowded
	}
}

// pay waits until the host may send that much.
func (a *allowance) pay(ctx context.Context, bytes int) error {
	if err := a.rate.WaitN(ctx, 1+bytes/unit); err != nil {
		return errCrowded
	}
	return nil
}

// complain does something, if it was not done within the minute.
func (a *allowance) complain(do func()) { a.complaints.Do(do) }
