package main

import (
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what croft can do on this machine",
		RunE: func(cmd *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid, "%s wants to be told what to measure: cluster", cmd.CommandPath())
		},
	}
	cmd.AddCommand(benchClusterCommand(), benchAgentsCommand())
	return cmd
}

// benchmark is what `croft bench cluster` is asked to do.
type benchmark struct {
	hosts, processes, shared, atOnce int
	rate                             float64
	length, resync                   time.Duration
	plot, format                     string
}

func benchClusterCommand() *cobra.Command {
	var b benchmark
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Ask a cloud of simulated hosts for instances, and measure how it gets on",
		Long: `bench cluster starts a control process (etcd and Placement, as croft placement
--data-dir does) and the agents of as many hosts as asked for, whose guests exist in
memory only, in processes of their own. Then it asks for instances at a rate, follows
each from the call until its agent says that it runs, and prints how many ran per second,
how long that took, what each process used and what etcd had to do. The course is drawn
into the file that --plot names. All of it is gone when it ends.

Delays count from when a request was due and not from when it could be made, so that
a cloud that falls behind is seen to. --rate 0 makes the next request whenever one of
--at-once is answered.`,
		Example: `  croft bench cluster --hosts 1000 --rate 200
  croft bench cluster --hosts 5000 --rate 0 --for 1m -o json`,
		Args: args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return b.run(cmd)
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.hosts, "hosts", 1000, "how many hosts, each with 64 VCPUs, 256 GiB of memory and 4 TiB of disk")
	f.IntVar(&b.processes, "processes", 2, "processes that the agents are spread over")
	f.IntVar(&b.shared, "agents-per-connection", 100, "agents that share a connection to etcd; 1 is as on real hosts, and takes the control process more memory")
	f.Float64Var(&b.rate, "rate", 200, "requests a second; 0: as many as are answered")
	f.IntVar(&b.atOnce, "at-once", 64, "requests under way at most")
	f.DurationVar(&b.length, "for", 30*time.Second, "how long to make requests")
	f.DurationVar(&b.resync, "resync", 30*time.Second, "how often agents compare all that they have, as the setting resync")
	f.StringVar(&b.plot, "plot", "croft-bench.svg", "`file` to draw into; empty for none")
	f.StringVarP(&b.format, "output", "o", out.FormatText, "print text, json or yaml")
	return cmd
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
	case b.format != out.FormatText && b.format != out.FormatJSON && b.format != out.FormatYAML:
		return croft.Errorf(croft.Invalid, "--output %q is none of text, json, yaml", b.format)
	}
	return nil
}
