package control

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
)

// newRequests counts requests.
func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "croft_api_requests_total", Help: "Requests answered by the API of the cloud.",
	}, []string{"operation", "status"})
}

// Collector has the metrics of the server.
func (s *Server) Collector() prometheus.Collector { return s.requests }

func (s *Server) count(operation string, status int) {
	s.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
}

// Ready returns why the server cannot serve everything yet. Unavailable.
func (s *Server) Ready() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that nothing is waited for
	if _, _, err := s.feed.from(ctx, 0); err != nil {
		return croft.Errorf(croft.Unavailable, "the changes of the cloud are still being read")
	}
	return nil
}
