package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
)

// Limits per host on the control process: calls and streams in flight, and the request rate, in units of a call of up
// to 512 bytes. A host above the rate waits; a host with too many requests in flight is refused. So a host cannot
// exhaust the resources of others, and an honest host, whose Client keeps within the limits, does not notice them.
const (
	mostCalls   = 32
	mostStreams = 8
	perSecond   = 200
	atOnce      = 2000
	unit        = 512
	slotTime    = time.Second
)

// allowance is the state of one host's limits.
type allowance struct {
	rate           *rate.Limiter
	calls, streams chan struct{} // holds a token for each call in flight
	complaints     rate.Sometimes

	naming sync.Mutex
	named  map[string]bool // custom names of its provider, as of its last report
	names  *rate.Limiter   // limits new names
}

// allowances holds the allowance of each host that has called.
type allowances struct {
	mu     sync.Mutex
	byHost map[croft.HostID]*allowance
}

// of returns the allowance of a host, and creates it at the host's first call.
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

// Limits on new names of traits, classes and aggregates per host: each is an entry in etcd, which remains for a
// while after the host drops it.
const (
	namesAtOnce = 512
	namesEvery  = time.Minute
)

var errNames = fmt.Errorf("%w: it brings new traits, resource classes or aggregates faster than one a minute",
	errCrowded)

// bring charges the host for names that it did not have before.
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

// enter takes a slot for a call, follow one for a stream; both return the function that frees it.
func (a *allowance) enter(ctx context.Context) (leave func(), err error) { return take(ctx, a.calls) }
func (a *allowance) follow(ctx context.Context) (leave func(), err error) {
	return take(ctx, a.streams)
}

// take waits a moment for a free slot, so that a refusal costs the client more than the server.
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

// pay waits until the host's rate permits a message of that size.
func (a *allowance) pay(ctx context.Context, bytes int) error {
	if err := a.rate.WaitN(ctx, 1+bytes/unit); err != nil {
		return errCrowded
	}
	return nil
}

// complain calls do at most once a minute.
func (a *allowance) complain(do func()) { a.complaints.Do(do) }
