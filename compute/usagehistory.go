package compute

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/durable"
)

// UsageHistory is what a guest has used on its host, as averages.
type UsageHistory struct {
	Until time.Time   `json:"until"` // by the host's clock
	Hour  UsageSeries `json:"hour"`  // by minute
	Day   UsageSeries `json:"day"`   // by ten minutes
}

// UsageSeries is a usage over time.
type UsageSeries struct {
	Every  int64        `json:"every_seconds"` // length of the interval of each point
	Points []UsagePoint `json:"points"`        // by time; intervals in which the guest was off, or not measured, are missing
}

// UsageSummary describes the known values of a series.
type UsageSummary struct {
	Count         int
	Average, Most float64  // 0 without values
	Now           *float64 // nil: the last three intervals have no value
}

// Summary describes the values that of returns, in a series that ends at until. Unknown values are nil.
func (s UsageSeries) Summary(of func(UsagePoint) *float64, until time.Time) (sum UsageSummary) {
	total, every := 0.0, time.Duration(s.Every)*time.Second
	for _, p := range s.Points {
		v := of(p)
		if v == nil {
			continue
		}
		total, sum.Most = total+*v, max(sum.Most, *v)
		sum.Count++
		if until.Sub(p.At) < 3*every {
			sum.Now = v
		}
	}
	if sum.Count > 0 {
		sum.Average = total / float64(sum.Count)
	}
	return sum
}

// UsagePoint is the average usage of a guest in one interval. Unknown values are missing.
type UsagePoint struct {
	At          time.Time `json:"at"`                                          // start of the interval
	Processor   *float64  `json:"processor_percent,omitempty"`                 // of all processors of the instance
	Memory      *float64  `json:"memory_bytes,omitempty"`                      // resident on the host
	DiskRead    *float64  `json:"disk_read_bytes_per_second,omitempty"`        // of all disks
	DiskWritten *float64  `json:"disk_written_bytes_per_second,omitempty"`     // of all disks
	DiskReads   *float64  `json:"disk_reads_per_second,omitempty"`             // operations
	DiskWrites  *float64  `json:"disk_writes_per_second,omitempty"`            // operations
	NetReceived *float64  `json:"network_received_bytes_per_second,omitempty"` // by the guest
	NetSent     *float64  `json:"network_sent_bytes_per_second,omitempty"`     // by the guest
}

// Lengths and intervals of both series.
const (
	hourEvery = time.Minute
	dayEvery  = 10 * time.Minute
)

// values returns the places of all values of a point.
func (p *UsagePoint) values() []**float64 {
	return []**float64{&p.Processor, &p.Memory, &p.DiskRead, &p.DiskWritten, &p.DiskReads, &p.DiskWrites,
		&p.NetReceived, &p.NetSent}
}

// empty reports whether nothing is known in the interval.
func (p *UsagePoint) empty() bool {
	return !slices.ContainsFunc(p.values(), func(v **float64) bool { return *v != nil })
}

// put appends a point, and drops the ones that are too old. If the clock went back, later points are dropped.
func (s *UsageSeries) put(p UsagePoint, longest time.Duration) {
	earlier := func(one UsagePoint, at time.Time) int { return one.At.Compare(at) }
	n, _ := slices.BinarySearchFunc(s.Points, p.At, earlier)
	s.Points = slices.Delete(s.Points, n, len(s.Points))
	if !p.empty() {
		s.Points = append(s.Points, p)
	}
	s.trim(p.At.Add(time.Duration(s.Every)*time.Second), longest)
}

// trim drops the points before a time less a span.
func (s *UsageSeries) trim(until time.Time, longest time.Duration) {
	s.Points = slices.DeleteFunc(s.Points, func(p UsagePoint) bool { return p.At.Before(until.Add(-longest)) })
}

// Lengths of what both series cover.
const (
	hourLong = time.Hour
	dayLong  = 24 * time.Hour
)

func newUsageHistory() UsageHistory {
	return UsageHistory{Hour: UsageSeries{Every: int64(hourEvery / time.Second), Points: []UsagePoint{}},
		Day: UsageSeries{Every: int64(dayEvery / time.Second), Points: []UsagePoint{}}}
}

