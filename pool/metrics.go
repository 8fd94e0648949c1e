package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/meter"
)

// metrics are the counters of a manager.
type metrics struct {
	meter.Set

	rounds prometheus.Observer
}

func newMetrics() *metrics {
	m := &metrics{}
	m.rounds = m.Seconds("croft_pool_round_seconds",
		"Rounds that changed something, from taking what came in to its being written.",
		meter.Requests).WithLabelValues()
	return m
}
