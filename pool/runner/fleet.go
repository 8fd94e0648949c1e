package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/wording"
	"croft/pool/api"
)

// FleetConfig configures a Fleet.
type FleetConfig struct {
	Tickets Tickets // required
	Shell   Shell   // required
	GitHub  *GitHub // required

	Tags   []string // required: of the machines
	Labels []string // required: of the runners; jobs name them in runs-on
	Name   string   // required: the runners' names begin with it; each Fleet at GitHub has another one
	Dir    string   // of the runner's program on the machine; by default actions-runner in the home directory
	Idle   int      // how many runners wait for jobs
	Max    int      // how many there are at most; required

	Lease      time.Duration // of tickets; 2 minutes by default
	JobTimeout time.Duration // after which a job's machine is deleted; 6 hours by default
	Boot       time.Duration // from a machine to its runner; 5 minutes by default
	Poll       time.Duration // between two questions whether an idle runner has a job; 10 s by default
	Drain      time.Duration // how long running jobs may continue once Run's context has ended
	Log        *slog.Logger  // discards by default
}

// Fleet keeps runners waiting at GitHub. Each has a machine, takes one job, and ends.
type Fleet struct {
	FleetConfig
	wake chan struct{}

	mu       sync.Mutex
	slots    map[*slot]bool
	stopping bool
	checked  bool // GitHub accepts the token
	worked   bool // a runner came up
	refused  error
	failures int // in a row
	resume   time.Time
	jobs     int // that ended
}

// slot is one runner, from the request for its machine to the deletion of both.
type slot struct {
	state       state
	ticket      int64
	registering bool
	runner      Registered // ID 0: not registered
	busySince   time.Time
	waited      time.Time // when it became idle
	end         context.CancelCauseFunc
}

type state string

const (
	starting state = "starting"
	idle     state = "idle"
	busy     state = "busy"
)

// NewFleet checks the config, and starts nothing. Invalid.
func NewFleet(c FleetConfig) (*Fleet, error) {
	if c.Tickets == nil || c.Shell == nil || c.GitHub == nil {
		return nil, croft.Errorf(croft.Invalid, "runner: Tickets, Shell and GitHub are required")
	}
	switch {
	case len(c.Tags) == 0:
		return nil, croft.Errorf(croft.Invalid, "name with --tag what the machines must have")
	case len(c.Labels) == 0:
		return nil, croft.Errorf(croft.Invalid, "name with --label what jobs ask for in runs-on")
	case c.Max < 1 || c.Idle < 0 || c.Idle > c.Max:
		return nil, croft.Errorf(croft.Invalid, "%d idle runners of at most %d: use --max from 1 on, and --idle from 0 to it",
			c.Idle, c.Max)
	case c.Idle == 0:
		return nil, croft.Errorf(croft.Invalid, "without an idle runner no job would ever begin: use --idle from 1 on")
	case !isRunnerName(c.Name):
		return nil, croft.Errorf(croft.Invalid, "%q cannot begin the names of runners: use up to 40 letters, digits, "+
			"dots and hyphens", c.Name)
	}
	for _, label := range c.Labels {
		if label == "" || len(label) > 256 || strings.ContainsAny(label, ", \t\r\n") {
			return nil, croft.Errorf(croft.Invalid, "%q is no label of a runner: use a word without commas and spaces", label)
		}
	}
	c.Dir = cmp.Or(c.Dir, "actions-runner")
	c.Lease = cmp.Or(c.Lease, 2*time.Minute)
	c.JobTimeout = cmp.Or(c.JobTimeout, 6*time.Hour)
	c.Boot = cmp.Or(c.Boot, 5*time.Minute)
	c.Poll = cmp.Or(c.Poll, 10*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Fleet{FleetConfig: c, wake: make(chan struct{}, 1), slots: map[*slot]bool{}}, nil
}

func isRunnerName(name string) bool {
	return name != "" && len(name) <= 40 && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._", c))
	})
}

// errStopped ends runners that have no job when the fleet stops.
var errStopped = errors.New("the runners stop")

// sweepEvery is the pause between two searches for runners that are left at GitHub.
const sweepEvery = time.Minute

// Run keeps the runners until ctx ends. Then it removes idle runners, and waits for running jobs. Denied, NotFound,
// Invalid: GitHub refuses the token, and no ticket was opened. The same kinds, and NoCapacity: the first runner cannot
// come up as the cloud and GitHub are configured, such as with a tag that no pool has.
func (f *Fleet) Run(ctx context.Context) error {
	if err := f.GitHub.Check(ctx); err == nil {
		f.checked = true
	} else if !errors.Is(err, croft.Unavailable) || ctx.Err() != nil {
		return err
	} else {
		f.failed(err)
	}
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var running, helpers sync.WaitGroup
	defer helpers.Wait()
	defer end(nil)
	helpers.Go(func() { f.sweep(work) })
	var refused error
	for ctx.Err() == nil {
		if refused = f.isRefused(); refused != nil {
			break
		}
		pause := f.fill(ctx, work, &running)
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-time.After(pause):
		}
	}
	f.stop(work, end, &running)
	return refused
}