// put adds a point to the hour, and to the average of its ten minutes.
func (h *UsageHistory) put(p UsagePoint) {
	h.Hour.put(p, hourLong)
	begin := p.At.Truncate(dayEvery)
	var within []UsagePoint
	for _, one := range h.Hour.Points {
		if !one.At.Before(begin) {
			within = append(within, one)
		}
	}
	h.Day.put(averageOf(begin, within), dayLong)
}

// averageOf returns the average of points as a point.
func averageOf(at time.Time, points []UsagePoint) UsagePoint {
	average := UsagePoint{At: at}
	for n, into := range average.values() {
		sum, count := 0.0, 0
		for _, p := range points {
			if v := *p.values()[n]; v != nil {
				sum += *v
				count++
			}
		}
		if count > 0 {
			*into = rounded(sum / float64(count))
		}
	}
	return average
}

// rounded returns a value with a precision that the file and the answers need.
func rounded(v float64) *float64 {
	if v < 1000 {
		v = math.Round(v*100) / 100
	} else {
		v = math.Round(v)
	}
	return &v
}

// Bounded returns the history as far as it is one: another machine may have sent it. Each series has at most as many
// points as it covers intervals, in order, and none after until.
func (h UsageHistory) Bounded() UsageHistory {
	all := newUsageHistory()
	all.Until = h.Until.UTC()
	take := func(from, into *UsageSeries, every, longest time.Duration) {
		last := time.Time{}
		for _, p := range from.Points {
			p.At = p.At.UTC().Truncate(every)
			for _, v := range p.values() {
				if *v != nil && (**v < 0 || **v > 1e15 || math.IsNaN(**v)) {
					*v = nil
				}
			}
			if p.At.After(last) && !p.At.After(all.Until) && !p.At.Before(all.Until.Add(-longest)) && !p.empty() {
				into.Points = append(into.Points, p)
				last = p.At
			}
		}
	}
	take(&h.Hour, &all.Hour, hourEvery, hourLong)
	take(&h.Day, &all.Day, dayEvery, dayLong)
	return all
}

// until returns a copy of the history at a time.
func (h UsageHistory) until(now time.Time) UsageHistory {
	h.Until = now.UTC()
	h.Hour.Points, h.Day.Points = slices.Clone(h.Hour.Points), slices.Clone(h.Day.Points)
	h.Hour.trim(h.Until, hourLong)
	h.Day.trim(h.Until, dayLong)
	return h
}

// sampled is the history of one instance.
type sampled struct {
	Order   int64        `json:"order"` // identity of the order: the UUID may pass to another instance
	History UsageHistory `json:"history"`

	last   Usage     // the last reading
	lastAt time.Time // zero: no reading yet
}

// samples has the histories of the guests of a host. Nothing but the file survives the agent.
type samples struct {
	file string

	mu  sync.Mutex
	all map[croft.InstanceID]*sampled
	// found in the file, and not yet known to belong to an order
	found map[croft.InstanceID]*sampled
	since time.Time // when the file was read
}

func newSamples(file string) *samples {
	return &samples{file: file, all: map[croft.InstanceID]*sampled{}, found: map[croft.InstanceID]*sampled{},
		since: time.Now()}
}

// claimedWithin is how long histories of the file wait for their orders.
const claimedWithin = time.Hour

// longestGap is the longest time between two readings whose difference is a rate.
const longestGap = 5 * hourEvery / 2

// note takes a reading of the guests with an order, at a time.
func (s *samples) note(now time.Time, read []Usage, ordered map[croft.InstanceID]called) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.all {
		if o, has := ordered[id]; !has || o.order != one.Order {
			delete(s.all, id) // the instance ended
		}
	}
	if now.Sub(s.since) > claimedWithin {
		clear(s.found)
	}
	for _, u := range read {
		o, has := ordered[u.Instance]
		if !has {
			continue
		}
		one := s.of(u.Instance, o.order)
		p := one.point(now, u, o.processors)
		one.last, one.lastAt = u, now
		if !p.empty() {
			one.History.put(p)
		}
	}
}

// of returns the history of an instance by the identity of its order. The caller holds s.mu.
func (s *samples) of(id croft.InstanceID, order int64) *sampled {
	if one := s.all[id]; one != nil {
		return one
	}
	one := s.found[id]
	delete(s.found, id)
	if one == nil || one.Order != order {
		one = &sampled{Order: order, History: newUsageHistory()}
	}
	s.all[id] = one
	return one
}

