package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/pool/api"
	"croft/pool/runner/runnertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machines is a pool whose machines are ready after a second, and the shell on them.
type machines struct {
	github *runnertest.GitHub

	mu      sync.Mutex
	tickets []api.Ticket
	used    map[int64]time.Time // when a lease was restarted
	ends    map[int64]func()    // of the commands that run on the machine of a ticket
	inputs  []string
	never   bool // no pool serves tickets
}

func (m *machines) Open(_ context.Context, o api.Opening) (api.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := api.Ticket{ID: int64(len(m.tickets) + 1), State: api.TicketOpen, Tags: o.Tags, TTL: o.TTL, Opened: time.Now()}
	m.tickets = append(m.tickets, t)
	m.used[t.ID] = time.Now()
	return t, nil
}

func (m *machines) Wait(ctx context.Context, id int64, _ api.Waiting) (api.Ticket, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return api.Ticket{}, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.tickets[id-1]
	if m.never {
		t.Never, t.WaitsFor = true, "no pool has the tag"
		return *t, nil
	}
	t.Served = time.Now()
	t.Resource = &api.Resource{Name: "r", Pool: "p", Data: api.Text(fmt.Sprintf("me@m%d:22\n", id))}
	return *t, nil
}

// end ends a ticket, and with it the commands on its machine.
func (m *machines) end(id int64, state string) {
	m.mu.Lock()
	end := m.ends[id]
	if m.tickets[id-1].State == api.TicketOpen {
		m.tickets[id-1].State = state
	}
	m.mu.Unlock()
	if end != nil {
		end()
	}
}

func (m *machines) Close(_ context.Context, id int64) (api.Ticket, error) {
	m.end(id, api.TicketClosed)
	return api.Ticket{}, nil
}

func (m *machines) Renew(_ context.Context, id int64) (api.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[id] = time.Now()
	if t := m.tickets[id-1]; t.State != api.TicketOpen {
		return t, croft.Errorf(croft.Conflict, "ticket %d is %s", id, t.State)
	}
	return m.tickets[id-1], nil
}

func (m *machines) Tickets(context.Context, api.Selection) (list api.Tickets, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tickets {
		if t.State == api.TicketOpen {
			list.Tickets = append(list.Tickets, t)
		}
	}
	return list, nil
}

func (m *machines) open() int {
	list, _ := m.Tickets(context.Background(), api.Selection{})
	return len(list.Tickets)
}

func (m *machines) opened() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tickets)
}

// Run does what the commands of this package do. The script of a job is its duration.
func (m *machines) Run(ctx context.Context, on Machine, command string, stdin io.Reader, stdout, _ io.Writer) error {
	input, _ := io.ReadAll(stdin) // of memory
	m.mu.Lock()
	m.inputs = append(m.inputs, command)
	m.mu.Unlock()
	switch {
	case command == "true":
		return nil
	case strings.Contains(command, "uname"):
		fmt.Fprint(stdout, "Linux\nx86_64\npresent\n")
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.ends[on.Ticket] = cancel
	m.mu.Unlock()
	job, end := m.github.Begin(strings.TrimSpace(string(input)))
	if job == nil {
		return &Exit{1}
	}
	fmt.Fprint(stdout, "2026-11-29 22:00:00Z: Listening for Jobs\n")
	next := make(chan *runnertest.Job, 1)
	go func() { next <- job() }()
	name := ""
	for _, r := range m.github.Runners() {
		if strings.Contains(r.Name, fmt.Sprintf("-%d-", on.Ticket)) {
			name = r.Name
		}
	}
	var lasts time.Duration
	select {
	case j := <-next:
		if j == nil {
			return &Exit{1}
		}
		fmt.Fprintf(stdout, "2026-11-29 22:00:00Z: Running job: %s\n", j.Name)
		script, left := strings.CutSuffix(j.Script, " and leaves a process")
		lasts, _ = time.ParseDuration(script) // the tests write valid ones
		if left {
			time.Sleep(lasts)
			for range 1000 {
				fmt.Fprintf(stdout, "x: Running job: forged\nx: Job forged completed with result: Succeeded\n")
			}
			end(0)
			<-ctx.Done()
			return croft.Errorf(croft.Unavailable, "ssh has no connection to %s", on.Host)
		}
	case <-ctx.Done():
		m.github.Lose(name)
		return croft.Errorf(croft.Unavailable, "ssh has no connection to %s", on.Host)
	}
	select {
	case <-time.After(lasts):
		end(0)
		return nil
	case <-ctx.Done():
		m.github.Lose(name)
		return croft.Errorf(croft.Unavailable, "ssh has no connection to %s", on.Host)
	}
}

// inProcess calls a handler without a network.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// said is a log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// fleetWorld is a fleet at the stand-in of GitHub, in fake time.
type fleetWorld struct {
	*testing.T
	*machines
	FleetConfig
	log said

	stop  func()
	ended chan error
}

// withFleet runs a test with a fleet of at most four runners, one of which waits. before changes it, and the world.
func withFleet(t *testing.T, before func(*fleetWorld), test func(*fleetWorld)) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(runnertest.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		hub := &runnertest.GitHub{URL: "https://github.example"}
		client, err := NewGitHub("https://github.example/example", token, 1)
		if err != nil {
			t.Fatal(err)
		}
		client.http = &http.Client{Transport: inProcess{hub}}
		w := &fleetWorld{T: t, ended: make(chan error, 1),
			machines: &machines{github: hub, used: map[int64]time.Time{}, ends: map[int64]func(){}}}
		w.FleetConfig = FleetConfig{Tickets: w.machines, Shell: w.machines, GitHub: client, Tags: []string{"vm"},
			Labels: []string{"croft"}, Name: "ci", Idle: 1, Max: 4, Drain: time.Hour, JobTimeout: 2 * time.Hour,
			Log: slog.New(slog.NewTextHandler(&w.log, nil))}
		if before != nil {
			before(w)
		}
		f, err := NewFleet(w.FleetConfig)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		w.stop = stop
		go func() { w.ended <- f.Run(ctx) }()
		defer func() {
			stop()
			synctest.Wait()
		}()
		time.Sleep(10 * time.Second)
		test(w)
	})
}

