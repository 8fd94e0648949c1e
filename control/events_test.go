package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/tenant"
	"croft/tenant/access"
)

// streamed opens a stream; next returns its next line with the given prefix.
func streamed(t *testing.T, url, token, last string) (next func(begin string) string, end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s: %+v, %v", url, got, err)
	}
	end = func() { cancel(); _ = got.Body.Close() }
	t.Cleanup(end)
	lines := bufio.NewScanner(got.Body)
	return func(begin string) string {
		t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), begin); ok {
				return text
			}
		}
		t.Fatalf("the stream ended without %q: %v", begin, lines.Err())
		return ""
	}, end
}

func TestEventsAreTheCallersAndCanBeResumed(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	next, end := streamed(t, url+"/v1/events", "anna", "")
	begun := next("id: ")
	berta := a.create(t, "berta", "secret")
	web := string(a.create(t, "anna", "web"))
	first := next("data: ")
	if !strings.Contains(first, web) {
		t.Fatalf("anna is told of %s first", first)
	}
	end()
	next, _ = streamed(t, url+"/v1/events", "anna", begun)
	if again := next("data: "); again != first {
		t.Errorf("resumed, it begins with %s, not %s", again, first)
	}
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?wait=gone", nil).want(t, http.StatusOK, "")
	for {
		data := next("data: ")
		if strings.Contains(data, string(berta)) {
			t.Errorf("anna is told of %s", data)
		}
		if strings.Contains(data, `"gone":true`) {
			break
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/events", nil)
	r.Header.Set("Authorization", "Bearer anna")
	for last, want := range map[string]int{"1": http.StatusGone, "x": http.StatusBadRequest,
		"-1": http.StatusBadRequest} {
		r.Header.Set("Last-Event-ID", last)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("from %s: %s, want %d", last, got.Status, want)
		}
	}
}

// countedProjects counts the reads of projects.
type countedProjects struct {
	tenant.Projects
	reads atomic.Int64
}

func (p *countedProjects) List(ctx context.Context, of access.Scope) ([]tenant.Tenant, error) {
	p.reads.Add(1)
	return p.Projects.List(ctx, of)
}

// With one read per stream, 1500 idle streams and 25 changes kept the store so busy that an answer took 49 s.
func TestTheReadsThatAChangeCostsDoNotDependOnTheNumberOfStreams(t *testing.T) {
	t.Parallel()
	counted := new(countedProjects)
	url, _ := controltest.StartWith(t, func(c *cloud.Cloud) {
		counted.Projects = c.Projects
		c.Projects = counted
	})
	a := newAsker(t, url)
	const streams = 100
	var all []func(string) string
	for range streams {
		next, _ := streamed(t, url+"/v1/events", "anna", "")
		next("id: ")
		all = append(all, next)
	}
	before := counted.reads.Load()
	a.create(t, "anna", "web")
	for _, next := range all {
		next("data: ")
	}
	if reads := counted.reads.Load() - before; reads >= streams {
		t.Errorf("the changes of one instance cost %d reads of projects with %d streams", reads, streams)
	}
}

func TestAnInstanceIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	a.create(t, "anna", "web")
	next, _ := streamed(t, url+"/v1/instances/web/events", "anna", "")
	if now := next("data: "); !strings.Contains(now, `"state":"running"`) || strings.Contains(now, "host1") ||
		strings.Contains(now, string(c.Hosts["host1"].ID)) {
		t.Errorf("it begins with %s", now)
	}
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web", nil)
	next("event: gone")
}

func TestAConsoleIsAWebSocket(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web/console", nil).want(t, http.StatusBadRequest, api.BadRequest)
	dial := func(token string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), url+"/v1/instances/web/console",
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	}
	for token, want := range map[string]int{"berta": http.StatusNotFound, "reader": http.StatusForbidden} {
		if _, answer, err := dial(token); err == nil || answer.StatusCode != want {
			t.Errorf("%s gets %+v, %v, want %d", token, answer, err, want)
		}
	}
	socket, _, err := dial("anna")
	if err != nil {
		t.Fatal(err)
	}
	if _, answer, err := dial("anna"); err == nil || answer.StatusCode != http.StatusConflict {
		t.Errorf("a second one gets %+v, %v", answer, err)
	}
	stream := websocket.NetConn(t.Context(), socket, websocket.MessageBinary)
	if _, err := io.WriteString(stream, "hello\r"); err != nil {
		t.Fatal(err)
	}
	said := ""
	for b := make([]byte, 100); !strings.Contains(said, "hello"); {
		n, err := stream.Read(b)
		if err != nil {
			t.Fatalf("%q, %v", said, err)
		}
		said += string(b[:n])
	}
	_ = stream.Close()
	log := a.ask(t, "anna", http.MethodGet, "/v1/instances/web/log", nil)
	if log.status != http.StatusOK || !strings.Contains(string(log.body), "hello") {
		t.Errorf("the log is %d %q", log.status, log.body)
	}
}

// TestAnEventHasTheInstanceAsItsReaderSeesIt: without a host, and at the end with its name.
func TestAnEventHasTheInstanceAsItsReaderSeesIt(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	next, _ := streamed(t, url+"/v1/events", "anna", "")
	operators, _ := streamed(t, url+"/v1/events", "operator", "")
	next("id: ")
	operators("id: ")
	id := a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?wait=gone", nil).want(t, http.StatusOK, "")
	host := c.Hosts["host1"]
	read := func(next func(string) string) (all []api.Change) {
		for {
			var change api.Change
			if err := json.Unmarshal([]byte(next("data: ")), &change); err != nil {
				t.Fatal(err)
			}
			if change.ID != id || change.Name != "web" || change.Project != "anna" || change.UserData != nil {
				t.Errorf("an event has %+v", change)
			}
			if all = append(all, change); change.Gone {
				return all
			}
		}
	}
	runs := func(change api.Change) bool { return change.State == "running" && change.Address != "" }
	all := read(next)
	if at := slices.IndexFunc(all, runs); at < 0 || all[at].HostID != "" || all[at].Host != "" ||
		all[at].HostAlive == nil || !*all[at].HostAlive || all[at].Resources[croft.MemoryMB] != 256 {
		t.Errorf("a tenant is told %+v", all)
	}
	all = read(operators)
	if at := slices.IndexFunc(all, runs); at < 0 || all[at].HostID != host.ID || all[at].Host != "host1" {
		t.Errorf("an operator is told %+v", all)
	}
}
