package placement

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/placement/ledger"
)

// metrics counts requests and describes the ledger.
type metrics struct {
	ledger    *ledger.Ledger
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	conflicts *prometheus.Desc
	size      *prometheus.Desc
	revision  *prometheus.Desc
	lag       *prometheus.Desc
	ready     *prometheus.Desc
	capacity  *prometheus.Desc
	claimed   *prometheus.Desc
}

func newMetrics(l *ledger.Ledger) *metrics {
	return &metrics{
		ledger: l,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "croft_placement_requests_total", Help: "Requests answered.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "croft_placement_request_seconds", Help: "Time to answer a request.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5},
		}, []string{"method", "route"}),
		conflicts: prometheus.NewDesc("croft_placement_conflicts_total",
			"Transactions lost to another server and tried again.", nil, nil),
		size: prometheus.NewDesc("croft_placement_objects", "Objects in the state.", []string{"kind"}, nil),
		revision: prometheus.NewDesc("croft_placement_revision", "Revision of the store that this server has seen.",
			nil, nil),
		lag: prometheus.NewDesc("croft_placement_revision_lag",
			"Revisions between the newest that the store is known to have and the one seen.", nil, nil),
		capacity: prometheus.NewDesc("croft_placement_capacity",
			"Claimable amount of a resource class, in its unit: the sum of (total - reserved) * ratio over all "+
				"providers.",
			[]string{"class"}, nil),
		claimed: prometheus.NewDesc("croft_placement_claimed", "Claimed amount of a resource class, in its unit.",
			[]string{"class"}, nil),
		ready: prometheus.NewDesc("croft_placement_ready", "1 where requests are served, 0 where they get 503.", nil,
			nil),
	}
}

// observe counts a request. An unknown method does not become a label.
func (m *metrics) observe(method, route string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.seconds.Describe(ch)
	ch <- m.conflicts
	ch <- m.size
	ch <- m.revision
	ch <- m.lag
	ch <- m.ready
	ch <- m.capacity
	ch <- m.claimed
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.seconds.Collect(ch)
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	if m.ledger.Ready() == nil {
		gauge(m.ready, 1)
	} else {
		gauge(m.ready, 0)
	}
	conflicts := float64(m.ledger.Conflicts())
	ch <- prometheus.MustNewConstMetric(m.conflicts, prometheus.CounterValue, conflicts)
	sums := m.ledger.Sums()
	if sums == nil {
		return
	}
	gauge(m.revision, sums.Revision)
	gauge(m.lag, sums.Lag)
	for class, n := range sums.Capacity {
		gauge(m.capacity, n, class)
		gauge(m.claimed, sums.Claimed[class], class)
	}
	for kind, n := range sums.Objects {
		gauge(m.size, n, kind)
	}
}
