// Command crush measures mappings of croft crush beside crushtool's: the same maps, built by crushtool, the same rule
// and inputs, one after the other in turn, by the processor time of the whole command. It first compares what both
// print.
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

// maps are those that crushtool builds: buckets of so many, level by level.
var maps = []struct {
	devices int
	levels  []string
}{
	{1000, []string{"host", "straw2", "10", "rack", "straw2", "10", "row", "straw2", "5", "root", "straw2", "0"}},
	{10000, []string{"host", "straw2", "10", "rack", "straw2", "20", "row", "straw2", "10", "root", "straw2", "0"}},
}

type benchmark struct {
	croft          string
	inputs, rounds int
	dir            string
}

func run(ctx context.Context, args []string, stdout, words io.Writer) (err error) {
	b := &benchmark{}
	f := flag.NewFlagSet("crush", flag.ContinueOnError)
	f.SetOutput(words)
	f.StringVar(&b.croft, "croft", "bin/croft", "the `program` to measure")
	f.IntVar(&b.inputs, "inputs", 300_000, "mappings in a run")
	f.IntVar(&b.rounds, "rounds", 5, "runs of each, in turn")
	if err := f.Parse(args); err != nil {
		return err
	}
	if b.inputs < 1 || b.rounds < 1 || f.NArg() > 0 {
		return croft.Errorf(croft.Invalid, "give 1 or more --inputs and --rounds, and no arguments")
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
	ours := []string{"crush", "test", text, "--rule", "0", "--replicas", "3", "--threads", "1", "--to"}
	const compared = 100_000
	last := strconv.Itoa(compared - 1)
	_, one, err := command(ctx, "crushtool", append(slices.Clone(theirs), last, "--show-mappings")...)
	if err != nil {
		return err
	}
	_, other, err := command(ctx, b.croft, append(slices.Clone(ours), last)...)
	if err != nil {
		return err
	}
	differ := differing(bytes.ReplaceAll(one, []byte("CRUSH rule 0 x "), nil), other)
	last = strconv.Itoa(b.inputs - 1)
	var their, our []time.Duration
	for range b.rounds {
		t, _, err := command(ctx, "crushtool", append(slices.Clone(theirs), last, "--show-bad-mappings")...)
		if err != nil {
			return err
		}
		o, _, err := command(ctx, b.croft, append(slices.Clone(ours), last, "--bad")...)
		if err != nil {
			return err
		}
		their, our = append(their, t), append(our, o)
	}
	slices.Sort(their)
	slices.Sort(our)
	t, o := their[len(their)/2], our[len(our)/2]
	fmt.Fprintf(stdout, "%6d devices   crushtool %7.0f, croft %7.0f mappings a second of a processor: %.2f times; "+
		"%d of %d mappings differ\n", devices, float64(b.inputs)/t.Seconds(), float64(b.inputs)/o.Seconds(),
		t.Seconds()/o.Seconds(), differ, compared)
	return nil
}

// command runs a command and returns its processor time and output. What it says is dropped: crushtool loses lines
// where both go to one pipe.
func command(ctx context.Context, name string, args ...string) (time.Duration, []byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", cmd, err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), out, nil
}

// differing counts the lines that differ; those that one has beyond the other do.
func differing(a, b []byte) (n int) {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || !bytes.Equal(x[i], y[i]) {
			n++
		}
	}
	return n
}
