// Command placement compares croft's Placement with OpenStack's own: both run on this machine, hold the same resource
// providers and answer the same requests in turns, so other load on the machine affects both. It prints a table of
// requests per second, the ratio, the ratio wanted, and what limits croft's.
//
// It is a program rather than a Go benchmark because it compares processes, whose processor time and memory it reads,
// and because go test -bench cannot express a ratio of two servers measured in turns.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	croft  string
	sizes  []int
	large  int
	rounds int
	turn   time.Duration
	only   string
	alone  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench/placement: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "croft-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, out: os.Stdout}
	if b.sync, err = syncTime(dir); err != nil {
		return err
	}
	b.describe()
	for _, n := range o.sizes {
		if err := b.sideBySide(ctx, n); err != nil {
			return fmt.Errorf("with %d providers: %w", n, err)
		}
	}
	if o.large > 0 {
		if err := b.cost(ctx, 1000, o.large); err != nil {
			return fmt.Errorf("cost of %d providers: %w", o.large, err)
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench/placement", flag.ExitOnError)
	f.StringVar(&o.croft, "croft", "bin/croft", "the `program` to measure")
	sizes := f.String("sizes", "1000,10000", "numbers of providers to measure side by side; empty: none")
	f.IntVar(&o.large, "large", 100_000, "number of providers whose cost is measured; 0: none")
	f.IntVar(&o.rounds, "rounds", 3, "turns that each server has at each measurement")
	f.DurationVar(&o.turn, "turn", 3*time.Second, "length of a turn")
	f.StringVar(&o.only, "only", "", "measure only what has this `text` in its name")
	f.BoolVar(&o.alone, "alone", false, "measure croft without the original")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if _, err := os.Stat(o.croft); err != nil {
		return o, fmt.Errorf("there is no %s; run make build first, or name another with -croft", o.croft)
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-sizes: %q is not a number of providers", text)
		}
		o.sizes = append(o.sizes, n)
	}
	return o, nil
}
