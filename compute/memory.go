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

// called is what an instance's order says about its owner and its measurement.
type called struct {
	project    croft.Project
	name       string
	order      int64 // identity of the order
	processors int64
}

// memory is the agent's knowledge about an instance that it cannot read from elsewhere. All of it may be lost: a new
// agent reaches the same result.
type memory struct {
	mu       sync.Mutex        // guards observed, known, events, passing and timer; the rest belongs to the worker
	observed croft.Observation // last written
	known    bool              // observed was written by this agent
	events   []croft.Event
	passing  func()      // writes a transient state
	timer    *time.Timer // calls passing
	recalled bool        // events include those that an earlier agent stored
	failed   error       // final for the order of generation failedAt
	failedAt int64
	unbuilt  bool      // the partly built domain of the failed order is removed
	started  time.Time // when it was last started
	reported bool      // a domain without order was reported
	ended    croft.End // how the guest ended, if the order of generation endedAt leaves it off
	endedAt  int64
	volumes  []croft.VolumeID // of its order, with its snapshots
	traced   *tracedOrder     // the order in progress, if it belongs to a trace

	// of the order to arrive of generation arrivedAt: when it was first seen, or bytes of the disk last arrived
	arrived    time.Time
	arrivedAt  int64
	handedOver int64 // the CreateRevision of the order whose instance was handed over

	asked     atomic.Int64              // the generation of the order to leave for which its target is ready to copy
	departure atomic.Pointer[departure] // what the target of its move may copy; nil: nothing

	state  atomic.Value // croft.State: last observed state, written or not
	called atomic.Value // called
}

// tracedOrder is the span of an order that belongs to a trace. It lasts from the first step until the order is carried
// out, or cannot be carried out for now.
type tracedOrder struct {
	generation int64
	span       trace.Span
	end        func(error)
	address    func(error) // ends the span of the wait for the guest's address; nil: no such span
}

// note adds an event that happened now. A repeated event clears the list first, because the guest is being started
// again.
func (m *memory) note(name croft.EventName) {
	if m.hasEvent(name) {
		m.begin()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(slices.Clip(m.events), croft.Event{Name: name, At: time.Now().UTC()})
}

// begin clears all events.
func (m *memory) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = nil
}

func (m *memory) hasEvent(name croft.EventName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e croft.Event) bool { return e.Name == name })
}

// tellPassing writes the transient state once it has lasted for passingTime.
func (m *memory) tellPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passing != nil {
		m.passing()
		m.passing = nil
	}
}

// endPassing drops a pending transient state at the end of its pass.
func (m *memory) endPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passing = nil
	if m.timer != nil {
		m.timer.Stop()
	}
}

// expectAddress starts the span of the wait for the address of a guest that was just started. It belongs to the order,
// not to one of its steps.
func (m *memory) expectAddress(ctx context.Context) {
	if m.traced != nil && m.traced.address == nil {
		_, m.traced.address = span.Start(trace.ContextWithSpan(ctx, m.traced.span), "address")
	}
}

// arrive ends the order's span with its result.
func (m *memory) arrive(err error) {
	if m.traced == nil {
		return
	}
	if m.traced.address != nil {
		m.traced.address(err)
	}
	m.traced.end(err)
	m.traced = nil
}

// instances holds the memories of all instances that concern an agent.
type instances struct {
	mu      sync.Mutex
	all     map[croft.InstanceID]*memory
	awaited map[croft.InstanceID]bool // will be checked again soon
}

// remember returns the instance's memory, created at the first call.
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

// ids returns the remembered instances.
func (i *instances) ids() []croft.InstanceID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Collect(maps.Keys(i.all))
}

// await sets whether an instance is checked again soon: its guest has no address yet, or a read or write about it
// failed.
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

// states counts instances by last observed state, including states with a count of 0.
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

// names returns what the orders say of the instances that have one.
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

// arriveAll ends the spans of all orders when the agent ends, after its workers have returned.
func (i *instances) arriveAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range i.all {
		m.arrive(nil)
	}
}
