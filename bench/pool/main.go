// Command pool measures our manager of pools beside resalloc's server, with the same
// files and the same calls, in turns on one machine; and both beside the floor, which
// is two shells a ticket and nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// plan is what is measured.
type plan struct {
	clients  int
	duration time.Duration
	bin      string // directory with resalloc-server
	original string // checkout of resalloc; empty: ours alone
}

func main() {
	var p plan
	flag.IntVar(&p.clients, "clients", 20, "clients at once")
	flag.DurationVar(&p.duration, "duration", 10*time.Second, "how long each measurement takes")
	flag.StringVar(&p.bin, "bin", "bin", "directory with our programs")
	flag.StringVar(&p.original, "resalloc", os.Getenv("RESALLOC"), "checkout of resalloc to measure beside (or $RESALLOC)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/pool:", err)
		os.Exit(1)
	}
}

// run measures everything and prints a line for each result.
func (p plan) run(ctx context.Context) error {
	fmt.Printf("%-44s %-22s %10s %10s %10s %10s\n", "what", "server", "tickets/s", "ready p50", "p99", "longest")
	if err := p.floor(ctx); err != nil {
		return err
	}
	rivals := []rival{{"ours", p.startOurs}}
	if p.original != "" {
		rivals = append(rivals, rival{"resalloc", p.startOriginal})
	}
	for _, r := range rivals {
		if err := p.compare(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return p.crowded(ctx)
}

// pools are trivial: what is measured is the manager.
const (
	poolThrownAway = `bench: {cmd_new: "echo ok", cmd_delete: "true", max: 40, max_starting: 20, max_prealloc: 20, tags: [bench]}` + "\n"
	poolReused     = `bench: {cmd_new: "echo ok", cmd_delete: "true", max: 40, max_starting: 20, max_prealloc: 20, tags: [bench], reuse_opportunity_time: 600, reuse_max_time: 0}` + "\n"
)

// compare measures one server.
func (p plan) compare(ctx context.Context, r rival) error {
	err := r.with(ctx, poolThrownAway, func(s server) error {
		if err := s.settle(ctx); err != nil {
			return err
		}
		if err := p.line(ctx, "one client, preallocated, server idle", r.name, idle{s}); err != nil {
			return err
		}
		return p.line(ctx, fmt.Sprintf("%d clients, thrown away", p.clients), r.name, busy{s, p.clients, ""})
	})
	if err != nil {
		return err
	}
	return r.with(ctx, poolReused, func(s server) error {
		if err := s.settle(ctx); err != nil {
			return err
		}
		return p.line(ctx, fmt.Sprintf("%d clients, reused in their sandboxes", p.clients), r.name, busy{s, p.clients, "box"})
	})
}

// work is a kind of load.
type work interface {
	run(ctx context.Context, until time.Time, r *results) error
}

// line measures and prints one line.
func (p plan) line(ctx context.Context, what, name string, w work) error {
	var r results
	begun := time.Now()
	err := w.run(ctx, begun.Add(p.duration), &r)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	fmt.Printf("%-44s %-22s %s\n", what, name, r.text(time.Since(begun)))
	return ctx.Err()
}

// crowded measures ours with ten thousand tickets that wait and a thousand resources.
func (p plan) crowded(ctx context.Context) error {
	const many = 10_000
	stock := `stock: {cmd_new: "echo ok", cmd_delete: "true", max: 1000, max_starting: 100, max_prealloc: 1000, tags: [stock]}` + "\n" +
		`never: {cmd_new: "false", cmd_delete: "true", max: 1, tags: [rare]}` + "\n"
	return rival{"ours", p.startOurs}.with(ctx, stock+poolThrownAway, func(s server) error {
		if err := s.settle(ctx); err != nil {
			return err
		}
		begun := time.Now()
		if err := s.openMany(ctx, many, p.clients, "rare"); err != nil {
			return err
		}
		fmt.Printf("%-44s %-22s %10.0f\n", fmt.Sprintf("opening %d tickets that wait", many), "ours", many/time.Since(begun).Seconds())
		if err := p.line(ctx, "one client, beside 10000 waiting and 1000 up", "ours", idle{s}); err != nil {
			return err
		}
		return p.line(ctx, fmt.Sprintf("%d clients, beside the same", p.clients), "ours", busy{s, p.clients, ""})
	})
}

// configure writes what both servers read.
func configure(dir, pools, address string) error {
	_, port, _ := strings.Cut(address, ":")
	if err := os.MkdirAll(filepath.Join(dir, "log", "hooks"), 0o755); err != nil {
		return err
	}
	server := fmt.Sprintf("db_url: sqlite:///%s/db.sqlite\nlogdir: %s/log\nhostname: 127.0.0.1\nport: %s\nloglevel: error\n", dir, dir, port)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "server.yaml"), []byte(server), 0o600),
		os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(pools), 0o600),
	)
}
