package manager

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/cluster"
	"croft/internal/meter"
)

// alarmAfter is how long a site may take to remove a cluster before an operator should look.
const alarmAfter = time.Hour

// metrics holds the manager's metrics.
type metrics struct {
	meter.Set
	m      *Manager
	calls  *prometheus.HistogramVec
	sweeps *prometheus.CounterVec
	states *prometheus.Desc
}

func newMetrics(m *Manager) *metrics {
	s := &metrics{m: m}
	s.calls = s.Seconds("croft_cluster_call_seconds", "Calls to sites of clusters, by what they do and how they ended.",
		meter.Work, "call", "result")
	s.sweeps = s.Counters("croft_cluster_sweeps_total",
		"Comparisons of what a site has with the records of clusters, by how they ended.", "result")
	s.Now("croft_cluster_unrecorded", "Clusters of this cloud that the last sweep found at sites without a record.",
		func() float64 { m.mu.Lock(); defer m.mu.Unlock(); return float64(len(m.strays)) })
	s.Now("croft_cluster_late_removals", "Clusters that their sites have not removed within an hour.", m.lateRemovals)
	s.Now("croft_cluster_silent_sites", "Sites that do not answer.", m.answers.silent)
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
	count := map[cluster.State]int{}
	s.m.mu.Lock()
	for _, e := range s.m.entries {
		count[e.state]++
	}
	s.m.mu.Unlock()
	for _, state := range cluster.States {
		ch <- prometheus.MustNewConstMetric(s.states, prometheus.GaugeValue, float64(count[state]), string(state))
	}
}

func (m *Manager) lateRemovals() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.entries {
		if !e.removal.IsZero() && time.Since(e.removal) > alarmAfter {
			n++
		}
	}
	return float64(n)
}
