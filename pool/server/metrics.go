package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/httpapi"
	"croft/pool"
)

// metrics counts requests and describes the pools. Only the server that leads reports pools.
type metrics struct {
	manager  *pool.Manager
	live     func() int // number of live pages
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	acting, fault, streams    *prometheus.Desc
	resources, limit          *prometheus.Desc
	waiting, open             *prometheus.Desc
	starts, served            *prometheus.Desc
	success, startup, started *prometheus.Desc
}

func newMetrics(m *pool.Manager, live func() int) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("croft_pool_"+name, help, labels, nil)
	}
	return &metrics{
		manager: m, live: live,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "croft_pool_requests_total", Help: "Requests answered.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "croft_pool_request_seconds", Help: "Time to answer a request.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5, 30, 120},
		}, []string{"route"}),
		acting:    desc("acting", "1 if this server acts, 0 if it stands by."),
		fault:     desc("config_fault", "1 while pools.yaml has a fault and the last good one is in force."),
		streams:   desc("live_pages", "Pages that are live."),
		resources: desc("resources", "Resources that have not ended; UP ones are ready or taken.", "pool", "state"),
		limit:     desc("max", "How many resources the pool may have.", "pool"),
		waiting:   desc("waiting_tickets", "Tickets that wait and that the pool could serve.", "pool"),
		open:      desc("open_tickets", "Open tickets."),
		starts:    desc("starts_total", "Starts of resources that ended.", "pool", "result"),
		served:    desc("served_total", "Tickets that got a resource.", "pool"),
		success:   desc("startup_success_rate", "Moving average of the share of starts that succeed.", "pool"),
		startup:   desc("startup_seconds_avg", "Moving average of how long starts take.", "pool"),
		started: desc("last_successful_start_timestamp_seconds",
			"When a start last succeeded, in seconds since 1970.", "pool"),
	}
}

// watch counts and times the requests that next answers; mux knows their routes.
func (m *metrics) watch(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, route := mux.Handler(r) // a pattern, with nothing that clients choose
		if route == "" {
			route = "none"
		}
		begun := time.Now()
		noted := httpapi.RecordStatus(w)
		next.ServeHTTP(noted, r)
		m.requests.WithLabelValues(route, strconv.Itoa(noted.Status)).Inc()
		m.seconds.WithLabelValues(route).Observe(time.Since(begun).Seconds())
	})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.manager.Collector().Describe(ch)
	m.requests.Describe(ch)
	m.seconds.Describe(ch)
	for _, d := range []*prometheus.Desc{
		m.acting, m.fault, m.streams, m.resources, m.limit, m.waiting, m.open, m.starts, m.served, m.success, m.startup,
		m.started,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.manager.Collector().Collect(ch)
	m.requests.Collect(ch)
	m.seconds.Collect(ch)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	_, here := m.manager.Leader()
	gauge(m.acting, truth(here))
	gauge(m.fault, truth(m.manager.Fault() != nil))
	gauge(m.streams, float64(m.live()))
	pools, err := m.manager.Pools()
	if err != nil {
		return // another server leads
	}
	for _, p := range pools {
		m.collectPool(ch, gauge, p)
	}
	if tickets, err := m.manager.Tickets(false); err == nil {
		open := 0
		for _, t := range tickets {
			if t.State == pool.TicketOpen {
				open++
			}
		}
		gauge(m.open, float64(open))
	}
}

func (m *metrics) collectPool(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string),
	p pool.PoolStatus) {
	name := string(p.Name())
	for state, n := range map[string]int{
		"ready": p.Counts.Ready, "taken": p.Counts.Taken, "starting": p.Counts.Starting,
		"releasing":      p.Counts.Releasing,
		"delete_request": p.Counts.DeleteRequest, "deleting": p.Counts.Deleting,
		"given_up": p.Counts.GivenUp,
	} {
		gauge(m.resources, float64(n), name, state)
	}
	gauge(m.limit, float64(p.Settings.Max), name)
	gauge(m.waiting, float64(p.Waiting), name)
	gauge(m.success, p.Stats.SuccessRate, name)
	gauge(m.startup, p.Stats.StartTime.Seconds(), name)
	if !p.Stats.Succeeded.IsZero() {
		gauge(m.started, float64(p.Stats.Succeeded.Unix()), name)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counter(m.starts, p.Stats.Starts-p.Stats.Failures, name, "success")
	counter(m.starts, p.Stats.Failures, name, "failure")
	counter(m.served, p.Stats.Served, name)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
