package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// fences stops exclusive units, and units with a pooled address, on the old node, and verifies that they stopped,
// before they start elsewhere.
func (r *run) fences(ctx context.Context) {
	starts := map[string]bool{}
	for _, i := range r.steps(plan.Create) {
		if s := r.plan.Steps[i]; s.Unit.MovesAfterItsEnd() {
			starts[s.Name] = true
		}
	}
	var leaving []int
	for _, i := range r.steps(plan.Stop) {
		if starts[r.plan.Steps[i].Name] {
			leaving = append(leaving, i)
		}
	}
	r.onNodes(ctx, leaving, r.stop)
	r.onNodes(ctx, leaving, func(ctx context.Context, n *locked, i int) error {
		s := r.plan.Steps[i]
		units, err := r.list(ctx, n.holder, n.Node, r.want.Cluster, s.Runtime)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(units, func(a plan.Actual) bool { return a.Name == s.Name && a.Running }) {
			return croft.Errorf(croft.Unavailable, "%s was stopped but still runs, and may not run twice", s.Name)
		}
		return nil
	})
}

// batches starts and replaces units in batches, for all jobs at the same time: first the canaries, then as many units
// as may be unavailable at once. After each batch it runs the gates, and confirms the armed changes. Units whose port
// is still held by a unit that a later step stops are left for the second call.
func (r *run) batches(ctx context.Context) {
	changed := map[string]bool{} // jobs that had a batch
	for {
		steps := r.unless(r.steps(plan.Create, plan.Replace, plan.Start, plan.Await), plan.Stop)
		if first := r.unless(steps, plan.Replace); len(first) > 0 {
			steps = first
		}
		if len(steps) == 0 || ctx.Err() != nil {
			return
		}
		batch := r.batch(steps, changed)
		if len(batch) == 0 {
			for _, i := range steps {
				s := r.plan.Steps[i]
				r.fail(s.Node, croft.Errorf(croft.Conflict,
					"%s is not replaced: %d of %s run, and %d have to: let more run first (nodes for the slots that have none), "+
						"or lower min below replicas", s.Name, r.running(s.Job), s.Job, r.want.Jobs[s.Job].Floor()))
			}
			return
		}
		r.change(ctx, batch)
		if len(r.failed) > 0 {
			return
		}
	}
}

// unless drops the steps whose unit needs a port of its node that is held by a unit with a pending step of operation
// op.
func (r *run) unless(steps []int, op plan.Op) []int {
	before := r.steps(op)
	return slices.DeleteFunc(slices.Clone(steps), func(i int) bool {
		s := r.plan.Steps[i]
		return slices.ContainsFunc(before, func(j int) bool {
			other := r.plan.Steps[j]
			return j != i && other.Node == s.Node && other.Was != nil &&
				slices.ContainsFunc(s.Unit.NodePorts(), func(p unit.Port) bool {
					return slices.ContainsFunc(other.Was.NodePorts(), p.Overlaps)
				})
		})
	})
}

// batch selects the steps to do next.
func (r *run) batch(steps []int, changed map[string]bool) []int {
	of := map[string][]int{}
	var jobs []string
	for _, i := range steps {
		job := r.plan.Steps[i].Job
		if of[job] == nil {
			jobs = append(jobs, job)
		}
		of[job] = append(of[job], i)
	}
	var chosen []int
	for _, job := range jobs {
		chosen = append(chosen, r.ofJob(job, of[job], changed)...)
	}
	return chosen
}

func (r *run) ofJob(job string, steps []int, changed map[string]bool) []int {
	rule := r.want.Jobs[job]
	limit := len(steps)
	if !changed[job] && rule.Canary > 0 {
		limit = rule.Canary
	}
	away := min(rule.Batch(), r.running(job)-rule.Floor()) // how many running units may be stopped
	var chosen []int
	for _, i := range steps {
		s := r.plan.Steps[i]
		if len(chosen) == limit {
			break
		}
		r.mu.Lock()
		runs := r.alive[job][[2]string{s.Name, s.Node}]
		r.mu.Unlock()
		if s.Op == plan.Replace && runs {
			if away <= 0 {
				continue
			}
			away--
		}
		chosen = append(chosen, i)
	}
	if len(chosen) > 0 {
		changed[job] = true
	}
	return chosen
}

// change does the steps of one batch.
func (r *run) change(ctx context.Context, batch []int) {
	r.onNodes(ctx, batch, func(ctx context.Context, n *locked, i int) error {
		s := r.plan.Steps[i]
		r.Say(s.String())
		if err := r.armUnit(ctx, n, i); err != nil {
			return err
		}
		if err := r.bring(ctx, n, s); err != nil {
			return err
		}
		if err := r.ready(ctx, n, *s.Unit); err != nil {
			return r.restored(ctx, n, i, err)
		}
		r.wasBrought(i)
		return nil
	})
	if len(r.failed) == 0 {
		r.gates(ctx, batch)
	}
	r.settle(ctx, batch)
}

// wasBrought records that a unit is ready. Its step is done unless the change must still be confirmed.
func (r *run) wasBrought(i int) {
	s := r.plan.Steps[i]
	r.count(s.Job, s.Name, s.Node, true)
	if !r.isArmed(i) {
		r.finish(i)
	}
}

