package compute

import (
	"context"
	"croft"
	"croft/internal/span"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// called is the project and the name of an instance.
type called struct {
	project croft.Project
	name    string
}

// memory is what the agent knows about an instance beyond what it can read. All of it may be lost: a
// new agent comes to the same result.
type memory struct {
	mu       sync.Mutex        // guards observed, known, events, passing and timer; the rest belongs to the worker
	observed croft.Observation // last written
	known    bool              // observed was written by this agent
	events   []croft.Event
	passing  func()      // writes a transient state
	timer    *time.Timer // calls that
	recalled bool        // events include those that an earlier agent stored
	failed   error       // final for the order of generation failedAt
	failedAt int64
	unbuilt  bool      // what the failed order left half built is removed
	started  time.Time // when it was last started
	reported bool      // a domain without order was reported
	ended    croft.End // how the guest ended that the order of generation endedAt leaves off
	endedAt  int64
	way      *way // the order being carried out, if it belongs to a trace

	state  atomic.Value // croft.State: last seen, whether it could be written or not
	called atomic.Value // called: its project and name
}

// way is the span of an order that belongs to a trace, from the first step until the guest is as
// ordered, or cannot be for now.
type way struct {
	generation int64
	span       trace.Span
	end        func(error)
	address    func(error) // ends the span of the wait for the guest's address; nil: there is none
}

// note adds an event that happened just now. If it has happened before, the list begins anew with it:
// the guest is started again.
func (m *memory) note(name croft.EventName) {
	if m.noted(name) {
		m.begin()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(slices.Clip(m.events), croft.Event{Name: name, At: time.Now().UTC()})
}

// begin forgets all events.
func (m *memory) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = nil
}

func (m *memory) noted(name croft.EventName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e croft.Event) bool { return e.Name == name })
}

// tellPassing writes the transient state, which has lasted.
func (m *memory) tellPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passing != nil {
		m.passing()
		m.passing = nil
	}
}

// endPassing drops a transient state at the end of its pass.
func (m *memory) endPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passing = nil
	if m.timer != nil {
		m.timer.Stop()
	}
}

// expectAddress begins the span of the wait for the address of a guest that has just been started. It
// belongs to the order and to none of its steps.
func (m *memory) expectAddress(ctx context.Context) {
	if m.way != nil && m.way.address == nil {
		_, m.way.address = span.Start(trace.ContextWithSpan(ctx, m.way.span), "address")
	}
}

// arrive ends the order's span, with its result.
func (m *memory) arrive(err error) {
	if m.way == nil {
		return
	}
	if m.way.address != nil {
		m.way.address(err)
	}
	m.way.end(err)
	m.way = nil
}

// instances are the memories of all instances that an agent has to do with.
type instances struct {
	mu      sync.Mutex
	all     map[croft.InstanceID]*memory
	awaited map[croft.InstanceID]bool // looked at again soon
}

// remember returns the instance's memory, made at the first call.
func (i *instances) remember(id croft.InstanceID) *memory {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, ok := i.all[id]
	if !ok {
		m = &memory{}
		i.all[id] = m
	}
	return m
}

func (i *instances) forget(id croft.InstanceID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, id)
	delete(i.awaited, id)
}

// ids returns the instances that are remembered.
func (i *instances) ids() []croft.InstanceID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.all))
}

// await notes whether an instance is to be looked at again soon: its guest has no address yet, or
// something about it could not be read or written.
func (i *instances) await(id croft.InstanceID, soon bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if soon {
		i.awaited[id] = true
	} else {
		delete(i.awaited, id)
	}
}

func (i *instances) awaitedOnes() []croft.InstanceID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.awaited))
}

// states counts instances by their last observed state, with 0 for states that none is in.
func (i *instances) states() map[croft.State]int {
	counts := map[croft.State]int{}
	for _, state := range croft.ObservedStates {
		counts[state] = 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.all {
		if state, ok := m.state.Load().(croft.State); ok {
			counts[state]++
		}
	}
	return counts
}

// names returns the projects and names of the instances that have an order.
func (i *instances) names() map[croft.InstanceID]called {
	i.mu.Lock()
	defer i.mu.Unlock()
	names := map[croft.InstanceID]called{}
	for id, m := range i.all {
		if c, ok := m.called.Load().(called); ok {
			names[id] = c
		}
	}
	return names
}

// arriveAll ends the spans of all orders when the agent ends. No worker runs any more.
func (i *instances) arriveAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.all {
		m.arrive(nil)
	}
}
