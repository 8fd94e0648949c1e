package heat

import (
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft/cluster"
)

// memory caches facts about sites. After a restart they are read again.
type memory struct {
	mu        sync.Mutex
	validated map[validation]bool
	contracts map[cluster.ImplementationID]cluster.Contract
	details   map[string]*detail   // by ID of the stack
	removing  map[string]bool      // stacks whose deletion Heat accepted, by ID
	markers   map[string]time.Time // when an empty stack was first seen, by its ID, or first refused, by its name
}

// validation identifies a template that the Heat of a site accepted.
type validation struct {
	site           string
	implementation cluster.ImplementationID
}

// detail is the cached state of a stack that a list does not include.
type detail struct {
	status  string
	updated time.Time
	read    time.Time
	stack   *stacks.RetrievedStack
	reason  string
	lost    []resource // machines that Nova does not have any more
}

// mostRemembered bounds the entries of each map.
const mostRemembered = 5000

func newMemory() memory {
	return memory{validated: map[validation]bool{}, contracts: map[cluster.ImplementationID]cluster.Contract{},
		details: map[string]*detail{}, removing: map[string]bool{}, markers: map[string]time.Time{}}
}

// remember adds an entry to a map of memory.
func remember[K comparable, V any](m *memory, into map[K]V, key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(into) >= mostRemembered {
		clear(into)
	}
	into[key] = value
}

// recall reads an entry from a map of memory.
func recall[K comparable, V any](m *memory, from map[K]V, key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found := from[key]
	return value, found
}

// forget drops the details of a stack that is about to change.
func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.details, id)
}

// held returns how long an empty stack has been seen to reserve a name. It uses the clock of this machine, since that
// of the site may be wrong; after a restart the time starts again.
func (m *memory) held(id string) time.Duration {
	since, seen := recall(m, m.markers, id)
	if !seen {
		since = time.Now()
		remember(m, m.markers, id, since)
	}
	return time.Since(since)
}

// phase returns the phase of a stack. A stack whose deletion Heat accepted counts as being removed at once.
func (m *memory) phase(st stacks.ListedStack) cluster.Phase {
	p := phase(st.Status)
	if removing, _ := recall(m, m.removing, st.ID); removing && p != cluster.Absent && p != cluster.Stuck {
		return cluster.Removing
	}
	return p
}
