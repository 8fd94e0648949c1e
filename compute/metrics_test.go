package compute

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/hosts/audit"
)

// gathered returns all metrics that have no buckets, as name{labels} and value.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry() // requires each described metric, and no other
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// measured is a hypervisor that measures the usage of its guests.
type measured struct {
	logHypervisor
	usages []Usage
}

func (m measured) Usages(context.Context) ([]Usage, error) { return m.usages, m.read("usages") }

func TestUsagesAreOfTheGuestsThereAre(t *testing.T) {
	t.Parallel()
	const uuid = "{" + string(guest) + "}"
	l, _ := alone(t)
	names := func() map[croft.InstanceID]called {
		return map[croft.InstanceID]called{guest: {project: "team", name: "web"}}
	}
	info := map[string]float64{"croft_instance_info{web,team," + string(guest) + "}": 1}
	h := measured{logHypervisor{logbook: l}, []Usage{{Instance: guest, CPU: 1500 * time.Millisecond, MemoryBytes: 2,
		DiskRead: 3, DiskWritten: 4, DiskReads: 7, DiskWrites: 8, NetReceived: 5, NetSent: 6}}}
	for _, c := range []struct {
		name       string
		hypervisor Hypervisor
		fail       func(string) error
		want       map[string]float64
	}{
		{"each guest's", h, nil, map[string]float64{"croft_agent_usages_read{}": 1,
			"croft_instance_cpu_seconds_total" + uuid: 1.5, "croft_instance_memory_bytes" + uuid: 2,
			"croft_instance_disk_read_bytes_total" + uuid: 3, "croft_instance_disk_written_bytes_total" + uuid: 4,
			"croft_instance_disk_reads_total" + uuid: 7, "croft_instance_disk_writes_total" + uuid: 8,
			"croft_instance_network_received_bytes_total" + uuid: 5,
			"croft_instance_network_sent_bytes_total" + uuid:     6}},
		{"none that a busy guest did not report", measured{h.logHypervisor,
			[]Usage{{Instance: guest, CPU: time.Second, NetReceived: 5, NetSent: 6, Busy: true}}}, nil,
			map[string]float64{"croft_agent_usages_read{}": 1, "croft_instance_cpu_seconds_total" + uuid: 1,
				"croft_instance_network_received_bytes_total" + uuid: 5,
				"croft_instance_network_sent_bytes_total" + uuid:     6}},
		{"none of guests without an order here, such as another cloud's", measured{h.logHypervisor,
			[]Usage{{Instance: "a stranger's", CPU: time.Second}}}, nil,
			map[string]float64{"croft_agent_usages_read{}": 1}},
		{"none where they cannot be had", measured{h.logHypervisor, nil}, failing(errPlanned, "usages"),
			map[string]float64{"croft_agent_usages_read{}": 0}},
		{"none where there are none", h.logHypervisor, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.fail = c.fail
			want := maps.Clone(info)
			maps.Copy(want, c.want)
			if got := gathered(t, newUsages(c.hypervisor, names)); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestAnAgentIsMeasured(t *testing.T) {
	t.Parallel()
	l := job{order: run()}.logbook(t)
	a, err := New(l.agent().Config)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want map[string]float64) {
		t.Helper()
		got := gathered(t, a.Collector())
		for name, n := range want {
			if have, there := got[name]; have != n || !there {
				t.Errorf("%s: %v (there: %v), want %v", name, have, there, n)
			}
		}
	}
	zeros := map[string]float64{"croft_agent_lock_held{}": 0, "croft_agent_known{}": 0, "croft_agent_builds{}": 0,
		"croft_agent_builds_limit{}": 4, "croft_agent_order_delay_seconds{}": 0,
		"croft_agent_time_to_running_seconds{}": 0}
	for _, kind := range []string{"invalid", "not found", "conflict", "no capacity", "unavailable", "other"} {
		zeros["croft_agent_order_failures_total{"+kind+"}"] = 0
	}
	for _, state := range croft.ObservedStates {
		zeros["croft_agent_instances{"+string(state)+"}"] = 0
	}
	zeros["croft_agent_differences{"+string(audit.StrayGuest)+"}"] = 0
	expect(zeros)
	a.locked.Store(true)
	a.known.Store(true)
	a.builds <- struct{}{}
	a.instances.remember("without an order")
	a.pass(t.Context(), guest)
	expect(map[string]float64{"croft_agent_lock_held{}": 1, "croft_agent_known{}": 1, "croft_agent_builds{}": 1,
		"croft_agent_passes_total{ok}": 1, "croft_agent_step_seconds{ok,build}": 1,
		"croft_agent_phase_seconds{define,ok}": 1, "croft_agent_order_delay_seconds{}": 1,
		"croft_agent_time_to_running_seconds{}": 1, "croft_agent_instances{running}": 1,
		"croft_instance_info{web,," + string(guest) + "}": 1})
	// A later order of the same guest did not start with a claim.
	l.order.Generation, l.order.Rebooted = 5, 5
	a.pass(t.Context(), guest)
	expect(map[string]float64{"croft_agent_passes_total{ok}": 2, "croft_agent_time_to_running_seconds{}": 1,
		"croft_agent_order_delay_seconds{}": 1})
	l.order.Generation, l.order.Rebuilt = 6, 6
	<-a.builds
	a.pass(t.Context(), guest)
	expect(map[string]float64{"croft_agent_phase_seconds{define,ok}": 2, "croft_agent_time_to_running_seconds{}": 1})
	a.instances.forget(guest) // like a new agent, which finds a guest without an observation
	l.seen = nil
	a.pass(t.Context(), guest)
	expect(map[string]float64{"croft_agent_order_delay_seconds{}": 2, "croft_agent_time_to_running_seconds{}": 1})
	if got := a.instances.names(); len(got) != 1 {
		t.Errorf("names: %v", got)
	}
	l.fail = failing(errPlanned, "order")
	a.pass(t.Context(), guest)
	a.caretaker.Shared = turnless{}
	a.sweep(t.Context())
	expect(map[string]float64{"croft_agent_passes_total{unavailable}": 1, "croft_agent_sweeps_total{unavailable}": 1})
}

// Waiting for another host, and an interruption, are no failures.
func TestHowWorkEndedIsNamed(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), nil, "ok"}, {ended, nil, "ok"}, {t.Context(), errPlanned, "unavailable"},
		{ended, errPlanned, "interrupted"}, {t.Context(), fmt.Errorf("build: %w", errNotArrived), "waiting"},
	} {
		if got := outcome(c.ctx, c.err); got != c.want {
			t.Errorf("%v is %s, want %s", c.err, got, c.want)
		}
	}
}

func TestWhatAHostHasIsAnsweredAsJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, path string
		meters             bool
		with               func(*logbook)
		status             int
		says               string
	}{
		{"its contents", http.MethodGet, "/v1/holding", false, func(l *logbook) {
			l.others = []Domain{{ID: guest, Partition: home, Ordered: Ordered{Generation: 3}, Power: PowerOn}}
		}, http.StatusOK, string(guest)},
		{"its contents when it is empty", http.MethodGet, "/v1/holding", false, func(*logbook) {}, http.StatusOK, "[]"},
		{"its contents while the hypervisor is away", http.MethodGet, "/v1/holding", false,
			func(l *logbook) { l.fail = failing(errPlanned, "list") }, http.StatusServiceUnavailable, "planned"},
		{"usages of a hypervisor without any", http.MethodGet, "/v1/usages", false, func(*logbook) {},
			http.StatusNotFound, "cannot measure"},
		{"usages of no guest", http.MethodGet, "/v1/usages", true, func(*logbook) {}, http.StatusOK, "[]"},
		{"usages while the hypervisor is away", http.MethodGet, "/v1/usages", true,
			func(l *logbook) { l.fail = failing(errPlanned, "usages") }, http.StatusServiceUnavailable, "planned"},
		{"past usage of an instance without an order", http.MethodGet, "/v1/instances/" + string(guest) + "/usage",
			true, func(*logbook) {}, http.StatusNotFound, ""},
		{"past usage of no instance", http.MethodGet, "/v1/instances/x/usage", true, func(*logbook) {},
			http.StatusBadRequest, "x"},
		{"past usage of a guest that was never measured", http.MethodGet, "/v1/instances/" + string(guest) + "/usage",
			true, func(l *logbook) { l.order = new(run()) }, http.StatusOK, `"points":[]`},
		{"files of nobody", http.MethodDelete, "/v1/instances/" + string(guest) + "/files", false, func(*logbook) {},
			http.StatusNoContent, ""},
		{"files of no instance", http.MethodDelete, "/v1/instances/x/files", false, func(*logbook) {},
			http.StatusBadRequest, "x"},
		{"files of an instance", http.MethodDelete, "/v1/instances/" + string(guest) + "/files", false,
			func(l *logbook) { l.record = &croft.Instance{ID: guest} }, http.StatusConflict, "they stay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			c.with(l)
			if c.meters {
				a.Hypervisor = measured{logHypervisor{logbook: l}, nil}
			}
			got := ask(t, a, c.method, c.path)
			said := text(t, got)
			if got.StatusCode != c.status || !strings.Contains(said, c.says) {
				t.Errorf("got %s %q", got.Status, said)
			}
			isJSON := got.Header.Get("Content-Type") == "application/json" && json.Valid([]byte(said))
			if isJSON != (c.status == http.StatusOK) || strings.Contains(said, "null") {
				t.Errorf("JSON: %v, %q", isJSON, said)
			}
		})
	}
}

