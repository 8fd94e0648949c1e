package usage

import (
	"maps"
	"math"
	"time"

	"croft/tenant"
)

// Meter measures one project: its usage on the day of At until At, and the amounts in use from then on. Times are whole
// seconds and never go back.
type Meter struct {
	At       time.Time      `json:"at"`
	Used     tenant.Amounts `json:"used"`
	Revision int64          `json:"revision"` // changes up to this revision are included
	Today    Day            `json:"today"`
	Ended    bool           `json:"ended,omitempty"` // the project was removed
}

// NewMeter returns a meter with nothing in use.
func NewMeter(at time.Time) Meter {
	at = at.UTC().Truncate(time.Second)
	return Meter{At: at, Used: tenant.Amounts{}, Today: Day{Date: at.Format(time.DateOnly)}}
}

// Until returns the meter at a later time if the amounts do not change, and the days that ended meanwhile and had any
// usage. Days beyond the retention period are left out.
func (m Meter) Until(t time.Time) (Meter, []Day) { return m.until(t, false) }

func (m Meter) until(t time.Time, estimated bool) (Meter, []Day) {
	t = t.UTC().Truncate(time.Second)
	var over []Day
	for m.At.Before(t) {
		end := m.At.Truncate(day).Add(day) // UTC days have a fixed length
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

// Set returns the meter with other amounts from its time on. Negative amounts count as 0. Amounts that are replaced
// within the same second do not count: they may belong to a refused request.
func (m Meter) Set(used tenant.Amounts, revision int64) Meter {
	m.Used = maps.Clone(used)
	maps.DeleteFunc(m.Used, func(_ tenant.Measure, n int64) bool { return n <= 0 })
	m.Revision = max(m.Revision, revision)
	return m
}

// end returns the meter with nothing in use from its time on, forever.
func (m Meter) end(revision int64) Meter {
	m = m.Set(tenant.Amounts{}, revision)
	m.Ended = true
	return m
}

// Between returns the meter at a later time with other amounts, if it is unknown when they changed since: half of the
// time counts with the old amounts, half with the new ones.
func (m Meter) Between(since, t time.Time, used tenant.Amounts, revision int64) (Meter, []Day) {
	m, over := m.Until(since)
	middle, days := m.until(m.At.Add(t.Sub(m.At)/2), true)
	end, more := middle.Set(used, revision).until(t, true)
	return end, append(append(over, days...), more...)
}

// and returns a day with the usage of amounts for an additional time.
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

// any reports whether the day has data worth keeping.
func (d Day) any() bool { return len(d.Peak) > 0 || d.Estimated > 0 }

// addProduct returns sum + n*times for non-negative numbers, limited to the maximum int64.
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

// Sum adds up days: amounts times time, the maximum of the peaks, and the estimated seconds. Its Date is empty.
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

// Present returns the days of an account that a filter selects: the finished ones in order, then the usage of its meter
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
