package compute

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
)

// Meters is a hypervisor that measures the resource usage of its guests.
type Meters interface {
	// Usages returns the resources that the running guests have used since they started.
	Usages(ctx context.Context) ([]Usage, error)
}

// Usage is the resource usage of one guest since its process started.
type Usage struct {
	Instance    croft.InstanceID `json:"instance" format:"uuid"` // its UUID
	CPU         time.Duration    `json:"cpu_ns"`                 // of all its CPUs
	MemoryBytes uint64           `json:"memory_bytes"`           // resident on the host now
	DiskRead    uint64           `json:"disk_read_bytes"`        // bytes since the guest started
	DiskWritten uint64           `json:"disk_written_bytes"`     // bytes since the guest started
	DiskReads   uint64           `json:"disk_reads"`             // operations since the guest started
	DiskWrites  uint64           `json:"disk_writes"`            // operations since the guest started
	NetReceived uint64           `json:"network_received_bytes"` // by the guest
	NetSent     uint64           `json:"network_sent_bytes"`     // bytes since the guest started
	// Busy: memory and disk are unknown, and 0 here, because another operation uses the guest's monitor.
	Busy bool `json:"busy,omitempty"`
}

// usagePatience is how long the hypervisor may take to answer; scrapers of metrics rarely wait longer.
const usagePatience = 3 * time.Second

// usages are the only metrics with a label that names an instance: one host has few instances, and their series end
// with the guests. The label is not "instance", which Prometheus uses for its scrape target.
type usages struct {
	hypervisor Hypervisor
	names      func() map[croft.InstanceID]called
	read       *prometheus.Desc
	info       *prometheus.Desc
	all        []usageMetric
}

type usageMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Usage) float64
	// unknown while the guest is Busy: a counter that became 0 would count as restarted
	asks bool
}

func newUsages(hypervisor Hypervisor, names func() map[croft.InstanceID]called) *usages {
	u := &usages{hypervisor: hypervisor, names: names}
	u.read = prometheus.NewDesc("croft_agent_usages_read",
		"1 where the hypervisor reported the usage of the guests in time, 0 where croft_instance_ metrics are missing because it did not.", nil, nil)
	u.info = prometheus.NewDesc("croft_instance_info",
		"1 for each instance of this host that has an order, with its name.", []string{"uuid", "project", "name"},
		nil)
	add := func(name, help string, kind prometheus.ValueType, value func(Usage) float64) {
		asks := strings.HasPrefix(name, "memory_") || strings.HasPrefix(name, "disk_")
		u.all = append(u.all, usageMetric{prometheus.NewDesc("croft_instance_"+name, help, []string{"uuid"}, nil), kind,
			value, asks})
	}
	add("cpu_seconds_total", "CPU time of the guest, of all its CPUs together.", prometheus.CounterValue,
		func(x Usage) float64 { return x.CPU.Seconds() })
	add("memory_bytes", "Memory that the guest takes on the host.", prometheus.GaugeValue,
		func(x Usage) float64 { return float64(x.MemoryBytes) })
	add("disk_read_bytes_total", "Bytes that the guest has read from its disks.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.DiskRead) })
	add("disk_written_bytes_total", "Bytes that the guest has written to its disks.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.DiskWritten) })
	add("disk_reads_total", "Read operations of the guest's disks.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.DiskReads) })
	add("disk_writes_total", "Write operations of the guest's disks.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.DiskWrites) })
	add("network_received_bytes_total", "Bytes that the guest has received.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.NetReceived) })
	add("network_sent_bytes_total", "Bytes that the guest has sent.", prometheus.CounterValue,
		func(x Usage) float64 { return float64(x.NetSent) })
	return u
}

// Describe implements prometheus.Collector.
func (u *usages) Describe(ch chan<- *prometheus.Desc) {
	ch <- u.read
	ch <- u.info
	for _, m := range u.all {
		ch <- m.desc
	}
}

// ownUsages returns the usage of the guests that have an order on this host: another agent, also that of another cloud,
// may have guests in the same hypervisor. NotFound: the hypervisor measures nothing.
func ownUsages(ctx context.Context, h Hypervisor, ordered map[croft.InstanceID]called) ([]Usage, error) {
	meters, ok := h.(Meters)
	if !ok {
		return nil, croft.Errorf(croft.NotFound, "this hypervisor cannot measure the usage of its guests")
	}
	ctx, cancel := context.WithTimeout(ctx, usagePatience)
	defer cancel()
	all, err := meters.Usages(ctx)
	if err != nil {
		return nil, err
	}
	own := []Usage{} // a list in JSON, not null
	for _, one := range all {
		if _, ours := ordered[one.Instance]; ours {
			own = append(own, one)
		}
	}
	return own, nil
}

// Collect implements prometheus.Collector.
func (u *usages) Collect(ch chan<- prometheus.Metric) {
	ordered := u.names()
	for id, called := range ordered {
		ch <- prometheus.MustNewConstMetric(u.info, prometheus.GaugeValue, 1, string(id), string(called.project),
			called.name)
	}
	if _, ok := u.hypervisor.(Meters); !ok {
		return
	}
	all, err := ownUsages(context.Background(), u.hypervisor, ordered)
	ch <- prometheus.MustNewConstMetric(u.read, prometheus.GaugeValue, truth(err == nil))
	for _, one := range all {
		for _, m := range u.all {
			if one.Busy && m.asks {
				continue
			}
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(one), string(one.Instance))
		}
	}
}
