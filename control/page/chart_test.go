package page

import (
	"strings"
	"testing"
	"time"

	"croft/tenant"
	"croft/tenant/usage"
)

func TestPeriodsOfTheHistoryAreWhole(t *testing.T) {
	now := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC) // a Monday
	for by, want := range map[string][2]string{byDay: {"2026-11-01", "2026-12-01"},
		byWeek: {"2026-06-08", "2026-12-07"}, byQuarter: {"2025-10-01", "2027-01-01"}} {
		all := periodsUntil(now, by)
		got := [2]string{all[0].First.Format(time.DateOnly), all[len(all)-1].End.Format(time.DateOnly)}
		if got != want {
			t.Errorf("by %s: from %s to %s, want %s", by, got[0], got[1], want)
		}
		for i := range len(all) - 1 {
			if !all[i].End.Equal(all[i+1].First) {
				t.Errorf("by %s: %s is not followed by %s", by, all[i].End, all[i+1].First)
			}
		}
	}
}

func TestTheChartShowsAverages(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	all := periodsUntil(now, byDay)
	fill(all, []usage.Account{{Project: "a", Days: []usage.Day{
		{Date: "2026-11-29", UnitSeconds: tenant.Amounts{"VCPU": 86400}, Peak: tenant.Amounts{"VCPU": 4}},
		{Date: "2026-11-30", UnitSeconds: tenant.Amounts{"VCPU": 2 * 43200}, Peak: tenant.Amounts{"VCPU": 2}}}},
		{Project: "b", Days: []usage.Day{
			{Date: "2026-11-29", UnitSeconds: tenant.Amounts{"VCPU": 86400}, Peak: tenant.Amounts{"VCPU": 1}}}}})
	c := chartOf("VCPU", all, now)
	yesterday, today := c.Bars[len(c.Bars)-2], c.Bars[len(c.Bars)-1]
	if yesterday.Average != "2" || yesterday.Peak != "5" || today.Average != "2" || today.Peak != "2" {
		t.Errorf("got %+v and %+v", yesterday, today)
	}
	if yesterday.High != today.High || yesterday.PeakY >= today.PeakY || c.Empty {
		t.Errorf("the bars are %+v and %+v", yesterday, today)
	}
	if empty := chartOf("VCPU", periodsUntil(now, byWeek), now); !empty.Empty {
		t.Errorf("a chart of nothing is %+v", empty)
	}
}

func TestTheChartShowsWhatTheHostsOffered(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	all := periodsUntil(now, byWeek)
	fillOffered(all, []usage.Day{{Date: "2026-11-22", Peak: tenant.Amounts{"VCPU": 90}},
		{Date: "2026-11-23", Peak: tenant.Amounts{"VCPU": 8}}, {Date: "2026-11-29", Peak: tenant.Amounts{"VCPU": 16}},
		{Date: "2026-11-30", Peak: tenant.Amounts{"VCPU": 12}}})
	c := chartOf("VCPU", all, now)
	before, last, present := c.Bars[len(c.Bars)-4], c.Bars[len(c.Bars)-2], c.Bars[len(c.Bars)-1]
	if before.Offered != "" || last.Offered != "16" || present.Offered != "12" || !c.Offered || c.Top != "90" {
		t.Errorf("up to %s, the bars are %+v, %+v and %+v", c.Top, before, last, present)
	}
	if last.OfferedY >= present.OfferedY || !strings.HasSuffix(c.Says, "last 0, of 12 that the hosts offered") {
		t.Errorf("it says %q, and the lines are at %d and %d", c.Says, last.OfferedY, present.OfferedY)
	}
	if c := chartOf("instances", all, now); c.Offered {
		t.Errorf("hosts offer instances: %+v", c)
	}
}

func TestNamesWithNumbersAreInOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"rack2", "rack10", -1}, {"rack02", "rack2", 0}, {"row1/rack9", "row10/rack1", -1}, {"a", "a1", -1},
		{"b", "a", 1}} {
		if got := byNumber(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
