package placementcheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
)

// Config selects the servers to check, and the load.
type Config struct {
	Servers []string // URLs, all of the same Placement; some may be down temporarily
	Token   string
	Seed    uint64
	Groups  int // 8 by default
	Clients int // per group; 8 by default
	// Places is the capacity of each provider, which is the number of claims that fit; 6 by default.
	Places int64
	// Give limits the time of the checker's search; one minute by default.
	Give time.Duration
}

// Check is one recorded history.
type Check struct {
	config Config
	caller caller
	groups []*group
	start  time.Time

	mu     sync.Mutex
	events [][]porcupine.Operation // by group
	owned  []map[string][]int      // by group: private consumer -> its changes, as indices of events
	wrong  []error
	counts map[verdict]int
	more   *sync.Cond // signalled when an answer came or Run ended
	over   bool
}

// New creates the providers.
func New(ctx context.Context, c Config) (*Check, error) {
	c.Groups, c.Clients, c.Places = or(c.Groups, 8), or(c.Clients, 8), or(c.Places, 6)
	c.Give = or(c.Give, time.Minute)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = c.Groups * c.Clients
	k := &Check{config: c, start: time.Now(), counts: map[verdict]int{},
		caller: caller{servers: c.Servers, suspect: make([]atomic.Bool, len(c.Servers)), token: c.Token,
			http: &http.Client{Transport: transport, Timeout: 20 * time.Second}}}
	k.more = sync.NewCond(&k.mu)
	for range c.Groups {
		g := &group{start: state{total: amounts{c.Places, c.Places}, generation: amounts{1, 1},
			consumers: map[string]holding{}}}
		for p := range g.providers {
			id := uuid.NewString()
			if err := k.mustSend(ctx, "POST", "/resource_providers", object{"name": id, "uuid": id}); err != nil {
				return nil, err
			}
			if err := k.mustSend(ctx, "PUT", "/resource_providers/"+id+"/inventories",
				object{"resource_provider_generation": 0,
					"inventories": object{"VCPU": object{"total": c.Places}}}); err != nil {
				return nil, err
			}
			g.providers[p] = id
		}
		k.groups = append(k.groups, g)
		k.events = append(k.events, nil)
		k.owned = append(k.owned, map[string][]int{})
	}
	return k, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (k *Check) mustSend(ctx context.Context, method, path string, body any) error {
	status, out, err := k.caller.send(ctx, method, path, body)
	if err == nil && status != http.StatusOK && status != http.StatusCreated {
		err = fmt.Errorf("%d %s", status, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Run runs all clients until ctx ends, or each has sent the given number of requests.
func (k *Check) Run(ctx context.Context, requests int) {
	var work sync.WaitGroup
	for g := range k.groups {
		shared := []string{uuid.NewString(), uuid.NewString()} // consumers that several clients change
		for n := range k.config.Clients {
			c := &client{check: k, group: g, id: n + 1, shared: shared,
				rand: rand.New(rand.NewPCG(k.config.Seed, uint64(g*k.config.Clients+n)))}
			work.Go(func() { c.run(ctx, requests) })
		}
	}
	work.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	k.more.Broadcast()
}

// Await returns true when n more requests have ended, false when Run has ended. Tests use it to time faults of the
// servers.
func (k *Check) Await(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for want := k.ended() + n; k.ended() < want && !k.over; {
		k.more.Wait()
	}
	return !k.over
}

func (k *Check) ended() (n int) {
	for _, c := range k.counts {
		n += c
	}
	return n
}

// do sends a request and records it. private: no other client changes its consumers.
func (k *Check) do(ctx context.Context, g, client int, q request, private bool) answer {
	call := time.Since(k.start)
	a, err := k.caller.call(ctx, k.groups[g], q)
	back := time.Since(k.start)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts[a.verdict]++
	k.more.Broadcast()
	if err != nil {
		k.wrong = append(k.wrong, err)
		return answer{verdict: unknown}
	}
	if a.verdict == unsent || a.verdict == unknown && q.kind.reads() {
		return a // no information
	}
	op := porcupine.Operation{ClientId: client, Input: q, Output: a, Call: int64(call), Return: int64(back)}
	if a.verdict == unknown {
		op.Return = math.MaxInt64
		if private {
			k.owned[g][q.consumer] = append(k.owned[g][q.consumer], len(k.events[g]))
		}
	}
	k.events[g] = append(k.events[g], op)
	return a
}

// Verify searches for a sequential order of the requests; nil: there is one. No request may be in flight, and the
// servers must answer.
func (k *Check) Verify(ctx context.Context) error {
	defer k.caller.http.CloseIdleConnections()
	errs := slices.Clone(k.wrong)
	for g := range k.groups {
		if err := k.settle(ctx, g); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, k.search(g))
	}
	return errors.Join(errs...)
}

func (k *Check) search(g int) error {
	m := model(k.groups[g].start)
	result, info := porcupine.CheckOperationsVerbose(m, k.events[g], k.config.Give)
	if result == porcupine.Ok {
		return nil
	}
	file, err := os.CreateTemp("", "placement-history-*.html")
	if err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	defer file.Close()
	if err := porcupine.Visualize(m, info, file); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	if result == porcupine.Unknown {
		return fmt.Errorf("the %d requests of group %d could not be checked within %s; see %s", len(k.events[g]), g,
			k.config.Give, file.Name())
	}
	return fmt.Errorf("no sequential Placement could have answered the %d requests of group %d as they were; see %s",
		len(k.events[g]), g, file.Name())
}

// String reports the numbers of answers.
func (k *Check) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("%d done, %d refused for capacity, %d for a generation, %d found nothing to delete, %d without an answer",
		k.counts[done], k.counts[full], k.counts[stale], k.counts[absent], k.counts[unknown])
}

// Done counts the executed requests: without any, a check proves nothing.
func (k *Check) Done() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counts[done]
}
