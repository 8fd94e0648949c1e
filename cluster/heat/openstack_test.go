package heat_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/heat"
	"croft/cluster/heat/heattest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a cluster of Heat's own resource types, which needs no Nova.
//
//go:embed testdata/small.yaml
var small string

// engines runs a test against each engine of Heat.
func engines(t *testing.T, test func(t *testing.T, clouds map[string]heattest.Cloud)) {
	for name, variable := range map[string]string{"convergence": heattest.Convergence, "older": heattest.Older} {
		t.Run(name, func(t *testing.T) { test(t, heattest.Clouds(t, variable)) })
	}
}

// open returns a driver that a test may close.
func open(t *testing.T, c heat.Config) *heat.Driver {
	d := heat.New(c)
	t.Cleanup(d.Close)
	return d
}

func TestTheContractOfDriversWithOpenStack(t *testing.T) {
	engines(t, func(t *testing.T, clouds map[string]heattest.Cloud) {
		clustertest.RunDriver(t, func(t *testing.T) clustertest.Harness { return harness(t, clouds["demo"]) })
	})
}

func harness(t *testing.T, c heattest.Cloud) clustertest.Harness {
	f := heattest.NewFront(t, c)
	h := clustertest.Harness{
		Driver: func(t *testing.T) cluster.Driver {
			return open(t, heat.Config{Timeout: 20 * time.Second, Settle: time.Second})
		},
		At:             c.Access("site", f.AuthURL()),
		Implementation: cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "a", Template: small},
		Bad:            cluster.Implementation{Template: strings.ReplaceAll(small, "master_ip", "ip")},
		Cut:            func(away bool) { f.Change(func(s *heattest.Faults) { s.Away = away }) },
		Hang:           func(hangs bool) { f.Change(func(s *heattest.Faults) { s.Hangs = hangs }) },
		Deny:           func(denied bool) { f.Change(func(s *heattest.Faults) { s.Denied = denied }) },
	}
	failing, frozen := false, false
	change := func() {
		f.Change(func(s *heattest.Faults) {
			s.Body = func(r *http.Request, b map[string]any) { spoil(r, b, failing, frozen) }
		})
	}
	h.Fail = func(on bool) { failing = on; change() }
	h.Freeze = func(on bool) { frozen = on; change() }
	h.Fill = func(full bool) {
		f.Change(func(s *heattest.Faults) {
			s.Answer = func(w http.ResponseWriter, r *http.Request) bool { return full && overQuota(w, r) }
		})
	}
	if hasGlance(t, h.At) {
		h.Image, _ = serveImage(t, 1_000_000)
	}
	h.Occupy = func(b cluster.Build) func() bool { return occupy(t, f, h, b) }
	return h
}

// spoil changes the parameters of a stack so that it fails, or takes long.
func spoil(r *http.Request, body map[string]any, failing, frozen bool) {
	parameters, ok := body["parameters"].(map[string]any)
	if !ok {
		return
	}
	if parameters["slave_fail"] = "false"; failing {
		parameters["slave_fail"] = "%index%" // not a boolean
	}
	if r.Method == http.MethodPost && failing {
		parameters["master_fail"] = true
	}
	if frozen {
		parameters["secs"] = 30
	}
}

// overQuota refuses to create a stack, as Heat does if the project has its maximum.
func overQuota(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/stacks") {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprint(w, `{"code": 403, "title": "Forbidden", "error": {"type": "RequestLimitExceeded", "message": `+
		`"You have reached the maximum stacks per tenant, 0. Please delete some stacks."}}`)
	return true
}

// occupy gives the name of a cluster's stack to a foreign stack in the project.
func occupy(t *testing.T, f *heattest.Front, h clustertest.Harness, b cluster.Build) func() bool {
	d := open(t, heat.Config{})
	if _, err := d.List(t.Context(), h.At); err != nil { // to obtain a token
		t.Fatal(err)
	}
	status, text := f.Heat(t, http.MethodPost, "", map[string]any{"stack_name": b.Remote.Name,
		"template": "heat_template_version: 2013-05-23\nresources: {}\n", "tags": "somebody"})
	if status != http.StatusCreated {
		t.Fatal(status, text)
	}
	var made struct {
		Stack struct{ ID string } `json:"stack"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	path := "/" + b.Remote.Name + "/" + made.Stack.ID
	t.Cleanup(func() { f.Heat(t, http.MethodDelete, path, nil) })
	return func() bool {
		status, text := f.Heat(t, http.MethodGet, path, nil)
		return status == http.StatusOK && !strings.Contains(text, `"DELETE_`)
	}
}
