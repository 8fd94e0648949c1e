package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"croft"
	"croft/internal/wording"
	"croft/tenant"
)

// Opening is a request for a ticket.
type Opening struct {
	Tags    []string      // the resource must have all of them; none: any resource fits
	Sandbox string        // resources already used in another sandbox are excluded; empty: a new sandbox is created
	TTL     time.Duration // closes the ticket when it has not been used for this long; 0: never
	Owner   string        // who requests it, if known
	Project croft.Project // the owner of the ticket, whose quota applies; empty: no project
	// ProjectID is the expected identity of Project; empty: the project's present identity
	ProjectID croft.ProjectID
	MostOpen  int // limit of the owner's open tickets; 0: none
	// the same key of the same owner returns the same ticket, while it is remembered; empty: a new ticket
	Key string
}

// ticket checks an opening and makes the ticket, without a number yet.
func (o Opening) ticket() (Ticket, error) {
	if len(o.Tags) > maxTags {
		return Ticket{}, croft.Errorf(croft.Invalid, "a ticket for %d tags: name %d at most", len(o.Tags), maxTags)
	}
	for _, tag := range o.Tags {
		if err := CheckTag(tag); err != nil {
			return Ticket{}, err
		}
	}
	named := len(o.Sandbox) + len(o.Key)
	for _, tag := range o.Tags {
		named += len(tag)
	}
	if named > maxNamed {
		return Ticket{}, croft.Errorf(croft.Invalid, "tags, sandbox and key of %d bytes: use %d at most", named,
			maxNamed)
	}
	if o.Sandbox != "" {
		if err := CheckTag(o.Sandbox); err != nil {
			return Ticket{}, fmt.Errorf("sandbox: %w", err)
		}
	}
	if o.TTL != 0 && o.TTL < time.Second {
		return Ticket{}, croft.Errorf(croft.Invalid, "a lease of %s: give it a second at least, or none",
			wording.Duration(o.TTL))
	}
	if len(o.Key) > maxWord || !utf8.ValidString(o.Key) {
		return Ticket{}, croft.Errorf(croft.Invalid, "a key of %d bytes: use text of %d at most", len(o.Key), maxWord)
	}
	if o.Project != "" {
		if err := o.Project.Check(); err != nil {
			return Ticket{}, err
		}
	}
	t := Ticket{Sandbox: o.Sandbox, TTL: o.TTL, Owner: o.Owner, Project: o.Project, Key: o.Key,
		Tags: slices.Compact(slices.Sorted(slices.Values(o.Tags)))}
	if t.Sandbox == "" {
		t.Sandbox, t.Private = uuid.NewString(), true
	}
	return t, nil
}

// change applies do to the ledger, and returns once the change is written.
func (m *Manager) change(ctx context.Context, do func(*Ledger, time.Time) error) error {
	a, err := m.current()
	if err != nil {
		return err
	}
	r := &request{do: do, done: make(chan error, 1)}
	a.inbox.put(r)
	select {
	case err := <-r.done:
		return m.nameLeader(err)
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "the pools' state is not written yet: %w", ctx.Err())
	}
}

// nameLeader adds the current leader to the error of a server that lost the lead.
func (m *Manager) nameLeader(err error) error {
	if _, standby := errors.AsType[*StandbyError](err); standby {
		m.mu.Lock()
		defer m.mu.Unlock()
		return &StandbyError{m.leader}
	}
	return err
}

// Open opens a ticket. It returns once the ticket is written, with its resource if a suitable one is ready. Invalid;
// NoCapacity: the owner has reached MostOpen; OverQuota: the project has reached its quota; Unavailable.
func (m *Manager) Open(ctx context.Context, o Opening) (TicketStatus, error) {
	t, err := o.ticket()
	if err != nil {
		return TicketStatus{}, fmt.Errorf("open a ticket: %w", err)
	}
	may, err := m.mayHave(ctx, t.Project)
	if err != nil {
		return TicketStatus{}, fmt.Errorf("open a ticket: %w", err)
	}
	if t.ProjectID, err = m.identity(o, may); err != nil {
		return TicketStatus{}, fmt.Errorf("open a ticket: %w", err)
	}
	var id TicketID
	err = m.change(ctx, func(l *Ledger, now time.Time) error {
		if id = l.withKey(&t); id != 0 {
			return nil
		}
		if o.MostOpen > 0 && l.openOf[t.Owner] >= o.MostOpen {
			return croft.Errorf(croft.NoCapacity,
				"%s has %d tickets open, which is as many as it may have: close some first", t.Owner, o.MostOpen)
		}
		if err := l.admit(may, tenant.CountTickets, l.openIn); err != nil {
			return err
		}
		t.Opened, t.Renewed = now, now
		id = l.open(t).ID
		return nil
	})
	if err != nil {
		return TicketStatus{}, fmt.Errorf("open a ticket: %w", err)
	}
	st, _, err := m.look(id)
	return st, err
}

