package libvirt

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"croft"
	"croft/compute"
)

// Lifetimes of cached owners, and of the knowledge that an address has none. Events invalidate both earlier.
const (
	ownersLast    = time.Second
	strangersLast = 20 * time.Millisecond
)

// ownerTable caches the owner of each reserved or leased address for a short time.
type ownerTable struct {
	mu         sync.Mutex
	owners     map[netip.Addr]croft.InstanceID
	read       time.Time
	ports      map[croft.InstanceID]portsRead
	generation int // incremented by each invalidation
}

func (t *ownerTable) invalidate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read, t.ports = time.Time{}, nil
	t.generation++
}

// get answers from the cache; known: there is an answer.
func (t *ownerTable) get(addr netip.Addr) (id croft.InstanceID, known bool, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := time.Since(t.read)
	id, ok := t.owners[addr]
	return id, ok && age < ownersLast || !ok && age < strangersLast, t.generation
}

// put stores the result of a read, unless the table was invalidated since the read started. An instance that is not off
// owns its reserved addresses, whatever the DHCP server lists: guests can end each other's leases.
func (t *ownerTable) put(list []domain, generation int) map[netip.Addr]croft.InstanceID {
	owners := map[netip.Addr]croft.InstanceID{}
	for _, one := range list {
		for _, addr := range one.leased {
			owners[addr] = one.ID
		}
	}
	for _, one := range list {
		if one.Power == compute.PowerOff {
			continue
		}
		for _, addr := range one.Reserved {
			owners[addr] = one.ID
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation == generation {
		t.owners, t.read = owners, time.Now()
	}
	return owners
}

// portsRead are the ports of an instance at a point in time.
type portsRead struct {
	ports map[string]string
	read  time.Time
}

// portsOf answers from the cache; known: there is an answer.
func (t *ownerTable) portsOf(id croft.InstanceID) (ports map[string]string, known bool, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got, ok := t.ports[id]
	return maps.Clone(got.ports), ok && time.Since(got.read) < ownersLast, t.generation
}

// putPorts stores the result of a read, unless the table was invalidated since the read started.
func (t *ownerTable) putPorts(id croft.InstanceID, ports map[string]string, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != generation {
		return
	}
	if t.ports == nil {
		t.ports = map[croft.InstanceID]portsRead{}
	}
	t.ports[id] = portsRead{maps.Clone(ports), time.Now()}
}
