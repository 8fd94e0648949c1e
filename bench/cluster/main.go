// Command cluster measures a cloud of simulated hosts. It starts a control process (croft serve placement --data-dir:
// etcd and Placement) and, in separate processes, agents for the given number of hosts, whose guests exist only in
// memory. It requests instances at a given rate, follows each from the call until its agent reports it running, and
// prints how many ran per second, the delays, the usage of each process and the writes of etcd. It leaves only the plot
// named by -plot.
//
// With -via control the requests go to the API of the cloud, as tenants send them, and the control process is croft up
// without a hypervisor: etcd, Placement and the API in one. With -via both it measures both ways, one after the other.
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

	"croft"
)

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
