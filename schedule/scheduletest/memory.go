// Package scheduletest provides the parts that tests of scheduling need: a store and a Placement in memory, and the
// contract of every store of schedule.
package scheduletest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"croft"
	"croft/schedule"
)

var (
	_ schedule.Records = (*Memory)(nil)
	_ schedule.Holds   = (*Memory)(nil)
	_ schedule.View    = (*Memory)(nil)
)

// Memory is a store in memory. The zero value is not usable: call NewMemory.
type Memory struct {
	mu         sync.Mutex
	revision   int64
	instances  map[croft.InstanceID]croft.Instance
	orders     map[croft.OrderID]croft.Order
	observed   map[croft.OrderID]croft.Observation
	hosts      map[croft.HostID]croft.Host
	alive      map[croft.HostID]int
	named      map[string]croft.Aggregate
	distances  map[string]croft.Distances // by type
	properties map[croft.HostID]note
	policies   map[string]croft.CrushPolicy
	numbers    croft.CrushNumbers
	retired    []string      // sessions
	changed    chan struct{} // closed and replaced at every write
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		instances:  map[croft.InstanceID]croft.Instance{},
		orders:     map[croft.OrderID]croft.Order{},
		observed:   map[croft.OrderID]croft.Observation{},
		hosts:      map[croft.HostID]croft.Host{},
		alive:      map[croft.HostID]int{},
		named:      map[string]croft.Aggregate{},
		distances:  map[string]croft.Distances{},
		properties: map[croft.HostID]note{},
		policies:   map[string]croft.CrushPolicy{},
		numbers:    croft.CrushNumbers{Hosts: map[croft.HostID]int32{}, Locations: map[string]int32{}},
		changed:    make(chan struct{}),
	}
}

// Retire implements schedule.Records.
func (m *Memory) Retire(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retired = append(m.retired, session)
}

// Retired returns the sessions that were retired.
func (m *Memory) Retired() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.retired)
}

// write runs do under the lock and, if it succeeds, commits it as the next revision.
func (m *Memory) write(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision++
	if err := do(); err != nil {
		m.revision--
		return err
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// unchanged does the comparison that every write to an existing record requires.
func (m *Memory) unchanged(inst croft.Instance) error {
	if have, ok := m.instances[inst.ID]; !ok || have.Revision != inst.Revision {
		return croft.Errorf(croft.Conflict, "instance %s changed", inst.ID)
	}
	return nil
}

// put stores a record at the revision of the current write.
func (m *Memory) put(inst croft.Instance) croft.Instance {
	inst.Revision, inst.CreateRevision = m.revision, m.revision
	if before, there := m.instances[inst.ID]; there {
		inst.CreateRevision = before.CreateRevision
	}
	m.instances[inst.ID] = inst
	return inst
}

// Create implements schedule.Records.
func (m *Memory) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		for _, other := range m.instances {
			switch {
			case other.Project == inst.Project && other.Name == inst.Name:
				return &croft.TakenError{What: "name", By: string(other.ID), Text: "the name is taken"}
			case other.ID == inst.ID:
				return &croft.TakenError{What: "id", By: string(other.ID), Text: "the ID is taken"}
			}
		}
		inst.State, inst.Session = croft.StateScheduling, "memory"
		inst = m.put(inst)
		return nil
	})
	return inst, err
}

// Assign implements schedule.Records.
func (m *Memory) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		if err := m.takesOrders(o.Host); err != nil {
			return err
		}
		if err := m.admit(&inst, o.Host); err != nil {
			return err
		}
		inst.State, inst.Host, inst.Generation, inst.Session = croft.StateScheduled, o.Host, o.Generation, ""
		inst.Lost = nil
		inst = m.put(inst)
		m.putOrder(o)
		return nil
	})
	return inst, err
}

// admit checks the rules of the instance's groups, and numbers its seats.
func (m *Memory) admit(inst *croft.Instance, host croft.HostID) error {
	if inst.PropertiesGeneration != nil && *inst.PropertiesGeneration != m.properties[host].generation {
		return croft.Errorf(croft.NoCapacity, "%w: properties", schedule.ErrStale)
	}
	for name, generation := range inst.BasedOn {
		now := m.named[name].Generation
		if kind, is := croft.DistancesOf(name); is {
			now = m.distances[kind].Generation
		}
		if now != generation {
			return croft.Errorf(croft.NoCapacity, "%w: %s", schedule.ErrStale, name)
		}
	}
	if holder, taken := m.addressHolders(inst.Spec.FixedAddress)[host]; taken {
		return croft.Errorf(croft.NoCapacity, "%w: %s", schedule.ErrAddressTaken, holder)
	}
	var taken []croft.Seat
	for _, a := range inst.Spec.Affinities {
		seats := m.seats(inst.Project, a.Group)
		if err := errors.Join(a.Admit(host, m.members(inst.Project, a.Group)),
			a.AdmitSeats(inst.Seats, seats)); err != nil {
			return err
		}
		taken = append(taken, seats...)
	}
	inst.Seats = croft.Renumber(inst.Seats, taken)
	return nil
}

