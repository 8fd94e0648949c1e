package compute

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/hosts/audit"
	"croft/internal/meter"
)

// metrics are the agent's metrics.
type metrics struct {
	meter.Set
	others []prometheus.Collector
	states func() map[croft.State]int

	passes      *prometheus.CounterVec
	steps       *prometheus.HistogramVec
	phases      *prometheus.HistogramVec
	delay       prometheus.Observer
	arrival     prometheus.Observer
	failures    *prometheus.CounterVec
	sweeps      *prometheus.CounterVec
	jobs        *prometheus.CounterVec
	differences *prometheus.GaugeVec
	instances   *prometheus.Desc

	imagesCopied prometheus.Counter
}

// The phases of an order, as named in metrics and traces.
const (
	phaseQueue   = "queue"
	phaseFetch   = "image fetch"
	phaseOverlay = "overlay"
	phaseSeed    = "metadata disk"
	phaseDefine  = "define"
	phaseBoot    = "boot"
)

// newMetrics returns an agent's metrics, including further collectors that belong to it.
func newMetrics(builds chan struct{}, locked, known *atomic.Bool, states func() map[croft.State]int,
	others ...prometheus.Collector) *metrics {
	m := &metrics{states: states, others: others}
	m.passes = m.Counters("croft_agent_passes_total",
		"Looks at an instance and its order, by how they ended: ok, interrupted, waiting for another host, or the "+
			"kind of the error.", "result")
	m.steps = m.Seconds("croft_agent_step_seconds", "Steps of passes, by step and outcome.", meter.Work, "step",
		"result")
	m.phases = m.Seconds("croft_agent_phase_seconds",
		"Parts of building and starting a guest, by how they ended; queue is the wait for a free build.", meter.Work,
		"phase", "result")
	m.delay = m.Seconds("croft_agent_order_delay_seconds",
		"From the scheduler's order to the agent's first look at it, by the clocks of both machines.",
		meter.Requests).WithLabelValues()
	m.arrival = m.Seconds("croft_agent_time_to_running_seconds",
		"From the scheduler's order to the guest's address, by the clocks of both machines.",
		meter.Work).WithLabelValues()
	m.failures = m.Counters("croft_agent_order_failures_total",
		"Passes that could not carry out their order, by the kind of the error.", "kind")
	m.sweeps = m.Counters("croft_agent_sweeps_total",
		"Comparisons of guests, disks, claims and records, by how they ended.", "result")
	m.jobs = m.Counters("croft_agent_backup_jobs_total",
		"Jobs for backups, by what they do and how they ended: ok, interrupted, or the kind of the error.", "job",
		"result")
	m.differences = m.Gauges("croft_agent_differences",
		"Differences on the host that two comparisons of the last sweep found, by kind; croft audit shows "+
			"them.", "kind")
	m.Now("croft_agent_builds", "Guests that are being built.", func() float64 { return float64(len(builds)) })
	m.Now("croft_agent_builds_limit", "How many guests may be built at the same time.",
		func() float64 { return float64(cap(builds)) })
	m.Now("croft_agent_lock_held",
		"1 if this agent holds the agent lock of its host, 0 if it is passive.",
		func() float64 { return truth(locked.Load()) })
	m.Now("croft_agent_known", "1 once the host's inventory is offered and its record written.",
		func() float64 { return truth(known.Load()) })
	m.imagesCopied = m.Counter("croft_agent_images_copied_total",
		"Images of the cloud's catalog that other hosts gave to this one.")
	for _, kind := range []croft.Kind{croft.Invalid, croft.NotFound, croft.Conflict, croft.NoCapacity,
		croft.Unavailable, "other"} {
		m.failures.WithLabelValues(string(kind)) // else the first failure would not be an increase
	}
	m.instances = prometheus.NewDesc("croft_agent_instances", "Instances of this host, by the last observed state.",
		[]string{"state"}, nil)
	audit.CountKinds(m.differences, nil)
	return m
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.Set.Describe(ch)
	ch <- m.instances
	for _, c := range m.others {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector. It waits only for the hypervisor, at most usagePatience.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.Set.Collect(ch)
	for _, c := range m.others {
		c.Collect(ch)
	}
	for state, count := range m.states() {
		ch <- prometheus.MustNewConstMetric(m.instances, prometheus.GaugeValue, float64(count), string(state))
	}
}
