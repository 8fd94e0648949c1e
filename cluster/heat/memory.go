package heat

import (
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft/cluster"
)

// memory is what a driver remembers of sites. After a restart it is learned anew.
type memory struct {
	mu        sync.Mutex
	validated map[validation]bool
	contracts map[cluster.ImplementationID]cluster.Contract
	details   map[string]*detail   // by the ID of the stack
	removing  map[string]bool      // whose deletion Heat took, by the ID of the stack
	markers   map[string]time.Time // when an empty stack was first seen, by its ID; or refused, by its name
}

// validation is a template that Heat of a site accepted.
type validation struct {
	site           string
	implementation cluster.ImplementationID
}

// detail is what was learned of a stack beyond a list.
type detail struct {
	status  string
	updated time.Time
	read    time.Time
	stack   *stacks.RetrievedStack
	reason  string
	lost    []resource // machines that Nova does not have any more
}

// mostRemembered bounds each kind of memory.
const mostRemembered = 5000

func newMemory() memory {
	return memory{validated: map[validation]bool{}, contracts: map[cluster.ImplementationID]cluster.Contract{},
		details: map[string]*detail{}, removing: map[string]bool{}, markers: map[string]time.Time{}}
}

// remember puts something into a map of memory.
func remember[K comparable, V any](m *memory, into map[K]V, key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(into) >= mostRemembered {
		clear(into)
	}
	into[key] = value
}

// recall returns what is in a map of memory.
func recall[K comparable, V any](m *memory, from map[K]V, key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found := from[key]
	return value, found
}

// forget forgets what is known of a stack that is about to change.
func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.details, id)
}

// held returns for how long an empty stack has been seen to hold a name. The clock of the site may be wrong, so it is
// ours: after a restart the time begins anew.
func (m *memory) held(id string) time.Duration {
	since, seen := recall(m, m.markers, id)
	if !seen {
		since = time.Now()
		remember(m, m.markers, id, since)
	}
	return time.Since(since)
}

// phase is how far a stack is, where a removal that was taken counts from the start.
func (m *memory) phase(st stacks.ListedStack) cluster.Phase {
	p := phase(st.Status)
	if removing, _ := recall(m, m.removing, st.ID); removing && p != cluster.Absent && p != cluster.Stuck {
		return cluster.Removing
	}
	return p
}
