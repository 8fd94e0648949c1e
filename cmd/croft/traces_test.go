package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"croft"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/internal/traces"
)

// collector receives OTLP over HTTP, as OpenTelemetry's collectors do.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []recorded
	hangs chan struct{} // if set, responses wait until it is closed
}

// recorded is a span with the service that sent it.
type recorded struct {
	*tracepb.Span
	service string
}

func startCollector(t *testing.T, hangs chan struct{}) *collector {
	t.Helper()
	c := &collector{hangs: hangs}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	if c.hangs != nil {
		<-c.hangs
		return
	}
	body, err := io.ReadAll(r.Body)
	var sent collectorpb.ExportTraceServiceRequest
	if err = errors.Join(err, proto.Unmarshal(body, &sent)); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "this is no trace", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, recorded{s, service})
			}
		}
	}
}

// trace returns the spans of the trace whose root has this name, by their paths from the root: the names joined with
// slashes.
func (c *collector) trace(root string) map[string]recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]recorded{}
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
	}
	ways := map[string]recorded{}
	for _, s := range c.spans {
		way, at := s.Name, s
		for len(at.ParentSpanId) > 0 {
			up, here := byID[string(at.ParentSpanId)]
			if !here {
				break
			}
			way, at = up.Name+"/"+way, up
		}
		if strings.HasPrefix(way, root) && len(at.ParentSpanId) == 0 {
			ways[way] = s
		}
	}
	return ways
}

