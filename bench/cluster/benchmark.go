package main

import (
	"flag"
	"os"
	"slices"
	"time"

	"croft"
)

// Ways to request instances.
const (
	viaDirect  = "direct"
	viaControl = "control"
	viaBoth    = "both"
)

// ways returns the ways to measure.
func (b *benchmark) ways() []string {
	if b.via == viaBoth {
		return []string{viaDirect, viaControl}
	}
	return []string{b.via}
}

// benchmark is the configuration of a run.
type benchmark struct {
	hosts, processes, shared, atOnce int
	rate                             float64
	length, resync                   time.Duration
	croft, via, plot, output, guests string
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
	f.StringVar(&b.via, "via", viaDirect, "ask direct (etcd and Placement), control (the API of the cloud, over HTTP "+
		"with tokens; the control process is croft up then), or both, one after the other (`way`)")
	f.StringVar(&b.guests, "guests-dir", inMemory(), "`directory` for the files of the guests, which on real hosts have "+
		"disks of their own; empty: the temporary one")
	f.StringVar(&b.plot, "plot", "croft-bench.svg", "`file` to draw the course into; empty: none")
	f.StringVar(&b.output, "output", outputText, "print text or json (`format`)")
	f.StringVar(&b.output, "o", outputText, "short for -output")
	return f
}

// inMemory returns a directory in memory; empty: the machine has none. On this machine's one file system, three files
// per guest would cost more than all of croft.
func inMemory() string {
	const dir = "/dev/shm"
	if at, err := os.Stat(dir); err != nil || !at.IsDir() {
		return ""
	}
	return dir
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
	case !slices.Contains([]string{viaDirect, viaControl, viaBoth}, b.via):
		return croft.Errorf(croft.Invalid, "--via %q: give direct, control or both", b.via)
	case b.output != outputText && b.output != outputJSON:
		return croft.Errorf(croft.Invalid, "--output %q: give text or json", b.output)
	}
	return nil
}
