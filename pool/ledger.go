package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"croft"
)

// Ledger is the state of the leading server. Requests, results of hooks and the actions of Decide change it; changes
// returns the parts that must be written.
type Ledger struct {
	partition  croft.PartitionID
	head       Head
	pools      map[Name]*stock
	order      []Name // of pools in the file
	configured bool   // this server has read the file
	pace       time.Duration
	began      time.Time // start of the process
	tickets    map[TicketID]*Ticket
	keys       map[ticketKey]TicketID // of tickets opened with a key
	resources  map[ResourceID]*Resource

	openOf  map[string]int // number of open tickets by owner
	openIn  map[croft.Project]int
	above   map[croft.Project][]croft.Project // each project's ancestors, as last read
	waiting queue
	leased  map[TicketID]*Ticket     // open, with a TTL
	past    []TicketID               // in the order in which they ended
	ended   []ResourceID             // resources, in the order in which they ended
	jobs    map[ResourceID]bool      // started by this server; true: the start is being stopped
	busy    map[ResourceID]bool      // resources with a running livecheck
	listing map[Name]bool            // pools with a running search for orphans
	orphans map[Name]map[string]bool // orphans that are being deleted

	// of resources whose start failed without being aborted, since this server took the lead
	refusals map[ResourceID]refusal

	changed struct {
		head          bool
		pools         map[Name]bool
		tickets       map[TicketID]bool
		resources     map[ResourceID]bool
		gonePools     []Name
		goneTickets   []TicketID
		goneResources []ResourceID
	}
}

// stock is a pool and its resources that have not ended, by number.
type stock struct {
	Record
	resources []*Resource
	answers   int // commands that succeeded since this server took the lead
}

func (p *stock) count() (c Counts) {
	for _, r := range p.resources {
		c.add(&p.Settings, r, 1)
	}
	return c
}

// settingsOf returns the settings that apply to a resource of the pool.
func (p *stock) settingsOf(r *Resource) *Settings {
	if p.Former != nil && (r.Instance == "") != (p.Settings.Instance == nil) {
		return p.Former
	}
	return &p.Settings
}

// name is the pool's name.
func (p *stock) name() Name { return p.Settings.Name }

// former reports whether the resource was made while the pool belonged to another project, or was shared by all
// projects.
func (p *stock) former(r *Resource) bool { return r.ID < p.First }

// whyFormer returns the reason to delete such a resource.
func (p *stock) whyFormer() string {
	return fmt.Sprintf("it was made before pool %s was its present project's alone", p.name())
}

// serves reports whether the pool hands out resources.
func (p *stock) serves() bool { return p.Mode == Active && !p.Removed }

// newLedger builds the ledger from the stored state.
func newLedger(partition croft.PartitionID, from Snapshot) *Ledger {
	l := &Ledger{
		partition: partition, head: from.Head,
		pools: map[Name]*stock{}, tickets: map[TicketID]*Ticket{}, keys: map[ticketKey]TicketID{},
		resources: map[ResourceID]*Resource{},
		openOf:    map[string]int{}, openIn: map[croft.Project]int{}, above: map[croft.Project][]croft.Project{},
		waiting: queue{}, leased: map[TicketID]*Ticket{}, jobs: map[ResourceID]bool{},
		busy: map[ResourceID]bool{}, listing: map[Name]bool{}, orphans: map[Name]map[string]bool{},
		refusals: map[ResourceID]refusal{},
	}
	l.changed.pools, l.changed.tickets, l.changed.resources = map[Name]bool{}, map[TicketID]bool{},
		map[ResourceID]bool{}
	for _, p := range from.Pools {
		l.pools[p.Settings.Name] = &stock{Record: p}
	}
	for _, r := range from.Resources {
		l.addResource(&r)
	}
	for _, t := range from.Tickets {
		l.addTicket(&t)
	}
	slices.SortFunc(l.past, func(a, b TicketID) int {
		return cmp.Or(l.tickets[a].Ended.Compare(l.tickets[b].Ended), cmp.Compare(a, b))
	})
	slices.SortFunc(l.ended, func(a, b ResourceID) int {
		return cmp.Or(l.resources[a].EndedAt.Compare(l.resources[b].EndedAt), cmp.Compare(a, b))
	})
	l.order = l.inFile()
	return l
}

