package main

import (
	"context"
	"fmt"
	"time"
)

// pools are trivial, so that only the manager is measured.
const (
	poolThrownAway = `bench: {cmd_new: "echo ok", cmd_delete: "true", max: 40, max_starting: 20, max_prealloc: 20, tags: [bench]}` + "\n"
	poolReused     = `bench: {cmd_new: "echo ok", cmd_delete: "true", max: 40, max_starting: 20, max_prealloc: 20, tags: [bench], reuse_opportunity_time: 600, reuse_max_time: 0}` + "\n"
)

// scenario is one measurement of both servers, and the goal for ours.
type scenario struct {
	what  string
	pools string
	load  func(server) work
	floor bool // the floor is measured too

	times float64       // tickets, as a multiple of resalloc's
	ready time.Duration // maximum of the median
}

func (p plan) scenarios() []scenario {
	return []scenario{
		{what: "one client, preallocated, server idle", pools: poolThrownAway, ready: 20 * time.Millisecond,
			load: func(s server) work { return idle{s} }},
		{what: fmt.Sprintf("%d clients, thrown away", p.clients), pools: poolThrownAway, floor: true, times: 20,
			load: func(s server) work { return busy{s, p.clients, ""} }},
		{what: fmt.Sprintf("%d clients, reused in their sandboxes", p.clients), pools: poolReused, times: 50,
			load: func(s server) work { return busy{s, p.clients, "box"} }},
	}
}

// compare measures all servers in one scenario before the next, so that they find the machine in the same state. It
// returns the results by scenario and server.
func (p plan) compare(ctx context.Context, rivals []rival) (map[string]map[string]outcome, error) {
	all := map[string]map[string]outcome{}
	for _, s := range p.scenarios() {
		found := map[string]outcome{}
		all[s.what] = found
		if s.floor {
			var err error
			if found["the floor"], err = p.line(ctx, "two shells a ticket, no server", "the floor",
				shells{p.clients}); err != nil {
				return nil, err
			}
		}
		for _, r := range rivals {
			err := r.with(ctx, s.pools, func(on server) (err error) {
				if err := on.settle(ctx); err != nil {
					return err
				}
				found[r.name], err = p.line(ctx, s.what, r.name, s.load(on))
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return all, nil
}
