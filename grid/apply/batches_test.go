package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// A watcher records starts, and the maximum number of concurrent ones.
type watcher struct {
	mu     sync.Mutex
	starts []string
	most   int
	now    int
	fail   string // starts fail on this node
}

type watched struct {
	apply.Runtime
	w    *watcher
	node string
}

func (r watched) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	r.w.mu.Lock()
	r.w.now++
	r.w.most = max(r.w.most, r.w.now)
	r.w.starts = append(r.w.starts, r.node)
	r.w.mu.Unlock()
	defer func() {
		r.w.mu.Lock()
		r.w.now--
		r.w.mu.Unlock()
	}()
	if r.node == r.w.fail {
		return &machine.Exit{Code: 1, Stderr: "no such luck"}
	}
	return r.Runtime.Start(ctx, m, u)
}

func watch(w *watcher) func(*apply.Config) {
	return func(c *apply.Config) {
		had := c.Runtimes
		c.Runtimes = func(name string, n unit.Node) (apply.Runtime, error) {
			r, err := had(name, n)
			return watched{r, w, n.Name}, err
		}
	}
}

// TestBatches expects the canaries first, then batches of as many units as may be unavailable, each followed by the
// gate.
func TestBatches(t *testing.T) {
	t.Parallel()
	b := newBed(t, 5)
	b.must(b.want("a1", b.spread("1")))
	var asked []int
	w := &watcher{}
	gate := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		asked = append(asked, len(w.starts))
		w.mu.Unlock()
		value := "1"
		if !strings.Contains(r.URL.Query().Get("query"), "errors") {
			value = "0"
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"data": map[string]any{"resultType": "vector",
			"result": []any{map[string]any{"value": []any{1.5, value}}}}})
	}))
	defer gate.Close()
	two := b.want("a2", b.spread("2"))
	two.Jobs["web"] = plan.Job{Want: 5, MaxUnavailable: 2, Canary: 1, Gate: unit.Check{URL: gate.URL,
		Query: "sum(errors) < bool 5"}}
	if _, err := b.apply(b.grid("two", watch(w)), two); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []int{1, 3, 5}) || w.most > 2 {
		t.Errorf("the gate was asked after %v units, and %d started at once", asked, w.most)
	}

	three := b.want("a3", b.spread("3"))
	three.Jobs["web"] = plan.Job{Want: 5, MaxUnavailable: 2, Canary: 1, Gate: unit.Check{URL: gate.URL, Query: "other",
		Timeout: 5}}
	r, err := b.apply(b.grid("three"), three)
	var partly *apply.Partly
	if !errors.As(err, &partly) || len(r.Done) != 1 || len(r.Pending) != 4 || !strings.Contains(err.Error(),
		"other is 0") {
		t.Errorf("a gate that says no: %v, done %d, pending %d", err, len(r.Done), len(r.Pending))
	}
}

// noted is a runtime that records starts and stops.
type noted struct {
	apply.Runtime
	note func(what string)
}

func (r noted) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	r.note("start " + u.Job)
	return r.Runtime.Start(ctx, m, u)
}

func (r noted) Stop(ctx context.Context, m machine.Machine, u unit.Unit) error {
	r.note("stop " + u.Job)
	return r.Runtime.Stop(ctx, m, u)
}

