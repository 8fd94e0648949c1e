// Command movement compares CRUSH policies with spread when a host is lost and when one is added: how many instances
// move, and how evenly hosts are filled. Everything is in memory: the policies work as in the cloud, hosts have a fixed
// capacity of instances, and no guests are built.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"croft"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "movement:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, words io.Writer) error {
	f := flag.NewFlagSet("movement", flag.ContinueOnError)
	f.SetOutput(words)
	hosts := f.String("hosts", "20,200", "numbers of hosts, in racks of 10")
	instances := f.String("instances", "1000,10000", "numbers of instances")
	room := f.Float64("room", 1.5, "room of the hosts, as a multiple of what the instances take")
	seed := f.Uint64("seed", 1, "of the names of hosts and instances, and of chance")
	if err := f.Parse(args); err != nil {
		return err
	}
	counts, err := numbers(*hosts)
	if err != nil {
		return err
	}
	sizes, err := numbers(*instances)
	if err != nil {
		return err
	}
	if !(*room >= 1.2) || *room > 1000 || f.NArg() > 0 {
		return croft.Errorf(croft.Invalid, "give a --room from 1.2 to 1000, so that a host can be lost, and no arguments")
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "hosts\tinstances\tpolicy\tafter\tmoved\tshare\tratio\tleast\tmean\tmost\tdeviation")
	for _, n := range counts {
		for _, size := range sizes {
			for _, p := range policies {
				w := newWorld(*seed, n, size, *room, p.racks)
				if err := w.report(t, p); err != nil {
					return err
				}
			}
		}
	}
	return t.Flush()
}

func numbers(text string) (all []int, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 10 || n > 100_000 {
			return nil, croft.Errorf(croft.Invalid, "%q: give whole numbers from 10 to 100000, with commas between", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// policies are the measured policies; an empty text is spread.
var policies = []policy{
	{"spread", "", true}, {"crush in racks", "select 1 rack; take 1", true}, {"crush, no racks", "take 1", false},
}

type policy struct {
	name, text string
	racks      bool // of 10 hosts; else hosts have no locations
}

// report places all instances, then loses the host with the most of them, then adds one, and writes a line for each.
func (w *world) report(to io.Writer, policy policy) error {
	if err := w.place(policy.text); err != nil {
		return err
	}
	size := len(w.at)
	line := func(after string, moved, share int) {
		least, most, deviation := w.balance()
		percent := func(n int) float64 { return 100 * float64(n) / float64(size) }
		words := "-\t-\t-"
		if share > 0 {
			words = fmt.Sprintf("%.2f %%\t%.2f %%\t%.2f", percent(moved), percent(share),
				float64(moved)/float64(share))
		}
		fmt.Fprintf(to, "%d\t%d\t%s\t%s\t%s\t%d\t%.1f\t%d\t%.1f\n", w.in(), size, policy.name, after, words, least,
			float64(size)/float64(w.in()), most, deviation)
	}
	line("placing all", 0, 0)
	before := w.save()
	lost := w.busiest()
	forced := len(w.on(lost))
	w.out(lost)
	if err := w.mend(policy.text); err != nil {
		return err
	}
	line("losing a host", w.moved(before), forced)
	for _, anew := range []struct {
		words string
		lose  func()
	}{
		{"losing it, all placed anew", func() { w.out(lost) }},
		{"forgetting it, all placed anew", func() { w.forget(lost) }},
	} {
		w.restore(before, lost)
		anew.lose()
		if err := w.place(policy.text); err != nil {
			return err
		}
		line(anew.words, w.moved(before), forced)
	}
	w.restore(before, lost)

	w.add()
	line("adding a host, nothing moves", 0, 0)
	if err := w.place(policy.text); err != nil {
		return err
	}
	line("adding a host, all placed anew", w.moved(before), size/w.in())
	return nil
}

// balance returns the least and the greatest number of instances on an active host, and the standard deviation.
func (w *world) balance() (least, most int, deviation float64) {
	least = math.MaxInt
	mean := float64(len(w.at)) / float64(w.in())
	for id, h := range w.Hosts {
		if !h.Alive {
			continue
		}
		n := w.used[id]
		least, most = min(least, n), max(most, n)
		deviation += (float64(n) - mean) * (float64(n) - mean)
	}
	return least, most, math.Sqrt(deviation / float64(w.in()))
}
