package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft/etcdstore/etcdtest"
	"croft/internal/testing/placementcheck"
)

// placementProcess is a croft placement that is killed and restarted.
type placementProcess struct {
	t       *testing.T
	address string
	args    []string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// startPlacementProcess starts one on a free port, until the end of the test.
func startPlacementProcess(t *testing.T, args ...string) *placementProcess {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &placementProcess{t: t, address: l.Addr().String()}
	p.args = append([]string{"placement", "--listen", p.address}, args...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", p.address, p.log.String())
		}
	})
	return p
}

func (p *placementProcess) url() string { return "http://" + p.address }

func (p *placementProcess) start() {
	p.cmd = exec.Command("croft", p.args...)
	p.cmd.Stderr = &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Error(err)
	}
}

// kill kills it without warning, as a crash of the machine would.
func (p *placementProcess) kill() {
	p.cmd.Process.Kill() // it may have ended
	p.cmd.Wait()
}

// await returns when the server is ready.
func (p *placementProcess) await() {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for p.t.Context().Err() == nil {
		req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url()+"/readyz", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		<-time.After(20 * time.Millisecond)
	}
	p.t.Fatalf("%s never was ready", p.address)
}

// Servers killed during writes of 64 clients and restarted have all acknowledged writes, and only writes that a single
// server without crashes would have.
func TestKilledPlacement(t *testing.T) {
	tests := []struct {
		name    string
		servers func(*testing.T) []*placementProcess
	}{
		{"one server with an etcd of its own", func(t *testing.T) []*placementProcess {
			return []*placementProcess{startPlacementProcess(t, "--data-dir", t.TempDir())}
		}},
		{"three servers on one etcd", func(t *testing.T) []*placementProcess {
			etcd := etcdtest.Server(t).Endpoint()
			return []*placementProcess{startPlacementProcess(t, "--etcd", etcd),
				startPlacementProcess(t, "--etcd", etcd), startPlacementProcess(t, "--etcd", etcd)}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			servers := test.servers(t)
			end := time.Now().Add(soak(t))
			for again := true; again && !t.Failed(); again = time.Now().Before(end) {
				checkKilled(t, servers, rand.Uint64())
			}
		})
	}
}

func checkKilled(t *testing.T, servers []*placementProcess, seed uint64) {
	t.Logf("sampled: seed %d", seed)
	var urls []string
	for _, p := range servers {
		p.await()
		urls = append(urls, p.url())
	}
	check, err := placementcheck.New(t.Context(), placementcheck.Config{Servers: urls, Token: "admin", Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	var killing sync.WaitGroup
	killing.Go(func() { killSome(t.Context(), check, servers, rand.New(rand.NewPCG(seed, 0))) })
	check.Run(t.Context(), 40)
	killing.Wait()
	for _, p := range servers {
		p.await()
	}
	t.Log(check)
	if err := check.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if check.Done() < 500 {
		t.Errorf("only %d requests were done: that shows little", check.Done())
	}
}

// killSome kills the servers in turn while the check runs.
func killSome(ctx context.Context, check *placementcheck.Check, servers []*placementProcess, r *rand.Rand) {
	for ctx.Err() == nil && check.Await(300+r.IntN(400)) {
		p := servers[r.IntN(len(servers))]
		p.kill()
		p.start()
	}
}

// soak is the duration of checks with random faults; without CROFT_SOAK they run once.
func soak(t *testing.T) time.Duration {
	text := os.Getenv("CROFT_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CROFT_SOAK: %v", err)
	}
	return d
}
