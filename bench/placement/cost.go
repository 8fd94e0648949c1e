package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"croft/etcdstore/etcdserver"
)

// Limits that the results must meet: maxSlowdown for the search, maxBytes for the memory.
const (
	maxSlowdown = 3.0
	maxBytes    = 2000
)

// cost measures the cost of many providers: the slowdown of candidate searches with a limit, and the memory of a
// server. etcd runs in this process, so that the server's memory is only its own state.
func (b *bench) cost(ctx context.Context, few, many int) error {
	small, err := startCroft(ctx, b.croft, filepath.Join(b.dir, "few"))
	if err != nil {
		return err
	}
	defer small.stop()
	if err := registerAll(ctx, small.client(), few); err != nil {
		return err
	}
	etcd, err := etcdserver.Start(ctx, etcdserver.Config{Dir: filepath.Join(b.dir, "many"),
		Listen: "127.0.0.1:0", Unsynced: true})
	if err != nil {
		return err
	}
	defer etcd.Close()
	large, err := startServer(ctx, b.croft, "--etcd", etcd.Endpoint())
	if err != nil {
		return err
	}
	empty, err := settled(ctx, large.process)
	if err != nil {
		return err
	}
	err = registerAll(ctx, large.client(), many)
	loaded, residentErr := settled(ctx, large.process)
	large.stop()
	if err != nil {
		return fmt.Errorf("register %d hosts: %w", many, err)
	}
	if residentErr != nil {
		return residentErr
	}
	// A second server loads them all, as after a restart.
	begin := time.Now()
	again, err := startServer(ctx, b.croft, "--etcd", etcd.Endpoint())
	if err != nil {
		return err
	}
	defer again.stop()
	started := time.Since(begin)
	restarted, err := settled(ctx, again.process)
	if err != nil {
		return err
	}
	b.printf("\n%d providers\n", many)
	b.printf("memory a provider: %d bytes, %d after a restart, which took %.1f s (at most %d wanted; the server has %d MB without any)\n",
		(loaded-empty)/int64(many), (restarted-empty)/int64(many), started.Seconds(), maxBytes, empty>>20)
	return b.slowdown(ctx, target{small.client(), small.cpu}, target{again.client(), again.cpu}, few, many)
}

// slowdown measures servers with few and with many providers in turns.
func (b *bench) slowdown(ctx context.Context, small, large target, few, many int) error {
	m := &measurements[0]
	var ratios, times []float64
	var results []result
	for range b.rounds {
		a, err := m.turn(ctx, small, few, b.turn)
		if err != nil {
			return err
		}
		z, err := m.turn(ctx, large, many, b.turn)
		if err != nil {
			return err
		}
		ratios, times, results = append(ratios, a.rate()/z.rate()), append(times, z.rate()), append(results, z)
	}
	b.printf("%s: %.0f/s, %.2f times as long as with %d (at most %g wanted); %s\n",
		m.name, median(times), median(ratios), few, maxSlowdown, b.bound(m, results))
	return nil
}

// settled returns the memory of a process once it is stable: unused memory returns to the kernel step by step.
func settled(ctx context.Context, p *process) (int64, error) {
	last, err := p.resident()
	for n := 0; err == nil && n < 60; n++ {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.ended:
			return 0, fmt.Errorf("%s ended:\n%s", p.name, p.log)
		case <-time.After(5 * time.Second):
		}
		now, e := p.resident()
		if e == nil && now > last-last/100 && n >= 3 {
			return now, nil
		}
		last, err = now, e
	}
	runtime.KeepAlive(p)
	return last, err
}
