package usage

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft/tenant"
)

// at returns a time on 31 January 2026, or days later.
func at(t *testing.T, days int, clock string) time.Time {
	t.Helper()
	c, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		t.Fatal(err)
	}
	return time.Date(2026, 1, 31+days, c.Hour(), c.Minute(), c.Second(), 0, time.UTC)
}

func TestMeter(t *testing.T) {
	one, two := tenant.Amounts{"VCPU": 1}, tenant.Amounts{"VCPU": 2}
	begun := NewMeter(at(t, 0, "23:00:00")).Set(one, 1)
	for _, c := range []struct {
		name string
		days []Day
		want []Day
	}{
		{"what stays is counted until then, by day", Filter{}.Present(nil, begun, at(t, 1, "01:00:00")), []Day{
			{"2026-01-31", tenant.Amounts{"VCPU": 3600}, one, 0},
			{"2026-02-01", tenant.Amounts{"VCPU": 3600}, one, 0}}},
		{"a day ends with its last second", Filter{}.Present(nil, begun, at(t, 1, "00:00:00")), []Day{
			{"2026-01-31", tenant.Amounts{"VCPU": 3600}, one, 0}}},
		{"nothing is counted for a clock that is behind", Filter{}.Present(nil, begun, at(t, 0, "22:00:00")), []Day{}},
		{"a filter chooses days", Filter{Since: "2026-02-01", Until: "2026-02-01"}.Present(
			[]Day{{"2026-01-01", nil, one, 0}}, begun, at(t, 2, "00:00:01")), []Day{
			{"2026-02-01", tenant.Amounts{"VCPU": 86400}, one, 0}}},
		{"what is used for no time has no peak: a request may have been refused", func() []Day {
			m, _ := begun.Set(two, 2).Set(one, 3).Until(at(t, 0, "23:30:00"))
			return []Day{m.Today}
		}(), []Day{{"2026-01-31", tenant.Amounts{"VCPU": 1800}, one, 0}}},
		{"what nobody saw counts half by each", func() []Day {
			m, over := begun.Between(at(t, 0, "23:30:00"), at(t, 1, "00:10:00"), two, 2)
			return append(over, m.Today)
		}(), []Day{{"2026-01-31", tenant.Amounts{"VCPU": 1800 + 1200 + 2*600}, two, 1800},
			{"2026-02-01", tenant.Amounts{"VCPU": 1200}, two, 600}}},
		{"nothing is estimated for a clock that is behind", func() []Day {
			m, over := begun.Between(at(t, 0, "21:30:00"), at(t, 0, "22:10:00"), two, 2)
			return append(over, m.Today)
		}(), []Day{{"2026-01-31", nil, nil, 0}}},
		{"less than nothing is nothing", func() []Day {
			m, _ := NewMeter(at(t, 0, "10:00:00")).Set(tenant.Amounts{"VCPU": -1}, 2).Until(at(t, 0, "11:00:00"))
			return []Day{m.Today}
		}(), []Day{{"2026-01-31", tenant.Amounts{}, tenant.Amounts{}, 0}}},
		{"numbers end somewhere", func() []Day {
			m, _ := begun.Set(tenant.Amounts{"VCPU": math.MaxInt64 / 2}, 2).Until(at(t, 0, "23:30:00"))
			return []Day{m.Today}
		}(), []Day{{"2026-01-31", tenant.Amounts{"VCPU": math.MaxInt64}, tenant.Amounts{"VCPU": math.MaxInt64 / 2},
			0}}},
	} {
		if diff := cmp.Diff(c.want, c.days); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestDaysThatWouldBeRemovedAreNotMade(t *testing.T) {
	m := NewMeter(at(t, 0, "12:00:00")).Set(tenant.Amounts{"VCPU": 1}, 1)
	now := m.At.Add(2000 * day)
	m, over := m.Until(now)
	if len(over) != 401 || over[1].Date != now.Add(-Kept).Format(time.DateOnly) || !m.At.Equal(now) ||
		m.Today.UnitSeconds["VCPU"] != 43200 {
		t.Errorf("%d days are over, from %v on; then %+v", len(over), over[1], m)
	}
}

func TestSum(t *testing.T) {
	got := Sum([]Day{{"2026-01-31", tenant.Amounts{"VCPU": 60}, tenant.Amounts{"VCPU": 2}, 5},
		{"2026-02-01", tenant.Amounts{"VCPU": 30, "instances": 7}, tenant.Amounts{"VCPU": 1, "instances": 1}, 6}})
	want := Day{"", tenant.Amounts{"VCPU": 90, "instances": 7}, tenant.Amounts{"VCPU": 2, "instances": 1}, 11}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