// isRefused returns the refusal because of which no runner can come up.
func (f *Fleet) isRefused() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// lasts reports whether an error stays the same until a person configures the cloud, GitHub or this command otherwise.
func lasts(err error) bool {
	return slices.Contains([]croft.Kind{croft.Invalid, croft.NotFound, croft.Denied, croft.NoCapacity},
		croft.KindOf(err))
}

// fill starts the runners that are missing, and returns how long it may wait for the next change.
func (f *Fleet) fill(ctx, work context.Context, running *sync.WaitGroup) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.count(starting) + f.count(idle)
	missing := min(f.Idle-waiting, f.Max-len(f.slots))
	if missing <= 0 {
		return time.Hour
	}
	if left := time.Until(f.resume); left > 0 {
		return left
	}
	if !f.checked {
		f.mu.Unlock()
		err := f.GitHub.Check(ctx)
		f.mu.Lock()
		if ctx.Err() != nil {
			return 0
		}
		if f.checked = err == nil; err != nil {
			return f.failedLocked(err)
		}
	}
	for range missing {
		own, end := context.WithCancelCause(work)
		s := &slot{state: starting, end: end}
		f.slots[s] = true
		running.Go(func() {
			err := f.one(own, s)
			f.ended(s, err)
			end(nil)
		})
	}
	return time.Hour
}

func (f *Fleet) count(of state) (n int) {
	for s := range f.slots {
		if s.state == of {
			n++
		}
	}
	return n
}

// failed notes a failure, after which the next runner has to wait.
func (f *Fleet) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failedLocked(err)
}

func (f *Fleet) failedLocked(err error) time.Duration {
	pause := time.Second << min(f.failures, 8)
	if refused, ok := errors.AsType[*Refused](err); ok && refused.After > 0 {
		pause = refused.After
	}
	f.failures++
	f.resume = time.Now().Add(pause)
	f.Log.Error("no runner could be started", "err", err, "again_in", wording.Duration(pause))
	return pause
}

// ended forgets a runner whose machine was given back.
func (f *Fleet) ended(s *slot, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.slots, s)
	switch {
	case err == nil:
		f.jobs++
		f.failures = 0
	case errors.Is(err, errStopped):
	case !f.worked && lasts(err):
		f.refused = cmp.Or(f.refused, err)
	case s.state == busy:
		f.failures = 0
		f.jobs++
		f.Log.Error("a job did not end well", "runner", s.runner.Name, "ticket", s.ticket, "err", err)
	default:
		if !s.waited.IsZero() && time.Since(s.waited) > time.Minute { // it waited in good order
			f.failures = 0
		}
		if _, refused := errors.AsType[*refusal](err); refused {
			f.checked = false
		}
		f.failedLocked(err)
	}
	f.report()
	f.poke()
}

// poke has Run look at the runners again.
func (f *Fleet) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// report logs how many runners there are.
func (f *Fleet) report() {
	f.Log.Info("runners", "starting", f.count(starting), "idle", f.count(idle), "busy", f.count(busy), "jobs", f.jobs)
}

// busyPoll is the pause between two questions whether GitHub still has a runner that works.
const busyPoll = 30 * time.Second

// errOver ends the connection to a runner whose job is over.
var errOver = errors.New("the job is over")

// become changes the state of a runner, and reports whether it did. A busy runner stays busy.
func (f *Fleet) become(s *slot, now state) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.state == now || s.state == busy {
		return false
	}
	s.state, f.worked = now, true
	if now == busy {
		s.busySince = time.Now()
	} else {
		s.waited = time.Now()
	}
	f.report()
	f.poke()
	return true
}

func (f *Fleet) is(s *slot, what state) (bool, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.state == what, s.busySince
}

