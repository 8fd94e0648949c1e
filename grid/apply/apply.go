package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"croft/grid/plan"
	"croft/grid/unit"
)

// A Result is the outcome of an apply.
type Result struct {
	Plan    string      `json:"plan"`
	Done    []plan.Step `json:"done"`
	Pending []plan.Step `json:"pending"` // not started, or started with an unknown outcome
	Failed  []Failure   `json:"failed"`
	Back    []plan.Step `json:"back"` // unconfirmed changes that the nodes reverted
}

// A Failure is the reason why a node is not in its desired state.
type Failure struct {
	Node  string `json:"node"`
	Error string `json:"error"`
	err   error
}

// Partly is the error of a plan that was started and is not completely done. Applying again continues it.
type Partly struct{ Result }

func (e *Partly) Error() string {
	var words []string
	for _, f := range e.Failed {
		words = append(words, f.Node+": "+f.Error)
	}
	return fmt.Sprintf("%d of %d steps are done: %s", len(e.Done), len(e.Done)+len(e.Pending)+len(e.Back),
		strings.Join(words, "; "))
}

// TakenBack is the error of an apply in which nodes reverted a change that was not confirmed. The rest of the plan was
// not done.
type TakenBack struct{ Result }

func (e *TakenBack) Error() string {
	var words []string
	for _, s := range e.Back {
		words = append(words, fmt.Sprintf("%s %s on %s", s.Op, s.Name, s.Node))
	}
	return fmt.Sprintf("taken back: %s; %v", strings.Join(words, ", "), (&Partly{e.Result}).Error())
}

func nothing(p plan.Plan) Result {
	return Result{p.ID(), []plan.Step{}, []plan.Step{}, []Failure{}, []plan.Step{}}
}

// stepTimeout limits one program on a node, such as the fetching of an image.
const stepTimeout = 20 * time.Minute

// run is the state of one apply.
type run struct {
	*Grid
	want   plan.Desired
	plan   plan.Plan
	nodes  locks
	mu     sync.Mutex
	done   []bool           // by index of the plan's steps
	back   []bool           // reverted steps, by index
	armed  map[int]arming   // unconfirmed changes, by index of their step
	failed map[string]error // by node; a failed node gets no further steps
	alive  map[string]map[[2]string]bool
}

// Apply executes a plan that the operator has seen: p and found must be the results of Plan. When ctx ends, no further
// step starts. Errors: Refused, Partly, TakenBack; any other error means that no step was started.
func (g *Grid) Apply(ctx context.Context, want plan.Desired, p plan.Plan, found []plan.Observed,
	c Choice) (Result, error) {
	if res, err := g.giveBack(ctx, want, p, found); err != nil || p.Empty() {
		return res, err
	}
	had, err := g.lock(ctx, want, p)
	if err != nil {
		return Result{}, err
	}
	defer had.close()
	p, found, err = g.again(ctx, want, c, p, had, found)
	if err != nil {
		return Result{}, err
	}
	if err := g.permitted(ctx, want, c, had, found); err != nil {
		return Result{}, err
	}
	r := &run{Grid: g, want: want, plan: p, nodes: had, done: make([]bool, len(p.Steps)), back: make([]bool,
		len(p.Steps)),
		armed: map[int]arming{}, failed: map[string]error{}, alive: map[string]map[[2]string]bool{}}
	for _, o := range found {
		for _, u := range o.Units {
			r.count(u.Job, u.Name, o.Node, u.Running)
		}
	}
	r.all(ctx)
	return r.result()
}

// count records whether a unit of a job is running on a node.
func (r *run) count(job, name, node string, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive[job] == nil {
		r.alive[job] = map[[2]string]bool{}
	}
	delete(r.alive[job], [2]string{name, node})
	if runs {
		r.alive[job][[2]string{name, node}] = true
	}
}

func (r *run) running(job string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.alive[job])
}

// all runs the phases one after the other. It stops after the first phase that fails.
func (r *run) all(ctx context.Context) {
	for _, phase := range []func(context.Context){
		r.begin, r.prepare, r.fences, r.batches, r.stops, r.batches, r.firewalls,
		r.commit,
	} {
		if phase(ctx); len(r.failed) > 0 || ctx.Err() != nil {
			break
		}
	}
	if len(r.failed) > 0 || ctx.Err() != nil {
		r.commit(context.WithoutCancel(ctx)) // nodes whose steps are all done
	}
}

// fail records why a node gets no further steps. Only the first reason is kept.
func (r *run) fail(node string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed[node] == nil {
		r.failed[node] = err
		r.Say(fmt.Sprintf("%s: %v", node, err))
	}
}