func TestAnAgentIsReadyOnceItsHostIsKnown(t *testing.T) {
	t.Parallel()
	why, trouble := "a rival", error(errPlanned)
	for _, c := range []struct {
		name  string
		known bool
		lock  *string
		fails *error
		want  []string
	}{
		{"known", true, nil, nil, nil},
		{"known, whatever failed before", true, nil, &trouble, nil},
		{"refused", true, &why, nil, []string{"does nothing: a rival"}},
		{"not known yet", false, nil, nil, []string{"does not take orders yet"}},
		{"not known, for a reason", false, nil, &trouble, []string{"does not take orders yet", "planned"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, a := alone(t)
			a.known.Store(c.known)
			a.troubles.lock.Store(c.lock)
			a.troubles.known.Store(c.fails)
			err := a.Ready(t.Context())
			if (err == nil) != (c.want == nil) {
				t.Errorf("got %v", err)
			}
			for _, part := range c.want {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("got %v, want %s", err, part)
				}
			}
		})
	}
}

// cutOff is a hypervisor whose guests have lost their network.
type cutOff struct {
	Hypervisor
	guests []croft.InstanceID
}

// CutOff implements Bridged.
func (h *cutOff) CutOff() []croft.InstanceID { return h.guests }

func TestGuestsWithoutANetworkAreAProblemOfTheHost(t *testing.T) {
	t.Parallel()
	l, a := alone(t)
	hv := &cutOff{Hypervisor: a.Hypervisor}
	a.Hypervisor = hv
	for i, guests := range [][]croft.InstanceID{{"a", "b"}, nil} {
		hv.guests = guests
		if err := a.examine(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(l.hosts[here].Problems, "; ")
		if told := strings.Contains(said, "instance a is cut off from its network") &&
			strings.Contains(said, "and 1 more"); told != (guests != nil) {
			t.Errorf("%d: its problems are %q", i, said)
		}
	}
}

// A full disk, like every other problem, is in the host's record while it lasts.
func TestAFullDiskIsAProblemOfTheHost(t *testing.T) {
	t.Parallel()
	l, a := alone(t)
	dir := a.Dir
	a.Dir = "/proc" // a file system without free space
	for i, c := range []struct {
		dir  string
		want int
	}{{"/proc", 1}, {"/proc", 0}, {dir, 1}, {dir, 0}} {
		a.Dir = c.dir
		if err := a.examine(t.Context(), nil, nil); err != nil || len(l.steps) != c.want {
			t.Errorf("%d: wrote %q, %v", i, l.steps, err)
		}
		full := len(l.hosts[here].Problems) == 1 && strings.Contains(l.hosts[here].Problems[0], "less than 1 GiB")
		if full != (c.dir == "/proc") {
			t.Errorf("%d: its problems are %q", i, l.hosts[here].Problems)
		}
		l.steps = nil
	}
}

func TestWhatIsClaimedTooMuchIsToldInOrder(t *testing.T) {
	t.Parallel()
	_, a := alone(t)
	claims := map[croft.InstanceID]croft.Resources{guest: {}}
	var classes []string
	for i := range 9 {
		class := fmt.Sprintf("CUSTOM_%d", i)
		classes = append(classes, fmt.Sprintf("1 of %s are claimed and 0 offered", class))
		claims[guest][croft.ResourceClass(class)] = 1
	}
	slices.Sort(classes)
	if got := a.shrunk(claims); !strings.Contains(got, strings.Join(classes, ", ")) {
		t.Errorf("got %s", got)
	}
}
