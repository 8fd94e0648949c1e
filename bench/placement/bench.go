package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// bench runs the measurements and prints the results.
type bench struct {
	options
	dir  string // removed at the end
	out  io.Writer
	sync time.Duration // of the disk
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format, args...) }

// describe prints the measurement, the machine and the time.
func (b *bench) describe() {
	commit := "unknown"
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	b.printf("croft %s, %s, %d cores, %s; fdatasync %.2f ms\n", commit, time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), runtime.Version(), float64(b.sync.Microseconds())/1000)
	b.printf("%d turns of %v each, one server after the other\n", b.rounds, b.turn)
}

// sideBySide measures both servers with n providers.
func (b *bench) sideBySide(ctx context.Context, n int) error {
	ours, err := startCroft(ctx, b.croft, filepath.Join(b.dir, fmt.Sprint("croft-", n)))
	if err != nil {
		return err
	}
	defer ours.stop()
	if err := registerAll(ctx, ours.client(), n); err != nil {
		return fmt.Errorf("register hosts with croft: %w", err)
	}
	us := target{ours.client(), ours.cpu}
	var them target
	if !b.alone {
		theirs, err := startOriginal(ctx, filepath.Join(b.dir, fmt.Sprint("original-", n)))
		if err != nil {
			return err
		}
		defer theirs.stop()
		if err := theirs.insertAll(ctx, n); err != nil {
			return fmt.Errorf("register hosts with the original: %w", err)
		}
		them = target{newClient(theirs.url, false), func() time.Duration {
			return theirs.web.cpu() +
				theirs.database.cpu()
		}}
		if err := sameHosts(ctx, them.client, us.client, n); err != nil {
			return err
		}
	}
	b.printf("\n%d providers\n%-30s %12s %12s %8s %8s  %s\n", n, "", "original", "croft", "times", "wanted",
		"what bounds croft")
	for _, m := range measurements {
		if !strings.Contains(m.name, b.only) {
			continue
		}
		if err := b.compare(ctx, &m, them, us, n); err != nil {
			return err
		}
	}
	return nil
}

// compare measures both servers in turns and prints a line.
func (b *bench) compare(ctx context.Context, m *measurement, them, us target, n int) error {
	var theirs, ours []result
	var ratios []float64
	for range b.rounds {
		if them.client != nil {
			r, err := m.turn(ctx, them, n, b.turn)
			if err != nil {
				return fmt.Errorf("the original: %w", err)
			}
			theirs = append(theirs, r)
		}
		r, err := m.turn(ctx, us, n, b.turn)
		if err != nil {
			return fmt.Errorf("croft: %w", err)
		}
		ours = append(ours, r)
		if them.client != nil {
			ratios = append(ratios, r.rate()/theirs[len(theirs)-1].rate())
		}
	}
	times, target := "", "-"
	if len(ratios) > 0 {
		times = fmt.Sprintf("%.1f", median(ratios))
	}
	if x := m.target(n); x > 0 {
		target = fmt.Sprint(x)
	}
	b.printf("%-30s %10s/s %10s/s %8s %8s  %s\n", m.name, rates(theirs), rates(ours), times, target, b.bound(m, ours))
	return nil
}

func rates(all []result) string {
	var list []float64
	for _, r := range all {
		list = append(list, r.rate())
	}
	if len(list) == 0 {
		return "-"
	}
	x := median(list)
	if x < 100 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// bound describes where the time of a request is spent.
func (b *bench) bound(m *measurement, all []result) string {
	var sum result
	for _, r := range all {
		sum.done, sum.refused, sum.took = sum.done+r.done, sum.refused+r.refused, sum.took+r.took
		sum.server, sum.load, sum.idle = sum.server+r.server, sum.load+r.load, sum.idle+r.idle
	}
	each := func(d time.Duration) string { return (d / time.Duration(sum.done)).Round(time.Microsecond).String() }
	cores := sum.took * time.Duration(runtime.NumCPU())
	others := cores - sum.idle - sum.server - sum.load
	text := fmt.Sprintf("server %s + load %s of CPU each; cores %.0f%% busy", each(sum.server), each(sum.load),
		100*float64(cores-sum.idle)/float64(cores))
	if others > cores/20 {
		text += fmt.Sprintf(" (%.0f%% with other work)", 100*float64(others)/float64(cores))
	}
	if m.commits > 0 && m.clients == 1 {
		text += fmt.Sprintf("; %s each, at least %v of it for the disk", each(sum.took),
			(b.sync * time.Duration(m.commits)).Round(time.Microsecond))
	}
	if sum.refused > 0 {
		text += fmt.Sprintf("; %d conflicts", sum.refused)
	}
	return text
}
