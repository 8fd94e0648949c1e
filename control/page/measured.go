package page

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
)

// measured is what an instance used in the last hour or day, as pictures and as a table.
type measured struct {
	Says   string // instead of the pictures
	Spans  []choice
	Graphs []graph
	Names  []string // the columns of the table
	Rows   []measuredRow
}

// measuredRow is a point of the table.
type measuredRow struct {
	At    time.Time
	Cells []string
}

// graph is a measure over time. Its lengths are in units of the picture.
type graph struct {
	Name, Says, Top string
	Empty           bool // nothing was measured
	Lines           []graphLine
	Ticks           []tick
}

// graphLine is a line of a graph: a step for each point, and a gap where nothing is known.
type graphLine struct{ Name, Path, Now, Average, Most string }

// Says describes the line in words.
func (l graphLine) Says() string {
	if l.Path == "" {
		return "not measured in this time"
	}
	return fmt.Sprintf("now %s, average %s, highest %s", l.Now, l.Average, l.Most)
}

// tick is a mark of the time axis.
type tick struct {
	X     int
	Label string
	Odd   bool // phones have no room for the label
}

const (
	graphWidth = 300
	graphBase  = 96
	graphTop   = 18
)

// measure is a value of the points.
type measure struct {
	name  string // in the table
	line  string // in the graph, if that has two
	of    func(compute.UsagePoint) *float64
	write func(float64) string
}

// measureTime is how long the page waits for the host of an instance.
const measureTime = 2 * time.Second

// spanOf returns the part of a history that the address asks for, and how much time it covers.
func (v *visit) spanOf(h compute.UsageHistory) (s compute.UsageSeries, long time.Duration, name string) {
	if v.r.URL.Query().Get("usage") == "day" {
		return h.Day, 24 * time.Hour, "day"
	}
	return h.Hour, time.Hour, "hour"
}

// readMeasured reads what an instance used. Its host alone knows that.
func (v *visit) readMeasured(i api.Instance) (*measured, error) {
	if i.HostAlive != nil && !*i.HostAlive {
		return &measured{Says: "Its host is silent, and that alone knows what the guest uses."}, nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, measureTime)
	defer cancel()
	h, err := v.client.GetInstanceUsage(ctx, api.InstanceNamed{ID: string(i.ID), Project: i.Project})
	switch {
	case errors.Is(err, croft.NotFound):
		return &measured{Says: "Nothing is measured yet: the first values come two minutes after the start."}, nil
	case errors.Is(err, croft.Unavailable), ctx.Err() != nil && v.ctx.Err() == nil:
		return &measured{Says: "Its host does not answer at the moment, and that alone knows what the guest uses."}, nil
	case err != nil:
		return nil, err
	}
	s, long, span := v.spanOf(h)
	d := &measured{}
	for _, one := range []string{"hour", "day"} {
		at := link(i.Project, "/instances/"+string(i.ID), "usage", one) + "#h-use"
		d.Spans = append(d.Spans, choice{"last " + one, at, one == span})
	}
	if len(s.Points) == 0 {
		d.Says = "Nothing was measured in the last " + span + ": the first values come two minutes after the start."
		return d, nil
	}
	d.draw(s, h.Until, long, i)
	return d, nil
}

