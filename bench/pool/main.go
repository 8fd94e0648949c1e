// Command pool compares croft's manager of pools with resalloc's server, with the same files and the same calls, in
// turns on one machine, and both with the minimum: two shells per ticket. Then it measures croft's with many tickets.
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

// plan configures the measurements.
type plan struct {
	clients  int
	duration time.Duration
	closed   int
	bin      string // directory with resalloc-server
	original string // checkout of resalloc; empty: only ours is measured
}

func main() {
	var p plan
	flag.IntVar(&p.clients, "clients", 20, "clients at once")
	flag.DurationVar(&p.duration, "duration", 10*time.Second, "how long each measurement takes")
	flag.IntVar(&p.closed, "closed", 0,
		"instead, serve and close so many tickets, and say after each tenth how the server does")
	flag.StringVar(&p.bin, "bin", "bin", "directory with our programs")
	flag.StringVar(&p.original, "resalloc", os.Getenv("RESALLOC"),
		"checkout of resalloc to measure beside (or $RESALLOC)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := p.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/pool:", err)
		os.Exit(1)
	}
}

// run measures everything and prints one line per result.
func (p plan) run(ctx context.Context) error {
	if p.closed > 0 {
		return p.wearOut(ctx)
	}
	rivals := []rival{{"ours", p.startOurs}}
	if p.original != "" {
		rivals = append(rivals, rival{"resalloc", p.startOriginal})
	}
	fmt.Printf("%-44s %-10s %10s %10s %10s %10s\n", "what", "server", "tickets/s", "ready p50", "p99", "longest")
	found, err := p.compare(ctx, rivals)
	if err != nil {
		return err
	}
	if err := p.crowded(ctx); err != nil {
		return err
	}
	rounds, err := p.rounds(ctx)
	if err != nil {
		return err
	}
	p.goals(found, rounds)
	return nil
}

// line measures and prints one line.
func (p plan) line(ctx context.Context, what, name string, w work) (outcome, error) {
	r := results{until: time.Now().Add(p.duration)}
	if err := w.run(ctx, r.until, &r); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return outcome{}, err
	}
	o := r.outcome(p.duration)
	fmt.Printf("%-44s %-10s %s\n", what, name, o.text)
	return o, ctx.Err()
}

// goals compares the results with the goals.
func (p plan) goals(found map[string]map[string]outcome, rounds []time.Duration) {
	fmt.Printf("\n%-66s %10s %10s\n", "what was wanted", "wanted", "found")
	for _, s := range p.scenarios() {
		ours, theirs := found[s.what]["ours"], found[s.what]["resalloc"]
		if floor := found[s.what]["the floor"]; floor.rate > 0 {
			fmt.Printf("%-66s %10s %9.0f%%\n", s.what+", tickets/s of the floor's", "", 100*ours.rate/floor.rate)
		}
		if s.times > 0 && theirs.rate > 0 {
			fmt.Printf("%-66s %9.0fx %9.0fx\n", s.what+", tickets/s of resalloc's", s.times, ours.rate/theirs.rate)
		}
		if s.ready > 0 {
			fmt.Printf("%-66s %10s %10s\n", s.what+", ready p50", "< "+s.ready.String(), short(ours.median))
		}
	}
	for _, took := range rounds {
		fmt.Printf("%-66s %10s %10s\n", "a round that gives 1000 resources to 10000 who wait", "< 50ms", short(took))
	}
}

// configure writes the files that both servers read.
func configure(dir, pools, address string) error {
	_, port, _ := strings.Cut(address, ":")
	if err := os.MkdirAll(filepath.Join(dir, "log", "hooks"), 0o755); err != nil {
		return err
	}
	server := fmt.Sprintf(
		"db_url: sqlite:///%s/db.sqlite\nlogdir: %s/log\nhostname: 127.0.0.1\nport: %s\nloglevel: error\n", dir, dir,
		port)
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "server.yaml"), []byte(server), 0o600),
		os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(pools), 0o600),
	)
}