// point returns the usage since the last reading. Counters that went back belong to a guest that was started again, or
// to other devices: what they count is unknown in this interval.
func (one *sampled) point(now time.Time, u Usage, processors int64) UsagePoint {
	p := UsagePoint{At: now.Add(-hourEvery / 2).UTC().Truncate(hourEvery)}
	if !u.Busy {
		p.Memory = rounded(float64(u.MemoryBytes))
	}
	took := now.Sub(one.lastAt)
	if one.lastAt.IsZero() || took <= 0 || took > longestGap {
		return p
	}
	was := one.last
	rate := func(before, after uint64) *float64 { return rounded(float64(after-before) / took.Seconds()) }
	restarted := u.CPU < was.CPU
	if processors > 0 && !restarted {
		p.Processor = rounded(100 * float64(u.CPU-was.CPU) / float64(took) / float64(processors))
	}
	if !restarted && u.NetReceived >= was.NetReceived && u.NetSent >= was.NetSent {
		p.NetReceived, p.NetSent = rate(was.NetReceived, u.NetReceived), rate(was.NetSent, u.NetSent)
	}
	if !restarted && !u.Busy && !was.Busy && u.DiskRead >= was.DiskRead && u.DiskWritten >= was.DiskWritten &&
		u.DiskReads >= was.DiskReads && u.DiskWrites >= was.DiskWrites {
		p.DiskRead, p.DiskWritten = rate(was.DiskRead, u.DiskRead), rate(was.DiskWritten, u.DiskWritten)
		p.DiskReads, p.DiskWrites = rate(was.DiskReads, u.DiskReads), rate(was.DiskWrites, u.DiskWrites)
	}
	return p
}

// history returns the history of an instance that has this order; empty, if nothing was measured.
func (s *samples) history(id croft.InstanceID, order int64, now time.Time) UsageHistory {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range []map[croft.InstanceID]*sampled{s.all, s.found} {
		if one := all[id]; one != nil && one.Order == order {
			return one.History.until(now)
		}
	}
	return newUsageHistory().until(now)
}

// savedEvery is the number of readings between two writes of the file.
const savedEvery = 5

// measure reads the usage of the guests until ctx ends.
func (a *Agent) measure(ctx context.Context) {
	if _, measures := a.Hypervisor.(Meters); !measures {
		return
	}
	if err := a.samples.load(); err != nil {
		a.logUnless(ctx, err, "measure")
	}
	save := func() {
		if err := a.samples.save(time.Now()); err != nil {
			a.Log.Warn("the past usage of the guests would be lost if the agent ended now", "host", a.Host.ID, "err", err)
		}
	}
	for n := 1; ; n++ {
		now := time.Now()
		if delay.For(ctx, now.Truncate(a.UsageEvery).Add(a.UsageEvery).Sub(now)) != nil {
			save()
			return
		}
		ordered := a.instances.names()
		// Resyncs log that the hypervisor does not answer.
		if read, err := ownUsages(ctx, a.Hypervisor, ordered); err == nil {
			a.samples.note(time.Now(), read, ordered)
		}
		if n%savedEvery == 0 {
			save()
		}
	}
}

// mostSamples limits the file, in bytes, when it is read.
const mostSamples = 256 << 20

// load reads the file. Nothing depends on it, so that a damaged one only costs the histories in it.
func (s *samples) load() error {
	if s.file == "" {
		return nil
	}
	f, err := os.Open(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read past usage of guests: %w", err)
	}
	defer f.Close()
	all := map[croft.InstanceID]*sampled{}
	packed, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(packed, mostSamples)).Decode(&all)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(packed, 1)) // the end has the checksum
	}
	if err != nil {
		return fmt.Errorf("read past usage of guests: %s is damaged, so they have no history: %w", s.file, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range all {
		if one != nil {
			one.History = one.History.Bounded()
			s.found[id] = one
		}
	}
	return nil
}

// save replaces the file.
func (s *samples) save(now time.Time) error {
	if s.file == "" {
		return nil
	}
	s.mu.Lock()
	all := map[croft.InstanceID]sampled{}
	for _, some := range []map[croft.InstanceID]*sampled{s.found, s.all} {
		for id, one := range some {
			all[id] = sampled{Order: one.Order, History: one.History.until(now)}
		}
	}
	s.mu.Unlock()
	return durable.WriteFrom(s.file, 0o600, func(w io.Writer) error {
		packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		return errors.Join(json.NewEncoder(packed).Encode(all), packed.Close())
	})
}
