package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"croft/bench/cluster/plot"
)

// Formats of a report.
const (
	outputText = "text"
	outputJSON = "json"
)

func (r *report) print(w io.Writer, output string) error {
	if output == outputJSON {
		document := json.NewEncoder(w)
		document.SetIndent("", "  ")
		return document.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("hosts", "%d, taking orders after %.1f s", r.Hosts, r.Start)
	r.measured.print(line, r.AskedRate)
	if r.Control != nil {
		r.Control.print(line, r.AskedRate)
		line("through control", "%.2f times as many ran a second as direct", r.Control.Load.Rate/r.Load.Rate)
	}
	return t.Flush()
}

func (m *measured) print(line func(name, format string, args ...any), rate float64) {
	asked := "as many requests as were answered"
	if rate > 0 {
		asked = fmt.Sprintf("%g requests a second", rate)
	}
	line("way", "%s", m.Way)
	line("asked", "%s, %d in all", asked, m.Load.Requests)
	line("ran", "%d, %.0f a second", m.Load.Ran, m.Load.Rate)
	for _, kind := range slices.Sorted(maps.Keys(m.Load.Errors)) {
		line("failed", "%d: %s", m.Load.Errors[kind], kind)
	}
	line("call to answer", "p50 %.1f ms, p99 %.1f ms, at most %.1f ms", m.Load.Answer.P50, m.Load.Answer.P99,
		m.Load.Answer.Max)
	line("call to running", "p50 %.1f ms, p99 %.1f ms, at most %.1f ms", m.Load.Running.P50, m.Load.Running.P99,
		m.Load.Running.Max)
	for _, p := range m.Parts {
		line(p.Name, "%.0f MiB, %.2f processors", p.Memory, p.CPU)
	}
	line("etcd", "%.0f writes a second, %.1f an instance; %.0f fsyncs a second of %.2f ms; %.0f watchers; %.0f MiB",
		m.Etcd.Writes, m.Etcd.PerVM, m.Etcd.Fsyncs, m.Etcd.FsyncMS, m.Etcd.Watchers, m.Etcd.Size)
}

// draw plots the course of a run.
func (c *course) draw(file string, r report) error {
	ran := plot.Line{Name: "ran"}
	p50, p99 := plot.Line{Name: "p50"}, plot.Line{Name: "p99"}
	for i, s := range c.run.Seconds() {
		at := float64(i + 1)
		ran.X, ran.Y = append(ran.X, at), append(ran.Y, float64(s.Ran))
		p50.X, p50.Y = append(p50.X, at), append(p50.Y, s.P50)
		p99.X, p99.Y = append(p99.X, at), append(p99.Y, s.P99)
	}
	var memory []plot.Line
	for _, p := range r.Parts {
		if line := c.memory[p.Name]; line != nil { // no line for the callers: they are this process
			memory = append(memory, *line)
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("draw the course: %w", err)
	}
	err = plot.Write(out,
		plot.Chart{Title: fmt.Sprintf("Instances that began to run on %d hosts", r.Hosts), X: "s", Y: "per second",
			Lines: []plot.Line{ran}},
		plot.Chart{Title: "From the call until the instance runs", X: "s", Y: "ms", Lines: []plot.Line{p50, p99}},
		plot.Chart{Title: "Memory of the processes", X: "s", Y: "MiB", Lines: memory},
	)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
