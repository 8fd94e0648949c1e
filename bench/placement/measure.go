package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// A measurement is one kind of request, sent by a number of clients, each of which sends the next request after the
// answer to the last.
type measurement struct {
	name    string
	clients int
	commits int // sequential commits per request
	// target is the wanted ratio of our rate to the original's, by number of providers; 0: no target.
	target func(providers int) float64
	send   func(ctx context.Context, c *client, providers int) error
}

func always(x float64) func(int) float64 { return func(int) float64 { return x } }

var measurements = []measurement{
	{"candidates, limit=10", 4, 0, func(n int) float64 {
		if n >= 10_000 {
			return 1000
		}
		return 100
	}, func(ctx context.Context, c *client, _ int) error {
		return c.expect(ctx, http.MethodGet, "/allocation_candidates?"+wanted+"&limit=10", nil, 200)
	}},
	{"candidates, all", 4, 0, always(20), func(ctx context.Context, c *client, _ int) error {
		return c.expect(ctx, http.MethodGet, "/allocation_candidates?"+wanted, nil, 200)
	}},
	{"claims, 1 client", 1, 1, always(20), claim},
	{"claims, 64 clients", 64, 1, always(50), claim},
	{"hosts registered, 1 client", 1, 3, always(20), registerNew},
	{"hosts registered, 64 clients", 64, 3, always(0), registerNew},
	{"hosts as agents do, 1 client", 1, 1, always(20), func(ctx context.Context, c *client, _ int) error {
		return registerAsAgent(ctx, c, uuid.NewString())
	}},
}

func claim(ctx context.Context, c *client, providers int) error {
	host := hostUUID(1 + rand.IntN(providers))
	return c.expect(ctx, http.MethodPut, "/allocations/"+uuid.NewString(), map[string]any{
		"allocations": map[string]any{host: map[string]any{"resources": map[string]int{"VCPU": 1, "MEMORY_MB": 256,
			"DISK_GB": 1}}},
		"project_id": "bench", "user_id": "bench", "consumer_generation": nil, "consumer_type": "INSTANCE",
	}, 204)
}

func registerNew(ctx context.Context, c *client, _ int) error {
	return register(ctx, c, uuid.NewString())
}

// result is the result of one turn.
type result struct {
	done    int64
	refused int64 // 409: to be retried, so not done
	took    time.Duration
	server  time.Duration // processor time
	load    time.Duration // of this process
	idle    time.Duration // of all cores
}

func (r result) rate() float64 { return float64(r.done) / r.took.Seconds() }

// target is a server under measurement.
type target struct {
	client *client
	cpu    func() time.Duration
}

// turn runs the clients for the given time. In-flight requests are waited for at the end.
func (m *measurement) turn(ctx context.Context, t target, providers int, length time.Duration) (result, error) {
	var r result
	var done, refused atomic.Int64
	start, server, load, idle := time.Now(), t.cpu(), ownCPU(), idleCPU()
	work, ctx := errgroup.WithContext(ctx)
	for range m.clients {
		work.Go(func() error {
			for time.Since(start) < length {
				switch err := m.send(ctx, t.client, providers); {
				case err == nil:
					done.Add(1)
				case isConflict(err):
					refused.Add(1)
				default:
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return r, fmt.Errorf("%s: %w", m.name, err)
	}
	r = result{done.Load(), refused.Load(), time.Since(start), t.cpu() - server, ownCPU() - load, idleCPU() - idle}
	if r.done == 0 {
		return r, fmt.Errorf("%s: nothing was answered in %v", m.name, r.took)
	}
	return r, nil
}

func isConflict(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.status == http.StatusConflict
}

// ownCPU returns the processor time used by this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
