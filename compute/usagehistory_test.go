package compute

import (
	"context"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// noon is the begin of ten minutes.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ofGuest is the order of the guest, which has two processors.
var ofGuest = map[croft.InstanceID]called{guest: {order: 7, processors: 2}}

// busy returns what a guest has used that does the same all the time.
func busy(since time.Duration) Usage {
	n := uint64(since / time.Second)
	return Usage{Instance: guest, CPU: since / 2, MemoryBytes: 100 << 20, DiskRead: 1000 * n, DiskWritten: 2000 * n,
		DiskReads: 3 * n, DiskWrites: 4 * n, NetReceived: 500 * n, NetSent: 600 * n}
}

// value returns a value of a point; -1: it is unknown.
func value(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func TestUsageIsTheDifferenceOfTwoReadings(t *testing.T) {
	t.Parallel()
	changed := func(u Usage, change func(*Usage)) Usage { change(&u); return u }
	first, second := busy(10*time.Minute), busy(11*time.Minute)
	all := [8]float64{25, 100 << 20, 1000, 2000, 3, 4, 500, 600}
	for _, c := range []struct {
		name          string
		before, after Usage
		took          time.Duration
		want          [8]float64
	}{
		{"of all that is measured", first, second, time.Minute, all},
		{"and nothing where nothing is used", first, first, time.Minute, [8]float64{0, 100 << 20}},
		{"unknown after the guest was started again", first, busy(time.Second), time.Minute,
			[8]float64{-1, 100 << 20, -1, -1, -1, -1, -1, -1}},
		{"unknown of disks while the monitor is busy", first,
			changed(second, func(u *Usage) { u.MemoryBytes, u.DiskRead, u.DiskReads, u.Busy = 0, 0, 0, true }),
			time.Minute, [8]float64{25, -1, -1, -1, -1, -1, 500, 600}},
		{"unknown of disks after the monitor was busy, instead of a peak",
			changed(first, func(u *Usage) { u.DiskRead, u.DiskWritten, u.Busy = 0, 0, true }), second, time.Minute,
			[8]float64{25, 100 << 20, -1, -1, -1, -1, 500, 600}},
		{"unknown of disks after a volume was detached", first, changed(second, func(u *Usage) { u.DiskWrites = 1 }),
			time.Minute, [8]float64{25, 100 << 20, -1, -1, -1, -1, 500, 600}},
		{"unknown after a long time without a reading", first, second, time.Hour,
			[8]float64{-1, 100 << 20, -1, -1, -1, -1, -1, -1}},
		{"unknown when the clock went back", first, second, -time.Second,
			[8]float64{-1, 100 << 20, -1, -1, -1, -1, -1, -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one := sampled{last: c.before, lastAt: noon}
			p := one.point(noon.Add(c.took), c.after, 2)
			var got [8]float64
			for n, v := range p.values() {
				got[n] = value(*v)
			}
			if got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// measureEach notes a reading each minute, of a guest that does the same all the time.
func measureEach(s *samples, from time.Time, minutes int) {
	for n := range minutes + 1 {
		s.note(from.Add(time.Duration(n)*time.Minute), []Usage{busy(time.Duration(n+1) * time.Minute)}, ofGuest)
	}
}

func TestUsageIsKeptOfAnHourAndOfADay(t *testing.T) {
	t.Parallel()
	s := newSamples("")
	end := noon.Add(30 * time.Hour)
	measureEach(s, noon, 30*60)
	h := s.history(guest, 7, end)
	if len(h.Hour.Points) != 60 || len(h.Day.Points) != 144 || !h.Until.Equal(end) {
		t.Fatalf("%d minutes, %d times ten minutes, until %s", len(h.Hour.Points), len(h.Day.Points), h.Until)
	}
	if first, last := h.Hour.Points[0].At, h.Day.Points[143]; !first.Equal(end.Add(-time.Hour)) ||
		value(last.Processor) != 25 || value(last.NetSent) != 600 || !last.At.Equal(end.Add(-10*time.Minute)) {
		t.Errorf("the hour begins at %s, the day ends with %+v", first, last)
	}
	if later := s.history(guest, 7, end.Add(30*time.Minute)); len(later.Hour.Points) != 30 ||
		len(later.Day.Points) != 141 {
		t.Errorf("half an hour later there are %d minutes and %d times ten minutes", len(later.Hour.Points),
			len(later.Day.Points))
	}
	if none := s.history(guest, 8, end); len(none.Hour.Points)+len(none.Day.Points) != 0 {
		t.Errorf("a later instance with the UUID has %+v", none)
	}
}

func TestUsageHasGapsWhereTheGuestWasOff(t *testing.T) {
	t.Parallel()
	s := newSamples("")
	measureEach(s, noon, 10)
	for n := range 9 {
		s.note(noon.Add(time.Duration(11+n)*time.Minute), nil, ofGuest)
	}
	measureEach(s, noon.Add(20*time.Minute), 10)
	h := s.history(guest, 7, noon.Add(30*time.Minute))
	for _, p := range h.Hour.Points {
		known := p.At.Before(noon.Add(10*time.Minute)) && !p.At.Before(noon) || !p.At.Before(noon.Add(20*time.Minute))
		if (p.Processor != nil) != known {
			t.Errorf("at %s the processor is at %v", p.At, value(p.Processor))
		}
		if value(p.Processor) > 25 {
			t.Errorf("a peak of %v at %s", value(p.Processor), p.At)
		}
	}
	if n := len(h.Hour.Points); n != 22 { // also the memory of the minutes before both starts
		t.Errorf("there are %d points", n)
	}
	s.note(noon.Add(31*time.Minute), nil, nil)
	if h := s.history(guest, 7, noon.Add(31*time.Minute)); len(h.Hour.Points) != 0 {
		t.Errorf("after its end, the instance has %+v", h)
	}
}

func TestAClockThatGoesBackKeepsUsageInOrder(t *testing.T) {
	t.Parallel()
	s := newSamples("")
	measureEach(s, noon, 30)
	measureEach(s, noon.Add(-20*time.Minute), 25)
	h := s.history(guest, 7, noon.Add(5*time.Minute))
	for n, p := range h.Hour.Points {
		if n > 0 && !p.At.After(h.Hour.Points[n-1].At) || p.At.After(h.Until) {
			t.Errorf("point %d is at %s, after %s", n, p.At, h.Hour.Points[max(0, n-1)].At)
		}
	}
	if len(h.Hour.Points) < 25 {
		t.Errorf("%d points are left", len(h.Hour.Points))
	}
}

func TestPastUsageSurvivesTheAgent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.json.gz")
	began := time.Now().Truncate(dayEvery).Add(-2 * time.Hour)
	end := began.Add(2 * time.Hour)
	s := newSamples(file)
	measureEach(s, began, 120)
	if err := s.save(end); err != nil {
		t.Fatal(err)
	}
	open := func() *samples {
		again := newSamples(file)
		if err := again.load(); err != nil {
			t.Fatal(err)
		}
		return again
	}
	count := func(s *samples, order int64) (minutes, tens int) {
		h := s.history(guest, order, end)
		return len(h.Hour.Points), len(h.Day.Points)
	}
	again := open()
	if minutes, tens := count(again, 7); minutes != 60 || tens < 12 {
		t.Errorf("the next agent has %d minutes and %d times ten minutes", minutes, tens)
	}
	again.note(end.Add(time.Minute), []Usage{busy(122 * time.Minute)}, ofGuest)
	if now := again.history(guest, 7, end.Add(time.Minute)).Hour.Points; len(now) != 60 || !now[59].At.Equal(end) {
		t.Errorf("once it has measured, it has %d minutes, the last at %s", len(now), now[len(now)-1].At)
	}
	if minutes, _ := count(open(), 8); minutes != 0 {
		t.Errorf("a later instance with the UUID has %d minutes", minutes)
	}
	taken := open()
	taken.note(end.Add(time.Minute), []Usage{busy(time.Minute)}, map[croft.InstanceID]called{guest: {order: 8}})
	if minutes, _ := count(taken, 8); minutes != 1 {
		t.Errorf("a later instance with the UUID is measured for %d minutes", minutes)
	}
	late := open()
	late.note(time.Now().Add(2*claimedWithin), nil, nil)
	if minutes, _ := count(late, 7); minutes != 0 {
		t.Errorf("%d minutes are left of an instance without an order", minutes)
	}
}

func TestADamagedFileCostsOnlyPastUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.json.gz")
	s := newSamples(file)
	measureEach(s, time.Now().Truncate(dayEvery).Add(-time.Hour), 60)
	if err := s.save(time.Now()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "cut": string(whole[:len(whole)/2]),
		"without its end": string(whole[:len(whole)-4]), "of something else": "{}",
		"with a wrong byte": string(whole[:20]) + "\x00\xff" + string(whole[22:])} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		damaged := newSamples(file)
		if err := damaged.load(); err == nil || !strings.Contains(err.Error(), file+" is damaged") {
			t.Errorf("a file that is %s: %v", name, err)
		}
		measureEach(damaged, noon, 5)
		if h := damaged.history(guest, 7, noon.Add(5*time.Minute)); len(h.Hour.Points) != 6 {
			t.Errorf("a file that is %s: %d points", name, len(h.Hour.Points))
		}
	}
	if err := newSamples(filepath.Join(t.TempDir(), "none")).load(); err != nil {
		t.Errorf("no file: %v", err)
	}
}

func TestUsageThatAnotherMachineSendsIsBounded(t *testing.T) {
	t.Parallel()
	number := func(v float64) *float64 { return &v }
	h := UsageHistory{Until: noon}
	for n := range 5000 {
		h.Hour.Points = append(h.Hour.Points, UsagePoint{At: noon.Add(time.Duration(n-4900) * time.Minute),
			Processor: number(5)})
		h.Day.Points = append(h.Day.Points, UsagePoint{At: noon, Memory: number(1)}, UsagePoint{Memory: number(1)})
	}
	h.Hour.Points = append(h.Hour.Points, UsagePoint{At: noon.Add(-time.Minute), Processor: number(7)})
	got := h.Bounded()
	if len(got.Hour.Points) != 61 || len(got.Day.Points) != 1 || got.Hour.Every != 60 || got.Day.Every != 600 {
		t.Errorf("%d and %d points", len(got.Hour.Points), len(got.Day.Points))
	}
	for _, bad := range []float64{-1, 1e300, math.Inf(1), math.NaN()} {
		h := UsageHistory{Until: noon, Hour: UsageSeries{Points: []UsagePoint{{At: noon, Memory: number(bad),
			NetSent: number(3)}, {At: noon.Add(-time.Minute), Memory: number(bad)}}}}
		if got := h.Bounded(); len(got.Hour.Points) != 1 || got.Hour.Points[0].Memory != nil {
			t.Errorf("with %v: %+v", bad, got)
		}
	}
}

// counting is a hypervisor whose guest does the same all the time.
type counting struct {
	logHypervisor
	began time.Time
}

func (c counting) Usages(context.Context) ([]Usage, error) {
	return []Usage{busy(time.Since(c.began))}, c.read("usages")
}

func TestAnAgentMeasuresItsGuestsEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, a := alone(t)
		a.UsageEvery = time.Minute
		a.samples = newSamples(filepath.Join(t.TempDir(), "usage.json.gz"))
		a.Hypervisor = counting{logHypervisor{logbook: l}, time.Now()}
		a.instances.remember(guest).called.Store(ofGuest[guest])
		l.order = new(run())
		var away atomic.Bool
		l.fail = func(string) error {
			if away.Load() {
				return errPlanned
			}
			return nil
		}
		measured := func() UsageHistory { return a.samples.history(guest, 7, time.Now()) }
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { a.measure(ctx) })
		time.Sleep(10*time.Minute + time.Second)
		if h := measured(); len(h.Hour.Points) != 10 || value(h.Hour.Points[9].Processor) != 25 {
			t.Errorf("after ten minutes it has %+v", h.Hour)
		}
		if got := text(t, ask(t, a, http.MethodGet, "/v1/instances/"+string(guest)+"/usage")); !strings.Contains(got,
			`"points":[]`) {
			t.Errorf("the order has another identity, and it answers %s", got)
		}
		away.Store(true)
		time.Sleep(5 * time.Minute)
		away.Store(false)
		time.Sleep(5 * time.Minute)
		if h := measured(); len(h.Hour.Points) != 15 {
			t.Errorf("after five minutes without the hypervisor it has %+v", h.Hour)
		}
		cancel()
		work.Wait()
		again := newSamples(a.samples.file)
		if err := again.load(); err != nil || len(again.history(guest, 7, time.Now()).Hour.Points) != 15 {
			t.Errorf("the file has %+v, %v", again.found, err)
		}
	})
}
