// Command page measures the page of the cloud over a large cloud. It starts etcd with Placement, and a server of the
// API, as separate processes, stores hosts and instances that no agent serves, and prints how long the views take, how
// late a change of an instance reaches an open page, and how much memory the server has more than before the first
// page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"croft"
)

// settings are what the flags say.
type settings struct {
	program   string
	hosts     int
	instances int
	projects  int
	pages     int
	changes   int
	rounds    int
	pause     time.Duration
	keep      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench/page:", err)
		os.Exit(croft.ExitCode(err))
	}
}

func run(ctx context.Context, args []string, stdout, words io.Writer) (err error) {
	var s settings
	f := flag.NewFlagSet("page", flag.ContinueOnError)
	f.SetOutput(words)
	f.StringVar(&s.program, "croft", "bin/croft", "the program to measure")
	f.IntVar(&s.hosts, "hosts", 5000, "how many hosts, in racks of 10")
	f.IntVar(&s.instances, "instances", 20_000, "how many instances, spread over the hosts")
	f.IntVar(&s.projects, "projects", 16, "how many projects have the instances")
	f.IntVar(&s.pages, "pages", 200, "how many pages are open while an instance changes")
	f.IntVar(&s.changes, "changes", 50, "how often it changes")
	f.IntVar(&s.rounds, "rounds", 7, "how often each view is opened")
	f.DurationVar(&s.pause, "pause", time.Second,
		"between two pages, as people make it; a busy server uses more memory")
	f.BoolVar(&s.keep, "keep", false, "wait for an interrupt at the end, so that the page can be looked at")
	if err := f.Parse(args); err != nil {
		return err
	}
	if min(s.hosts, s.instances, s.projects, s.pages, s.changes, s.rounds) < 1 || f.NArg() > 0 {
		return croft.Errorf(croft.Invalid, "give numbers of at least 1, and no arguments")
	}
	w, err := newWorld(ctx, s, words)
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	return w.measure(ctx, stdout)
}
