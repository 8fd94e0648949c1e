package placement_test

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft/internal/testing/placementoracle"
)

var (
	oracleRequests = flag.Int("oracle.requests", 1000, "requests to compare with the original; make soak sends more")
	oracleSeed     = flag.Uint64("oracle.seed", 1795209276924578849, "seed of the sequences; 0 takes one from the "+
		"clock, as make soak does")
	oracleWorkers = flag.Int("oracle.workers", 2, "sequences compared at once, each with an original of its own")
)

// TestAnswersAsTheOriginal sends random sequences of valid and invalid requests to OpenStack's Placement and to ours,
// and compares the answers.
func TestAnswersAsTheOriginal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes; left out by -short")
	}
	seed := *oracleSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	var mu sync.Mutex
	total, explained, seen := 0, map[string]int{}, map[string]int{}
	t.Run("sequences", func(t *testing.T) {
		for worker := range *oracleWorkers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				d := &duel{
					theirs: placementoracle.Start(t), ours: serve(t), client: newHTTPClient(t),
					explained: map[string]int{}, seen: map[string]int{},
				}
				share := *oracleRequests / *oracleWorkers
				for n := uint64(0); d.requests < share && d.differences < maxDifferences && !late(t); n++ {
					d.play(t, seed+uint64(worker)<<32+n)
				}
				mu.Lock()
				defer mu.Unlock()
				total += d.requests
				for reason, n := range d.explained {
					explained[reason] += n
				}
				for what, n := range d.seen {
					seen[what] += n
				}
			})
		}
	})
	t.Logf("sampled: %d requests, seed %d; make soak sends more", total, seed)
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[what], what)
	}
	for reason, n := range explained {
		t.Logf("%6d differences explained: %s", n, reason)
	}
}

// area returns the kind of object that a call concerns.
func area(c call) string {
	parts := strings.Split(strings.Split(c.path, "?")[0], "/")
	if len(parts) > 3 {
		return c.method + " " + parts[1] + "/" + parts[3]
	}
	return c.method + " " + parts[1]
}

// outcome summarizes an answer; for candidates, it includes whether there are any.
func outcome(r reply) string {
	s := fmt.Sprint(r.status)
	if strings.HasPrefix(r.body, `{"allocation_requests": [`) {
		s += " " + map[bool]string{true: "none", false: "some"}[strings.HasPrefix(r.body, `{"allocation_requests": []`)]
	}
	return s
}

func newHTTPClient(t *testing.T) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // uwsgi closes connections without notice
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// call is a request for both servers.
type call struct {
	method, path string
	version      string // value of the microversion header; empty: no header
	token        string
	accept       string
	contentType  string
	body         string
}

func (c call) String() string {
	s := fmt.Sprintf("%s %s [%s]", c.method, c.path, c.version)
	if c.token != "admin" || c.accept != "" || c.contentType != "application/json" && c.body != "" {
		s += fmt.Sprintf(" token=%q accept=%q content-type=%q", c.token, c.accept, c.contentType)
	}
	return s + " " + c.body
}

// reply is a server's answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// duel compares two servers.
type duel struct {
	theirs, ours string
	client       *http.Client
	requests     int
	explained    map[string]int
	seen         map[string]int // areas of the API and outcomes
	log          []string       // of the sequence
	differs      bool           // the states differ; later differences mean nothing
	differences  int
}

// late reports whether the test's time is nearly over: a slow machine compares fewer requests.
func late(t *testing.T) bool {
	deadline, ok := t.Deadline()
	return ok && time.Until(deadline) < time.Minute
}

// maxDifferences is the number of differences that ends the test.
const maxDifferences = 10

func (d *duel) send(t *testing.T, base string, c call) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, base+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set("X-Auth-Token", c.token)
	set("OpenStack-API-Version", c.version)
	set("Accept", c.accept)
	set("Content-Type", c.contentType)
	resp, err := d.client.Do(req)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return reply{resp.StatusCode, resp.Header, strings.ReplaceAll(string(body), base, "http://server")}
}

// both sends a call to both servers and fails the test if they differ without a known reason. It returns our answer,
// and whether the answers were equal.
func (d *duel) both(t *testing.T, c call) (reply, bool) {
	t.Helper()
	theirs, ours := d.send(t, d.theirs, c), d.send(t, d.ours, c)
	d.requests++
	d.seen[area(c)+" "+outcome(ours)]++
	d.log = append(d.log, fmt.Sprintf("%v\n\t-> %d %s", c, ours.status, ours.body))
	diff := difference(c, theirs, ours)
	if diff == "" {
		return ours, true
	}
	if reason := explain(c, theirs, ours); reason != "" {
		d.explained[reason]++
		// the states of the two servers differ now
		d.differs = d.differs || ours.status < 300 || theirs.status < 300
		return ours, false
	}
	if d.differs {
		return ours, false
	}
	d.differs = true
	d.differences++
	t.Errorf("%s: %v\ndiffers: %s\ntheirs: %d %s\nours: %d %s\nbefore:\n%s", d.log[0], c, diff,
		theirs.status, theirs.body, ours.status, ours.body, strings.Join(last(d.log, *oracleHistory), "\n"))
	return ours, false
}

var oracleHistory = flag.Int("oracle.history", 12, "requests to show before one that differs")

func last(list []string, n int) []string { return list[max(0, len(list)-n-1) : len(list)-1] }

// leavesConsumer reports whether the original keeps the record of a consumer after a call that granted it nothing: a
// claim on a provider that does not exist, or an empty one.
func leavesConsumer(c call, ours reply) bool {
	return (strings.HasPrefix(c.path, "/allocations") || strings.HasPrefix(c.path, "/reshaper")) &&
		(strings.Contains(ours.body, "that does not exist") || strings.Contains(c.body, `"allocations": {}`))
}

// play runs one sequence on an empty Placement and leaves it empty.
func (d *duel) play(t *testing.T, seed uint64) {
	t.Helper()
	d.log, d.differs = []string{fmt.Sprintf("sequence of seed %d", seed)}, false
	g := newGenerator(rand.New(rand.NewPCG(seed, 1)))
	for _, c := range g.populate() {
		d.both(t, c)
	}
	for range 250 {
		if d.differs || late(t) {
			break
		}
		c := g.next(func(c call) reply { return d.send(t, d.ours, c) })
		ours, same := d.both(t, c)
		if !same || leavesConsumer(c, ours) {
			g.freshConsumers()
		}
		if same && strings.HasPrefix(c.path, "/allocation_candidates") && ours.status == http.StatusOK {
			d.checkLimit(t, c, ours)
		}
	}
	d.sweep(t)
}