// AddressHolders implements schedule.Records.
func (m *Memory) AddressHolders(ctx context.Context, address string) (map[croft.HostID]croft.InstanceID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.addressHolders(address), ctx.Err()
}

// addressHolders derives the holders of an address from the records.
func (m *Memory) addressHolders(address string) map[croft.HostID]croft.InstanceID {
	holders := map[croft.HostID]croft.InstanceID{}
	for id, inst := range m.instances {
		if address != "" && inst.Spec.FixedAddress == address && inst.Host != "" {
			holders[inst.Host] = id
		}
	}
	return holders
}

// seats returns the seats taken in a group.
func (m *Memory) seats(project croft.Project, group string) []croft.Seat {
	var all []croft.Seat
	for _, inst := range m.instances {
		for _, s := range inst.Seats {
			if s.Instance = inst.ID; inst.Project == project && s.Group == group {
				all = append(all, s)
			}
		}
	}
	return all
}

// members derives a group's members from the records: here, Assign also makes the membership.
func (m *Memory) members(project croft.Project, group string) []croft.GroupMember {
	var all []croft.GroupMember
	for _, inst := range m.instances {
		for _, a := range inst.Spec.Affinities {
			if inst.Project == project && a.Group == group && inst.Host != "" {
				all = append(all, croft.GroupMember{Affinity: a, Instance: inst.ID, Name: inst.Name, Host: inst.Host})
			}
		}
	}
	return all
}

// Members implements schedule.Groups.
func (m *Memory) Members(ctx context.Context, project croft.Project, group string) ([]croft.GroupMember, []croft.Seat,
	error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members(project, group), m.seats(project, group), ctx.Err()
}

// Fence implements schedule.Records.
func (m *Memory) Fence(ctx context.Context, inst croft.Instance) (now croft.Instance, err error) {
	err = m.write(ctx, func() error {
		var exists bool
		if now, exists = m.instances[inst.ID]; !exists {
			return croft.Errorf(croft.NotFound, "no instance %s", inst.ID)
		}
		if now.Revision == inst.Revision {
			now = m.put(now)
		}
		return nil
	})
	return now, err
}

// Discard implements schedule.Records.
func (m *Memory) Discard(ctx context.Context, inst croft.Instance) error {
	return m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		if inst.State != croft.StateScheduling {
			return croft.Errorf(croft.Conflict, "instance %s is %s", inst.ID, inst.State)
		}
		if inst.Lost != nil {
			inst.State, inst.Session = croft.StateLost, ""
			m.put(inst)
			return nil
		}
		delete(m.instances, inst.ID)
		return nil
	})
}

// Lose marks an instance as lost with the tombstone's host.
func (m *Memory) Lose(ctx context.Context, inst croft.Instance, why croft.Loss, tombstone croft.Order) (croft.Instance,
	error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		inst.State, inst.Lost, inst.Generation = croft.StateLost, &why, tombstone.Generation
		inst.Host, inst.Moving, inst.Session, inst.Seats, inst.Refused = "", "", "", nil, nil
		inst = m.put(inst)
		m.putOrder(tombstone)
		return nil
	})
	return inst, err
}

// Recreate implements schedule.Records.
func (m *Memory) Recreate(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		inst.State, inst.Session = croft.StateScheduling, "memory"
		inst = m.put(inst)
		return nil
	})
	return inst, err
}

// Reorder implements schedule.Records.
func (m *Memory) Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		inst.Generation, inst.Rebooted, inst.Rebuilt, inst.Resized = o.Generation, o.Rebooted, o.Rebuilt, o.Resized
		inst.Ejected = o.Ejected
		if o.Want == croft.WantGone {
			inst.State = croft.StateDestroying
		}
		inst = m.put(inst)
		m.putOrder(o)
		return nil
	})
	return inst, err
}

// Amend implements schedule.Records.
func (m *Memory) Amend(ctx context.Context, inst, next croft.Instance) (croft.Instance, error) {
	err := m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		inst.Expires, inst.Protected, inst.Ejected = next.Expires, next.Protected, next.Ejected
		inst = m.put(inst)
		return nil
	})
	return inst, err
}

// Bury implements schedule.Records.
func (m *Memory) Bury(ctx context.Context, inst croft.Instance, o croft.Order) error {
	return m.write(ctx, func() error {
		if err := m.unchanged(inst); err != nil {
			return err
		}
		delete(m.instances, inst.ID)
		if _, ordered := m.orders[o.ID()]; o.Host != "" && (ordered || inst.State != croft.StateLost) {
			m.putOrder(o)
		}
		return nil
	})
}

// PutHost stores a host's record; unlike an agent's, it may set Drained.
func (m *Memory) PutHost(ctx context.Context, h croft.Host) error {
	return m.write(ctx, func() error {
		m.hosts[h.ID] = h
		return nil
	})
}

