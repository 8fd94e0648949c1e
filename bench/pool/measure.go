package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// results are how long tickets took to have their resources.
type results struct {
	mu     sync.Mutex
	ready  []time.Duration
	failed int
}

func (r *results) add(d time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed++
		return
	}
	r.ready = append(r.ready, d)
}

// text is the result's part of a line.
func (r *results) text(took time.Duration) string {
	if len(r.ready) == 0 {
		return fmt.Sprintf("nothing was served, %d failed", r.failed)
	}
	slices.Sort(r.ready)
	n := len(r.ready)
	text := fmt.Sprintf("%10.1f %10s %10s %10s", float64(n)/took.Seconds(), short(r.ready[n/2]), short(r.ready[n*99/100]), short(r.ready[n-1]))
	if r.failed > 0 {
		text += fmt.Sprintf("  (%d failed)", r.failed)
	}
	return text
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// idle is one client that leaves the server time to make up its stock.
type idle struct{ server }

// pauseBetween is how long it leaves.
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

// busy is many clients that do not pause, each in a sandbox of its own where there is a
// name for them.
type busy struct {
	server

	clients int
	sandbox string
}

func (w busy) run(ctx context.Context, until time.Time, r *results) error {
	var work sync.WaitGroup
	ctx, cancel := context.WithDeadline(ctx, until.Add(2*time.Minute)) // a wait may take long
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

// shells is what two commands a ticket cost by themselves.
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

func (p plan) floor(ctx context.Context) error {
	return p.line(ctx, fmt.Sprintf("%d at once, two shells a ticket, no server", p.clients), "the floor", shells{p.clients})
}
