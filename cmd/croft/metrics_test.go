package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"croft/cluster"
	clustermanager "croft/cluster/manager"
	"croft/compute/hypervisor/libvirt"
	"croft/compute/image"
	"croft/control"
	"croft/control/actions"
	"croft/control/cloud"
	"croft/control/cloud/direct"
	"croft/grid/plan"
	"croft/internal/build"
	"croft/mdserver"
	"croft/node"
	"croft/node/settings"
	"croft/placement"
	"croft/placementclient"
	"croft/pool"
	poolserver "croft/pool/server"
	hook "croft/pool/shell"
	"croft/schedule/backups"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/trust"
)

var updateMetrics = flag.Bool("update-metrics", false, "write the list of docs/users/metrics.md")

const docs = "../../docs/"

// metricDesc describes a metric before it has a value.
type metricDesc struct {
	name, help string
	labels     []string
}

// kind derives the type from the name, by the naming conventions.
func (m metricDesc) kind() string {
	switch {
	case strings.HasSuffix(m.name, "_total"):
		return "counter"
	case strings.HasSuffix(m.name, "_timestamp_seconds") || strings.HasSuffix(m.name, "_difference_seconds"):
		return "gauge"
	case strings.HasSuffix(m.name, "_seconds"):
		return "histogram"
	}
	return "gauge"
}

var descText = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: (".*"), constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// noGuests is for a metadata server without requests.
type noGuests struct{ mdserver.Guests }

// allMetrics are the metrics of croft's parts, ordered by name.
func allMetrics(t *testing.T) []metricDesc {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := cloudFor(t, 1)
	images, err := image.New(image.Config{Dir: t.TempDir(), Log: log})
	check(t, err)
	claims, err := placementclient.New(placementclient.Config{Endpoint: "http://127.0.0.1:1"})
	check(t, err)
	driver, err := libvirt.New(libvirt.Config{})
	check(t, err)
	t.Cleanup(func() { _ = driver.Close() })
	guests, err := mdserver.New(mdserver.Config{Guests: noGuests{}, Log: log})
	check(t, err)
	server, err := placement.New(placement.Config{Store: c.Store.Placement(128), Log: log})
	check(t, err)
	manager, err := pool.New(pool.Config{
		Partition: c.Store.Partition(), Store: c.Store.Pools, Hooks: new(hook.Runner), File: "pools.yaml",
		Me: pool.Server{Name: "here", Machine: "this"},
	})
	check(t, err)
	pools, err := poolserver.New(poolserver.Config{Manager: manager})
	check(t, err)
	api, err := control.New(control.Config{Cloud: new(cloud.Cloud), Callers: access.First(),
		Objects: objects.New(c.Store.Objects), Images: direct.Catalog{},
		Actions: actions.NewRecorder(c.Store.Actions, log)})
	check(t, err)
	clusters, err := clustermanager.New(clustermanager.Config{Backends: cluster.Backends{Partition: c.Store.Partition(),
		Records: c.Store.Clusters, Catalogue: c.Store.Clusters, Log: log}})
	check(t, err)
	var none settings.Settings
	me, err := node.NewSelf(t.Context(), &none, "croft-test", log)
	check(t, err)
	me.Counts(c.Hosts["host1"].Agent, c.Store, images, claims, driver, guests, server, node.NewCloudMetrics(c.Store),
		&trust.Credentials{}, pools, api, clusters,
		backups.New(backups.Manager{}))
	found := make(chan *prometheus.Desc)
	go func() { me.Describe(found); close(found) }()
	var all []metricDesc
	for d := range found {
		m := descText.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("this cannot be read: %s", d)
		}
		one := metricDesc{name: m[1]}
		check(t, json.Unmarshal([]byte(m[2]), &one.help))
		for label := range strings.SplitSeq(m[3]+","+m[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				one.labels = append(one.labels, name)
			}
		}
		if strings.HasPrefix(one.name, "croft_") {
			all = append(all, one)
		}
	}
	all = append(all, ofTheGrid(t)...)
	slices.SortFunc(all, func(a, b metricDesc) int { return cmp.Compare(a.name, b.name) })
	return all
}

// ofTheGrid are the metrics that croft grid audit writes for the exporter of a machine.
func ofTheGrid(t *testing.T) (all []metricDesc) {
	t.Helper()
	text := plan.Metrics(plan.Desired{}, []plan.Observed{{Node: "n"}}, nil)
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(words) == 4 && words[1] == "HELP" {
			all = append(all, metricDesc{name: words[2], help: words[3]})
			continue
		}
		if m := sampleText.FindStringSubmatch(line); m != nil && len(all[len(all)-1].labels) == 0 {
			for label := range strings.SplitSeq(m[1], ",") {
				name, _, _ := strings.Cut(label, "=")
				all[len(all)-1].labels = append(all[len(all)-1].labels, name)
			}
		}
	}
	return all
}

