package manager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/cluster"
	"croft/internal/meter"
)

// metrics holds the manager's metrics.
type metrics struct {
	meter.Set
	count  func() map[cluster.State]int
	calls  *prometheus.HistogramVec
	sweeps *prometheus.CounterVec
	states *prometheus.Desc
}

func newMetrics(count func() map[cluster.State]int, late, strays, silent func() float64) *metrics {
	s := &metrics{count: count}
	s.calls = s.Seconds("croft_cluster_call_seconds", "Calls to sites of clusters, by call and outcome.",
		meter.Work, "call", "result")
	s.sweeps = s.Counters("croft_cluster_sweeps_total",
		"Comparisons of a site with the records of clusters, by outcome.", "result")
	s.Now("croft_cluster_unrecorded", "Clusters of this cloud that the last sweep found at sites without a record.",
		strays)
	s.Now("croft_cluster_late_removals", "Clusters that their sites have not removed within an hour.", late)
	s.Now("croft_cluster_silent_sites", "Sites that do not answer.", silent)
	s.states = prometheus.NewDesc("croft_cluster_clusters", "Clusters, by state.", []string{"state"}, nil)
	return s
}

func (s *metrics) called(do cluster.Act, begun time.Time, err error) {
	s.calls.WithLabelValues(string(do), meter.Result(err)).Observe(time.Since(begun).Seconds())
}

// Describe implements prometheus.Collector.
func (s *metrics) Describe(ch chan<- *prometheus.Desc) {
	s.Set.Describe(ch)
	ch <- s.states
}

// Collect implements prometheus.Collector.
func (s *metrics) Collect(ch chan<- prometheus.Metric) {
	s.Set.Collect(ch)
	count := s.count()
	for _, state := range cluster.States {
		ch <- prometheus.MustNewConstMetric(s.states, prometheus.GaugeValue, float64(count[state]), string(state))
	}
}