// look reads a ticket. changed is closed when the ticket changes.
func (m *Manager) look(id TicketID) (st TicketStatus, changed <-chan struct{}, err error) {
	a, err := m.current()
	if err != nil {
		return st, nil, err
	}
	t, changed := a.view.ticket(id)
	if t == nil {
		return st, nil, a.view.unknown(id)
	}
	return a.view.status(*t), changed, nil
}

// unknown returns the error for a ticket that does not exist.
func (v *view) unknown(id TicketID) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	switch {
	case v.closed:
		return &StandbyError{}
	case id > 0 && id <= v.head.Ticket:
		return croft.Errorf(croft.NotFound, "ticket %d ended so long ago that nothing is known of it any more", id)
	}
	return croft.Errorf(croft.NotFound, "there is no ticket %d", id)
}

// Get returns a ticket, and renews its lease. NotFound; Unavailable.
func (m *Manager) Get(ctx context.Context, id TicketID) (TicketStatus, error) {
	st, _, err := m.look(id)
	if err != nil {
		return st, m.nameLeader(err)
	}
	m.use(st.Ticket)
	return st, ctx.Err()
}

// Peek returns a ticket without renewing its lease, for callers other than its owner.
func (m *Manager) Peek(id TicketID) (TicketStatus, error) {
	st, _, err := m.look(id)
	return st, m.nameLeader(err)
}

// use renews a lease once a tenth of it has passed, so that not every use is written.
func (m *Manager) use(t Ticket) {
	if t.TTL == 0 || t.State != TicketOpen || time.Since(t.Renewed) < t.TTL/10 {
		return
	}
	if a, err := m.current(); err == nil {
		a.post(func(l *Ledger, now time.Time) { l.renew(t.ID, now) })
	}
}

func (l *Ledger) renew(id TicketID, now time.Time) {
	if t := l.leased[id]; t != nil {
		t.Renewed = now
		l.touchTicket(t)
	}
}

// Wait returns a ticket once it has its resource, was closed, or failed. Meanwhile its lease is renewed. Unavailable:
// this server lost the lead, or ctx's deadline passed; then the error says what the ticket waits for. NotFound.
func (m *Manager) Wait(ctx context.Context, id TicketID) (TicketStatus, error) {
	for {
		st, changed, err := m.look(id)
		if err != nil {
			return st, m.nameLeader(err)
		}
		m.use(st.Ticket)
		if !st.Waiting() {
			return st, nil
		}
		var renew <-chan time.Time
		if st.TTL > 0 {
			renew = time.After(st.TTL / 3)
		}
		select {
		case <-changed:
		case <-renew:
		case <-ctx.Done():
			return st, waitedLongEnough(ctx, st)
		}
	}
}

func waitedLongEnough(ctx context.Context, st TicketStatus) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return croft.Errorf(croft.Unavailable, "ticket %d: waited long enough; %s", st.ID, st.Waits)
	}
	return ctx.Err()
}

// Close closes a ticket and gives back its resource. Closing an ended or forgotten ticket is no error. NotFound;
// Unavailable.
func (m *Manager) Close(ctx context.Context, id TicketID) error {
	return m.change(ctx, func(l *Ledger, now time.Time) error {
		t := l.tickets[id]
		switch {
		case t != nil:
			l.end(t, TicketClosed, "", now)
		case id < 1 || id > l.head.Ticket:
			return croft.Errorf(croft.NotFound, "there is no ticket %d", id)
		}
		return nil
	})
}

// Forgotten reports whether the ticket existed and its record was removed.
func (m *Manager) Forgotten(id TicketID) bool {
	a, err := m.current()
	if err != nil {
		return false
	}
	a.view.mu.RLock()
	defer a.view.mu.RUnlock()
	_, known := a.view.tickets[id]
	return !known && id > 0 && id <= a.view.head.Ticket
}

// Renew restarts a ticket's lease. Conflict: the ticket has ended, or has no lease. NotFound; Unavailable.
func (m *Manager) Renew(ctx context.Context, id TicketID) (TicketStatus, error) {
	err := m.change(ctx, func(l *Ledger, now time.Time) error {
		t := l.tickets[id]
		switch {
		case t == nil:
			return croft.Errorf(croft.NotFound, "there is no ticket %d, or it ended long ago", id)
		case t.State != TicketOpen:
			return croft.Errorf(croft.Conflict, "ticket %d is %s: open another one", id, t.State)
		case t.TTL == 0:
			return croft.Errorf(croft.Conflict, "ticket %d has no lease: it is yours until you close it", id)
		}
		if now.Sub(t.Renewed) >= min(time.Second, t.TTL/10) { // limits the writes of a caller that renews in a loop
			l.renew(id, now)
		}
		return nil
	})
	if err != nil {
		return TicketStatus{}, err
	}
	return m.Peek(id)
}