var sampleText = regexp.MustCompile(`^croft_[a-z_]+\{([^}]*)\}`)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(docs + name)
	check(t, err)
	return string(text)
}

// listItem returns an item of a list in Markdown, in lines of at most 160 columns.
func listItem(text string) string {
	var item strings.Builder
	item.WriteString("-")
	column := 1
	for _, word := range strings.Fields(text) {
		if column+1+len(word) > 160 {
			item.WriteString("\n ")
			column = 1
		}
		item.WriteString(" " + word)
		column += 1 + len(word)
	}
	return item.String() + "\n"
}

// The reference has exactly the metrics of the code, as described there.
func TestEveryMetricIsInTheDocument(t *testing.T) {
	var want string
	for _, m := range allMetrics(t) {
		labels := ""
		if len(m.labels) > 0 {
			labels = "; labels `" + strings.Join(m.labels, "`, `") + "`"
		}
		want += listItem(fmt.Sprintf("`%s` (%s%s): %s", m.name, m.kind(), labels, m.help))
	}
	text := readDoc(t, "users/metrics.md")
	before, rest, _ := strings.Cut(text, "<!-- begin -->\n")
	got, after, found := strings.Cut(rest, "<!-- end -->")
	if !found {
		t.Fatal("docs/users/metrics.md has no place for the list")
	}
	if *updateMetrics {
		after = before + "<!-- begin -->\n" + want + "<!-- end -->" + after
		check(t, os.WriteFile(docs+"users/metrics.md", []byte(after), 0o644))
		return
	}
	if got != want {
		t.Errorf("the list in docs/users/metrics.md is not what the code has: go test ./cmd/croft -run %s -update-metrics",
			t.Name())
	}
}

// allowedLabels have few values, known in advance for the reason given.
var allowedLabels = map[string]string{
	"result":     "ok, kinds of error, three more",
	"kind":       "kinds of error, of difference, of object",
	"step":       "the agent's ops",
	"phase":      "the six of a build and a start",
	"state":      "of instances and hosts",
	"operation":  "what etcd is asked",
	"code":       "of gRPC",
	"method":     "of HTTP; what clients make up is other",
	"route":      "patterns and parts of trees, not paths",
	"collection": "first words of Placement's paths",
	"status":     "of HTTP",
	"call":       "verbs",
	"job":        "four jobs of backups",
	"class":      "resource classes, which operators define",
	"pool":       "pools, which operators define",
	"authority":  "two",
	"node":       "machines of a grid, which operators define",
	"cause":      "two",
	"version":    "one for each process",
	"goversion":  "one for each process",
}

// A label with as many values as instances, hosts or clients is permitted only for metrics that end with their
// instance.
func TestLabelsHaveFewValues(t *testing.T) {
	for _, m := range allMetrics(t) {
		ofInstance := strings.HasPrefix(m.name, "croft_instance_")
		if ofInstance && !slices.Contains(m.labels, "uuid") {
			t.Errorf("%s does not say of which instance it is", m.name)
		}
		for _, label := range m.labels {
			if allowedLabels[label] == "" && !ofInstance {
				t.Errorf(
					"%s has the label %s: give the reason why that has few values in allowedLabels, or leave it out",
					m.name, label)
			}
		}
	}
}

// noMetrics have names like metrics: a cookie, and properties of images in Glance.
var noMetrics = []string{"croft_pool_token", "croft_done",
	"croft_id", "croft_name", "croft_project", "croft_image", "croft_tags", "croft_labels"} // variables of an inventory

