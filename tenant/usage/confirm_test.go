package usage

import (
	"testing"
	"time"

	"croft/tenant"
)

// begun returns a recording that started at noon, at revision 10, of a project with one VCPU.
func begun(t *testing.T) (*recording, time.Time) {
	t.Helper()
	noon := at(t, 0, "12:00:00")
	r := begin(Taken{Head: Head{Recorder: "a", Generation: 10}, Revision: 10,
		Levels: []Level{{always, 3, tenant.Amounts{"VCPU": 1}}}}, noon)
	return r, noon
}

// mustStep takes a step that must succeed.
func (r *recording) mustStep(t *testing.T, now time.Time) Step {
	t.Helper()
	s, err := r.step(now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAHeadSaysNoMoreThanWasHeard(t *testing.T) {
	r, noon := begun(t)
	sent := noon.Add(time.Second)
	r.mustStep(t, sent)
	r.wrote(Head{Generation: 14})
	if s := r.mustStep(t, noon.Add(2*time.Second)); s.Next.Revision != 10 || !s.Next.At.Equal(noon) {
		t.Errorf("before the step was heard of, the head says %+v", s.Next)
	}
	for revision, want := range map[int64]int64{13: 10, 14: 14} {
		r, _ := begun(t)
		r.mustStep(t, sent)
		if err := r.note(Seen{Revision: revision}, sent); err != nil { // possibly before the answer
			t.Fatal(err)
		}
		r.wrote(Head{Generation: 14})
		s := r.mustStep(t, noon.Add(2*time.Second))
		if s.Next.Revision != want || s.Next.At.Equal(sent) != (want == 14) {
			t.Errorf("after revision %d was heard of, the head says %+v", revision, s.Next)
		}
	}
}

func TestWhatIsHeardTooLateHasNoTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		ticks time.Duration // one per second until then
		heard time.Duration
		ok    bool
	}{
		{"at once", 0, 0, true},
		{"in time", 10 * time.Second, 12 * time.Second, true},
		{"after the process was suspended", 10 * time.Second, 16 * time.Second, false},
		{"after no step was heard of for long", 21 * time.Second, 21 * time.Second, false},
		{"after the clock was set back", 10 * time.Second, 5 * time.Second, false},
	} {
		r, noon := begun(t)
		for d := time.Second; d <= c.ticks; d += time.Second {
			_ = r.tick(noon.Add(d)) // the last ones may be late
		}
		if err := r.note(Seen{Revision: 11}, noon.Add(c.heard)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestWhatChangedWhileNobodyRecordedIsEstimated(t *testing.T) {
	noon := at(t, 0, "12:00:00")
	one := tenant.Amounts{"VCPU": 1}
	meter := NewMeter(noon).Set(one, 5)
	for _, c := range []struct {
		name   string
		level  Level
		before []Stored
		want   Day
	}{
		{"not what stayed", Level{always, 10, one}, []Stored{{always, meter}},
			Day{"2026-01-31", tenant.Amounts{"VCPU": 600}, one, 0}},
		{"what changed, and back", Level{always, 11, one}, []Stored{{always, meter}},
			Day{"2026-01-31", tenant.Amounts{"VCPU": 600}, one, 300}},
		{"what is there since", Level{ID{"new", 12}, 12, one}, nil,
			Day{"2026-01-31", tenant.Amounts{"VCPU": 150}, one, 300}},
		{"what was there, and used nothing", Level{ID{"old", 2}, 12, one}, nil,
			Day{"2026-01-31", tenant.Amounts{"VCPU": 150}, one, 300}},
	} {
		head := Head{At: noon.Add(5 * time.Minute), Revision: 10, Generation: 20}
		r := begin(Taken{Head: head, Revision: 20, Accounts: c.before, Levels: []Level{c.level}},
			noon.Add(10*time.Minute))
		got, _ := r.accounts[c.level.ID].Until(noon.Add(10 * time.Minute))
		if got.Today.UnitSeconds["VCPU"] != c.want.UnitSeconds["VCPU"] || got.Today.Estimated != c.want.Estimated {
			t.Errorf("%s: %+v, want %+v", c.name, got.Today, c.want)
		}
	}
}
