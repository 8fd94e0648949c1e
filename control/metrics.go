package control

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/control/actions"
)

// newRequests returns the counter of requests.
func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "croft_api_requests_total", Help: "Requests answered by the API of the cloud.",
	}, []string{"operation", "status"})
}

// newLost returns the counter of dropped entries of the action log.
func newLost(r *actions.Recorder) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "croft_api_actions_lost_total", Help: "Entries that the action log could not take.",
	}, func() float64 { return float64(r.Lost()) })
}

// Collector returns the metrics of the server.
func (s *Server) Collector() prometheus.Collector { return collectors{s.requests, newLost(s.Actions)} }

// collectors combines several collectors. It implements prometheus.Collector.
type collectors []prometheus.Collector

// Describe implements prometheus.Collector.
func (all collectors) Describe(to chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (all collectors) Collect(to chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(to)
	}
}

func (s *Server) count(operation string, status int) {
	s.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
}

// Ready returns the reason why the server cannot serve everything yet. Unavailable.
func (s *Server) Ready() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that From does not wait
	if _, _, err := s.feed.From(ctx, 0); err != nil {
		return croft.Errorf(croft.Unavailable, "the changes of the cloud are still being read")
	}
	return nil
}