// end stops the fleet, and requires that nothing is left.
func (w *fleetWorld) finish() {
	w.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.Error(err)
	}
	if left := w.github.Runners(); len(left) != 0 || w.open() != 0 {
		w.Errorf("%+v and %d tickets are left; the log:\n%s", left, w.open(), w.log.String())
	}
}

func (w *fleetWorld) wantState(job, state string) {
	w.Helper()
	if got := w.github.Job(job).State; got != state {
		w.Errorf("job %s is %s, want %s; the log:\n%s", job, got, state, w.log.String())
	}
}

func TestEachJobHasARunnerThatIsDiscarded(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		if w.open() != 1 || len(w.github.Runners()) != 1 {
			w.Fatalf("%d tickets for %d idle runners, want 1; the log:\n%s", w.open(), len(w.github.Runners()),
				w.log.String())
		}
		for i := range 3 {
			w.github.Queue(fmt.Sprint("job", i), "1m", "croft")
		}
		time.Sleep(30 * time.Second)
		if w.open() != 4 { // three with jobs, and one that waits
			w.Errorf("%d tickets are open, want 4; the log:\n%s", w.open(), w.log.String())
		}
		time.Sleep(2 * time.Minute)
		had := map[string]bool{}
		for i := range 3 {
			w.wantState(fmt.Sprint("job", i), "done")
			had[w.github.Job(fmt.Sprint("job", i)).Runner] = true
		}
		if len(had) != 3 || w.open() != 1 || w.opened() != 4 {
			w.Errorf("3 jobs had %d runners; %d tickets are open, %d were opened", len(had), w.open(), w.opened())
		}
		w.finish()
		for _, command := range w.inputs {
			if strings.Contains(command, "standin") {
				w.Errorf("a command has a secret: %s", command)
			}
		}
	})
}

func TestThereAreNeverMoreRunnersThanMax(t *testing.T) {
	withFleet(t, func(w *fleetWorld) { w.Max = 2 }, func(w *fleetWorld) {
		for i := range 5 {
			w.github.Queue(fmt.Sprint("job", i), "10s", "croft")
		}
		for range 300 {
			time.Sleep(time.Second)
			if w.open() > 2 || len(w.github.Runners()) > 2 {
				w.Fatalf("%d tickets, %d runners", w.open(), len(w.github.Runners()))
			}
		}
		w.wantState("job4", "done")
		w.finish()
	})
}

func TestAJobThatNeverEndsLosesItsMachine(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		w.github.Queue("forever", "1000h", "croft")
		time.Sleep(2*time.Hour + time.Minute)
		w.wantState("forever", "lost")
		if !strings.Contains(w.log.String(), "has not ended within 2h") {
			w.Errorf("the log has no word of it:\n%s", w.log.String())
		}
		w.github.Queue("next", "1s", "croft")
		time.Sleep(time.Minute)
		w.wantState("next", "done")
		w.finish()
	})
}

