package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"croft/tenant"
	"croft/tenant/usage"
)

// Ways in which the history of usage is divided.
const (
	byDay     = "day"
	byWeek    = "week"
	byQuarter = "quarter"
)

// period is a day, week or quarter of the history.
type period struct {
	First, End time.Time // of its first day, and of the day after its last
	usage.Day
	Offered tenant.Amounts // by the hosts, at most; nil: not known
	Name    string
}

// periodsUntil returns the periods that end with the present one. The history is kept for 400 days.
func periodsUntil(now time.Time, by string) []period {
	day := now.UTC().Truncate(24 * time.Hour)
	starts, count := day, 30
	switch by {
	case byWeek:
		starts, count = day.AddDate(0, 0, -(int(day.Weekday())+6)%7), 26 // Monday
	case byQuarter:
		starts, count = time.Date(day.Year(), (day.Month()-1)/3*3+1, 1, 0, 0, 0, 0, time.UTC), 5
	}
	before := func(t time.Time, n int) time.Time {
		switch by {
		case byWeek:
			return t.AddDate(0, 0, -7*n)
		case byQuarter:
			return t.AddDate(0, -3*n, 0)
		}
		return t.AddDate(0, 0, -n)
	}
	var all []period
	for n := count - 1; n >= 0; n-- {
		p := period{First: before(starts, n), End: before(starts, n-1)}
		switch by {
		case byWeek:
			p.Name = "week of " + p.First.Format("2 Jan")
		case byQuarter:
			p.Name = fmt.Sprintf("quarter %d of %d", (int(p.First.Month())+2)/3, p.First.Year())
		default:
			p.Name = p.First.Format("2 Jan")
		}
		all = append(all, p)
	}
	return all
}

// fill adds up the days of accounts in periods. The peak of several accounts is at most the sum of their peaks.
func fill(all []period, accounts []usage.Account) {
	for i := range all {
		first, end := all[i].First.Format(time.DateOnly), all[i].End.Format(time.DateOnly)
		sum := usage.Day{UnitSeconds: tenant.Amounts{}, Peak: tenant.Amounts{}}
		for _, a := range accounts {
			var days []usage.Day
			for _, d := range a.Days {
				if d.Date >= first && d.Date < end {
					days = append(days, d)
				}
			}
			one := usage.Sum(days)
			sum.UnitSeconds, sum.Peak = sum.UnitSeconds.Plus(one.UnitSeconds), sum.Peak.Plus(one.Peak)
			sum.Estimated = max(sum.Estimated, one.Estimated)
		}
		all[i].Day = sum
	}
}

// fillOffered sets what the hosts offered at most in periods.
func fillOffered(all []period, capacity []usage.Day) {
	for i := range all {
		first, end := all[i].First.Format(time.DateOnly), all[i].End.Format(time.DateOnly)
		for _, d := range capacity {
			if d.Date >= first && d.Date < end {
				all[i].Offered = usage.Sum([]usage.Day{{Peak: all[i].Offered}, d}).Peak
			}
		}
	}
}

// chart is a measure of the history as a picture: a bar for each period. Its lengths are in units of the picture.
type chart struct {
	Says          string // what it shows, in words
	Top           string // the amount at its top
	Width, Height int
	Base          int // of the bars
	Bars          []bar
	Empty         bool
	Offered       bool // it shows what the hosts offered, too
}

// bar is a period in a chart: its average as a bar, its peak as a line.
type bar struct {
	Name, Average, Peak     string
	Offered                 string // by the hosts; empty: not known
	OfferedY                int
	Estimated               bool
	X, Y, Wide, High, PeakY int
	TextX                   int
	Label                   string
	Odd                     bool // phones have no room for the label
}

const (
	chartWidth = 720
	chartBase  = 150
	chartTop   = 22
	mostLabels = 8
)

