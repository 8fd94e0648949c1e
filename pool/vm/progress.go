package vm

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"croft"
	"croft/schedule"
)

// progress follows the start of an instance.
type progress struct {
	farther func()
	step    int          // index of the latest of steps that it reached
	bytes   int64        // of its image, downloaded so far
	last    croft.Status // the newest
	failure error        // reported by its host, which retries
}

// steps are the states of a starting instance, in order. A guest that restarts repeatedly makes no progress.
var steps = []croft.State{
	croft.StatePending, croft.StateFetching, croft.StateDefining, croft.StateBooting, croft.StateRunning,
}

// see records the state of an instance, and calls farther if it made progress.
func (f *progress) see(st croft.Status) {
	f.last = st
	if st.Observation == nil {
		return
	}
	step, bytes := slices.Index(steps, st.Observation.State), int64(0)
	if st.Observation.Progress != nil {
		bytes = st.Observation.Progress.Done
	}
	if step > f.step || step == f.step && bytes > f.bytes {
		f.step, f.bytes = step, bytes
		f.farther()
	}
}

// until returns goal, ignoring failures that the host's agent retries: those of kind Unavailable, such as a late
// answer of libvirt on a busy host.
func (f *progress) until(goal schedule.Goal) schedule.Goal {
	return func(st *croft.Status) (bool, error) {
		reached, err := goal(st)
		if _, failed := errors.AsType[*schedule.Failure](err); failed && croft.KindOf(err) == croft.Unavailable {
			f.failure = err
			return false, nil
		}
		return reached, err
	}
}

// explain adds to the error of a wait how far the instance got and what its host reported.
func (f *progress) explain(ctx context.Context, inst croft.Instance, err error) error {
	switch {
	case ctx.Err() == nil:
		return err
	case f.failure != nil:
		return croft.Errorf(croft.Unavailable, "instance %s is %s; what its host tried again and again: %w",
			inst.Name, schedule.Describe(&f.last), f.failure)
	}
	return croft.Errorf(croft.Unavailable, "instance %s is %s", inst.Name,
		cmp.Or(schedule.Describe(&f.last), "ordered"))
}
