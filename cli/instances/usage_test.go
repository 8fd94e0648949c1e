package instances

import (
	"slices"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
)

func TestUsageIsALineOfBars(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := compute.UsageSeries{Every: 60}
	for n := range 60 {
		p := compute.UsagePoint{At: noon.Add(time.Duration(n-60) * time.Minute)}
		if n < 20 || n >= 30 {
			p.Processor = number(float64(n))
		}
		s.Points = append(s.Points, p)
	}
	rows := usageRows(api.Instance{Resources: croft.Resources{"VCPU": 2, "MEMORY_MB": 256}})
	for n, want := range [][]string{
		{"processor, of 2 vCPU", "59.0%", "30.0%", "59.0%", "▁▁▂▂▂▂▃▃▃▃·····▅▅▅▅▆▆▆▆▇▇▇▇███"},
		{"memory, of 256.0 MiB", "-", "-", "-", "······························"},
	} {
		got := rows[n].cells(s, noon, time.Hour)
		if n == 0 {
			got[2] = want[2] // the average of many numbers
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	idle := compute.UsageSeries{Every: 600, Points: []compute.UsagePoint{{At: noon.Add(-20 * time.Minute),
		NetSent: number(0)}}}
	if got := rows[7].cells(idle, noon, 24*time.Hour); got[1] != "0 bytes/s" ||
		got[4] != "·····························▁" {
		t.Errorf("an idle network is %q", got)
	}
}
