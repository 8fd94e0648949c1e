package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/etcdstore"
	"croft/hosts"
	"croft/schedule"
)

// cloudMetrics count the whole cloud, in a process that serves all of it; agents count only their own host.
type cloudMetrics struct {
	mirror    *etcdstore.Mirror
	hosts     *prometheus.Desc
	instances *prometheus.Desc
}

// OfCloud adds hosts and instances of the whole cloud to the metrics of the process.
func (s *Self) OfCloud(ctx context.Context, p *Parts, store *etcdstore.Store) {
	m := NewCloudMetrics(store)
	s.Counts(m)
	p.Start(ctx, "the count of the cloud", func(ctx context.Context) error { return m.mirror.Run(ctx, nil) })
}

func NewCloudMetrics(store *etcdstore.Store) *cloudMetrics {
	m := &cloudMetrics{mirror: store.NewMirror()}
	m.hosts = prometheus.NewDesc("croft_cloud_hosts", "Hosts of the whole cloud: ready, drained, silent, fencing, dead, "+
		"or returned after they were declared dead.",
		[]string{"state"}, nil)
	m.instances = prometheus.NewDesc("croft_cloud_instances",
		"Instances of the whole cloud, in the words of schedule list.", []string{"state"}, nil)
	return m
}

// Collector returns the metrics.
func (m *cloudMetrics) Collector() prometheus.Collector { return m }

// Describe implements prometheus.Collector.
func (m *cloudMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.hosts
	ch <- m.instances
}

// Collect implements prometheus.Collector. Until everything was read once, it reports nothing.
func (m *cloudMetrics) Collect(ch chan<- prometheus.Metric) {
	if !m.mirror.Ready() {
		return
	}
	known, instances, _ := m.mirror.Look() // unreadable records are not included
	states := map[string]int{"ready": 0, "drained": 0, "silent": 0, "fencing": 0, "dead": 0, "returned": 0}
	for _, h := range known {
		states[hosts.Host{Host: h}.State()]++
	}
	words := map[string]int{}
	for _, state := range append([]croft.State{croft.StateScheduling, croft.StateHeld, croft.StateDestroying,
		croft.StateLost,
		schedule.Ordered, schedule.Unknown}, croft.ObservedStates...) {
		words[string(state)] = 0
	}
	for i := range instances {
		words[schedule.Describe(&instances[i])]++
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(m.hosts, prometheus.GaugeValue, float64(n), state)
	}
	for state, n := range words {
		ch <- prometheus.MustNewConstMetric(m.instances, prometheus.GaugeValue, float64(n), state)
	}
}
