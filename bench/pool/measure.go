package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// results are the times that tickets took to get their resources.
type results struct {
	until time.Time // tickets closed by then are included in the rate

	mu             sync.Mutex
	ready          []time.Duration
	inTime, failed int
}

func (r *results) add(d time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed++
		return
	}
	r.ready = append(r.ready, d)
	if !time.Now().After(r.until) {
		r.inTime++
	}
}

// outcome is the result of a measurement.
type outcome struct {
	rate        float64 // tickets per second
	median, p99 time.Duration
	text        string
}

func (r *results) outcome(took time.Duration) (o outcome) {
	if len(r.ready) == 0 {
		o.text = fmt.Sprintf("nothing was served, %d failed", r.failed)
		return o
	}
	slices.Sort(r.ready)
	n := len(r.ready)
	o.rate, o.median, o.p99 = float64(r.inTime)/took.Seconds(), r.ready[n/2], r.ready[n*99/100]
	o.text = fmt.Sprintf("%10.1f %10s %10s %10s", o.rate, short(o.median), short(o.p99), short(r.ready[n-1]))
	if r.failed > 0 {
		o.text += fmt.Sprintf("  (%d failed)", r.failed)
	}
	return o
}

// work is a kind of load.
type work interface {
	run(ctx context.Context, until time.Time, r *results) error
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// idle is one client that gives the server time to refill its stock.
type idle struct{ server }

// pauseBetween is the pause between tickets.
const pauseBetween = 200 * time.Millisecond

func (w idle) run(ctx context.Context, until time.Time, r *results) error {
	for time.Now().Before(until) && ctx.Err() == nil {
		r.add(w.ticket(ctx, ""))
		select {
		case <-ctx.Done():
		case <-time.After(pauseBetween):
		}
	}
	return ctx.Err()
}

// busy is many clients that do not pause, each in its own sandbox if sandbox is set.
type busy struct {
	server

	clients int
	sandbox string
}

func (w busy) run(ctx context.Context, until time.Time, r *results) error {
	var work sync.WaitGroup
	ctx, cancel := context.WithDeadline(ctx, until.Add(2*time.Minute)) // a ticket may wait long
	defer cancel()
	for i := range w.clients {
		sandbox := w.sandbox
		if sandbox != "" {
			sandbox = fmt.Sprintf("%s-%d", sandbox, i)
		}
		work.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				r.add(w.ticket(ctx, sandbox))
			}
		})
	}
	work.Wait()
	return ctx.Err()
}

// shells measures the cost of the two commands per ticket alone.
type shells struct{ clients int }

func (w shells) run(ctx context.Context, until time.Time, r *results) error {
	var work sync.WaitGroup
	for range w.clients {
		work.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				begun := time.Now()
				_, err := exec.CommandContext(ctx, "/bin/sh", "-c", "echo ok").Output()
				ready := time.Since(begun)
				if err == nil {
					err = exec.CommandContext(ctx, "/bin/sh", "-c", "true").Run()
				}
				r.add(ready, err)
			}
		})
	}
	work.Wait()
	return ctx.Err()
}

// batch is a fixed number of tickets by many clients, each client in its own sandbox; the first failure ends it.
type batch struct {
	server

	clients, tickets int
}

func (w batch) run(ctx context.Context, r *results) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range w.clients {
		group.Go(func() error {
			for n := i; n < w.tickets; n += w.clients {
				took, err := w.ticket(ctx, fmt.Sprintf("box-%d", i))
				if err != nil {
					return err
				}
				r.add(took, nil)
			}
			return nil
		})
	}
	return group.Wait()
}
