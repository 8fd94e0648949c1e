package call

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft"
)

const query = "VCPU:1,MEMORY_MB:64,DISK_GB:1"

// cloud is a running croft up.
type cloud struct {
	*testing.B
	program string
	env     []string
}

// newCloud builds croft and runs a cloud until the benchmark ends.
func newCloud(b *testing.B) *cloud {
	b.Helper()
	dir := b.TempDir()
	c := &cloud{B: b, program: filepath.Join(dir, "bin", "croft")}
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", c.program,
		"croft/cmd/croft").CombinedOutput(); err != nil {
		b.Fatalf("build croft: %v\n%s", err, out)
	}
	etcd, placement, api := address(b), address(b), address(b)
	c.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GOFLAGS=",
		"CROFT_ETCD_ENDPOINTS=http://"+etcd, "CROFT_PLACEMENT_ENDPOINT=http://"+placement, "CROFT_KEYS=")
	settings := filepath.Join(dir, "up.yaml")
	text := fmt.Sprintf(
		"state_dir: %s/state\nhypervisor: sim\nsim: {boot: 1ms}\nmetadata: {server: false}\nlog_level: error\n"+
			"etcd: {listen: '%s', endpoints: ['http://%[2]s']}\nplacement: {listen: '%[3]s', endpoint: 'http://%[3]s'}\napi: {listen: '%[4]s'}\n",
		dir, etcd, placement, api)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	c.up(settings)
	return c
}

// address returns an unused address.
func address(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// up returns once the cloud takes requests.
func (c *cloud) up(settings string) {
	c.Helper()
	cmd := exec.Command(c.program, "up", "--settings", settings)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	var said bytes.Buffer
	ready := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
			if strings.HasPrefix(lines.Text(), "croft is up") {
				ready <- true
			}
		}
		close(ready)
	}()
	c.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for range ready { // until stderr is closed
		}
		_ = cmd.Wait()
	})
	if !<-ready {
		c.Fatalf("croft up ended: %s", said.String())
	}
}

// run runs a command of the program and returns its output.
func (c *cloud) run(args ...string) []byte {
	c.Helper()
	cmd := exec.CommandContext(context.Background(), c.program, args...)
	cmd.Env = c.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("croft %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// BenchmarkRequest reports medians: call-ms from the start of `schedule QUERY` to its end, start-ms of a process that
// only prints its version, and order-ms from when the scheduler starts to write the order until the agent has read it
// and has the (simulated) image: more than the transfer of the order alone.
func BenchmarkRequest(b *testing.B) {
	c := newCloud(b)
	c.run("schedule", query, "--name", "first", "--wait")
	c.run("schedule", "destroy", "first", "--wait")
	var calls, starts, orders []time.Duration
	for b.Loop() {
		begun := time.Now()
		c.run("schedule", query, "--name", "web")
		calls = append(calls, time.Since(begun))

		b.StopTimer()
		c.run("schedule", "wait", "web")
		orders = append(orders, c.order("web"))
		c.run("schedule", "destroy", "web", "--wait")
		begun = time.Now()
		c.run("--version")
		starts = append(starts, time.Since(begun))
		b.StartTimer()
	}
	b.ReportMetric(0, "ns/op") // medians are more informative
	b.ReportMetric(median(calls), "call-ms")
	b.ReportMetric(median(starts), "start-ms")
	b.ReportMetric(median(orders), "order-ms")
}

// order returns the delay of an instance's newest order to its agent.
func (c *cloud) order(name string) time.Duration {
	c.Helper()
	var st croft.Status
	if err := json.Unmarshal(c.run("schedule", "show", name, "-o", "json"), &st); err != nil {
		c.Fatal(err)
	}
	at := map[croft.EventName]time.Time{}
	for _, e := range st.Observation.Events {
		at[e.Name] = e.At
	}
	return at[croft.EventImage].Sub(at[croft.EventClaimed])
}

// median is in milliseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2]) / float64(time.Millisecond)
}
