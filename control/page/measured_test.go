package page

import (
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
)

func TestAGraphHasGapsWhereNothingIsKnown(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	point := func(ago time.Duration, v float64) compute.UsagePoint {
		return compute.UsagePoint{At: noon.Add(-ago), Processor: number(v), NetReceived: number(v * 1000),
			NetSent: number(0)}
	}
	s := compute.UsageSeries{Every: 60, Points: []compute.UsagePoint{point(60*time.Minute, 10),
		point(59*time.Minute, 50), point(30*time.Minute, 100),
		{At: noon.Add(-2 * time.Minute), Memory: number(1 << 20)}, point(time.Minute, 0)}}
	var d measured
	d.draw(s, noon, time.Hour, api.Instance{Resources: croft.Resources{"VCPU": 2, "MEMORY_MB": 256}})
	processor := d.Graphs[0]
	if want := "M0 88H5V57H10M150 18H155M295 96H300"; processor.Lines[0].Path != want {
		t.Errorf("the line is %s, want %s", processor.Lines[0].Path, want)
	}
	if want := "Processor, of 2 vCPU: now 0.0%, average 40.0%, highest 100.0%"; processor.Says != want ||
		processor.Top != "100.0%" {
		t.Errorf("it says %q below %s, want %q", processor.Says, processor.Top, want)
	}
	if len(processor.Ticks) != 4 || processor.Ticks[3].Label != "12:00" || processor.Ticks[0].X != 75 {
		t.Errorf("its axis has %+v", processor.Ticks)
	}
	if disk := d.Graphs[2]; disk.Lines[0].Path != "" || !strings.Contains(disk.Says, "read not measured") {
		t.Errorf("a disk of which nothing is known has %+v", disk)
	}
	if net := d.Graphs[4]; net.Top != "128 KiB/s" || net.Lines[1].Path != "M0 96H5V96H10M150 96H155M295 96H300" {
		t.Errorf("the network has %+v", net)
	}
	if len(d.Rows) != 5 || !d.Rows[0].At.Equal(noon.Add(-time.Minute)) || d.Rows[1].Cells[0] != "–" ||
		d.Rows[1].Cells[1] != "1 MiB" {
		t.Errorf("the table has %+v", d.Rows)
	}
}

func TestScalesEndAtRoundNumbers(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 0.3: 1, 1.2: 2, 4: 5, 10: 10, 51: 100, 101: 200} {
		if got := tenths(most); got != want {
			t.Errorf("up to %v: %v, want %v", most, got, want)
		}
	}
	for most, want := range map[float64]float64{0: 1024, 1024: 1024, 1025: 2048, 3 << 20: 4 << 20} {
		if got := binary(most); got != want {
			t.Errorf("up to %v bytes: %v, want %v", most, got, want)
		}
	}
}
