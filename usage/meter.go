package usage

import (
	"maps"
	"math"
	"time"

	"croft/tenant"
)

// Meter measures one project: what was used on the day of At until then, and what is used from then on. Times are whole
// seconds and never go back.
type Meter struct {
	At       time.Time      `json:"at"`
	Used     tenant.Amounts `json:"used"`
	Revision int64          `json:"revision"` // changes up to here are in it
	Today    Day            `json:"today"`
	Ended    bool           `json:"ended,omitempty"` // the project was removed
}

// NewMeter makes a meter of nothing.
func NewMeter(at time.Time) Meter {
	at = at.UTC().Truncate(time.Second)
	return Meter{At: at, Used: tenant.Amounts{}, Today: Day{Date: at.Format(time.DateOnly)}}
}

// Until returns the meter at a later time, if what is used stays, and the days that are over then and had any use.
// Days that would be removed at once are left out.
func (m Meter) Until(t time.Time) (Meter, []Day) { return m.until(t, false) }

func (m Meter) until(t time.Time, estimated bool) (Meter, []Day) {
	t = t.UTC().Truncate(time.Second)
	var over []Day
	for m.At.Before(t) {
		end := m.At.Truncate(day).Add(day) // UTC has no days of other lengths
		m.Today = m.Today.and(m.Used, earlier(end, t).Sub(m.At), estimated)
		if m.At = earlier(end, t); m.At.Before(end) {
			break
		}
		if m.Today.any() {
			over = append(over, m.Today)
		}
		if oldest := t.Add(-Kept).Truncate(day); m.At.Before(oldest) {
			m.At = oldest
		}
		m.Today = Day{Date: m.At.Format(time.DateOnly)}
	}
	return m, over
}

// Set returns the meter with other amounts from its time on. What is less than nothing counts as nothing. What is
// replaced within the same second was not used at all: it may be of a request that was refused.
func (m Meter) Set(used tenant.Amounts, revision int64) Meter {
	m.Used = maps.Clone(used)
	maps.DeleteFunc(m.Used, func(_ tenant.Measure, n int64) bool { return n <= 0 })
	m.Revision = max(m.Revision, revision)
	return m
}

// end returns the meter with nothing used from its time on, and for ever.
func (m Meter) end(revision int64) Meter {
	m = m.Set(tenant.Amounts{}, revision)
	m.Ended = true
	return m
}

// Between returns the meter at a later time, at which other amounts are used, if it is not known when that changed
// since: half of the time counts by what was used, half by what is used.
func (m Meter) Between(since, t time.Time, used tenant.Amounts, revision int64) (Meter, []Day) {
	m, over := m.Until(since)
	middle, days := m.until(m.At.Add(t.Sub(m.At)/2), true)
	end, more := middle.Set(used, revision).until(t, true)
	return end, append(append(over, days...), more...)
}

// and returns a day on which amounts were used for some more time.
func (d Day) and(used tenant.Amounts, took time.Duration, estimated bool) Day {
	d.UnitSeconds, d.Peak = maps.Clone(d.UnitSeconds), maps.Clone(d.Peak)
	if d.UnitSeconds == nil {
		d.UnitSeconds, d.Peak = tenant.Amounts{}, tenant.Amounts{}
	}
	seconds := int64(took / time.Second)
	if seconds > 0 {
		for m, n := range used {
			d.Peak[m] = max(d.Peak[m], n)
			d.UnitSeconds[m] = addProduct(d.UnitSeconds[m], n, seconds)
		}
	}
	if estimated {
		d.Estimated += seconds
	}
	return d
}

// any reports whether the day is worth keeping.
func (d Day) any() bool { return len(d.Peak) > 0 || d.Estimated > 0 }

// addProduct returns sum + n*times for numbers from 0, at most the greatest number.
func addProduct(sum, n, times int64) int64 {
	if n > (math.MaxInt64-sum)/times {
		return math.MaxInt64
	}
	return sum + n*times
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Sum adds up days: the amounts times the time, the most at once, the seconds that are estimated. Its Date is empty.
func Sum(days []Day) Day {
	sum := Day{UnitSeconds: tenant.Amounts{}, Peak: tenant.Amounts{}}
	for _, d := range days {
		for m, n := range d.UnitSeconds {
			sum.UnitSeconds[m] = addProduct(sum.UnitSeconds[m], n, 1)
		}
		for m, n := range d.Peak {
			sum.Peak[m] = max(sum.Peak[m], n)
		}
		sum.Estimated += d.Estimated
	}
	return sum
}

// Present returns the days that a filter chooses of an account: those that are over, in order, and what its meter has
// until a time.
func (f Filter) Present(over []Day, m Meter, until time.Time) []Day {
	now, more := m.Until(later(m.At, until))
	if now.Today.any() {
		more = append(more, now.Today)
	}
	all := []Day{}
	for _, d := range append(over, more...) {
		if f.has(d.Date) {
			all = append(all, d)
		}
	}
	return all
}
