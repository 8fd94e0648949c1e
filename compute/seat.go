package compute

import (
	"context"
	"fmt"
	"slices"

	"croft"
)

// serve is the host's agent for as long as no other is, until ctx ends. Whenever it
// becomes that, it makes the host known and looks at everything. ready is called the
// first time.
func (a *Agent) serve(ctx context.Context, ready func()) {
	known, seated, ended := make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Registry.Serve(ctx, a.me(), known, func(rival *croft.Agent) bool { return a.take(ctx, rival, seated) })
	}()
	defer func() { <-ended }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-seated:
		}
		a.resync(ctx)
		if a.announce(ctx) && !a.known.Swap(true) {
			ready()
			close(known)
		}
	}
}

func (a *Agent) me() croft.Agent {
	return croft.Agent{Host: a.Host.ID, Place: a.Host.Place, Name: a.Host.Name, API: a.Host.API}
}

// take notes who is the host's agent: this one, or a rival. It returns whether this
// one may be.
func (a *Agent) take(ctx context.Context, rival *croft.Agent, seated chan<- struct{}) bool {
	if rival != nil {
		a.refuse(fmt.Sprintf("another agent has this host's UUID and serves it, %s at %s; where this machine or its state directory is a copy, remove host-id from the copy",
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
	if !a.seat.Swap(true) || changed { // else only the lease was lost for a while
		select {
		case seated <- struct{}{}:
		default:
		}
	}
	a.refused = ""
	return true
}

// refuse keeps the agent from doing anything, and says why, once.
func (a *Agent) refuse(why string) {
	a.seat.Store(false)
	if a.refused != why {
		a.Log.Error("this agent does nothing", "host", a.Host.ID, "reason", why)
	}
	a.refused = why
}

// stranger says why this agent has no business to serve the host, or nothing, and
// whether the host's record is another agent's or gone.
//
// An agent of another place than the last one serves the host only where no guests
// are ordered, or one of them is here: else it would make guests anew that still run
// where they were.
func (a *Agent) stranger(ctx context.Context) (why string, changed bool, err error) {
	hosts, err := a.Registry.Hosts(ctx, a.Host.ID)
	if err != nil {
		return "", false, err
	}
	last, known := hosts[a.Host.ID]
	if known && last.Place == a.Host.Place {
		return "", false, nil
	}
	if known && last.Place != "" {
		why, err = a.strange(ctx)
	}
	return why, true, err
}

// strange says what tells this machine from the one that the host's guests are on.
func (a *Agent) strange(ctx context.Context) (string, error) {
	b, err := a.Records.HostBooks(ctx, a.Host.ID)
	if err != nil {
		return "", err
	}
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		return "", err
	}
	var elsewhere int
	for _, o := range b.Orders {
		if slices.ContainsFunc(domains, func(d Domain) bool { return d.ID == o.Instance }) {
			return "", nil
		}
		if o.Want != croft.WantGone {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		return "", nil
	}
	return fmt.Sprintf("the host's UUID was last served by another machine or state directory, and none of its %d guests is here; where this is a copy, remove host-id from its state directory; where the other is gone for good, run `croft host forget --force %s`",
		elsewhere, a.Host.ID), nil
}