// await returns the trace once it has all these paths.
func (c *collector) await(t *testing.T, root string, ways []string) map[string]recorded {
	t.Helper()
	for deadline := patient.Deadline(t); ; {
		got, missing := c.trace(root), ""
		for _, way := range ways {
			if _, ok := got[way]; !ok {
				missing = way
			}
		}
		if missing == "" {
			return got
		}
		if time.Now().After(deadline) {
			var all []string
			for way, s := range got {
				all = append(all, s.service+" "+way)
			}
			t.Fatalf("no span %s among\n%s", missing, strings.Join(all, "\n"))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// tracedCloud is croft up in its own process, which sends its traces to an endpoint.
type tracedCloud struct {
	up        *exec.Cmd
	log       bytes.Buffer
	env       []string
	etcd, api string
	placement string
}

func startTracedCloud(t *testing.T, collector string) *tracedCloud {
	t.Helper()
	c := &tracedCloud{etcd: freeport.For(t, "127.0.0.1"), placement: freeport.For(t, "127.0.0.1"),
		api: freeport.For(t, "127.0.0.1")}
	c.env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector)
	c.up = exec.Command("croft", "up", "--hypervisor", "sim", "--state-dir", filepath.Join(t.TempDir(), "state"),
		"--etcd-listen", c.etcd, "--placement-listen", c.placement, "--api-listen", c.api, "--insecure")
	c.up.Env, c.up.Stderr = append(c.env, "CROFT_SIM_BOOT=200ms"), &c.log
	c.up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.up.Process.Kill() // it may have ended
		_ = c.up.Wait()
		if t.Failed() {
			t.Logf("croft up said:\n%s", c.log.String())
		}
	})
	await(t, "croft up to be ready", func() bool {
		answer, err := http.Get("http://" + c.api + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	return c
}

// schedule runs the command in its own process, with additional variables.
func (c *tracedCloud) schedule(t *testing.T, env []string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "schedule", append(args, "--etcd", "http://"+c.etcd, "--placement",
		"http://"+c.placement)...)
	cmd.Env = append(c.env, env...)
	text, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// The path of one request through three services, and back.
func TestARequestIsOneTraceOfSchedulerPlacementAndAgent(t *testing.T) {
	collector := startCollector(t, nil)
	c := startTracedCloud(t, collector.URL)
	if out, code := c.schedule(t, nil, small, "/tiny.qcow2", "--name", "web", "--wait"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	const order, carry = "request/schedule/order", "request/schedule/order/carry out"
	got := collector.await(t, "request", []string{
		"request/schedule/candidates/placement: GET allocation_candidates/GET /allocation_candidates",
		"request/schedule/claim/placement: PUT allocations/PUT /allocations/*",
		order + "/etcd: txn", carry + "/build/image fetch", carry + "/build/overlay", carry + "/build/define",
		carry + "/start/boot", carry + "/address",
	})
	traces := map[string]bool{}
	for way, s := range got {
		traces[hex.EncodeToString(s.TraceId)] = true
		by := "croft-schedule"
		if strings.HasPrefix(way, carry) || strings.Contains(way, "/GET /") || strings.Contains(way, "/PUT /") {
			by = "croft-up"
		}
		if s.service != by {
			t.Errorf("%s is told by %s, want %s", way, s.service, by)
		}
		if s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("%s is an error: %s", way, s.Status.Message)
		}
	}
	if len(traces) != 1 {
		t.Errorf("there are %d traces", len(traces))
	}
	if took := time.Duration(got[carry+"/address"].EndTimeUnixNano - got[carry+
		"/address"].StartTimeUnixNano); took < 150*time.Millisecond {
		t.Errorf("a guest that takes 200 ms to its address took %s", took)
	}
	if out, code := c.schedule(t, nil, "destroy", "web", "--wait"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	collector.await(t, "remove", []string{
		"remove/order/carry out/remove",
		"remove/order/carry out/release/placement: PUT allocations/PUT /allocations/*",
		"remove/order/carry out/forget",
	})
}

func TestATraceSaysWhatWentWrong(t *testing.T) {
	collector := startCollector(t, nil)
	c := startTracedCloud(t, collector.URL)
	if out, code := c.schedule(t, nil, "VCPU:1,MEMORY_MB:99999999,DISK_GB:1"); code != croft.ExitNoCapacity {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for way, s := range collector.await(t, "request", []string{"request/schedule"}) {
		failed := s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR
		if want := way == "request" || way == "request/schedule"; failed != want {
			t.Errorf("%s: %v %q, want an error: %v", way, failed, s.Status.GetMessage(), want)
		}
	}
}

// A CI job already has a trace: its requests become part of that.
func TestARequestJoinsTheTraceOfItsCaller(t *testing.T) {
	collector := startCollector(t, nil)
	c := startTracedCloud(t, collector.URL)
	if out, code := c.schedule(t, []string{"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		small); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for deadline := patient.Deadline(t); ; <-time.After(20 * time.Millisecond) {
		collector.mu.Lock()
		for _, s := range collector.spans {
			if s.Name == "carry out" && hex.EncodeToString(s.TraceId) == "0af7651916cd43dd8448eb211c80319c" {
				collector.mu.Unlock()
				return
			}
		}
		collector.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("no span of the agent's is part of the caller's trace")
		}
	}
}

// With a slow or missing collector, requests behave as without one, and processes end in time.
func TestACollectorThatIsAwayOrHangsHoldsNobodyUp(t *testing.T) {
	release := make(chan struct{})
	hanging := startCollector(t, release)
	t.Cleanup(func() { close(release) }) // before the server closes
	for name, endpoint := range map[string]string{"hangs": hanging.URL,
		"is away": "http://" + freeport.For(t, "127.0.0.1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startTracedCloud(t, endpoint)
			var with, without time.Duration
			for i := range 3 {
				with += c.timed(t, nil, small, "--name", "with-"+string(rune('a'+i)), "--wait")
				without += c.timed(t, []string{"OTEL_SDK_DISABLED=true"}, small, "--name",
					"without-"+string(rune('a'+i)), "--wait")
			}
			// without a bound it would hang
			if extra := (with - without) / 3; extra > traces.CommandFlush+30*time.Second {
				t.Errorf("a request takes %s longer", extra)
			}
			began := time.Now()
			if err := c.up.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := c.up.Wait(); err != nil {
				t.Errorf("croft up ended with %v", err)
			}
			if took := time.Since(began); took > traces.PartFlush+time.Minute {
				t.Errorf("croft up took %s to end", took)
			}
			if name == "is away" && !strings.Contains(c.log.String(),
				"traces do not reach their collector and are dropped") {
				t.Errorf("nothing is said of it")
			}
		})
	}
}

func (c *tracedCloud) timed(t *testing.T, env []string, args ...string) time.Duration {
	t.Helper()
	began := time.Now()
	if out, code := c.schedule(t, env, args...); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	return time.Since(began)
}