// one gets a machine, has its runner take one job, and gives the machine back.
func (f *Fleet) one(ctx context.Context, s *slot) (err error) {
	t, err := f.Tickets.Open(ctx, api.Opening{Tags: f.Tags, TTL: api.Seconds(f.Lease), Key: "runner-" + rand.Text()})
	if croft.KindOf(err) == croft.NoCapacity { // other tickets of the caller are open
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	if err != nil {
		return because(ctx, fmt.Errorf("open a ticket: %w", err))
	}
	f.mu.Lock()
	s.ticket = t.ID
	f.mu.Unlock()
	log := f.Log.With("ticket", t.ID)
	defer func() {
		if closed := closeTicket(ctx, f.Tickets, t.ID); closed != nil {
			err = errors.Join(err, closed)
		}
		f.forget(ctx, s)
	}()
	held, release := keep(ctx, f.Tickets, t.ID, f.Lease)
	defer release()
	m, err := serve(held, f.Tickets, t.ID, func(why string) { log.Info("a runner waits for its machine", "why", why) })
	if err == nil {
		err = reach(held, f.Shell, m, f.Boot)
	}
	if err == nil {
		err = f.install(held, m)
	}
	if err != nil {
		return because(held, err)
	}
	config, err := f.register(held, s)
	if err != nil {
		return because(held, err)
	}
	return f.run(held, s, m, config)
}

// because returns the cause of the end of a context, if it has ended, else the error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// refusal is the error of a registration, before which the token has to be checked again.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// register registers the runner of a slot, and returns its configuration.
func (f *Fleet) register(ctx context.Context, s *slot) (config string, err error) {
	f.mu.Lock()
	stopping := f.stopping
	s.registering = !stopping
	f.mu.Unlock()
	if stopping {
		return "", errStopped
	}
	name := f.Name + "-" + strconv.FormatInt(s.ticket, 10) + "-" + strings.ToLower(rand.Text()[:6])
	made, config, err := f.GitHub.Register(ctx, name, f.Labels)
	if err != nil {
		return "", &refusal{fmt.Errorf("register runner %s: %w", name, err)}
	}
	f.mu.Lock()
	s.runner, s.registering, stopping = made, false, f.stopping
	s.runner.Name = name
	f.mu.Unlock()
	if stopping {
		return "", errStopped
	}
	return config, nil
}

// forget removes the runner of a slot from GitHub, unless its job did so.
func (f *Fleet) forget(ctx context.Context, s *slot) {
	f.mu.Lock()
	r := s.runner
	f.mu.Unlock()
	if r.ID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := f.GitHub.Remove(ctx, r.ID); err != nil {
		f.Log.Warn("a runner stays at GitHub for now, and is removed later", "runner", r.Name, "err", err)
	}
}

// run runs the runner on its machine until it has done its job.
func (f *Fleet) run(ctx context.Context, s *slot, m Machine, config string) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() { f.watch(ctx, s, end) })
	log := f.Log.With("runner", s.runner.Name, "ticket", s.ticket)
	said := &tail{}
	ended := false
	output := &lines{each: func(line string) { // which a job may print as well, as often as it likes
		_, _ = said.Write([]byte(line + "\n"))
		switch _, job, _ := strings.Cut(line, ": "); {
		case strings.HasPrefix(job, "Listening for Jobs"):
			f.become(s, idle)
		case strings.HasPrefix(job, "Running job: "):
			if f.become(s, busy) {
				log.Info("a job runs", "job", strings.TrimPrefix(job, "Running job: "))
			}
		case !ended && strings.HasPrefix(job, "Job ") && strings.Contains(job, " completed with result: "):
			ended = true
			log.Info("a job ended", "said", job)
		}
	}}
	err := f.Shell.Run(ctx, m, runProgram(f.Dir), strings.NewReader(config+"\n"), output, output)
	if cause := context.Cause(ctx); errors.Is(cause, errOver) {
		log.Info("the job is over at GitHub, and left a process that kept its connection: its machine is deleted")
		return nil
	} else if cause != nil {
		return cause
	}
	if exit, ok := errors.AsType[*Exit](err); ok {
		return fmt.Errorf("the runner %s ended with exit code %d%s", s.runner.Name, exit.Code, said)
	}
	if err != nil {
		return fmt.Errorf("the machine of runner %s is lost: %w", s.runner.Name, err)
	}
	if worked, _ := f.is(s, busy); worked {
		return nil
	}
	// a job that was shorter than the pause between two questions removed its runner
	if _, err := f.GitHub.Get(ctx, s.runner.ID); !errors.Is(err, croft.NotFound) {
		return fmt.Errorf("the runner %s ended without a job%s", s.runner.Name, said)
	}
	return nil
}

