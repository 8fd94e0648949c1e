package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
)

// What one host may take of the control process: the calls and streams under way, and
// how fast it asks, in units of a call of up to 512 bytes. One that asks faster waits, one
// that does more at once is refused; so a host cannot take what others need, and an
// honest one, whose Client keeps within that, does not notice.
const (
	mostCalls   = 32
	mostStreams = 8
	perSecond   = 200
	atOnce      = 2000
	unit        = 512
	slotTime    = time.Second
)

// allowance is what one host may take.
type allowance struct {
	rate           *rate.Limiter
	calls, streams chan struct{} // a token for each in flight
	complaints     rate.Sometimes

	naming sync.Mutex
	named  map[string]bool // custom names of its provider, as it said last
	names  *rate.Limiter   // how many new ones it may bring
}

// allowances are those of the hosts that have called.
type allowances struct {
	mu     sync.Mutex
	byHost map[croft.HostID]*allowance
}

// of returns the allowance of a host, a fresh one for a host that calls for the first time.
func (all *allowances) of(host croft.HostID) *allowance {
	all.mu.Lock()
	defer all.mu.Unlock()
	a, ok := all.byHost[host]
	if !ok {
		if all.byHost == nil {
			all.byHost = map[croft.HostID]*allowance{}
		}
		a = &allowance{
			rate:  rate.NewLimiter(perSecond, atOnce),
			calls: make(chan struct{}, mostCalls), streams: make(chan struct{}, mostStreams),
			complaints: rate.Sometimes{Interval: time.Minute},
			names:      rate.NewLimiter(rate.Every(namesEvery), namesAtOnce),
		}
		all.byHost[host] = a
	}
	return a
}

// New names of traits, classes and aggregates that one host may bring: each is an entry in
// etcd, for a while also where the host gives it up.
const (
	namesAtOnce = 512
	namesEvery  = time.Minute
)

var errNames = fmt.Errorf("%w: it brings new traits, resource classes or aggregates faster than one a minute",
	errCrowded)

// bring has the host pay for the names that it did not have before.
func (a *allowance) bring(names map[string]bool) error {
	a.naming.Lock()
	defer a.naming.Unlock()
	fresh := 0
	for name := range names {
		if !a.named[name] {
			fresh++
		}
	}
	if !a.names.AllowN(time.Now(), fresh) {
		return errNames
	}
	a.named = names
	return nil
}

// enter begins a call, follow a stream.
func (a *allowance) enter(ctx context.Context) (leave func(), err error) { return take(ctx, a.calls) }
func (a *allowance) follow(ctx context.Context) (leave func(), err error) {
	return take(ctx, a.streams)
}

// take waits a moment for a free slot, so that being refused costs the client more than it costs
// the server.
func take(ctx context.Context, slots chan struct{}) (leave func(), err error) {
	late := time.NewTimer(slotTime)
	defer late.Stop()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-late.C:
	case <-ctx.Done():
	}
	return nil, errCrowded
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
