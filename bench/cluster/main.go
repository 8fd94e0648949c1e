// Command cluster measures a cloud of simulated hosts. It starts a control process (croft placement --data-dir: etcd
// and Placement) and, in separate processes, agents for the given number of hosts, whose guests exist only in memory.
// It requests instances at a given rate, follows each from the call until its agent reports it running, and prints how
// many ran per second, the delays, the usage of each process and the writes of etcd. It leaves only the plot named by
// -plot.
//
// Delays are measured from the time a request was due, not from when it was sent, so a cloud that falls behind is
// noticed.
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

// benchmark is the configuration of a run.
type benchmark struct {
	hosts, processes, shared, atOnce int
	rate                             float64
	length, resync                   time.Duration
	croft, plot, output              string
}

// runAgents is the first argument with which the benchmark starts itself to run agents.
const runAgents = "agents"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench/cluster:", err)
		os.Exit(croft.ExitCode(err))
	}
}

// run is main without the process's globals.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == runAgents {
		var a agents
		if err := parse(a.flags(), args[1:], stderr); err != nil {
			return err
		}
		return a.run(ctx, stderr)
	}
	var b benchmark
	if err := parse(b.flags(), args, stderr); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	return b.run(ctx, stdout, stderr)
}

func parse(f *flag.FlagSet, args []string, stderr io.Writer) error {
	f.SetOutput(io.Discard) // errors are printed once, by main
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stderr)
		f.PrintDefaults()
		return err
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "%w", err)
	}
	if f.NArg() > 0 {
		return croft.Errorf(croft.Invalid, "%q is not a flag", f.Arg(0))
	}
	return nil
}

func (b *benchmark) flags() *flag.FlagSet {
	f := flag.NewFlagSet("cluster", flag.ContinueOnError)
	f.IntVar(&b.hosts, "hosts", 1000, "how many hosts, each with 64 VCPUs, 256 GiB of memory and 4 TiB of disk")
	f.IntVar(&b.processes, "processes", 2, "processes that the agents are spread over")
	f.IntVar(&b.shared, "agents-per-connection", 100,
		"agents that share a connection to etcd; 1 is as on real hosts, and takes the control process more memory")
	f.Float64Var(&b.rate, "rate", 200, "requests a second; 0: the next whenever one of -at-once is answered")
	f.IntVar(&b.atOnce, "at-once", 64, "requests in flight at most")
	f.DurationVar(&b.length, "for", 30*time.Second, "how long to make requests")
	f.DurationVar(&b.resync, "resync", 30*time.Second,
		"how often agents compare all that they have, as the setting resync")
	f.StringVar(&b.croft, "croft", "bin/croft", "the `program` to measure")
	f.StringVar(&b.plot, "plot", "croft-bench.svg", "`file` to draw the course into; empty: none")
	f.StringVar(&b.output, "output", outputText, "print text or json (`format`)")
	f.StringVar(&b.output, "o", outputText, "short for -output")
	return f
}

func (b *benchmark) check() error {
	switch {
	case b.hosts < 1 || b.hosts > 100_000:
		return croft.Errorf(croft.Invalid, "--hosts %d: give 1 to 100000", b.hosts)
	case b.processes < 1 || b.processes > b.hosts:
		return croft.Errorf(croft.Invalid, "--processes %d: give 1 or more, and no more than hosts", b.processes)
	case b.shared < 1:
		return croft.Errorf(croft.Invalid, "--agents-per-connection %d: give 1 or more", b.shared)
	case b.rate < 0 || b.rate > 1e6:
		return croft.Errorf(croft.Invalid, "--rate %g: give 0 to 1000000 requests a second", b.rate)
	case b.atOnce < 1:
		return croft.Errorf(croft.Invalid, "--at-once %d: give 1 or more", b.atOnce)
	case b.length <= 0:
		return croft.Errorf(croft.Invalid, "--for %v: give a time such as 30s", b.length)
	case b.resync <= 0:
		return croft.Errorf(croft.Invalid, "--resync %v: give a time such as 30s", b.resync)
	case b.output != outputText && b.output != outputJSON:
		return croft.Errorf(croft.Invalid, "--output %q: give text or json", b.output)
	}
	return nil
}
