package usages_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/internal/delay"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/usage"
)

var everything = access.Everything()

// midnight is the start of the days of these tests.
var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func stored(project croft.Project, born int64, m usage.Meter) usage.Stored {
	return usage.Stored{ID: usage.ID{Project: project, Born: born}, Meter: m}
}

// bornOf returns when the counter of a project was created.
func bornOf(t *testing.T, s *etcdstore.Store, p croft.Project) int64 {
	t.Helper()
	return etcdtest.Must(s.Projects.Born(t.Context(), 0))(t)[p]
}

// record writes that projects use one VCPU each for some days from midnight on.
func record(t *testing.T, s *etcdstore.Store, days int, projects ...croft.Project) {
	t.Helper()
	head := etcdtest.Must(s.Usage.Head(t.Context()))(t)
	step := usage.Step{Was: head, Next: usage.Head{At: midnight.AddDate(0, 0, days).Add(time.Hour)}}
	for _, p := range projects {
		m, over := usage.NewMeter(midnight).Set(tenant.Amounts{"VCPU": 1}, 1).Until(midnight.AddDate(0, 0, days))
		a := stored(p, bornOf(t, s, p), m)
		step.Accounts = append(step.Accounts, a)
		for _, d := range over {
			step.Days = append(step.Days, usage.Finished{ID: a.ID, Day: d})
		}
	}
	etcdtest.Must(s.Usage.Write(t.Context(), step))(t)
}

// words formats a report: each project, with ! for a former one, its days and its unit-seconds of VCPU.
func words(r usage.Report) string {
	var all []string
	for _, a := range r.Projects {
		name := string(a.Project)
		if a.Former {
			name += "!"
		}
		sum := usage.Sum(a.Days)
		all = append(all, fmt.Sprintf("%s %d %d", name, len(a.Days), sum.UnitSeconds["VCPU"]))
	}
	return strings.Join(all, ", ")
}