// StayAlive keeps the host alive until ctx ends.
func (m *Memory) StayAlive(ctx context.Context, host croft.HostID) error {
	m.SetAlive(host, +1)
	<-ctx.Done()
	m.SetAlive(host, -1)
	return ctx.Err()
}

// SetAlive adds (+1) or removes (-1) an agent that keeps the host alive.
func (m *Memory) SetAlive(host croft.HostID, by int) {
	_ = m.write(context.Background(), func() error {
		m.alive[host] += by
		return nil
	})
}

// putOrder stores an order, which keeps the CreateRevision of the order that it replaces.
func (m *Memory) putOrder(o croft.Order) {
	at := croft.OrderID{Host: o.Host, Instance: o.Instance}
	o.CreateRevision = m.revision
	if before, ok := m.orders[at]; ok {
		o.CreateRevision = before.CreateRevision
	}
	m.orders[at] = o
}

// Observe stores an agent's observation. Conflict: there is no order, or the observation is of an earlier order with
// the same UUID.
func (m *Memory) Observe(ctx context.Context, o croft.Observation) error {
	return m.write(ctx, func() error {
		at := croft.OrderID{Host: o.Host, Instance: o.Instance}
		have, ok := m.orders[at]
		if !ok || o.OrderCreated != 0 && o.OrderCreated != have.CreateRevision {
			return croft.Errorf(croft.Conflict, "instance %s has no order", o.Instance)
		}
		m.observed[at] = o
		return nil
	})
}

// Forget removes everything that belongs to a tombstone.
func (m *Memory) Forget(ctx context.Context, o croft.Order) error {
	return m.write(ctx, func() error {
		at := croft.OrderID{Host: o.Host, Instance: o.Instance}
		if have, ok := m.orders[at]; !ok || have.Generation != o.Generation {
			return croft.Errorf(croft.Conflict, "the order of instance %s changed", o.Instance)
		}
		delete(m.orders, at)
		delete(m.observed, at)
		if m.instances[o.Instance].Host == o.Host {
			delete(m.instances, o.Instance)
		}
		return nil
	})
}

// Order returns the order that a host has for an instance. NotFound.
func (m *Memory) Order(_ context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.orders[croft.OrderID{Host: host, Instance: id}]
	if !ok {
		return o, croft.Errorf(croft.NotFound, "no order for %s on %s", id, host)
	}
	return o, nil
}

// Find implements schedule.View.
func (m *Memory) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	if err := ctx.Err(); err != nil {
		return croft.Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id, err := croft.ParseInstanceID(idOrName)
	for _, inst := range m.instances {
		if inst.Project == project && (err == nil && inst.ID == id || err != nil && inst.Name == idOrName) {
			return m.status(inst), nil
		}
	}
	return croft.Status{}, croft.Errorf(croft.NotFound, "there is no instance %s", idOrName)
}

// FindByID implements schedule.View.
func (m *Memory) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	if err := ctx.Err(); err != nil {
		return croft.Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, inst := range m.instances {
		if inst.ID == id {
			return m.status(inst), nil
		}
	}
	return croft.Status{}, croft.Errorf(croft.NotFound, "there is no instance %s", id)
}

func (m *Memory) status(inst croft.Instance) croft.Status {
	st := croft.Status{Instance: inst}
	at := croft.OrderID{Host: inst.Host, Instance: inst.ID}
	if o, ok := m.orders[at]; ok {
		st.Order = &o
	}
	if o, ok := m.observed[at]; ok {
		st.Observation = &o
	}
	if h, ok := m.hosts[inst.Host]; ok {
		h.Alive = m.alive[h.ID] > 0
		st.Host = &h
	}
	return st
}

// List implements schedule.View.
func (m *Memory) List(_ context.Context, project croft.Project) ([]croft.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []croft.Status
	for _, inst := range m.instances {
		if project == "" || inst.Project == project {
			all = append(all, m.status(inst))
		}
	}
	slices.SortFunc(all, func(a, b croft.Status) int {
		return cmp.Or(a.Instance.Created.Compare(b.Instance.Created), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return all, nil
}

// WatchInstance implements schedule.View.
func (m *Memory) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	for {
		m.mu.Lock()
		next := m.changed
		inst, ok := m.instances[id]
		st := m.status(inst)
		m.mu.Unlock()
		if !ok {
			changed(nil)
			return nil
		}
		if !changed(&st) {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WatchInstances implements schedule.View.
func (m *Memory) WatchInstances(ctx context.Context, changed func()) error {
	for {
		m.mu.Lock()
		next := m.changed
		m.mu.Unlock()
		changed()
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Hosts implements schedule.Registry.
func (m *Memory) Hosts(_ context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[croft.HostID]croft.Host{}
	for id, h := range m.hosts {
		if len(ids) == 0 || slices.Contains(ids, id) {
			h.Alive = m.alive[id] > 0
			found[id] = h
		}
	}
	return maps.Clone(found), nil
}
