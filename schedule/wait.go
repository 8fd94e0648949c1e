package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"croft"
)

// watchRetry is how long, by half at most, Wait leaves a store alone that does not
// answer.
const watchRetry = 500 * time.Millisecond

// A Goal tells whether the status of an instance, nil once it is gone, is what
// somebody waits for. An error means that it never will be.
type Goal func(*croft.Status) (reached bool, err error)

// Running is reached when the guest runs and has an address.
func Running(st *croft.Status) (bool, error) { return observed(st, croft.StateRunning) }

// Ready is reached when the guest runs and has reported that its set-up is done. A
// set-up that failed is an error, and no *Failure: the host did its part.
func Ready(st *croft.Status) (bool, error) {
	running, err := Running(st)
	if err != nil || !running || st.Observation.CloudInit == nil {
		return false, err
	}
	if told := st.Observation.CloudInit; told.State == croft.CloudInitFailed {
		return false, fmt.Errorf("it runs, and its set-up failed: %s; `schedule console %s` has what the guest said",
			cmp.Or(told.Error, "the guest gives no reason"), st.Instance.Name)
	}
	return true, nil
}

// Stopped is reached when the domain is shut off.
func Stopped(st *croft.Status) (bool, error) { return observed(st, croft.StateStopped) }

// Gone is reached when nothing of the instance is left. A removal that failed is
// no end: its host tries again.
func Gone(st *croft.Status) (bool, error) { return st == nil, nil }

// observed wants the state of the newest order's observation, since an older one
// tells of what was wanted before.
func observed(st *croft.Status, want croft.State) (bool, error) {
	switch {
	case st == nil:
		return false, croft.Errorf(croft.NotFound, "it was destroyed")
	case st.Instance.State == croft.StateDestroying:
		return false, croft.Errorf(croft.Conflict, "it is being destroyed")
	case !current(st):
		return false, nil
	}
	if end := ended(st); end != "" && want != croft.StateStopped {
		return false, fmt.Errorf("%s; its restart policy leaves it off, and `schedule start %s` boots it", end,
			st.Instance.Name)
	}
	return st.Observation.State == want, failed(st)
}

// ended says how the guest went off, where its restart policy leaves it so.
func ended(st *croft.Status) croft.End {
	if !current(st) || st.Observation.State != croft.StateStopped {
		return ""
	}
	return st.Observation.Ended
}

// current tells whether the agent has seen the newest order.
func current(st *croft.Status) bool {
	return st.Observation != nil && st.Observation.Generation >= st.Instance.Generation
}

// failed is the agent's sentence about the newest order, if that failed.
func failed(st *croft.Status) error {
	if !current(st) || st.Observation.State != croft.StateFailed {
		return nil
	}
	text := cmp.Or(st.Observation.Error, "the host gives no reason")
	if st.Observation.ErrorKind == "" {
		return &Failure{errors.New(text)}
	}
	return &Failure{croft.Errorf(st.Observation.ErrorKind, "%s", text)}
}

// Failure is what the host's agent says went wrong, of the kind that it gave.
type Failure struct{ err error }

func (f *Failure) Error() string { return f.err.Error() }

// Unwrap gives the error with the kind.
func (f *Failure) Unwrap() error { return f.err }

// Wait follows an instance until the goal is reached, calling progress with what it
// was at first and after every change. A store that does not answer for a while is
// asked again. Unavailable: ctx's deadline passed first. errors.As finds a *Failure
// where the host's agent failed.
func (s *Scheduler) Wait(ctx context.Context, inst croft.Instance, goal Goal, progress func(croft.Status)) error {
	var reached bool
	var verdict error
	err := s.watch(ctx, inst.ID, func(st *croft.Status) bool {
		if st != nil && progress != nil {
			progress(*st)
		}
		reached, verdict = goal(st)
		return !reached && verdict == nil
	})
	switch {
	case verdict != nil:
		return fmt.Errorf("instance %s: %w", inst.Name, verdict)
	case reached:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		where, arrived := s.standing(ctx, inst, goal)
		if arrived {
			return nil
		}
		return croft.Errorf(croft.Unavailable, "instance %s: waited long enough; %s", inst.Name, where)
	case err == nil:
		return croft.Errorf(croft.NotFound, "instance %s is gone", inst.Name)
	}
	return fmt.Errorf("wait for instance %s: %w", inst.Name, err)
}

// watch is WatchInstance for as long as ctx lives, whatever the store does.
func (s *Scheduler) watch(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	for {
		err := s.View.WatchInstance(ctx, id, changed)
		if ctx.Err() != nil || !errors.Is(err, croft.Unavailable) {
			return err
		}
		if interrupted := sleep(ctx, watchRetry/2+rand.N(watchRetry)); interrupted != nil {
			return err
		}
	}
}

// standing says where an instance stands now that nobody waits any longer; that its
// host fell silent changed nothing that Wait saw. Arrived: the goal is reached after all.
func (s *Scheduler) standing(ctx context.Context, inst croft.Instance, goal Goal) (where string, arrived bool) {
	ctx, cancel := s.afterwards(ctx)
	defer cancel()
	st, err := s.View.Find(ctx, inst.Project, string(inst.ID))
	if err != nil {
		return "where it stands cannot be told: " + err.Error(), false
	}
	if reached, err := goal(&st); reached && err == nil {
		return "", true
	}
	if why := failed(&st); why != nil {
		return fmt.Sprintf("it is %s: %v", Describe(&st), why), false
	}
	return "it is " + Describe(&st), false
}

// Unknown is where an instance stands whose host is silent: it may run, and what was
// last seen of it counts for nothing.
const Unknown = "unknown"

// Ordered is where an instance stands whose host has not said anything of it yet.
const Ordered = "ordered"

// Address returns the address that people use: IPv4 before IPv6, empty while the instance
// does not run.
func Address(st *croft.Status) string {
	if st.Observation == nil || st.Observation.State != croft.StateRunning {
		return ""
	}
	var best netip.Addr
	for _, addr := range st.Observation.Addresses {
		if !best.IsValid() || addr.Is4() && !best.Is4() {
			best = addr
		}
	}
	if !best.IsValid() {
		return ""
	}
	return best.String()
}

// Describe says in a word where an instance stands; nil is gone.
func Describe(st *croft.Status) string {
	switch {
	case st == nil:
		return "gone"
	case st.Instance.State != croft.StateScheduled:
		return string(st.Instance.State)
	case st.Host != nil && !st.Host.Alive:
		return Unknown
	case st.Observation == nil:
		return Ordered
	}
	return string(st.Observation.State)
}
