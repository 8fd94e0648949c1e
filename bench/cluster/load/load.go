// Package load requests instances at a rate, records when each of them runs, and reports how long that took.
package load

import (
	"context"
	"slices"
	"sync"
	"time"

	"croft"
)

// Config is one run.
type Config struct {
	Rate   float64       // requests a second, evenly; 0: the next as soon as AtOnce allows
	AtOnce int           // how many calls may be under way
	For    time.Duration // how long requests are made
	Grace  time.Duration // how much longer the last of them may take to run
	// Ask makes one request and returns when it is answered.
	Ask func(ctx context.Context, id croft.InstanceID) error
	// Tick is called once a second with what has been done so far, if it is set.
	Tick func(asked, ran int)
}

// Sample is what became of one request. Times are since the run began.
type Sample struct {
	Due      time.Duration // when it was to be made, which is what delays count from
	Answered time.Duration // when the call returned; 0 where it failed
	Ran      time.Duration // when its instance was seen to run; 0 where it was not
}

// Run is a run under way or done. Its results are read once Do has returned.
type Run struct {
	config Config
	began  time.Time

	mu      sync.Mutex
	samples []Sample
	index   map[croft.InstanceID]int
	errors  map[string]int
	ran     int
	idle    chan struct{} // told when something ran or failed
}

// New prepares a run.
func New(c Config) *Run {
	return &Run{config: c, index: map[croft.InstanceID]int{}, errors: map[string]int{}, idle: make(chan struct{}, 1)}
}

// Running notes that an instance runs. Instances of others are ignored.
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

// Do makes the requests and returns when all that were answered run, or the grace
// is over. An error is that of ctx.
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

// until waits for a moment of the run; false: ctx ended.
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

// nudge wants mu held.
func (r *Run) nudge() {
	select {
	case r.idle <- struct{}{}:
	default:
	}
}

// settle waits until all that were answered run.
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
