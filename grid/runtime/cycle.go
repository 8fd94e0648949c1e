package runtime

import (
	"context"
	"fmt"

	"croft"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// A Step is the result of one check of the contract of runtimes.
type Step struct {
	Name string
	Err  error // nil: the check passed
}

// Cycle takes a unit through its whole life on a machine, with each operation done twice, and checks the contract of
// runtimes in each step. It ends at the first failed step, and then tries to stop and remove the unit. The unit's
// command must run until it gets a signal to end, and no object on the machine may have the unit's name.
func (r *Runtime) Cycle(ctx context.Context, m machine.Machine, u unit.Unit) []Step {
	var done []Step
	for _, s := range r.cycle(m, u) {
		err := ctx.Err()
		if err == nil {
			err = s.do(ctx)
		}
		done = append(done, Step{s.name, err})
		if err != nil {
			after := context.WithoutCancel(ctx)
			_ = r.Stop(after, m, u)
			_ = r.Remove(after, m, u)
			break
		}
	}
	return done
}

type step struct {
	name string
	do   func(context.Context) error
}

func (r *Runtime) cycle(m machine.Machine, u unit.Unit) []step {
	repeat := func(what string, f func(context.Context, machine.Machine, unit.Unit) error) []step {
		do := func(ctx context.Context) error { return f(ctx, m, u) }
		return []step{{what, do}, {what + " again", do}}
	}
	listed := func(name string, wanted, running bool) step {
		return step{name, func(ctx context.Context) error { return r.listed(ctx, m, u, wanted, running) }}
	}
	steps := []step{
		{"probe", func(ctx context.Context) error { _, err := r.Probe(ctx, m); return err }},
		listed("the name is free", false, false),
		{"stop what is absent", func(ctx context.Context) error { return r.Stop(ctx, m, u) }},
		{"remove what is absent", func(ctx context.Context) error { return r.Remove(ctx, m, u) }},
		{"start what is absent: not found", func(ctx context.Context) error {
			return want(r.Start(ctx, m, u), croft.NotFound)
		}},
	}
	steps = append(steps, repeat("prepare", r.Prepare)...)
	steps = append(steps, repeat("create", r.Create)...)
	steps = append(steps, listed("it is listed, and does not run", true, false))
	steps = append(steps, step{"create with another hash: conflict", func(ctx context.Context) error {
		other := u
		other.Env = map[string]string{"CROFT_GRID_OTHER": "1"}
		if u.VM != nil {
			vm := *u.VM
			vm.UserData += "#"
			other.Env, other.VM = nil, &vm
		}
		return want(r.Create(ctx, m, other), croft.Conflict)
	}})
	steps = append(steps, repeat("start", r.Start)...)
	steps = append(steps, listed("it is listed, and runs", true, true), step{"ready", func(ctx context.Context) error {
		why, err := r.Ready(ctx, m, u)
		if err == nil && why != "" {
			err = croft.Errorf(croft.Unavailable, "it is not ready: %s", why)
		}
		return err
	}}, step{"remove while it runs: conflict", func(ctx context.Context) error {
		return want(r.Remove(ctx, m, u), croft.Conflict)
	}})
	steps = append(steps, repeat("stop", r.Stop)...)
	steps = append(steps, listed("it is listed, and does not run any more", true, false))
	steps = append(steps, step{"start after a stop", func(ctx context.Context) error { return r.Start(ctx, m, u) }},
		listed("it runs again", true, true),
		step{"stop for good", func(ctx context.Context) error { return r.Stop(ctx, m, u) }})
	steps = append(steps, repeat("remove", r.Remove)...)
	return append(steps, listed("it is listed no more", false, false))
}

// want returns nil if err is of the kind, else an error.
func want(err error, kind croft.Kind) error {
	if croft.KindOf(err) == kind {
		return nil
	}
	return fmt.Errorf("it says %v, and an error of kind %s was wanted", err, kind) //nolint:errorlint // the answer
}

// listed checks whether the unit is in the list of units, and in the wanted state.
func (r *Runtime) listed(ctx context.Context, m machine.Machine, u unit.Unit, wanted, running bool) error {
	list, err := r.List(ctx, m, u.Cluster)
	if err != nil {
		return err
	}
	found := plan.Actual{}
	for _, a := range list {
		if a.Name == u.Name() {
			found = a
		}
	}
	got := found
	got.Status = ""
	should := plan.Actual{}
	if wanted {
		should = plan.Actual{Name: u.Name(), Job: u.Job, Slot: u.Slot, Hash: u.Hash(), Runtime: r.Name(),
			Running: running}
	}
	if got != should {
		return croft.Errorf(croft.Unavailable, "the list has %+v, and %+v was wanted", found, should)
	}
	return nil
}