// TestEveryMetricInTheCodeIsKnown finds metrics missing in allMetrics, of a new part.
func TestEveryMetricInTheCodeIsKnown(t *testing.T) {
	known := map[string]bool{}
	for _, m := range allMetrics(t) {
		known[m.name] = true
	}
	out, err := exec.Command("git", "-C", "../..", "grep", "-hoE", `"croft_[a-z_]+[a-z]"`, "--", "*.go",
		":!*_test.go").Output()
	check(t, err)
	for name := range strings.FieldsSeq(string(out)) {
		if name = strings.Trim(name, `"`); !known[name] && !slices.Contains(noMetrics, name) {
			t.Errorf("%s is in the code and in no part that allMetrics asks", name)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:croft|etcd)_[a-z0-9_]+`)

// Dashboards and alerts name only metrics that exist.
func TestDashboardAndAlertsNameMetricsThatThereAre(t *testing.T) {
	c := startTracedCloud(t, "")
	known := map[string]bool{}
	for _, m := range allMetrics(t) {
		known[m.name] = true
	}
	for name := range c.metrics(t) {
		known[name] = true
	}
	for _, file := range []string{"monitoring/alerts.yml", "monitoring/alerts_test.yml", "monitoring/dashboard.json",
		"users/metrics.md", "users/operations.md", "users/operations-etcd.md", "users/operations-instances.md"} {
		for _, name := range metricName.FindAllString(readDoc(t, file), -1) {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base, cut := strings.CutSuffix(name, suffix); cut && known[base] {
					name = base
				}
			}
			if !known[name] && !strings.HasSuffix(name, "_") { // a prefix mentioned in a text
				t.Errorf("%s names %s, which nobody tells", file, name)
			}
		}
	}
}

// metrics are the current metrics of the process.
func (c *tracedCloud) metrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get("http://" + c.api + "/metrics")
	check(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	check(t, err)
	return families
}

var looksLikeOne = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-|^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|^web$`)

// The metrics of a cloud with a guest have values consistent with their names, and none is per instance unless it
// should be.
func TestWhatARunningCloudTells(t *testing.T) {
	c := startTracedCloud(t, "")
	if out, code := c.schedule(t, nil, small, "--name", "web", "--wait"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	all := c.metrics(t)
	for name, family := range all {
		if !strings.HasPrefix(name, "croft_") {
			continue
		}
		want := metricDesc{name: name}.kind()
		if got := strings.ToLower(family.GetType().String()); got != want {
			t.Errorf("%s is a %s, and its name says %s", name, got, want)
		}
		for _, m := range family.Metric {
			for _, label := range m.Label {
				if looksLikeOne.MatchString(label.GetValue()) && !strings.HasPrefix(name, "croft_instance_") {
					t.Errorf("%s has %s=%q", name, label.GetName(), label.GetValue())
				}
			}
		}
	}
	value := func(name, label string) float64 {
		var sum float64
		for _, m := range all[name].GetMetric() {
			if label == "" ||
				slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
	for _, seen := range []struct {
		name, label string
		want        float64
	}{
		{"croft_agent_instances", "running", 1}, {"croft_agent_time_to_running_seconds", "", 1},
		{"croft_agent_order_delay_seconds", "", 1},
		{"croft_agent_phase_seconds", "define", 1}, {"croft_agent_step_seconds", "build", 1},
		{"croft_agent_builds_limit", "", 4},
		{"croft_cloud_hosts", "ready", 1}, {"croft_cloud_instances", "running", 1},
		{"croft_placement_claimed", "VCPU", 1},
		{"croft_instance_info", "web", 1},
		{"croft_etcd_lease_held", "", 1},
		{"croft_agent_order_failures_total", "", 0}, {"croft_agent_differences", "", 0},
		{"croft_build_info", build.Version, 1},
	} {
		if got := value(seen.name, seen.label); got != seen.want {
			t.Errorf("%s %s is %v, want %v", seen.name, seen.label, got, seen.want)
		}
	}
	if used := value("croft_instance_memory_bytes", ""); used <= 0 || used > 256<<20 { // it varies
		t.Errorf("a guest of 256 MiB uses %v bytes", used)
	}
}

// promtool checks a rule file with Prometheus' own rules.
func TestPromtoolHasNothingToSay(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("there is no promtool: install Debian's prometheus")
	}
	c := startTracedCloud(t, "")
	var ours strings.Builder
	for name, family := range c.metrics(t) {
		if strings.HasPrefix(name, "etcd_") || strings.HasPrefix(name, "grpc_") {
			continue // etcd's own
		}
		_, err := expfmt.MetricFamilyToText(&ours, family)
		check(t, err)
	}
	promtool(t, strings.NewReader(ours.String()), "check", "metrics")
	dir := docs + "monitoring/"
	promtool(t, nil, "check", "config", dir+"prometheus.yml")
	promtool(t, nil, "check", "rules", dir+"alerts.yml", dashboardRules(t))
	promtool(t, nil, "test", "rules", dir+"alerts_test.yml")
}

func promtool(t *testing.T, in io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil || slices.Equal(args, []string{"check", "metrics"}) &&
		len(out) > 0 {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// dashboardRules writes the dashboard's queries as rules, for a checker of rules.
func dashboardRules(t *testing.T) (file string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	check(t, json.Unmarshal([]byte(readDoc(t, "monitoring/dashboard.json")), &dashboard))
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel:%d", len(rules)),
				strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")})
		}
	}
	if len(rules) < 20 {
		t.Fatalf("the dashboard asks %d things", len(rules))
	}
	// YAML is JSON too
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	check(t, err)
	file = filepath.Join(t.TempDir(), "dashboard.yml")
	check(t, os.WriteFile(file, text, 0o600))
	return file
}