func TestWhoeverAsksSeesTheOwnProjects(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	r := etcdtest.Must(s.Usage.List(t.Context(), everything, usage.Filter{}))(t)
	if !r.Until.IsZero() || r.Projects == nil {
		t.Errorf("nothing is recorded as %+v", r)
	}
	newProject(t, s, "org", "")
	newProject(t, s, "dev", "org")
	newProject(t, s, "old", "org")
	record(t, s, 2, "org", "dev", "old")
	if err := s.Projects.Remove(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	newProject(t, s, "old", "org") // another project of this name
	const days3 = 2*86400 + 3600
	both := fmt.Sprintf("dev 3 %d, org 3 %d", days3, days3)
	for _, c := range []struct {
		name  string
		scope access.Scope
		f     usage.Filter
		want  string
	}{
		{"an operator sees all that there are", everything, usage.Filter{}, both},
		{"and those that there were", everything, usage.Filter{Former: true},
			fmt.Sprintf("dev 3 %d, old! 3 %d, org 3 %d", days3, days3, days3)},
		{"a tenant sees the own one", access.Within("dev"), usage.Filter{}, fmt.Sprintf("dev 3 %d", days3)},
		{"and not another one", access.Within("dev"), usage.Filter{Projects: []croft.Project{"org"}}, ""},
		{"nor a former one of the same name", access.Within("old"), usage.Filter{Former: true}, ""},
		{"a name that is none is nothing", everything, usage.Filter{Projects: []croft.Project{"d", "", "a/b"}}, ""},
		{"from a day on", access.Within("org"), usage.Filter{Since: "2026-03-02"}, "org 2 90000"},
		{"until a day", access.Within("org"), usage.Filter{Until: "2026-03-01"}, "org 1 86400"},
		{"a day", access.Within("org"), usage.Filter{Since: "2026-03-02", Until: "2026-03-02"}, "org 1 86400"},
		{"a day of the future", access.Within("org"), usage.Filter{Since: "2026-04-02"}, ""},
	} {
		r := etcdtest.Must(s.Usage.List(t.Context(), c.scope, c.f))(t)
		if got := words(r); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if want := midnight.AddDate(0, 0, 2).Add(time.Hour); !r.Until.Equal(want) {
			t.Errorf("%s: it is complete until %s", c.name, r.Until)
		}
	}
}

func TestAStepIsOfOneRecorder(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	one := etcdtest.Must(s.Usage.Take(t.Context(), usage.Head{}, "one"))(t)
	_, err := s.Usage.Take(t.Context(), usage.Head{}, "two")
	etcdtest.WantKind(t, err, croft.Conflict)
	two := etcdtest.Must(s.Usage.Take(t.Context(), one.Head, "two"))(t)
	var accounts []usage.Stored
	for i := range 250 { // more than one transaction
		accounts = append(accounts, stored("a", int64(i), usage.NewMeter(midnight)))
	}
	_, err = s.Usage.Write(t.Context(), usage.Step{Was: one.Head, Next: one.Head, Accounts: accounts})
	etcdtest.WantKind(t, err, croft.Conflict)
	two = etcdtest.Must(s.Usage.Take(t.Context(), two.Head, "two"))(t)
	if len(two.Accounts) != 0 {
		t.Errorf("a step that was refused left %d accounts", len(two.Accounts))
	}
	next := usage.Head{Recorder: "two", At: midnight, Revision: two.Revision}
	written := etcdtest.Must(s.Usage.Write(t.Context(), usage.Step{Was: two.Head, Next: next, Accounts: accounts}))(t)
	three := etcdtest.Must(s.Usage.Take(t.Context(), written, "three"))(t)
	if len(three.Accounts) != 250 || !three.Head.At.Equal(midnight) || three.Head.Revision != two.Revision {
		t.Errorf("the next one begins with %d accounts and %+v", len(three.Accounts), three.Head)
	}
}

func TestWhatIsTooOldOrTooMuchGoes(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	for _, p := range []croft.Project{"org", "late", "old"} {
		newProject(t, s, p, "")
		inst := etcdtest.Must(s.Instances.Create(t.Context(), asked(p, "vm", 1)))(t)
		if p == "old" {
			if err := s.Instances.Discard(t.Context(), inst); err != nil {
				t.Fatal(err)
			}
		}
	}
	record(t, s, 10, "org", "late")
	head := etcdtest.Must(s.Usage.Head(t.Context()))(t)
	m, over := usage.NewMeter(midnight.AddDate(0, 0, 5)).Set(tenant.Amounts{"VCPU": 1}, 1).
		Until(midnight.AddDate(0, 0, 7).Add(time.Second))
	m = m.Set(nil, 2)
	m.Ended = true
	ended := stored("old", bornOf(t, s, "old"), m)
	step := usage.Step{Was: head, Next: head, Accounts: []usage.Stored{ended}}
	for _, d := range over {
		step.Days = append(step.Days, usage.Finished{ID: ended.ID, Day: d})
	}
	etcdtest.Must(s.Usage.Write(t.Context(), step))(t)
	if err := s.Projects.Remove(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		r := etcdtest.Must(s.Usage.List(t.Context(), everything, usage.Filter{Former: true}))(t)
		if got := words(r); got != want {
			t.Errorf("there is %q, want %q", got, want)
		}
	}
	all := "late 11 867600, old! 3 172801, org 11 867600"
	look(all)
	trim := func(now time.Time, most, want int) {
		t.Helper()
		if n, err := s.Usage.TrimTo(t.Context(), now, most); err != nil || n != want {
			t.Errorf("%d keys are removed, %v, want %d", n, err, want)
		}
	}
	trim(midnight.Add(usage.Kept), 23, 0)
	look(all)
	trim(midnight.Add(usage.Kept), 22, 1) // those of the former project are removed first
	look("late 11 867600, old! 2 86401, org 11 867600")
	trim(midnight.Add(usage.Kept), 18, 4) // then the oldest ones
	look("late 10 781200, org 10 781200")
	trim(midnight.Add(usage.Kept+3*24*time.Hour), 18, 4)
	look("late 8 608400, org 8 608400")
}

// Recorders with etcd record the usage of instances, one after the other.
func TestRecordersTakeOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	start := func(name string, on *etcdstore.Store) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _ = usage.Recorder{Name: name, Store: on.Usage, Every: time.Second}.Run(ctx) })
		return func() { cancel(); work.Wait() }
	}
	until := func(what string, met func(usage.Report, usage.Head) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			r := etcdtest.Must(s.Usage.List(t.Context(), everything, usage.Filter{Projects: []croft.Project{"lab"}}))(t)
			head := etcdtest.Must(s.Usage.Head(t.Context()))(t)
			if met(r, head) {
				return
			}
			if delay.For(ctx, 20*time.Millisecond) != nil {
				t.Fatalf("%s: there is %+v of %+v", what, r, head)
			}
		}
	}
	peak := func(n int64) func(usage.Report, usage.Head) bool {
		return func(r usage.Report, _ usage.Head) bool {
			return len(r.Projects) == 1 && usage.Sum(r.Projects[0].Days).Peak["VCPU"] == n
		}
	}
	endOne := start("one", s)
	defer endOne()
	until("the first one records", func(_ usage.Report, h usage.Head) bool {
		return h.Recorder == "one" && h.Revision > 0
	})
	etcdtest.Must(other.Instances.Create(t.Context(), asked("lab", "a", 2)))(t)
	until("an instance is charged", peak(2))
	endOne()
	until("it ends", func(_ usage.Report, h usage.Head) bool { return h.Recorder == "" })
	etcdtest.Must(s.Instances.Create(t.Context(), asked("lab", "b", 3)))(t)
	defer start("two", other)()
	until("the next one finds what nobody saw", peak(5))
	until("and goes on", func(r usage.Report, h usage.Head) bool {
		return h.Recorder == "two" && usage.Sum(r.Projects[0].Days).UnitSeconds["VCPU"] > 0
	})
}

