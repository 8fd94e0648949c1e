package heat_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/cluster"
	"croft/cluster/heat"
)

// honest lists the answers of a site with one cluster, by the end of the path; the first match is used. %s is the UUID
// of the cluster, @ the address of the site.
var honest = []struct {
	method, end string
	status      int
	text        string
}{
	{"POST", "/v3/auth/tokens", 201, `{"token": {"expires_at": "2100-01-01T00:00:00.000000Z",
		"project": {"id": "p1", "name": "demo"}, "catalog": [
		{"type": "orchestration", "endpoints": [{"interface": "public", "region": "RegionOne", "url": "@/orchestration/"}]},
		{"type": "compute", "endpoints": [{"interface": "public", "region": "RegionOne", "url": "@/compute/"}]},
		{"type": "image", "endpoints": [{"interface": "public", "region": "RegionOne", "url": "@/image/"}]},
		{"type": "network", "endpoints": [{"interface": "public", "region": "RegionOne", "url": "@/network/"}]}]}}`},
	{"GET", "/v3/", 200, `{"version": {"id": "v3.14"}}`},
	{"GET", "/compute/limits", 200, `{"limits": {"absolute": {"maxTotalCores": 20, "maxTotalRAMSize": 4096,
		"maxTotalInstances": 10}}}`},
	{"GET", "/servers", 200, `{"servers": []}`},
	{"GET", "/details.json", 200, `{"quota": {"floatingip": {"limit": 3, "used": 0, "reserved": 0}}}`},
	{"GET", "/images", 200, `{"images": []}`},
	{"POST", "/images", 201, `{"id": "i1", "status": "queued"}`},
	{"GET", "/images/i1", 200, `{"id": "i1", "status": "active", "size": 3}`},
	{"POST", "/validate", 200, `{"Parameters": {}}`},
	{"GET", "/resources", 200, `{"resources": [{"resource_name": "master", "resource_type": "OS::Nova::Server",
		"resource_status": "CREATE_COMPLETE", "physical_resource_id": "m1", "links": [
		{"rel": "stack", "href": "@/stacks/n/x"}]}]}`},
	{"GET", "/resources/slaves", 200, `{"resource": {"resource_name": "slaves", "attributes": {
		"removed_rsrc_list": ["1"]}}}`},
	{"GET", "/stacks/n/x", 200, `{"stack": {"id": "x", "stack_name": "n", "stack_status": "CREATE_COMPLETE",
		"tags": ["croft", "croft-p", "croft-%s"], "parameters": {"cluster_size": "1", "removed": "[]"}, "outputs": [
		{"output_key": "master_ip", "output_value": "10.0.0.1"},
		{"output_key": "worker_ips", "output_value": ["10.0.0.2"]}]}}`},
	{"GET", "/stacks", 200, `{"stacks": [{"id": "x", "stack_name": "n", "stack_status": "CREATE_COMPLETE",
		"creation_time": "2026-01-01T00:00:00Z", "tags": ["croft", "croft-p", "croft-%s"], "links": [
		{"rel": "self", "href": "@/stacks/n/x"}]}]}`},
	{"POST", "/stacks", 201, `{"stack": {"id": "x", "links": []}}`},
}

// TestASiteThatAnswersWhatNobodyExpectsEndsNoProcess lets a site answer each request with each value of its answer
// replaced by an unexpected one. Errors are fine; a panic would end the server for all tenants.
func TestASiteThatAnswersWhatNobodyExpectsEndsNoProcess(t *testing.T) {
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "abc")
	}))
	t.Cleanup(source.Close)
	id := croft.NewClusterID()
	var sites errgroup.Group
	sites.SetLimit(32) // high, because a launch waits for its stack
	for altered, o := range honest {
		for _, text := range variants(t, o.text) {
			sites.Go(func() error {
				useSite(t, id, altered, text, source.URL)
				return nil
			})
		}
	}
	_ = sites.Wait() // the functions return no errors
}

// useSite calls each method of the driver at a site, one of whose answers is altered.
func useSite(t *testing.T, id croft.ClusterID, altered int, text, source string) {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i, o := range honest {
			if r.Method != o.method || !strings.HasSuffix(r.URL.Path, o.end) {
				continue
			}
			said := o.text
			if i == altered {
				said = text
			} else if r.URL.Query().Has("marker") {
				said = `{"stacks": []}`
			}
			w.Header().Set("X-Subject-Token", "token-of-the-test")
			said = strings.ReplaceAll(strings.ReplaceAll(said, "%s", string(id)), "@", server.URL)
			answer(w, o.status, said)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	d := heat.New(heat.Config{Timeout: 5 * time.Second, Settle: time.Millisecond, Linger: 5 * time.Second})
	defer d.Close()
	at := access(server.URL)
	b := cluster.Build{Partition: "p", Cluster: id, Name: "n", Indexes: []int{0}, Timeout: time.Minute,
		Implementation: cluster.Implementation{Template: small,
			Resources: map[cluster.Role]croft.Resources{cluster.Master: {croft.VCPU: 1}}},
		Remote: cluster.Remote{ID: "x", Name: "n"}}
	ctx := t.Context()
	_, _ = d.Probe(ctx, at)
	_, _ = d.Room(ctx, at, b)
	_, _ = d.Bring(ctx, at, cluster.SiteImage{Name: "debian", URL: source, SHA256: strings.Repeat("0", 64)})
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // a launch would look for its stack for longer
	defer cancel()
	_, _ = d.Launch(brief, at, b)
	_, _ = d.Observe(ctx, at, []cluster.Build{b})
	_, _ = d.List(ctx, at)
	_ = d.Resize(ctx, at, b)
	_ = d.Destroy(ctx, at, b)
}

// variants returns documents that differ from text in one value.
func variants(t *testing.T, text string) []string {
	t.Helper()
	all := []string{`null`, `[]`, `{}`, `"x"`, `-1`, ``}
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	add := func() {
		out, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(out))
	}
	var walk func(v any)
	walk = func(v any) {
		try := func(old any, set func(any)) {
			for _, other := range []any{nil, []any{}, map[string]any{}, []any{nil}, "x", -1} {
				set(other)
				add()
			}
			set(old)
			walk(old)
		}
		switch v := v.(type) {
		case map[string]any:
			for key, old := range v {
				try(old, func(value any) { v[key] = value })
				delete(v, key)
				add()
				v[key] = old
			}
		case []any:
			for i, old := range v {
				try(old, func(value any) { v[i] = value })
			}
		}
	}
	walk(document)
	return all
}