// restored restores the former unit where the new one did not become ready, if the job has a ready check and no armed
// change does the same. It returns the reason, extended by the outcome of the restoration.
func (r *run) restored(ctx context.Context, n *locked, i int, reason error) error {
	s := r.plan.Steps[i]
	if s.Op != plan.Replace || !asks(s.Unit.Ready) || s.Unit.Ready.Stay || r.isArmed(i) {
		return reason
	}
	if _, lost := errors.AsType[*machine.Lost](reason); lost {
		return reason
	}
	if err := r.restore(ctx, n, s); err != nil {
		return fmt.Errorf("%w; the former unit is not back: %w", reason, err)
	}
	r.count(s.Job, s.Name, s.Node, true)
	r.mu.Lock()
	r.back[i] = true
	r.mu.Unlock()
	return fmt.Errorf("%w; the former unit runs again", reason)
}

func (r *run) restore(ctx context.Context, n *locked, s plan.Step) error {
	if s.Was == nil || s.From != "" {
		return croft.Errorf(croft.Conflict, "the former unit there is not known")
	}
	if s.Lost {
		return croft.Errorf(croft.Conflict, "it was made from another image, or by another definition of its runtime")
	}
	before, err := former(s)
	if err != nil {
		return err
	}
	if before.Kept() {
		return croft.Errorf(croft.Conflict, "its secrets have changed, and the former ones are not known")
	}
	rt, err := r.Runtimes(s.Runtime, n.Node)
	if err != nil {
		return err
	}
	_, undo, err := rt.Undo(before, s.Unit)
	if err != nil {
		return err
	}
	r.Say("restoring " + s.Name + " on " + s.Node)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err = machine.Output(ctx, n.holder, strings.NewReader(undo), "sh", "-s")
	return err
}

// bring creates, replaces or starts the unit of one step.
func (r *run) bring(ctx context.Context, n *locked, s plan.Step) error {
	if s.Op == plan.Replace {
		r.count(s.Job, s.Name, s.Node, false)
		if err := r.end(ctx, n, s); err != nil {
			return err
		}
	}
	if s.Op == plan.Replace || s.Op == plan.Create {
		if err := r.verb(ctx, n, s, "create", func(ctx context.Context, rt Runtime) error {
			return rt.Create(ctx, n.holder, *s.Unit)
		}); err != nil {
			return err
		}
	}
	if s.Op == plan.Await {
		return nil
	}
	return r.verb(ctx, n, s, "start", func(ctx context.Context, rt Runtime) error {
		return rt.Start(ctx, n.holder, *s.Unit)
	})
}

// gates runs the gate check of each job of a batch.
func (r *run) gates(ctx context.Context, batch []int) {
	asked := map[string]bool{}
	for _, i := range batch {
		s := r.plan.Steps[i]
		gate := r.want.Jobs[s.Job].Gate
		if asked[s.Job] || !asks(gate) || ctx.Err() != nil {
			continue
		}
		asked[s.Job] = true
		n := r.nodes[s.Node]
		r.Say("asking the gate of " + s.Job)
		err := await(ctx, gate.Timeout, fmt.Sprintf("the gate of %s after a batch", s.Job),
			func(ctx context.Context) (string, error) { return r.ask(ctx, gate, n.conn) })
		if err != nil {
			for _, k := range batch {
				if r.plan.Steps[k].Job == s.Job {
					r.fail(r.plan.Steps[k].Node, err)
				}
			}
		}
	}
}

// stops stops the units that should not be there: concurrently on different nodes, and only while enough units of the
// job keep running.
func (r *run) stops(ctx context.Context) {
	r.onNodes(ctx, r.steps(plan.Stop), r.stop)
}

// stop stops and removes the unit of one step.
func (r *run) stop(ctx context.Context, n *locked, i int) error {
	s := r.plan.Steps[i]
	r.Say(s.String())
	if err := r.release(s, n.Name); err != nil {
		return err
	}
	if err := r.end(ctx, n, s); err != nil {
		return err
	}
	r.finish(i)
	return nil
}

// release removes a unit from the running units of its job. Conflict if too few would remain.
func (r *run) release(s plan.Step, node string) error {
	rule, wanted := r.want.Jobs[s.Job]
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{s.Name, node}
	running := len(r.alive[s.Job])
	if floor := rule.Floor(); wanted && r.alive[s.Job][key] && running-1 < floor {
		return croft.Errorf(croft.Conflict, "%s is not stopped: %d units of %s run, and %d have to", s.Name, running,
			s.Job,
			floor)
	}
	delete(r.alive[s.Job], key)
	return nil
}

// end stops and removes a unit.
func (r *run) end(ctx context.Context, n *locked, s plan.Step) error {
	u := unit.Unit{Cluster: r.want.Cluster, Job: s.Job, Slot: s.Slot, Runtime: cmp.Or(s.From, s.Runtime)}
	s.Runtime = u.Runtime
	if err := r.verb(ctx, n, s, "stop", func(ctx context.Context, rt Runtime) error {
		return rt.Stop(ctx, n.holder, u)
	}); err != nil {
		return err
	}
	return r.verb(ctx, n, s, "remove", func(ctx context.Context, rt Runtime) error {
		return rt.Remove(ctx, n.holder,
			u)
	})
}