// inFile returns the names of the pools of the last file, in its order.
func (l *Ledger) inFile() []Name {
	var names []Name
	for name, p := range l.pools {
		if !p.Removed {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b Name) int { return cmp.Compare(l.pools[a].Position, l.pools[b].Position) })
	return names
}

func (l *Ledger) addResource(r *Resource) {
	l.resources[r.ID] = r
	l.head.Resource = max(l.head.Resource, r.ID)
	if !r.Live() {
		l.ended = append(l.ended, r.ID)
		return
	}
	p := l.pools[r.Pool]
	if p == nil { // impossible: a pool's record is removed after its last resource
		p = &stock{Record: Record{Settings: Settings{Name: r.Pool}, Removed: true}}
		l.pools[r.Pool] = p
	}
	p.resources = append(p.resources, r)
}

// withKey returns the ticket that was opened with the key of t before; 0: no ticket was. An open ticket may have been
// opened by an older program that does not store the project's identity; such a ticket is found too.
func (l *Ledger) withKey(t *Ticket) TicketID {
	if id := l.keys[t.key()]; id != 0 || t.ProjectID == "" {
		return id
	}
	old := *t
	old.ProjectID = ""
	if before := l.tickets[l.keys[old.key()]]; before != nil && before.Of(t.Project, t.ProjectID) {
		return before.ID
	}
	return 0
}

func (l *Ledger) addTicket(t *Ticket) {
	l.tickets[t.ID] = t
	if t.Key != "" {
		l.keys[t.key()] = t.ID
	}
	l.head.Ticket = max(l.head.Ticket, t.ID)
	switch {
	case t.State != TicketOpen:
		l.past = append(l.past, t.ID)
	case t.Waiting():
		l.waiting.add(t)
	}
	if t.State == TicketOpen {
		l.openOf[t.Owner]++
		l.openIn[t.Project]++
	}
	if t.State == TicketOpen && t.TTL > 0 {
		l.leased[t.ID] = t
	}
}

// mend completes a batch that was written only in part: a resource names its ticket, but the ticket does not name its
// resource yet.
func (l *Ledger) mend(now time.Time) {
	for _, p := range l.pools {
		for _, r := range p.resources {
			if t := l.tickets[r.Ticket]; t != nil && t.Waiting() {
				l.join(t, r, now)
			}
		}
	}
}

// takeOver converts the unfinished work of another server into a state from which this server can continue. printed is
// the output of unfinished starts. Leases restart, because they could not be renewed while there was no leader.
func (l *Ledger) takeOver(printed map[ResourceID][]byte, now time.Time) {
	l.mend(now)
	for _, t := range l.leased {
		t.Renewed = now
		l.touchTicket(t)
	}
	for _, p := range l.pools {
		for _, r := range p.resources {
			switch {
			case r.State == Starting && r.Instance != "" && r.Instance == DerivedInstance(l.partition, r.ID):
				l.condemn(r, "an earlier version of croft was starting it under an ID that clients can compute")
			case r.State == Starting && r.Instance != "": // starting it again continues with it
			case r.State == Starting:
				r.Data = printed[r.ID]
				l.condemn(r, "the server that was starting it ended")
			case r.State == DeleteRequest && r.Data == nil: // condemned before its start finished
				r.Data = printed[r.ID]
				l.touchResource(r)
			case r.State == Releasing:
				l.condemn(r, "the server that was cleaning it ended")
			case r.State == Deleting:
				l.set(r, DeleteRequest)
			}
		}
	}
}

func (l *Ledger) touchTicket(t *Ticket)     { l.changed.tickets[t.ID] = true }
func (l *Ledger) touchResource(r *Resource) { l.changed.resources[r.ID] = true }
func (l *Ledger) touchPool(p *stock)        { l.changed.pools[p.name()] = true }

// set changes a resource's state.
func (l *Ledger) set(r *Resource, state State) {
	r.State = state
	l.touchResource(r)
}

// open adds a ticket with the next number.
func (l *Ledger) open(t Ticket) *Ticket {
	l.head.Ticket++
	l.changed.head = true
	t.ID, t.State = l.head.Ticket, TicketOpen
	l.addTicket(&t)
	l.touchTicket(&t)
	return &t
}