// watch follows a runner at GitHub, and ends it if it does not come up or its job does not end.
func (f *Fleet) watch(ctx context.Context, s *slot, end func(error)) {
	for begun, gone := time.Now(), (time.Time{}); ; {
		working, since := f.is(s, busy)
		pause := f.Poll
		if working {
			pause = time.Until(since.Add(f.JobTimeout))
			if pause <= 0 {
				end(croft.Errorf(croft.Unavailable, "the job of runner %s has not ended within %s: its machine is deleted",
					s.runner.Name, wording.Duration(f.JobTimeout)))
				return
			}
			pause = min(pause, max(f.Poll, busyPoll))
		}
		if delay.For(ctx, pause) != nil {
			return
		}
		r, err := f.GitHub.Get(ctx, s.runner.ID)
		waits, _ := f.is(s, idle)
		switch {
		case working && errors.Is(err, croft.NotFound) && !gone.IsZero():
			end(errOver) // GitHub removes a runner with the end of its job
			return
		case working && !errors.Is(err, croft.NotFound):
			gone = time.Time{}
		case errors.Is(err, croft.NotFound) && gone.IsZero():
			gone = time.Now()
		case errors.Is(err, croft.NotFound) && time.Since(gone) > f.Boot:
			end(croft.Errorf(croft.NotFound, "GitHub has removed runner %s", s.runner.Name))
			return
		case err != nil:
		case r.Busy:
			f.become(s, busy)
		case r.Status == "online":
			f.become(s, idle)
		case !waits && time.Since(begun) > f.Boot:
			end(croft.Errorf(croft.Unavailable, "runner %s is not online after %s: see whether its machine reaches GitHub",
				s.runner.Name, wording.Duration(f.Boot)))
			return
		}
	}
}

// sweep removes runners of this fleet's name that are offline and have no ticket: a process that was killed left them,
// or they had a job when their machine was deleted.
func (f *Fleet) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			f.Log.Warn("runners that were left at GitHub are not removed yet", "err", err)
		}
		_ = delay.For(ctx, sweepEvery)
	}
}

func (f *Fleet) sweepOnce(ctx context.Context) error {
	known, err := f.GitHub.List(ctx)
	if err != nil {
		return err
	}
	known = slices.DeleteFunc(known, func(r Registered) bool {
		_, ours := f.ticketOf(r.Name)
		return !ours || r.Status != "offline"
	})
	if len(known) == 0 {
		return nil
	}
	list, err := f.Tickets.Tickets(ctx, api.Selection{}) // after the runners: a new runner has a ticket
	if err != nil {
		return err
	}
	for _, r := range known {
		id, _ := f.ticketOf(r.Name)
		if slices.ContainsFunc(list.Tickets, func(t api.Ticket) bool {
			return t.ID == id && t.State == api.TicketOpen
		}) {
			continue
		}
		if err := f.GitHub.Remove(ctx, r.ID); errors.Is(err, croft.Conflict) {
			continue // GitHub still waits for its job
		} else if err != nil {
			return err
		}
		f.Log.Info("removed a runner that was left at GitHub", "runner", r.Name)
	}
	return nil
}

// ticketOf returns the ticket in the name of a runner of this fleet.
func (f *Fleet) ticketOf(name string) (int64, bool) {
	rest, ours := strings.CutPrefix(name, f.Name+"-")
	number, random, cut := strings.Cut(rest, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	return id, ours && cut && len(random) == 6 && err == nil
}

// stop removes the runners that have no job, and waits until the others have ended.
func (f *Fleet) stop(work context.Context, end func(error), running *sync.WaitGroup) {
	f.mu.Lock()
	f.stopping = true
	all := make([]*slot, 0, len(f.slots))
	for s := range f.slots {
		all = append(all, s)
	}
	f.Log.Info("the runners stop: idle ones are removed, running jobs may end", "for", wording.Duration(f.Drain))
	f.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	var retiring sync.WaitGroup
	defer retiring.Wait()
	for _, s := range all {
		retiring.Go(func() { f.retire(work, s) })
	}
	select {
	case <-ended:
	case <-time.After(f.Drain):
		end(croft.Errorf(croft.Unavailable, "the time for running jobs is over (%s)", wording.Duration(f.Drain)))
		<-ended
	}
	end(errStopped)
}

// retire ends a runner unless it has a job.
func (f *Fleet) retire(ctx context.Context, s *slot) {
	for {
		f.mu.Lock()
		id, registering, alive, working := s.runner.ID, s.registering, f.slots[s], s.state == busy
		f.mu.Unlock()
		if !alive || working || registering {
			return
		}
		if id == 0 {
			s.end(errStopped)
			return
		}
		err := f.GitHub.Remove(ctx, id)
		switch {
		case err == nil:
			s.end(errStopped)
			return
		case errors.Is(err, croft.Conflict):
			f.become(s, busy)
			return
		}
		f.Log.Warn("an idle runner is not removed yet", "runner", s.runner.Name, "err", err)
		if delay.For(ctx, time.Second) != nil {
			return
		}
	}
}