// Tickets returns all known tickets by number; it includes closed ones only if past is set. Unavailable.
func (m *Manager) Tickets(past bool) ([]TicketStatus, error) {
	a, err := m.current()
	if err != nil {
		return nil, err
	}
	v := a.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []TicketStatus
	for _, id := range slices.Sorted(maps.Keys(v.tickets)) {
		if t := v.tickets[id]; past || t.State != TicketClosed {
			all = append(all, v.statusLocked(t))
		}
	}
	return all, nil
}

// Resources returns all known resources by number; it includes ended ones only if past is set. Unavailable.
func (m *Manager) Resources(past bool) ([]Resource, error) {
	a, err := m.current()
	if err != nil {
		return nil, err
	}
	v := a.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []Resource
	for _, r := range v.resources {
		if past || r.Live() {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Resource returns the resource with this number or name; if several have the name, the newest. NotFound; Unavailable.
func (m *Manager) Resource(idOrName string) (Resource, error) {
	a, err := m.current()
	if err != nil {
		return Resource{}, err
	}
	v := a.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	if id, err := ParseResourceID(idOrName); err == nil {
		if r, known := v.resources[id]; known {
			return r, nil
		}
	}
	var found Resource
	for _, r := range v.resources {
		if r.Name == idOrName && r.ID > found.ID {
			found = r
		}
	}
	if found.ID == 0 {
		return found, croft.Errorf(croft.NotFound, "there is no resource %s, or it ended long ago", idOrName)
	}
	return found, nil
}

// DeleteResources requests the deletion of resources, even of assigned ones, whose open tickets fail. A start is
// aborted first. Resources that are being cleaned or deleted, or have ended, are left alone. NotFound: one of them is
// unknown; then nothing is changed. Unavailable.
func (m *Manager) DeleteResources(ctx context.Context, ids ...ResourceID) error {
	return m.change(ctx, func(l *Ledger, _ time.Time) error {
		for _, id := range ids {
			if l.resources[id] == nil {
				return croft.Errorf(croft.NotFound, "there is no resource %d, or it ended long ago", id)
			}
		}
		for _, id := range ids {
			if r := l.resources[id]; r.State == Up || r.State == Starting {
				l.condemn(r, "an operator deleted it")
			}
		}
		return nil
	})
}

// Logs returns the names of the existing files on this machine that hold the output of a resource's hooks.
func (m *Manager) Logs(id ResourceID) []string { return m.Hooks.Logs(id) }

// Pools returns all pools in the order of the file; pools that were removed from it and still have resources come last.
// Unavailable.
func (m *Manager) Pools() ([]PoolStatus, error) {
	a, err := m.current()
	if err != nil {
		return nil, err
	}
	v := a.view
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []PoolStatus
	for _, p := range v.byPosition() {
		st := PoolStatus{Record: p}
		if c := v.counts[p.Settings.Name]; c != nil {
			st.Counts = *c
		}
		all = append(all, st)
	}
	for _, t := range v.tickets {
		for i := range all {
			if t.Waiting() && v.canServe(all[i].Record, &t) {
				all[i].Waiting++
			}
		}
	}
	slices.SortStableFunc(all, func(a, b PoolStatus) int {
		return cmp.Compare(rank(a.Removed), rank(b.Removed))
	})
	return all, nil
}

func rank(late bool) int {
	if late {
		return 1
	}
	return 0
}

// Pause stops starts and assignments in a pool. NotFound; Unavailable.
func (m *Manager) Pause(ctx context.Context, name Name) error { return m.setMode(ctx, name, Paused) }

// Drain pauses a pool, and deletes its resources as soon as no ticket has them. NotFound; Unavailable.
func (m *Manager) Drain(ctx context.Context, name Name) error { return m.setMode(ctx, name, Drained) }

// Resume reverses Pause and Drain, and ends the back-off of a pool whose starts failed. NotFound; Unavailable.
func (m *Manager) Resume(ctx context.Context, name Name) error { return m.setMode(ctx, name, Active) }

func (m *Manager) setMode(ctx context.Context, name Name, mode Mode) error {
	return m.change(ctx, func(l *Ledger, _ time.Time) error {
		p := l.pools[name]
		if p == nil {
			return croft.Errorf(croft.NotFound, "there is no pool %s", name)
		}
		p.Mode = mode
		if mode == Active {
			p.NotBefore = time.Time{}
		}
		l.touchPool(p)
		return nil
	})
}

// Watch calls changed, which carries no data, now and after every change, until ctx ends. Unavailable: this
// server lost the lead.
func (m *Manager) Watch(ctx context.Context, changed func()) error {
	a, err := m.current()
	if err != nil {
		return err
	}
	for {
		a.view.mu.RLock()
		next, closed := a.view.changed, a.view.closed
		a.view.mu.RUnlock()
		if closed {
			return m.nameLeader(&StandbyError{})
		}
		changed()
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
