package libvirt

import (
	"github.com/prometheus/client_golang/prometheus"

	"croft/internal/meter"
)

// metrics counts the calls to libvirt.
type metrics struct {
	meter.Set
	calls  *prometheus.HistogramVec
	opened prometheus.Counter
}

func newMetrics(slots chan struct{}) *metrics {
	m := &metrics{}
	m.calls = m.Seconds("croft_libvirt_call_seconds",
		"Calls of libvirt, by what was attempted and how it ended; the wait for a free call is part of it.", meter.Work,
		"call", "result")
	m.opened = m.Counter("croft_libvirt_connections_opened_total",
		"Connections to libvirt. More than one of a process were lost.")
	m.Now("croft_libvirt_calls", "Calls that are inside libvirt, those that it will never come back from included.",
		func() float64 { return float64(len(slots)) })
	m.Now("croft_libvirt_calls_limit", "How many calls may be inside libvirt.",
		func() float64 { return float64(cap(slots)) })
	return m
}