func TestAProcessThatAJobLeavesKeepsNoMachine(t *testing.T) {
	withFleet(t, func(w *fleetWorld) { w.Max = 1 }, func(w *fleetWorld) {
		w.github.Queue("first", "10s and leaves a process", "croft")
		w.github.Queue("second", "10s", "croft")
		time.Sleep(4 * time.Minute)
		w.wantState("first", "done")
		w.wantState("second", "done")
		w.finish()
		for _, line := range []string{"a job runs", "a job ended"} {
			if n := strings.Count(w.log.String(), line); n > 2 {
				w.Errorf("the log has %q %d times, for two jobs", line, n)
			}
		}
	})
}

func TestARunnerWhoseMachineDiesIsReplaced(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		w.github.Queue("doomed", "1h", "croft")
		time.Sleep(30 * time.Second)
		w.machines.end(1, api.TicketFailed)
		time.Sleep(30 * time.Second)
		w.wantState("doomed", "lost")
		w.github.Queue("next", "1s", "croft")
		time.Sleep(time.Minute)
		w.wantState("next", "done")
		w.finish()
	})
}

// A ticket that ended, as the lease of a client that was away for too long, ends its runner although SSH goes on.
func TestARunnerEndsWithItsTicket(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		w.mu.Lock()
		w.tickets[0].State = api.TicketClosed
		w.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if runners := w.github.Runners(); len(runners) != 1 || !strings.HasPrefix(runners[0].Name, "ci-2-") {
			w.Errorf("the runners are %+v; the log:\n%s", runners, w.log.String())
		}
		w.finish()
	})
}

func TestLeasesAreRenewedWhileTheirRunnersWork(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		for range 100 {
			time.Sleep(10 * time.Second)
			w.mu.Lock()
			if unused := time.Since(w.used[1]); unused > time.Minute {
				w.Fatalf("the lease of 2m was not renewed for %s", unused)
			}
			w.mu.Unlock()
		}
		w.finish()
	})
}

func TestATokenThatGitHubRefusesOpensNoTicket(t *testing.T) {
	for status, kind := range map[int]croft.Kind{http.StatusUnauthorized: croft.Denied,
		http.StatusForbidden: croft.Denied, http.StatusNotFound: croft.NotFound} {
		withFleet(t, func(w *fleetWorld) {
			w.github.Refuse(func(_, path string) (int, http.Header) {
				if path == "/registration-token" {
					return status, nil
				}
				return 0, nil
			})
		}, func(w *fleetWorld) {
			if err := <-w.ended; !errors.Is(err, kind) || w.opened() != 0 {
				w.Errorf("%d: got %v, want %s, and %d tickets", status, err, kind, w.opened())
			}
		})
	}
}

func TestARefusedRegistrationGivesItsMachineBackAndOpensNoFurtherTicket(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		withFleet(t, nil, func(w *fleetWorld) {
			w.github.Queue("first", "1s", "croft")
			w.github.Refuse(func(method, _ string) (int, http.Header) {
				if method == http.MethodPost {
					return status, nil
				}
				return 0, nil
			})
			time.Sleep(30 * time.Second) // the first job's successor is refused
			refused := w.opened()
			time.Sleep(20 * time.Minute)
			if w.open() != 0 || w.opened() != refused {
				w.Errorf("%d: %d tickets are open, %d were opened later", status, w.open(), w.opened()-refused)
			}
			w.github.Refuse(nil)
			time.Sleep(6 * time.Minute)
			if len(w.github.Runners()) != 1 {
				w.Errorf("%d: no runner waits once GitHub accepts the token; the log:\n%s", status, w.log.String())
			}
			w.finish()
		})
	}
}

func TestARegistrationThatGitHubCannotDoIsTriedAgainWithoutHaste(t *testing.T) {
	for _, status := range []int{http.StatusConflict, http.StatusBadGateway} {
		withFleet(t, func(w *fleetWorld) {
			w.github.Refuse(func(_, path string) (int, http.Header) {
				if path == "/generate-jitconfig" {
					return status, nil
				}
				return 0, nil
			})
		}, func(w *fleetWorld) {
			time.Sleep(time.Hour)
			if n := w.github.Requests("POST /generate-jitconfig"); n < 5 || n > 25 || w.open() > 1 {
				w.Errorf("%d: %d registrations in an hour, and %d tickets; the log:\n%s", status, n, w.open(), w.log.String())
			}
			w.github.Refuse(nil)
			time.Sleep(6 * time.Minute)
			w.finish()
		})
	}
}

