// Package meter makes the metrics that a package keeps of itself. A package has one Set and returns it as a collector,
// so several instances can exist in one process; there is no global registration.
//
// Names are croft_<part>_<what>_<unit>, with the suffix _total for counters. Labels have few values, known in advance:
// never an ID, a name or an address.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
)

// Set is a collection of metrics. The zero value is ready.
type Set struct{ all []prometheus.Collector }

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range s.all {
		one.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, one := range s.all {
		one.Collect(ch)
	}
}

func add[C prometheus.Collector](s *Set, c C) C {
	s.all = append(s.all, c)
	return c
}

// Counter adds a number that only increases.
func (s *Set) Counter(name, help string) prometheus.Counter {
	return add(s, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Counters adds counters with labels.
func (s *Set) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return add(s, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

// Gauge adds a number that goes up and down.
func (s *Set) Gauge(name, help string) prometheus.Gauge {
	return add(s, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// Gauges adds gauges with labels.
func (s *Set) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(s, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// Now adds a gauge that is read at collection.
func (s *Set) Now(name, help string, read func() float64) {
	add(s, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Seconds adds histograms of durations. A Prometheus server that supports native histograms receives those, others the
// buckets.
func (s *Set) Seconds(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(s, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels))
}

// Buckets for Seconds: Requests for short waits of programs, Work for longer work.
var (
	Requests = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	Work     = []float64{.05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600}
)

// Result returns the label of a result: ok, or the kind of the error in one word.
func Result(err error) string {
	if err == nil {
		return "ok"
	}
	if kind := croft.KindOf(err); kind != "" {
		return string(kind)
	}
	return "other"
}