// TestAPortIsFreeBeforeItIsTaken expects that of two units with one port, the new unit starts after the old one has
// ended.
func TestAPortIsFreeBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	with := func(d plan.Desired, ports map[string]int) plan.Desired {
		for _, n := range d.Nodes {
			for i := range n.Units {
				if number := ports[n.Units[i].Job]; number > 0 {
					n.Units[i].Ports = []unit.Port{{Node: number, Unit: number, Protocol: "tcp"}}
				}
			}
		}
		return d
	}
	b := newBed(t, 2)
	b.must(with(b.want("a1", map[string][]string{"n1": {"old/0:1", "other/0:1"}}),
		map[string]int{"old": 80, "other": 81}))
	var mu sync.Mutex
	var order []string
	g := b.grid("two", func(c *apply.Config) {
		had := c.Runtimes
		c.Runtimes = func(name string, n unit.Node) (apply.Runtime, error) {
			r, err := had(name, n)
			return noted{r, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, what+" "+n.Name)
			}}, err
		}
	})
	two := with(b.want("a2", map[string][]string{"n1": {"a/0:1", "b/0:1", "other/0:1"}, "n2": {"old/0:1"}}),
		map[string]int{"old": 80, "a": 80, "b": 81, "other": 82})
	if _, err := b.apply(g, two); err != nil {
		t.Fatal(err)
	}
	at := func(what string) int { return slices.Index(order, what) }
	if at("start old n2") < 0 || at("start old n2") > at("stop old n1") || at("stop old n1") > at("start a n1") {
		t.Errorf("of the port that moves: %q", order)
	}
	if at("stop other n1") < 0 || at("stop other n1") > at("start b n1") {
		t.Errorf("of the port that is given up: %q", order)
	}
}

// TestABatchThatFailsIsTheLast also shows that the next apply finishes.
func TestABatchThatFailsIsTheLast(t *testing.T) {
	t.Parallel()
	b := newBed(t, 4)
	b.must(b.want("a1", b.spread("1")))
	two := b.want("a2", b.spread("2"))
	w := &watcher{fail: "n2"}
	r, err := b.apply(b.grid("two", watch(w)), two)
	var partly *apply.Partly
	if !errors.As(err, &partly) || len(r.Done) != 1 || len(r.Pending) != 3 || len(r.Failed) != 1 ||
		!strings.Contains(err.Error(), "n2: start f-fedcba98-web-1: exit code 1: no such luck") {
		t.Errorf("got %v, %+v", err, r)
	}
	runs := strings.Join(b.runs(two), "\n")
	if strings.Count(runs, "running true") != 3 || strings.Count(runs, "applying") != 3 {
		t.Errorf("after that\n%s", runs)
	}
	if r := b.must(two); len(r.Pending) != 0 {
		t.Errorf("the next: %+v", r)
	}
	if runs := strings.Join(b.runs(two), "\n"); strings.Count(runs, "running true") != 4 || strings.Contains(runs,
		"applying") {
		t.Errorf("in the end\n%s", runs)
	}
}

// TestChecks covers all kinds of checks.
func TestChecks(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for i, c := range []struct {
		name  string
		check unit.Check
		want  string
	}{
		{"a command of the node", unit.Check{Command: []string{"sh", "-c", `test -n "$CROFT_NODE"`}}, ""},
		{"a command of the node that fails", unit.Check{Command: []string{"false"}}, "false: exit code 1"},
		{"a command of this machine", unit.Check{Here: []string{"sh", "-c", `test -z "$CROFT_NODE"`}}, ""},
		{"one that is not there", unit.Check{Here: []string{"/no/such/program"}}, "no such file"},
		{"a page", unit.Check{URL: server.URL}, ""},
		{"a page that answers 503", unit.Check{URL: server.URL + "/down"}, "503"},
		{"a server that is not there", unit.Check{URL: "http://127.0.0.1:1/"}, "refused"},
		{"a query of what is no Prometheus", unit.Check{URL: server.URL, Query: "up"}, "no Prometheus"},
		{"a command that hangs", unit.Check{Command: []string{"sleep", "1000"}}, "not within 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := b.want("a1", map[string][]string{"n1": {fmt.Sprintf("web/0:%d", i)}})
			want.Nodes[0].Units[0].Ready = c.check
			want.Nodes[0].Units[0].Ready.Timeout = 1
			if c.want == "" {
				want.Nodes[0].Units[0].Ready.Timeout = 60
			}
			_, err := b.apply(b.grid("one"), want)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