// draw draws a series that ends at a time.
func (d *measured) draw(s compute.UsageSeries, until time.Time, long time.Duration, i api.Instance) {
	percent := func(v float64) string { return fmt.Sprintf("%.1f%%", v) }
	size := func(v float64) string { return bytesOf(int64(v)) }
	speed := func(v float64) string { return bytesOf(int64(v)) + "/s" }
	times := func(v float64) string { return fmt.Sprintf("%.1f/s", v) }
	processor := measure{"Processor", "", func(p compute.UsagePoint) *float64 { return p.Processor }, percent}
	memory := measure{"Memory", "", func(p compute.UsagePoint) *float64 { return p.Memory }, size}
	read := measure{"Disk read", "read", func(p compute.UsagePoint) *float64 { return p.DiskRead }, speed}
	written := measure{"Disk written", "written", func(p compute.UsagePoint) *float64 { return p.DiskWritten }, speed}
	reads := measure{"Disk reads", "reads", func(p compute.UsagePoint) *float64 { return p.DiskReads }, times}
	writes := measure{"Disk writes", "writes", func(p compute.UsagePoint) *float64 { return p.DiskWrites }, times}
	received := measure{"Received", "received", func(p compute.UsagePoint) *float64 { return p.NetReceived }, speed}
	sent := measure{"Sent", "sent", func(p compute.UsagePoint) *float64 { return p.NetSent }, speed}
	memoryTop := float64(i.Resources["MEMORY_MB"] << 20)
	ofMemory := func(most float64) float64 { return max(most, memoryTop) }
	axis := timeAxis{until, long, time.Duration(s.Every) * time.Second}
	d.Graphs = []graph{
		axis.graph(fmt.Sprintf("Processor, of %d vCPU", i.Resources["VCPU"]), s, tenths, processor),
		axis.graph("Memory, of "+size(memoryTop), s, ofMemory, memory),
		axis.graph("Disk", s, binary, read, written),
		axis.graph("Disk operations", s, tenths, reads, writes),
		axis.graph("Network", s, binary, received, sent),
	}
	all := []measure{processor, memory, read, written, reads, writes, received, sent}
	for _, m := range all {
		d.Names = append(d.Names, m.name)
	}
	for n := range s.Points {
		p := s.Points[len(s.Points)-1-n]
		row := measuredRow{At: p.At}
		for _, m := range all {
			cell := "–"
			if v := m.of(p); v != nil {
				cell = m.write(*v)
			}
			row.Cells = append(row.Cells, cell)
		}
		d.Rows = append(d.Rows, row)
	}
}

// tenths returns a round number that is at least most: 1, 2 or 5 times a power of ten.
func tenths(most float64) float64 {
	if most <= 1 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{1, 2, 5} {
		if most <= n*power {
			return n * power
		}
	}
	return 10 * power
}

// binary returns a power of two that is at least most, and at least 1 KiB.
func binary(most float64) float64 { return math.Exp2(math.Ceil(math.Log2(max(1024, most)))) }

// timeAxis is the time that graphs show.
type timeAxis struct {
	until time.Time
	long  time.Duration
	every time.Duration
}

// x returns the place of a time in a graph.
func (a timeAxis) x(at time.Time) int {
	return int(min(graphWidth, max(0, graphWidth-int64(a.until.Sub(at))*graphWidth/int64(a.long))))
}

// ticks returns marks at round times: each quarter of an hour, or each four hours.
func (a timeAxis) ticks() (all []tick) {
	step := a.long / 6
	if a.long == time.Hour {
		step = 15 * time.Minute
	}
	for at := a.until.Add(-a.long).Truncate(step).Add(step); !at.After(a.until); at = at.Add(step) {
		all = append(all, tick{a.x(at), at.UTC().Format("15:04"), len(all)%2 == 1})
	}
	return all
}

// graph draws measures with a common scale.
func (a timeAxis) graph(name string, s compute.UsageSeries, top func(most float64) float64, measures ...measure) graph {
	g := graph{Name: name, Ticks: a.ticks()}
	most := 0.0
	for _, m := range measures {
		most = max(most, s.Summary(m.of, a.until).Most)
	}
	scale := top(most)
	g.Top = measures[0].write(scale)
	g.Empty = true
	says := []string{}
	for _, m := range measures {
		l := a.line(m, s, scale)
		g.Lines = append(g.Lines, l)
		g.Empty = g.Empty && l.Path == ""
		says = append(says, strings.TrimSpace(m.line+" "+l.Says()))
	}
	g.Says = name + ": " + strings.Join(says, "; ")
	return g
}

// line draws a measure.
func (a timeAxis) line(m measure, s compute.UsageSeries, scale float64) graphLine {
	l := graphLine{Name: m.line, Now: "unknown", Average: "unknown", Most: "unknown"}
	var path strings.Builder
	var end time.Time
	for _, p := range s.Points {
		v := m.of(p)
		if v == nil {
			continue
		}
		move := "V"
		if !p.At.Equal(end) {
			move = fmt.Sprintf("M%d ", a.x(p.At))
		}
		end = p.At.Add(a.every)
		fmt.Fprintf(&path, "%s%dH%d", move, graphBase-int(math.Round(*v/scale*(graphBase-graphTop))), a.x(end))
	}
	sum := s.Summary(m.of, a.until)
	if sum.Count > 0 {
		l.Path, l.Average, l.Most = path.String(), m.write(sum.Average), m.write(sum.Most)
	}
	if sum.Now != nil {
		l.Now = m.write(*sum.Now)
	}
	return l
}
