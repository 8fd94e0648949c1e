package mdserver

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/httpapi"
	"croft/internal/meter"
)

// metrics counts requests of guests.
type metrics struct {
	meter.Set
	seconds     *prometheus.HistogramVec
	spoofed     prometheus.Counter
	connections prometheus.Gauge
	closed      prometheus.Counter
	serving     prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{}
	m.seconds = m.Seconds("croft_mdserver_request_seconds",
		"Answers to guests, by the part of the tree and the status.", meter.Requests, "route", "status")
	m.spoofed = m.Counter("croft_mdserver_spoofed_total",
		"Requests from the address of one guest by the network card or the port of another, which got nothing.")
	m.connections = m.Gauge("croft_mdserver_connections", "Connections of guests that are open.")
	m.closed = m.Counter("croft_mdserver_connections_displaced_total",
		"Connections closed for newer ones, since there were too many of one guest or of all.")
	m.serving = m.Gauge("croft_mdserver_listeners",
		"Addresses at which guests are served now: IPv4 and, if the bridge has it, IPv6.")
	return m
}

// measured answers a request and records the result.
func (m *metrics) measured(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	begun := time.Now()
	noted := httpapi.RecordStatus(w)
	answer(noted, r)
	m.seconds.WithLabelValues(routeOf(r.URL.Path), strconv.Itoa(noted.Status)).Observe(time.Since(begun).Seconds())
}

// routeOf returns the part of the tree that contains a path. Paths outside the tree are "other".
func routeOf(path string) string {
	switch {
	case path == healthPath:
		return "health"
	case strings.HasPrefix(path, tokenPath):
		return "token"
	case strings.HasPrefix(path, reportPath):
		return "report"
	case strings.HasPrefix(path, "/openstack/"):
		return "openstack"
	case strings.HasPrefix(path, "/latest/"), strings.HasPrefix(path, "/20"), strings.HasPrefix(path, "/1.0/"):
		return "ec2"
	}
	return "other"
}