func (r *run) failure(node string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[node]
}

func (r *run) finish(step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[step] = true
}

func (r *run) isDone(step int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[step]
}

// steps lists the indexes of the steps with one of ops that are not done.
func (r *run) steps(ops ...plan.Op) []int {
	var list []int
	for i, s := range r.plan.Steps {
		if slices.Contains(ops, s.Op) && !r.isDone(i) {
			list = append(list, i)
		}
	}
	return list
}

// onNodes calls f for steps: concurrently for different nodes, and in order for the steps of one node. A started step
// completes even if ctx ends; no further step starts then.
func (r *run) onNodes(ctx context.Context, steps []int, f func(ctx context.Context, n *locked, step int) error) {
	of := map[string][]int{}
	var nodes []unit.Node
	for _, i := range steps {
		name := r.plan.Steps[i].Node
		if of[name] == nil {
			nodes = append(nodes, r.nodes[name].Node)
		}
		of[name] = append(of[name], i)
	}
	work := context.WithoutCancel(ctx)
	r.each(nodes, func(n unit.Node) {
		for _, i := range of[n.Name] {
			if ctx.Err() != nil || r.failure(n.Name) != nil {
				return
			}
			if err := f(work, r.nodes[n.Name], i); err != nil {
				r.fail(n.Name, err)
				return
			}
		}
	})
}

// first returns the index of the first step of each node that the plan changes.
func (r *run) first() []int {
	var list []int
	seen := map[string]bool{}
	for i, s := range r.plan.Steps {
		if !seen[s.Node] {
			seen[s.Node] = true
			list = append(list, i)
		}
	}
	return list
}

// begin records on every node that a change has started, before anything changes.
func (r *run) begin(ctx context.Context) {
	r.onNodes(ctx, r.first(), func(ctx context.Context, n *locked, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		return n.holder.Begin(ctx, r.want.Revision, r.plan.Writes())
	})
}

// prepare runs Runtime.Prepare, which fetches images, for the units that are to be created.
func (r *run) prepare(ctx context.Context) {
	r.onNodes(ctx, r.steps(plan.Create, plan.Replace), func(ctx context.Context, n *locked, i int) error {
		s := r.plan.Steps[i]
		return r.verb(ctx, n, s, "prepare", func(ctx context.Context, rt Runtime) error {
			return rt.Prepare(ctx, n.holder, *s.Unit)
		})
	})
}

// verb calls a method of a step's runtime, with stepTimeout. name is the method's name for errors.
func (r *run) verb(ctx context.Context, n *locked, s plan.Step, name string,
	f func(ctx context.Context, rt Runtime) error) error {
	rt, err := r.Runtimes(s.Runtime, n.Node)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		err = f(ctx, rt)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, s.Name, err)
	}
	return nil
}

// commit records the end of the change on every node whose steps are all done.
func (r *run) commit(ctx context.Context) {
	var whole []int
	open := map[string]bool{}
	for i, s := range r.plan.Steps {
		open[s.Node] = open[s.Node] || !r.isDone(i) && s.Op != plan.Finish
	}
	for _, i := range r.first() {
		if node := r.plan.Steps[i].Node; !open[node] && r.failure(node) == nil {
			whole = append(whole, i)
		}
	}
	r.onNodes(ctx, whole, func(ctx context.Context, n *locked, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		if err := n.holder.Commit(ctx, plan.Document(n.Node)); err != nil {
			return fmt.Errorf("everything is done, and that is not stored: %w", err)
		}
		for i, s := range r.plan.Steps {
			if s.Node == n.Name && s.Op == plan.Finish {
				r.finish(i)
			}
		}
		return nil
	})
}

func (r *run) result() (Result, error) {
	res := nothing(r.plan)
	for i, s := range r.plan.Steps {
		switch {
		case r.back[i]:
			res.Back = append(res.Back, s)
		case r.done[i]:
			res.Done = append(res.Done, s)
		default:
			res.Pending = append(res.Pending, s)
		}
	}
	for _, n := range r.want.Nodes {
		if err := r.failed[n.Name]; err != nil {
			res.Failed = append(res.Failed, Failure{n.Name, strings.ReplaceAll(err.Error(), "\n", " "), err})
		}
	}
	switch {
	case len(res.Back) > 0:
		return res, &TakenBack{res}
	case len(res.Failed) > 0 || len(res.Pending) > 0:
		if len(res.Failed) == 0 {
			res.Failed = append(res.Failed, Failure{"here", "interrupted", context.Canceled})
		}
		return res, &Partly{res}
	}
	return res, nil
}
