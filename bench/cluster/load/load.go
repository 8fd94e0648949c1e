// Package load requests instances at a rate, records when each of them runs, and reports the delays.
package load

import (
	"context"
	"slices"
	"sync"
	"time"

	"croft"
)

// Config is the configuration of one run.
type Config struct {
	Rate   float64       // requests per second, evenly spaced; 0: as fast as AtOnce allows
	AtOnce int           // maximum number of in-flight calls
	For    time.Duration // how long to make requests
	Grace  time.Duration // how much longer to wait for the last instances to run
	// Ask makes one request and returns with its answer.
	Ask func(ctx context.Context, id croft.InstanceID) error
	// Tick, if set, is called once per second with the totals so far.
	Tick func(asked, ran int)
}

// Sample is the outcome of one request. Times are since the start of the run.
type Sample struct {
	Due      time.Duration // when to make it; delays are measured from here
	Answered time.Duration // when the call returned; 0 if it failed
	Ran      time.Duration // when its instance was seen running; 0 if it was not
}

// Run is a run in progress or done. Read its results after Do has returned.
type Run struct {
	config Config
	began  time.Time

	mu      sync.Mutex
	samples []Sample
	index   map[croft.InstanceID]int
	errors  map[string]int
	ran     int
	idle    chan struct{} // signals that an instance runs or a request failed
}

// New prepares a run.
func New(c Config) *Run {
	return &Run{config: c, index: map[croft.InstanceID]int{}, errors: map[string]int{}, idle: make(chan struct{}, 1)}
}

// Running records that an instance runs. Instances of other runs are ignored.
func (r *Run) Running(id croft.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ours := r.index[id]
	if ours && r.samples[i].Ran == 0 {
		r.samples[i].Ran = time.Since(r.began)
		r.ran++
		r.nudge()
	}
}

// Do makes the requests and returns when all answered ones run, or when the grace period is over. It fails only with
// the error of ctx.
func (r *Run) Do(ctx context.Context) error {
	r.began = time.Now()
	ticking, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	if r.config.Tick != nil {
		work.Go(func() { r.tick(ticking) })
	}
	var calls sync.WaitGroup
	free := make(chan struct{}, r.config.AtOnce)
	for n := 0; ctx.Err() == nil; n++ {
		due := time.Since(r.began)
		if r.config.Rate > 0 {
			due = time.Duration(float64(n) / r.config.Rate * float64(time.Second))
		}
		if due >= r.config.For || !r.until(ctx, due) {
			break
		}
		free <- struct{}{}
		if r.config.Rate == 0 {
			if due = time.Since(r.began); due >= r.config.For {
				break
			}
		}
		calls.Go(func() {
			r.ask(ctx, due)
			<-free
		})
	}
	calls.Wait()
	r.settle(ctx)
	stop()
	work.Wait()
	return ctx.Err()
}

// until waits for a time in the run; false: ctx ended.
func (r *Run) until(ctx context.Context, at time.Duration) bool {
	wait := at - time.Since(r.began)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func (r *Run) ask(ctx context.Context, due time.Duration) {
	id := croft.NewInstanceID()
	r.mu.Lock()
	i := len(r.samples)
	r.index[id] = i
	r.samples = append(r.samples, Sample{Due: due})
	r.mu.Unlock()

	err := r.config.Ask(ctx, id)

	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.samples[i].Answered = time.Since(r.began)
		return
	}
	kind := string(croft.KindOf(err))
	if kind == "" {
		kind = err.Error()
	}
	r.errors[kind]++
	r.nudge()
}

// nudge must be called with mu held.
func (r *Run) nudge() {
	select {
	case r.idle <- struct{}{}:
	default:
	}
}

// settle waits until the instances of all answered requests run.
func (r *Run) settle(ctx context.Context) {
	over := time.After(r.config.Grace)
	for !r.settled() {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-r.idle:
		}
	}
}

func (r *Run) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.samples, func(s Sample) bool { return s.Answered > 0 && s.Ran == 0 })
}

func (r *Run) tick(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		r.mu.Lock()
		asked, ran := len(r.samples), r.ran
		r.mu.Unlock()
		r.config.Tick(asked, ran)
	}
}