// end closes or fails an open ticket. Closing a failed ticket records that its owner knows of the failure.
func (l *Ledger) end(t *Ticket, state TicketState, reason string, now time.Time) {
	if t.State == TicketClosed {
		return
	}
	if t.State == TicketOpen {
		if t.Resource == 0 {
			l.waiting.remove(t)
		}
		delete(l.leased, t.ID)
		if l.openOf[t.Owner]--; l.openOf[t.Owner] == 0 {
			delete(l.openOf, t.Owner)
		}
		if l.openIn[t.Project]--; l.openIn[t.Project] == 0 {
			delete(l.openIn, t.Project)
		}
		t.Ended, t.Reason = now, reason
		l.past = append(l.past, t.ID)
	}
	t.State = state
	l.touchTicket(t)
}

// serve assigns a resource to a waiting ticket.
func (l *Ledger) serve(t *Ticket, r *Resource, now time.Time) {
	l.join(t, r, now)
	p := l.pools[r.Pool]
	p.Stats.Served++
	l.touchPool(p)
}

// join links a ticket and its resource.
func (l *Ledger) join(t *Ticket, r *Resource, now time.Time) {
	l.waiting.remove(t)
	r.Ticket = t.ID
	if r.Sandbox == "" {
		r.Owner, r.Sandbox, r.Private, r.Sandboxed = t.holder(), t.Sandbox, t.Private, now
	}
	t.Resource, t.Served = r.ID, now
	if t.TTL == 0 {
		t.TTL = l.pools[r.Pool].Settings.TTL
	}
	if t.TTL > 0 {
		t.Renewed = now
		l.leased[t.ID] = t
	}
	l.touchTicket(t)
	l.touchResource(r)
}

// condemn requests a resource's deletion, assigned or not.
func (l *Ledger) condemn(r *Resource, reason string) {
	r.Reason = reason
	l.set(r, DeleteRequest)
}

// start adds a resource whose start is due.
func (l *Ledger) start(p *stock, now time.Time) *Resource {
	l.head.Resource++
	l.changed.head = true
	r := &Resource{ID: l.head.Resource, Pool: p.name(), State: Starting, Created: now, InPool: p.freeNumber(),
		Recipe: p.Settings.recipe()}
	r.Name = l.newName(p, r.ID, now)
	for _, counter := range p.Settings.Counters {
		if r.Counters == nil {
			r.Counters = map[string]int{}
		}
		r.Counters[counter] = l.freeCounter(counter)
	}
	if p.Settings.Instance != nil {
		r.Instance = croft.NewInstanceID()
	}
	l.addResource(r)
	p.LastStart = now
	l.touchPool(p)
	l.touchResource(r)
	return r
}

// DerivedInstance returns the ID that versions up to schema 1.7 gave to the instance of a resource. Every client can
// compute it and create an instance with it.
func DerivedInstance(p croft.PartitionID, id ResourceID) croft.InstanceID {
	space, err := uuid.Parse(string(p))
	if err != nil {
		space = uuid.NewSHA1(uuid.Nil, []byte(p))
	}
	return croft.InstanceID(uuid.NewSHA1(space, []byte("pool resource "+id.String())).String())
}

// newName makes a resource's name. Resources of the same name would be deleted together; so, if the pattern omits the
// number and the name is taken, the number is appended.
func (l *Ledger) newName(p *stock, id ResourceID, now time.Time) string {
	name := p.Settings.resourceName(id, now)
	if !strings.Contains(p.Settings.NamePattern, "{id}") && l.liveNames()[name] {
		name += "_" + id.String()
	}
	return name
}

// freeNumber returns the smallest number that no resource of the pool has.
func (p *stock) freeNumber() int {
	taken := map[int]bool{}
	for _, r := range p.resources {
		taken[r.InPool] = true
	}
	return smallestNotIn(taken)
}

// freeCounter returns the smallest value of a counter that no resource of any pool has.
func (l *Ledger) freeCounter(name string) int {
	taken := map[int]bool{}
	for _, p := range l.pools {
		for _, r := range p.resources {
			if n, has := r.Counters[name]; has {
				taken[n] = true
			}
		}
	}
	return smallestNotIn(taken)
}

func smallestNotIn(taken map[int]bool) int {
	for n := 0; ; n++ {
		if !taken[n] {
			return n
		}
	}
}

// gone records that a resource is completely deleted.
func (l *Ledger) gone(r *Resource, now time.Time) {
	p := l.pools[r.Pool]
	p.resources = slices.DeleteFunc(p.resources, func(other *Resource) bool { return other == r })
	r.Ticket, r.EndedAt, r.Counters = 0, now, nil
	l.set(r, Ended)
	l.ended = append(l.ended, r.ID)
	delete(l.refusals, r.ID)
}
