package compute

import (
	"context"
	"fmt"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
)

// serve makes this agent the host's agent whenever no other is, until ctx ends. Each time it becomes the agent, it
// announces the host and examines all instances. ready is called once, after all readers can see that the host is
// alive.
func (a *Agent) serve(ctx context.Context, ready func()) {
	known, acquired, ended := make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Registry.Serve(ctx, a.me(), known, func(rival *croft.Agent) bool { return a.take(ctx, rival, acquired) })
	}()
	defer func() { <-ended }()
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-acquired:
		}
		a.resync(ctx)
		if a.announce(ctx) && !a.known.Swap(true) {
			close(known)
			work.Go(func() {
				if a.awaitLife(ctx) {
					ready()
				}
			})
		}
	}
}

// awaitLife returns once all readers see that the host is alive; false: ctx ended.
func (a *Agent) awaitLife(ctx context.Context) bool {
	for wait := lifePoll; ; wait = min(2*wait, lastWait) {
		hosts, err := a.Registry.Hosts(ctx, a.Host.ID)
		if err == nil && hosts[a.Host.ID].Alive {
			return true
		}
		if delay.For(ctx, wait) != nil {
			return false
		}
	}
}

// lifePoll is the first pause before the agent checks again whether its host is alive, which takes about as long as a
// write to etcd.
const lifePoll = 10 * time.Millisecond

func (a *Agent) me() croft.Agent {
	return croft.Agent{Host: a.Host.ID, Place: a.Host.Place, Name: a.Host.Name, API: a.Host.API}
}

// take records which agent serves the host, this one or a rival, and returns whether this one may serve.
func (a *Agent) take(ctx context.Context, rival *croft.Agent, acquired chan<- struct{}) bool {
	if rival != nil {
		a.refuse(fmt.Sprintf(
			"another agent has this host's UUID and serves it, %s at %s; where this machine or its state directory is a copy, remove host-id from the copy",
			rival.Name, rival.API))
		return false
	}
	stranger, changed, err := a.stranger(ctx)
	if err != nil {
		a.logUnless(ctx, err, "read the host's record")
		return false
	}
	if stranger != "" {
		a.refuse(stranger)
		return false
	}
	if !a.locked.Swap(true) || changed { // otherwise only the lease was lost temporarily
		select {
		case acquired <- struct{}{}:
		default:
		}
	}
	a.troubles.lock.Store(nil)
	return true
}

// refuse stops all work of the agent, and logs each reason once.
func (a *Agent) refuse(why string) {
	a.locked.Store(false)
	if before := a.troubles.lock.Swap(&why); before == nil || *before != why {
		a.Log.Error("this agent does nothing", "host", a.Host.ID, "reason", why)
	}
}

// stranger returns why this agent must not serve the host; empty: it may serve it. changed: the host's record was
// written by another agent, or does not exist.
//
// An agent whose place differs from the last agent's serves the host only if the host has no orders or an operator
// accepts it. Otherwise it would rebuild guests that still run elsewhere, or report that a tombstone has been carried
// out.
func (a *Agent) stranger(ctx context.Context) (why string, changed bool, err error) {
	hosts, err := a.Registry.Hosts(ctx, a.Host.ID)
	if err != nil {
		return "", false, err
	}
	last, known := hosts[a.Host.ID]
	switch {
	case known && last.Place == a.Host.Place:
		return "", false, nil
	case !known || last.Place == "":
		return "", true, nil
	}
	e, err := a.Records.HostEvidence(ctx, a.Host.ID)
	if err != nil || len(e.Orders) == 0 {
		return "", true, err
	}
	return fmt.Sprintf("the host's UUID was last served by another machine or state directory, which has orders: if "+
		"this is a copy, remove host-id from its state directory; if these are the host's disks in another machine "+
		"and the old one is off, run `croft host accept %s`; if the other is permanently lost, `croft host remove "+
		"--force %s`",
		a.Host.ID, a.Host.ID), true, nil
}
