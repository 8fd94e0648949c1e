package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"croft"
	"croft/control/api"
	"croft/etcdstore"
)

const (
	asked   = 60 // instances that are requested at once
	allowed = 20 // instances that the project may have

	mostLooked = 10_000 // revisions at which counters are compared with records
)

// Sixty concurrent requests go to three servers of the API that are continually killed, for a project that may have
// twenty instances: in each round exactly twenty requests get one. At every revision of etcd, or at an even selection
// of many, the project's counter is the sum over its records.
func TestKilledServersKeepTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, seed(t), length(t))
	w.t.Logf("sampled: again with CROFT_KILL=%v CROFT_KILL_SEED=%d go test ./test/kill -run '^%s$'", w.length, w.seed,
		t.Name())
	w.startControl()
	for n := range 2 {
		w.startAgent(fmt.Sprintf("h%d", n))
	}
	w.command("project", "create", "web")
	w.command("quota", "set", "web", fmt.Sprintf("instances=%d", allowed))
	q := &quota{world: w, token: strings.TrimSpace(w.command("access", "create", "--project", "web", "--role", "member",
		"--user", "ann"))}
	for n := range 3 {
		q.serve(fmt.Sprintf("api%d", n))
	}
	over, cancel := context.WithTimeout(t.Context(), w.length)
	defer cancel()
	w.over = over
	var killing sync.WaitGroup
	killing.Go(func() { q.killServers(over) })
	for rounds := 0; over.Err() == nil; rounds++ {
		q.round(rounds)
		if t.Failed() {
			break
		}
		w.count("rounds")
	}
	killing.Wait()
	q.countsHold()
	t.Logf("%v", w.counts)
}

// A quota is a project with a limit, and the servers of the API to which its members send requests.
type quota struct {
	*world
	token   string
	servers []*process
	urls    []string
}

// command runs croft as an operator and returns its output.
func (w *world) command(args ...string) string {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "croft"), args...)
	cmd.Env, cmd.Dir = w.clientEnvironment(), w.dir
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("croft %s: %v: %s", strings.Join(args, " "), err, &says)
	}
	return string(out)
}

// serve starts a server of the API.
func (q *quota) serve(name string) {
	address := q.address()
	q.servers = append(q.servers, q.begin(name, []string{"control", "--insecure", "--listen", address, "--state-dir",
		filepath.Join(q.dir, name), "--etcd", strings.Join(q.etcd, ","), "--placement", strings.Join(q.places, ",")},
		nil))
	q.urls = append(q.urls, "http://"+address)
	q.awaitReady("http://" + address)
}

// killServers kills one server after the other, sometimes also the process of etcd and Placement.
func (q *quota) killServers(ctx context.Context) {
	r := q.random(1)
	for ctx.Err() == nil {
		q.sleep(time.Duration(r.IntN(600)) * time.Millisecond)
		victim := q.servers[r.IntN(len(q.servers))]
		if r.IntN(12) == 0 {
			victim = q.controls[0].process
		}
		victim.kill(time.Duration(r.IntN(300)) * time.Millisecond)
		q.count("kills of " + victim.name)
	}
}

// round requests instances concurrently, and destroys them.
func (q *quota) round(n int) {
	ids := make([]croft.InstanceID, asked)
	var work sync.WaitGroup
	var made, refused atomic.Int64
	for i := range ids {
		ids[i] = croft.NewInstanceID()
		work.Go(func() {
			body := api.InstanceRequest{ID: ids[i], Name: fmt.Sprintf("vm-%d-%d", n, i), Image: "debian-12",
				Query: "resources=VCPU:1,MEMORY_MB:64,DISK_GB:1"}
			switch status, text := q.insist(http.MethodPost, "/v1/instances", body); {
			case status == http.StatusAccepted || status == http.StatusOK || status == http.StatusCreated:
				made.Add(1)
			case status == http.StatusForbidden && strings.Contains(text, "quota_exceeded"):
				refused.Add(1)
			default:
				q.t.Errorf("round %d: %d %s", n, status, text)
			}
		})
	}
	work.Wait()
	if made.Load() != allowed || refused.Load() != asked-allowed {
		q.t.Errorf("round %d: %d of %d requests got an instance, %d were refused; want %d and %d", n, made.Load(), asked,
			refused.Load(), allowed, asked-allowed)
	}
	for _, id := range ids {
		work.Go(func() {
			status, text := q.insist(http.MethodDelete, "/v1/instances/"+string(id), nil)
			if status >= 300 && status != http.StatusNotFound {
				q.t.Errorf("round %d: destroy: %d %s", n, status, text)
			}
		})
	}
	work.Wait()
	q.awaitNone()
}

// awaitNone returns when the project has no instances left.
func (q *quota) awaitNone() {
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		status, text := q.insist(http.MethodGet, "/v1/instances", nil)
		var page api.InstanceList
		if status != http.StatusOK || json.Unmarshal([]byte(text), &page) != nil {
			q.t.Errorf("list: %d %s", status, text)
			return
		}
		if len(page.Instances) == 0 {
			return
		}
		if time.Since(start) > 5*time.Minute {
			q.t.Errorf("%d instances are left", len(page.Instances))
			return
		}
	}
}

// insist sends a request to one server after the other until one answers it. Repeating a request has no further effect.
func (q *quota) insist(method, path string, body any) (status int, text string) {
	content, err := json.Marshal(body)
	if err != nil {
		q.t.Error(err)
	}
	for n, start := 0, time.Now(); time.Since(start) < 5*time.Minute; n++ {
		if status, text = q.ask(q.urls[n%len(q.urls)], method, path, content, body != nil); status != 0 &&
			status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests &&
			status != http.StatusInternalServerError && !strings.Contains(text, "being scheduled") {
			return status, text
		}
		time.Sleep(20 * time.Millisecond)
	}
	return status, text
}

// ask sends a request; 0: no answer.
func (q *quota) ask(url, method, path string, content []byte, has bool) (status int, text string) {
	var body io.Reader
	if has {
		body = bytes.NewReader(content)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+q.token)
	if has {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := anybody.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(got)
}

// countsHold compares counters and records at every revision that etcd still has.
func (q *quota) countsHold() {
	ctx := context.Background()
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: q.etcd, DialTimeout: time.Minute})
	if err != nil {
		q.t.Fatal(err)
	}
	defer store.Close()
	l := q.newLedger()
	now, err := l.etcd.Get(ctx, "/croft/home")
	if err != nil {
		q.t.Fatal(err)
	}
	looked, last := 0, now.Header.Revision
	stride := 1 + last/mostLooked // in a long run, reading all revisions would take longer than the run
	for revision := last - (last-2)/stride*stride; revision <= last; revision += stride {
		switch found, err := store.Projects.CheckAt(ctx, revision); {
		case errors.Is(err, rpctypes.ErrCompacted):
		case err != nil:
			q.t.Fatal(err)
		case len(found) > 0:
			q.t.Fatalf("at revision %d of %d: %+v", revision, last, found)
		default:
			looked++
		}
	}
	if looked == 0 {
		q.t.Error("no revision could be looked at")
	}
	q.t.Logf("counters are records at %d revisions of %d", looked, last)
}
