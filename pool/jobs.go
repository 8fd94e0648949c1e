package pool

import (
	"context"
	"sync"
	"time"
)

// jobs are the running commands of the ledger's decisions.
type jobs struct {
	work  sync.WaitGroup
	slots chan struct{}

	mu     sync.Mutex
	count  int
	starts map[ResourceID]context.CancelFunc

	together []opening // starts of this round; only the ledger's owner uses it
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

// opening is one of several starts of a round.
type opening struct {
	pool     Name
	recorded chan struct{} // closed once the ledger may record the result
}

// precedence is how long a finished start waits for starts that earlier pools made in the same round and that would
// have finished first if all took the same time. Numbers and counters therefore follow the order of the file.
const precedence = 50 * time.Millisecond

// alongside adds a start to the starts of this round, and returns the starts of the pools that precede its own pool in
// the file.
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

// precede waits until the starts in before are recorded, but at most for precedence.
func precede(ctx context.Context, before []opening) {
	if len(before) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, precedence)
	defer cancel()
	for _, o := range before {
		select {
		case <-o.recorded:
		case <-ctx.Done():
			return
		}
	}
}

// maxDeletes is the limit of concurrent deletions and cleanings. Pools limit starts, and Decide limits livechecks.
const maxDeletes = 64
