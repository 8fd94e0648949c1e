// Command crush compares mappings of croft crush and crushtool: the same maps, built by crushtool, with the same rule
// and inputs, in turn: crushtool, croft with one thread, croft with several. With one thread it reports the processor
// time of the whole command, which other load of the machine changes little; with several it reports the elapsed time,
// which other load changes much. First it compares the outputs of both.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"croft"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "crush:", err)
		os.Exit(1)
	}
}

// maps are built by crushtool: the numbers of buckets, level by level.
var maps = []struct {
	devices int
	levels  []string
}{
	{1000, []string{"host", "straw2", "10", "rack", "straw2", "10", "row", "straw2", "5", "root", "straw2", "0"}},
	{10000, []string{"host", "straw2", "10", "rack", "straw2", "20", "row", "straw2", "10", "root", "straw2", "0"}},
}

type benchmark struct {
	croft                   string
	inputs, rounds, threads int
	dir                     string
}

func run(ctx context.Context, args []string, stdout, words io.Writer) (err error) {
	b := &benchmark{}
	f := flag.NewFlagSet("crush", flag.ContinueOnError)
	f.SetOutput(words)
	f.StringVar(&b.croft, "croft", "bin/croft", "the `program` to measure")
	f.IntVar(&b.inputs, "inputs", 300_000, "mappings in a run")
	f.IntVar(&b.rounds, "rounds", 5, "runs of each, in turn")
	f.IntVar(&b.threads, "threads", 2, "`threads` of croft that are measured by the clock")
	if err := f.Parse(args); err != nil {
		return err
	}
	if b.inputs < 1 || b.rounds < 1 || b.threads < 1 || f.NArg() > 0 {
		return croft.Errorf(croft.Invalid, "give 1 or more --inputs, --rounds and --threads, and no arguments")
	}
	if b.dir, err = os.MkdirTemp("", "croft-bench-"); err != nil {
		return fmt.Errorf("make a directory for the maps: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, m := range maps {
		if err := b.measure(ctx, stdout, m.devices, m.levels); err != nil {
			return fmt.Errorf("%d devices: %w", m.devices, err)
		}
	}
	return nil
}

func (b *benchmark) measure(ctx context.Context, stdout io.Writer, devices int, levels []string) error {
	coded, text := filepath.Join(b.dir, "map.bin"), filepath.Join(b.dir, "map.txt")
	build := append([]string{"-o", coded, "--build", "--num_osds", strconv.Itoa(devices)}, levels...)
	if _, _, err := command(ctx, "crushtool", build...); err != nil {
		return err
	}
	if _, _, err := command(ctx, "crushtool", "-d", coded, "-o", text); err != nil {
		return err
	}
	theirs := []string{"-i", coded, "--test", "--rule", "0", "--num-rep", "3", "--min-x", "0", "--max-x"}
	ours := []string{"crush", "test", text, "--rule", "0", "--replicas", "3", "--to"}
	differ, err := b.compare(ctx, theirs, ours)
	if err != nil {
		return err
	}
	last := strconv.Itoa(b.inputs - 1)
	theirs = append(theirs, last, "--show-bad-mappings")
	ours = append(ours, last, "--bad", "--threads")
	var their, one, several []took
	for range b.rounds {
		for _, c := range []struct {
			name string
			args []string
			to   *[]took
		}{
			{"crushtool", theirs, &their},
			{b.croft, append(slices.Clone(ours), "1"), &one},
			{b.croft, append(slices.Clone(ours), strconv.Itoa(b.threads)), &several},
		} {
			t, _, err := command(ctx, c.name, c.args...)
			if err != nil {
				return err
			}
			*c.to = append(*c.to, t)
		}
	}
	b.report(stdout, devices, their, one, several)
	fmt.Fprintf(stdout, "                 %d of %d mappings differ\n", differ, compared)
	return nil
}

// compared is the number of mappings of both that are compared.
const compared = 100_000

// compare returns the number of lines that differ.
func (b *benchmark) compare(ctx context.Context, theirs, ours []string) (differ int, err error) {
	last := strconv.Itoa(compared - 1)
	_, one, err := command(ctx, "crushtool", append(slices.Clone(theirs), last, "--show-mappings")...)
	if err != nil {
		return 0, err
	}
	_, other, err := command(ctx, b.croft, append(slices.Clone(ours), last)...)
	if err != nil {
		return 0, err
	}
	return differing(bytes.ReplaceAll(one, []byte("CRUSH rule 0 x "), nil), other), nil
}

// report prints the median times of a map's rounds.
func (b *benchmark) report(stdout io.Writer, devices int, their, one, several []took) {
	speed := func(t time.Duration) float64 { return float64(b.inputs) / t.Seconds() }
	t, o := median(their, took.processor), median(one, took.processor)
	fmt.Fprintf(stdout, "%6d devices   1 thread, a second of a processor: crushtool %7.0f, croft %7.0f mappings: %.2f times\n",
		devices, speed(t), speed(o), t.Seconds()/o.Seconds())
	c, s := median(their, took.clock), median(several, took.clock)
	fmt.Fprintf(stdout, "                 %d threads, a second of the clock: crushtool %7.0f, croft %7.0f mappings: %.2f times; "+
		"crushtool had a processor %.0f %% of the time, croft %.1f processors\n", b.threads, speed(c), speed(s),
		c.Seconds()/s.Seconds(), 100*t.Seconds()/c.Seconds(), median(several, took.processor).Seconds()/s.Seconds())
}

// took is the duration of a command.
type took struct{ user, system, wall time.Duration }

func (t took) processor() time.Duration { return t.user + t.system }
func (t took) clock() time.Duration     { return t.wall }

// median returns the median of one of the times.
func median(all []took, of func(took) time.Duration) time.Duration {
	times := make([]time.Duration, len(all))
	for i, t := range all {
		times[i] = of(t)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// command runs a command and returns its duration and its stdout. It drops stderr: crushtool loses lines if both go to
// one pipe.
func command(ctx context.Context, name string, args ...string) (took, []byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	start := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return took{}, nil, fmt.Errorf("run %s: %w", cmd, err)
	}
	return took{cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime(), time.Since(start)}, out, nil
}

// differing counts the lines that differ, including lines that only one of the texts has.
func differing(a, b []byte) (n int) {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || !bytes.Equal(x[i], y[i]) {
			n++
		}
	}
	return n
}