// chartOf draws a measure of periods.
func chartOf(m tenant.Measure, all []period, now time.Time) *chart {
	c := &chart{Width: chartWidth, Height: chartBase + 22, Base: chartBase}
	averages, top := make([]float64, len(all)), 0.0
	for i, p := range all {
		end := p.End
		if now.Before(end) {
			end = now
		}
		averages[i] = float64(p.UnitSeconds[m]) / max(1, end.Sub(p.First).Seconds())
		top = max(top, averages[i], float64(p.Peak[m]), float64(p.Offered[m]))
	}
	c.Empty = top == 0
	scale := float64(chartBase-chartTop) / max(top, 1e-9)
	pitch := chartWidth / max(1, len(all))
	every := (len(all) + mostLabels - 1) / mostLabels
	for i, p := range all {
		b := bar{Name: p.Name, Average: average(m, averages[i]), Peak: amountOf(m, p.Peak[m]),
			Estimated: p.Estimated > 0, X: i * pitch, Wide: max(2, pitch-max(2, pitch/6)),
			High: int(averages[i] * scale)}
		if averages[i] > 0 {
			b.High = max(1, b.High)
		}
		b.Y = chartBase - b.High
		b.PeakY = chartBase - int(float64(p.Peak[m])*scale)
		if n := p.Offered[m]; n > 0 {
			b.Offered, b.OfferedY, c.Offered = amountOf(m, n), chartBase-int(float64(n)*scale), true
		}
		b.TextX = b.X + b.Wide/2
		if (len(all)-1-i)%every == 0 {
			b.Label, b.Odd = p.First.Format("2 Jan"), len(all) > mostLabels && (len(all)-1-i)/every%2 == 1
			if p.End.Sub(p.First) > 80*24*time.Hour {
				b.Label = fmt.Sprintf("%d Q%d", p.First.Year(), (int(p.First.Month())+2)/3)
			}
		}
		c.Bars = append(c.Bars, b)
	}
	c.Top = average(m, top)
	last := cmp.Or(len(c.Bars), 1) - 1
	c.Says = fmt.Sprintf("%s, average of each period: at most %s, last %s", measureName(m),
		average(m, slices.Max(append(averages, 0))), c.Bars[last].Average)
	if offered := c.Bars[last].Offered; offered != "" {
		c.Says += ", of " + offered + " that the hosts offered"
	}
	return c
}

// average writes an average amount of a measure.
func average(m tenant.Measure, n float64) string {
	if text := amountOf(m, 1); text == "1" { // it has no unit
		if n == float64(int64(n)) {
			return fmt.Sprint(int64(n))
		}
		return fmt.Sprintf("%.1f", n)
	}
	if n > 0 && n < 1 {
		return "< " + amountOf(m, 1)
	}
	return amountOf(m, int64(n+.5))
}

// choice is a link to another form of the same page.
type choice struct {
	Name, Link string
	Chosen     bool
}

// history is what a page shows of the usage: a chart of one measure, and the choice of others.
type history struct {
	*chart

	Measures []choice
	Divided  []choice
	Until    time.Time // up to which it is complete
	Stale    bool
}

// staleHistory is the age from which a history counts as not being recorded.
const staleHistory = 2 * time.Minute

// wantsHistory reads from the address which measure and which periods to show.
func (v *visit) wantsHistory() (m tenant.Measure, by string, all []period) {
	m, by = tenant.Measure(v.r.URL.Query().Get("of")), v.r.URL.Query().Get("by")
	if !slices.Contains(historyMeasures, m) {
		m = historyMeasures[0]
	}
	if by != byWeek && by != byQuarter {
		by = byDay
	}
	return m, by, periodsUntil(time.Now(), by)
}

var historyMeasures = append(slices.Clone(mainMeasures), tenant.CountInstances)

// historyOf shows the usage of accounts, and what the hosts offered if that is known. The links are to the page at a
// path.
func (v *visit) historyOf(path string, accounts []usage.Account, capacity []usage.Day, until time.Time) *history {
	m, by, all := v.wantsHistory()
	fill(all, accounts)
	fillOffered(all, capacity)
	now := time.Now()
	h := &history{chart: chartOf(m, all, now), Until: until, Stale: now.Sub(until) > staleHistory}
	for _, other := range historyMeasures {
		h.Measures = append(h.Measures, choice{measureName(other), v.link(path, "of", string(other), "by", by),
			other == m})
	}
	for _, other := range []string{byDay, byWeek, byQuarter} {
		h.Divided = append(h.Divided, choice{"by " + other, v.link(path, "of", string(m), "by", other), other == by})
	}
	return h
}