func TestALimitOfRequestsIsKept(t *testing.T) {
	for name, header := range map[string]http.Header{
		"seconds": {"Retry-After": {"600"}},
		"a time": {"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset": {fmt.Sprint(time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC).Unix())}},
	} {
		withFleet(t, func(w *fleetWorld) {
			w.github.Refuse(func(string, string) (int, http.Header) { return http.StatusForbidden, header })
		}, func(w *fleetWorld) {
			time.Sleep(8 * time.Minute)
			if w.opened() != 0 {
				w.Errorf("%s: %d tickets were opened", name, w.opened())
			}
			w.github.Refuse(nil)
			time.Sleep(3 * time.Minute)
			if len(w.github.Runners()) != 1 {
				w.Errorf("%s: no runner waits after the limit; the log:\n%s", name, w.log.String())
			}
			w.finish()
		})
	}
}

func TestARunningJobMayEndAfterSIGTERM(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		w.github.Queue("long", "30m", "croft")
		time.Sleep(time.Minute)
		w.stop()
		time.Sleep(time.Minute)
		if w.open() != 1 || len(w.github.Runners()) != 1 {
			w.Errorf("%d tickets and %d runners are left, want those of the job", w.open(), len(w.github.Runners()))
		}
		w.github.Queue("late", "1s", "croft")
		w.finish()
		w.wantState("long", "done")
		w.wantState("late", "queued")
	})
}

func TestTheTimeForRunningJobsEnds(t *testing.T) {
	withFleet(t, func(w *fleetWorld) { w.Drain = time.Minute }, func(w *fleetWorld) {
		w.github.Queue("long", "30m", "croft")
		time.Sleep(time.Minute)
		begun := time.Now()
		w.finish()
		if took := time.Since(begun); took > 2*time.Minute {
			w.Errorf("it took %s", took)
		}
		w.wantState("long", "lost")
	})
}

// A process that was killed leaves runners, which the next one removes once they are offline and have no ticket.
func TestRunnersOfAKilledProcessAreRemoved(t *testing.T) {
	withFleet(t, func(w *fleetWorld) {
		open, _ := w.machines.Open(context.Background(), api.Opening{})
		for _, name := range []string{"ci-77-abcdef", "other-77-abcdef", "ci-77", "ci-app-77-abcdef",
			fmt.Sprintf("ci-%d-abcdef", open.ID)} {
			w.github.Register(name)
		}
	}, func(w *fleetWorld) {
		var left []string
		for _, r := range w.github.Runners() {
			if !r.Online {
				left = append(left, r.Name)
			}
		}
		if got, want := strings.Join(left, " "), "other-77-abcdef ci-77 ci-app-77-abcdef ci-1-abcdef"; got != want {
			w.Errorf("left are %s, want %s", got, want)
		}
		w.stop()
		<-w.ended
	})
}

func TestTagsThatNoPoolHasEndTheCommand(t *testing.T) {
	withFleet(t, func(w *fleetWorld) { w.never, w.Idle = true, 3 }, func(w *fleetWorld) {
		err := <-w.ended
		if !errors.Is(err, croft.NoCapacity) || !strings.Contains(err.Error(), "waits in vain: no pool has the tag") {
			w.Errorf("it ended with %v", err)
		}
		if w.open() != 0 || w.opened() > 3 || len(w.github.Runners()) != 0 {
			w.Errorf("%d tickets are open, %d were opened, and GitHub has %+v", w.open(), w.opened(),
				w.github.Runners())
		}
	})
}

// A pool may be configured anew while runners work.
func TestTagsThatNoPoolHasForAWhileAreAwaited(t *testing.T) {
	withFleet(t, nil, func(w *fleetWorld) {
		never := func(is bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.never = is
		}
		never(true)
		w.github.Queue("first", "1s", "croft")
		time.Sleep(time.Minute)
		if !strings.Contains(w.log.String(), "waits in vain: no pool has the tag") || w.open() > 1 {
			w.Errorf("%d tickets are open, and the log is\n%s", w.open(), w.log.String())
		}
		never(false)
		w.github.Queue("second", "1s", "croft")
		time.Sleep(6 * time.Minute)
		w.wantState("second", "done")
		w.finish()
	})
}

func TestARegistrationThatGitHubNeverDoesEndsTheCommand(t *testing.T) {
	withFleet(t, func(w *fleetWorld) {
		w.github.Refuse(func(_, path string) (int, http.Header) {
			if path == "/generate-jitconfig" {
				return http.StatusUnprocessableEntity, nil
			}
			return 0, nil
		})
	}, func(w *fleetWorld) {
		if err := <-w.ended; !errors.Is(err, croft.Invalid) || w.open() != 0 || w.opened() != 1 {
			w.Errorf("it ended with %v; %d tickets are open, %d were opened", err, w.open(), w.opened())
		}
	})
}
