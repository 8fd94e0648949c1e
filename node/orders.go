package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"croft"
	"croft/compute"
)

// orderMemory caches the last read version of each order of a host, so that guests get their metadata while the store
// does not answer. The agent itself never acts on cached orders.
type orderMemory struct {
	mu   sync.Mutex
	last map[croft.InstanceID]orderRead
}

// orderRead is an order and when it was read.
type orderRead struct {
	order croft.Order
	at    time.Time
}

// mostRemembered is the maximum size of the cache, for a process that does not learn which orders are gone.
const mostRemembered = 4096

func (m *orderMemory) get(id croft.InstanceID) (orderRead, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	read, ok := m.last[id]
	return read, ok
}

func (m *orderMemory) put(id croft.InstanceID, read orderRead) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || len(m.last) >= mostRemembered {
		m.last = map[croft.InstanceID]orderRead{}
	}
	m.last[id] = read
}

func (m *orderMemory) remove(id croft.InstanceID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, id)
}

// cachedOrders reads a host's orders and caches them.
type cachedOrders struct {
	compute.Orders
	host   croft.HostID
	memory *orderMemory
}

func (h *host) orders() cachedOrders { return cachedOrders{h.store, h.id, &h.memory} }

// Order implements compute.Orders.
func (n cachedOrders) Order(ctx context.Context, of croft.HostID, id croft.InstanceID) (croft.Order, error) {
	at := time.Now() // before reading, which may take long
	order, err := n.Orders.Order(ctx, of, id)
	switch {
	case of != n.host:
	case err == nil:
		n.memory.put(id, orderRead{order, at})
	case errors.Is(err, croft.NotFound):
		n.memory.remove(id)
	}
	return order, err
}

// ordersLast is the time for which a cached order is used without reading it again: a booting guest sends two dozen
// requests. After that time, a destroyed instance gets nothing.
const ordersLast = 250 * time.Millisecond

// orderPatience bounds how long a guest waits for its order to be read while a cached one exists.
const orderPatience = time.Second

// forGuest returns the order of the guest; if the store does not answer, the cached one.
func (n cachedOrders) forGuest(ctx context.Context, id croft.InstanceID) (croft.Order, error) {
	last, known := n.memory.get(id)
	if !known {
		return n.Order(ctx, n.host, id)
	}
	if time.Since(last.at) < ordersLast {
		return last.order, nil
	}
	soon, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	order, err := n.Order(soon, n.host, id)
	if err != nil && ctx.Err() == nil && (soon.Err() != nil || errors.Is(err, croft.Unavailable)) {
		return last.order, nil
	}
	return order, err
}
