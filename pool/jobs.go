package pool

import (
	"context"
	"sync"
	"time"
)

// jobs are the commands that run for the ledger's decisions.
type jobs struct {
	work  sync.WaitGroup
	slots chan struct{}

	mu     sync.Mutex
	count  int
	starts map[ResourceID]context.CancelFunc

	together []opening // starts that began in this round; the ledger's owner's alone
}

func newJobs() *jobs {
	return &jobs{slots: make(chan struct{}, maxDeletes), starts: map[ResourceID]context.CancelFunc{}}
}

func (j *jobs) wait() { j.work.Wait() }

func (j *jobs) running() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count
}

func (j *jobs) abort(id ResourceID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if cancel := j.starts[id]; cancel != nil {
		cancel()
	}
}

// opening is a start beside others.
type opening struct {
	pool Name
	told chan struct{} // closed once the ledger may take over what it came to
}

// precedence is how long a start that ended waits for those that pools before its own
// began in the same round: they would have ended first if all took the same time. So pools
// go on in the order of the file, in which numbers and counters are given.
const precedence = 50 * time.Millisecond

// alongside adds a start to those of this round, and returns what its pool's
// predecessors in the file began.
func (j *jobs) alongside(pool Name) (own opening, before []opening) {
	own = opening{pool, make(chan struct{})}
	for _, o := range j.together {
		if o.pool != pool {
			before = append(before, o)
		}
	}
	j.together = append(j.together, own)
	return own, before
}

// precede waits until those before have been told, if that is soon.
func precede(ctx context.Context, before []opening) {
	if len(before) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, precedence)
	defer cancel()
	for _, o := range before {
		select {
		case <-o.told:
		case <-ctx.Done():
			return
		}
	}
}

// maxDeletes is how many resources are deleted or cleaned at once; starts are bounded
// by the pools, and livechecks by Decide.
const maxDeletes = 64
