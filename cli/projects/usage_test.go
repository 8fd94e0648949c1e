package projects

import (
	"testing"
	"time"

	"croft"
	"croft/tenant"
)

func TestFirstDay(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.FixedZone("east", 3600)) // 28 February in UTC
	for text, want := range map[string]string{
		"1d": "2026-02-28", "7d": "2026-02-22", "400d": "2025-01-25", "2026-01-31": "2026-01-31",
		"0d": "", "-1d": "", "401d": "", "d": "", "": "", "24h": "", "2026-02-30": "", "yesterday": "",
	} {
		got, err := firstDay(text, now)
		if got != want || (want == "") != (croft.KindOf(err) == croft.Invalid) {
			t.Errorf("%q is %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestAmountsAreInUnitsOfPeople(t *testing.T) {
	for _, c := range []struct {
		measure tenant.Measure
		seconds int64
		want    string
	}{
		{"VCPU", 5400, "1.50 VCPU-hours"},
		{"MEMORY_MB", 512 * 7200, "1.00 GB-hours"},
		{"DISK_GB", 36000, "10.00 GB-hours"},
		{tenant.CountInstances, 1, "0.00 instance-hours"},
		{"CUSTOM_GPU", 3600, "1.00 CUSTOM_GPU-hours"},
	} {
		if amount, unit := inHours(c.measure, c.seconds); amount+" "+unit != c.want {
			t.Errorf("%d of %s is %s %s, want %s", c.seconds, c.measure, amount, unit, c.want)
		}
	}
}
