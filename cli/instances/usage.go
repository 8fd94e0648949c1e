package instances

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/compute"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
)

func usageCommand() *cobra.Command {
	var day bool
	cmd := &cobra.Command{
		Use:   "usage UUID|NAME",
		Short: "Show what an instance used in the last hour or day",
		Long: `usage shows how much of its processors and memory an instance used, and what it read from
and wrote to its disks and the network: now, on average, at most, and as a line of bars
from an hour ago until now (a dot: unknown, such as while the guest was off). With --day it
shows the last day. With -o it prints both, as averages of each minute and of each ten
minutes; times without values are missing.

The host of the instance measures and keeps this. The history ends with the instance, and
restarts when the instance moves to another host. croft usage shows what projects were
charged with.`,
		Example: `  schedule usage web
  schedule usage web --day
  schedule usage web -o json`,
		ValidArgsFunction: args.CompleteInstances(1),
		Args:              command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return onConsole(cmd, given[0], func(ctx context.Context, c *session, i api.Instance) error {
				h, err := c.GetInstanceUsage(ctx, c.Named(string(i.ID)))
				if err != nil {
					return err
				}
				if c.WantsData() {
					return c.PrintData(h)
				}
				return printUsage(cmd, h, i, day)
			})
		},
	}
	cmd.Flags().BoolVar(&day, "day", false, "show the last day")
	return cmd
}

// usageRow is a line of the table: a value of each point, and how it is written.
type usageRow struct {
	name  string
	of    func(compute.UsagePoint) *float64
	write func(float64) string
}

func usageRows(i api.Instance) []usageRow {
	percent := func(v float64) string { return fmt.Sprintf("%.1f%%", v) }
	speed := func(v float64) string { return out.Bytes(int64(v)) + "/s" }
	times := func(v float64) string { return fmt.Sprintf("%.1f/s", v) }
	return []usageRow{
		{fmt.Sprintf("processor, of %d vCPU", i.Resources["VCPU"]),
			func(p compute.UsagePoint) *float64 { return p.Processor }, percent},
		{"memory, of " + out.Bytes(i.Resources["MEMORY_MB"]<<20),
			func(p compute.UsagePoint) *float64 { return p.Memory },
			func(v float64) string { return out.Bytes(int64(v)) }},
		{"disk, read", func(p compute.UsagePoint) *float64 { return p.DiskRead }, speed},
		{"disk, written", func(p compute.UsagePoint) *float64 { return p.DiskWritten }, speed},
		{"disk, read operations", func(p compute.UsagePoint) *float64 { return p.DiskReads }, times},
		{"disk, write operations", func(p compute.UsagePoint) *float64 { return p.DiskWrites }, times},
		{"network, received", func(p compute.UsagePoint) *float64 { return p.NetReceived }, speed},
		{"network, sent", func(p compute.UsagePoint) *float64 { return p.NetSent }, speed},
	}
}

// barCells is the number of bars of a line.
const barCells = 30

func printUsage(cmd *cobra.Command, h compute.UsageHistory, i api.Instance, day bool) error {
	series, long, name := h.Hour, time.Hour, "LAST HOUR"
	if day {
		series, long, name = h.Day, 24*time.Hour, "LAST DAY"
	}
	if len(series.Points) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing was measured of %s in the %s: the first values come two minutes after "+
			"its start\n", i.Name, strings.ToLower(name))
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("WHAT", "NOW", "AVERAGE", "MOST", name)
	for _, row := range usageRows(i) {
		t.Texts(row.cells(series, h.Until, long)...)
	}
	return t.Print(cmd.OutOrStdout())
}

// cells returns the cells of a line about the time until until.
func (r usageRow) cells(s compute.UsageSeries, until time.Time, long time.Duration) []string {
	sum, bars := s.Summary(r.of, until), make([]*float64, barCells)
	every := time.Duration(s.Every) * time.Second
	for _, p := range s.Points {
		v := r.of(p)
		if v == nil {
			continue
		}
		n := min(barCells-1, max(0, barCells-1-int(until.Sub(p.At.Add(every))*barCells/long)))
		if bars[n] == nil || *bars[n] < *v {
			bars[n] = v
		}
	}
	cells := []string{r.name, "-", "-", "-", barsOf(bars, sum.Most)}
	if sum.Count > 0 {
		cells[2], cells[3] = r.write(sum.Average), r.write(sum.Most)
	}
	if sum.Now != nil {
		cells[1] = r.write(*sum.Now)
	}
	return cells
}

// barsOf draws values as a line of bars; a value that is unknown is a dot.
func barsOf(values []*float64, most float64) string {
	heights := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		switch {
		case v == nil:
			b.WriteRune('·')
		case most == 0:
			b.WriteRune(heights[0])
		default:
			b.WriteRune(heights[int(*v/most*float64(len(heights)-1)+.5)])
		}
	}
	return b.String()
}
