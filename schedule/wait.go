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
	"croft/internal/delay"
	"croft/internal/wording"
)

// watchRetry is the pause of Wait, with a jitter of a half, while the store does not answer.
const watchRetry = 500 * time.Millisecond

// Goal reports whether an instance has the wanted status; nil: the instance is gone. An error means that it never will.
type Goal func(*croft.Status) (reached bool, err error)

// Running is reached when the guest runs and has an address.
func Running(st *croft.Status) (bool, error) { return observed(st, croft.StateRunning) }

// Ready is reached when the guest runs and has reported the end of its set-up since it was last started. A failed
// set-up is an error, but not a *Failure: the host did its part. Unavailable: the guest is simulated, so it never
// reports.
func Ready(st *croft.Status) (bool, error) {
	running, err := Running(st)
	if err != nil || !running {
		return false, err
	}
	if !st.Observation.CloudInit.Current() {
		if st.Host != nil && st.Host.NoSetUp {
			return false, croft.Errorf(croft.Unavailable,
				"it runs, and a guest of the simulated hypervisor never reports the end of its set-up: wait with --wait=running")
		}
		return false, nil
	}
	if c := st.Observation.CloudInit; c.State == croft.CloudInitFailed {
		return false, fmt.Errorf("it runs, and its set-up failed: %s; `schedule console %s` has what the guest said",
			cmp.Or(c.Error, "the guest gives no reason"), st.Instance.Name)
	}
	return true, nil
}

// Stopped is reached when the domain is shut off.
func Stopped(st *croft.Status) (bool, error) { return observed(st, croft.StateStopped) }

// Ejected is reached when the host has carried out the newest order, and the guest starts, runs or is off, or when the
// instance is lost: then no host has anything to do.
func Ejected(st *croft.Status) (bool, error) {
	if st != nil && st.Instance.State == croft.StateLost && st.Instance.Ejected {
		return true, nil
	}
	if starting, err := observed(st, croft.StateBooting); starting || err != nil {
		return starting, err
	}
	return Settled(st)
}

// Settled is reached when the host has carried out the newest order, and the guest runs or is off.
func Settled(st *croft.Status) (bool, error) {
	if off, err := Stopped(st); off || err != nil {
		return off, err
	}
	return Running(st)
}

// Gone is reached when the instance is completely removed. A failed removal does not end the wait: the host retries.
func Gone(st *croft.Status) (bool, error) { return st == nil, nil }

// observed reports whether the newest order's observation has the state. Observations of older orders are ignored.
func observed(st *croft.Status, want croft.State) (bool, error) {
	switch {
	case st == nil:
		return false, croft.Errorf(croft.NotFound, "it was destroyed")
	case st.Instance.State == croft.StateDestroying:
		return false, croft.Errorf(croft.Conflict, "it is being destroyed")
	case st.Instance.State == croft.StateLost:
		return false, Unorderable(st.Instance)
	case !current(st):
		return false, nil
	}
	if end := ended(st); end != "" && want != croft.StateStopped {
		return false, fmt.Errorf("%s; its restart policy leaves it off, and `schedule start %s` boots it", end,
			st.Instance.Name)
	}
	return st.Observation.State == want, failed(st)
}

// ended returns how the guest ended, if its restart policy leaves it off.
func ended(st *croft.Status) croft.End {
	if !current(st) || st.Observation.State != croft.StateStopped {
		return ""
	}
	return st.Observation.Ended
}

// current reports whether the agent has seen the newest order.
func current(st *croft.Status) bool {
	return st.Observation != nil && st.Observation.Generation >= st.Instance.Generation
}

// failed returns the agent's error about the newest order, if the order failed.
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

// Failure is an error reported by the host's agent, with the kind it reported.
type Failure struct{ err error }

func (f *Failure) Error() string { return f.err.Error() }

// Unwrap returns the error with its kind.
func (f *Failure) Unwrap() error { return f.err }

// Watched is the part of View that a wait for one instance needs.
type Watched interface {
	// Find is like View.Find.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error
}

// Wait is like Await, with the scheduler's own view.
func (s *Scheduler) Wait(ctx context.Context, inst croft.Instance, goal Goal, progress func(croft.Status)) error {
	return Await(ctx, s.View, inst, goal, progress)
}