func TestWhatTheHostsOfferIsKeptForTheDaysOfProjects(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	if days := etcdtest.Must(s.Usage.Capacity(t.Context(), usage.Filter{}))(t); days != nil {
		t.Errorf("before the first measurement there is %+v", days)
	}
	var was usage.Gauge
	write := func(next usage.Meter, over []usage.Day) error {
		return s.Usage.WriteGauge(t.Context(), was, next, over)
	}
	m := usage.NewMeter(midnight).Set(tenant.Amounts{"VCPU": 8}, 0)
	if err := write(m, nil); err != nil {
		t.Fatal(err)
	}
	if err := write(m, nil); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a write over an unknown one: %v", err)
	}
	for _, hours := range []int{12, 36, 24 * 450} {
		was = etcdtest.Must(s.Usage.Gauge(t.Context()))(t)
		next, over := was.Until(midnight.Add(time.Duration(hours) * time.Hour))
		if err := write(next, over); err != nil {
			t.Fatal(err)
		}
		days := etcdtest.Must(s.Usage.Capacity(t.Context(), usage.Filter{}))(t)
		switch last := days[len(days)-1]; {
		case hours == 12 && (len(days) != 1 || last.UnitSeconds["VCPU"] != 8*12*3600):
			t.Errorf("after half a day it has %+v", days)
		case hours == 36 && (len(days) != 2 || days[0].UnitSeconds["VCPU"] != 8*24*3600 || last.Date != "2026-03-02"):
			t.Errorf("after a day and a half it has %+v", days)
		case hours > 36 && (days[0].Date < "2026-03-03" || len(days) > 401):
			t.Errorf("after 450 days it has %d days from %s on", len(days), days[0].Date)
		}
	}
	some := etcdtest.Must(s.Usage.Capacity(t.Context(), usage.Filter{Since: "2027-05-20", Until: "2027-05-21"}))(t)
	if len(some) != 2 {
		t.Errorf("of two days it has %+v", some)
	}
}