// Await follows an instance until the goal is reached, and calls progress with the current status and after every
// change. It tolerates a store that is temporarily unavailable. A later instance with the same ID, which may belong to
// another project, counts as the end of this one, and progress does not get it. Unavailable: ctx's deadline passed.
// errors.As finds a *Failure if the host's agent failed.
func Await(ctx context.Context, in Watched, inst croft.Instance, goal Goal, progress func(croft.Status)) error {
	var reached bool
	var verdict error
	err := watch(ctx, in, inst.ID, func(st *croft.Status) bool {
		if st != nil && Replaced(inst, st.Instance) {
			st = nil
		}
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
		where, arrived := standing(ctx, in, inst, goal)
		if arrived {
			return nil
		}
		return croft.Errorf(croft.Unavailable, "instance %s: waited long enough; %s", inst.Name, where)
	case err == nil:
		return croft.Errorf(croft.NotFound, "instance %s is gone", inst.Name)
	}
	return fmt.Errorf("wait for instance %s: %w", inst.Name, err)
}

// Replaced reports whether now is a later instance with the ID of inst. Fields that are empty in inst are not compared.
func Replaced(inst, now croft.Instance) bool {
	return inst.Project != "" && now.Project != inst.Project ||
		!inst.Created.IsZero() && !now.Created.Equal(inst.Created) ||
		inst.CreateRevision != 0 && now.CreateRevision != 0 && now.CreateRevision != inst.CreateRevision
}

// watch calls WatchInstance, and retries it while the store is unavailable.
func watch(ctx context.Context, in Watched, id croft.InstanceID, changed func(*croft.Status) bool) error {
	for {
		err := in.WatchInstance(ctx, id, changed)
		if ctx.Err() != nil || !errors.Is(err, croft.Unavailable) {
			return err
		}
		if interrupted := delay.For(ctx, watchRetry/2+rand.N(watchRetry)); interrupted != nil {
			return err
		}
	}
}

// lastLook bounds the last read of an instance after a wait that timed out.
const lastLook = 5 * time.Second

// standing describes an instance at the end of the wait, because Await gets no event when a host falls silent. arrived:
// the goal is reached after all.
func standing(ctx context.Context, in Watched, inst croft.Instance, goal Goal) (where string, arrived bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	st, err := in.Find(ctx, inst.Project, string(inst.ID))
	if err == nil && Replaced(inst, st.Instance) {
		err = croft.Errorf(croft.NotFound, "there is no instance %s any more", inst.ID)
	}
	if err != nil {
		return "its state cannot be read: " + err.Error(), false
	}
	if reached, err := goal(&st); reached && err == nil {
		return "", true
	}
	if why := failed(&st); why != nil {
		return fmt.Sprintf("it is %s: %v", Describe(&st), why), false
	}
	if waitsForReport(&st, goal) {
		return "it is running, and its guest has not reported the end of its set-up since it was started; guests without " +
			"cloud-init, and those of the simulated hypervisor, never do: wait with --wait=running", false
	}
	where = "it is " + Describe(&st)
	if hint := NoAddress(inst.Name, Describe(&st), st.Instance.Spec.Machine, st.Observation); hint != "" {
		where += "; " + hint
	}
	return where, false
}

// addressTime is how long guests need at most, as a rule, to boot and get an address.
const addressTime = 5 * time.Minute

// NoAddress says why a guest may have no address, if it has been on for longer than guests need to get one.
func NoAddress(name, state string, m croft.Machine, seen *croft.Observation) string {
	if state != string(croft.StateBooting) || seen == nil {
		return ""
	}
	var on time.Time
	for _, e := range seen.Events {
		if e.Name == croft.EventRunning {
			on = e.At
		}
	}
	age := time.Since(on)
	if on.IsZero() || age < addressTime {
		return ""
	}
	look := fmt.Sprintf("`schedule logs %s`", name)
	if m.Display != "" {
		look += fmt.Sprintf(" and `schedule screen %s`", name)
	}
	why := "it may be without a DHCP client, or be installed by hand"
	if m.Firmware.IsUEFI() {
		why = "its disk may have no EFI system partition, without which UEFI firmware boots nothing, or " + why
	}
	return fmt.Sprintf("the guest has been on for %s without an address: %s; see %s", wording.Age(age), why, look)
}

// waitsForReport reports whether only the guest's report of its set-up is missing for the goal.
func waitsForReport(st *croft.Status, goal Goal) bool {
	if st.Observation == nil || st.Observation.CloudInit.Current() {
		return false
	}
	reporting, observation := *st, *st.Observation
	observation.CloudInit = &croft.CloudInit{State: croft.CloudInitDone}
	reporting.Observation = &observation
	reached, err := goal(&reporting)
	return reached && err == nil
}

// Unknown describes an instance on a silent host: it may run, and its last observation is outdated.
const Unknown = "unknown"

// Ordered describes an instance whose host has not observed it yet.
const Ordered = "ordered"

// Addresses returns the addresses at which the guest can be reached; none unless the instance runs. The observation of
// a guest that boots has the addresses that are reserved for it.
func Addresses(st *croft.Status) []netip.Addr {
	if st.Observation == nil || st.Observation.State != croft.StateRunning {
		return nil
	}
	return st.Observation.Addresses
}

// Address returns the address to show to users, IPv4 before IPv6; empty unless the instance runs.
func Address(st *croft.Status) string {
	var best netip.Addr
	for _, addr := range Addresses(st) {
		if !best.IsValid() || addr.Is4() && !best.Is4() {
			best = addr
		}
	}
	if !best.IsValid() {
		return ""
	}
	return best.WithZone("").String() // a zone is the name of an interface of the host
}

// Describe returns the state of an instance in one word; nil: it is gone.
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
