package pool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
)

// stored is the state that a store has after every batch.
type stored struct {
	head      Head
	pools     map[Name]Record
	resources map[ResourceID]Resource
	tickets   map[TicketID]Ticket
}

// apply writes a batch as a store does: as JSON, and removals last.
func (s *stored) apply(t *testing.T, b Batch) {
	t.Helper()
	text, err := json.Marshal(b)
	if err == nil {
		b = Batch{}
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.Head != nil {
		s.head = *b.Head
	}
	for _, p := range b.Pools {
		s.pools[p.Settings.Name] = p
	}
	for _, r := range b.Resources {
		s.resources[r.ID] = r
	}
	for _, ticket := range b.Tickets {
		s.tickets[ticket.ID] = ticket
	}
	for _, name := range b.GonePools {
		delete(s.pools, name)
	}
	for _, id := range b.GoneResources {
		delete(s.resources, id)
	}
	for _, id := range b.GoneTickets {
		delete(s.tickets, id)
	}
}

// snapshot returns what the next leader reads.
func (s *stored) snapshot() Snapshot {
	from := Snapshot{Head: s.head}
	for _, name := range slices.Sorted(maps.Keys(s.pools)) {
		from.Pools = append(from.Pools, s.pools[name])
	}
	for _, id := range slices.Sorted(maps.Keys(s.resources)) {
		from.Resources = append(from.Resources, s.resources[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.tickets)) {
		from.Tickets = append(from.Tickets, s.tickets[id])
	}
	return from
}

// content is the part of a ledger that outlives its server, in comparable form.
type content struct {
	Head    Head
	Order   []Name
	Pools   map[Name]Record
	Stock   map[Name][]Resource
	Gone    []Resource
	Tickets map[TicketID]Ticket
	Keys    map[string]TicketID
	Open    map[string]int
	Lines   map[string][]TicketID
	Leased  []TicketID
	Past    []TicketID
}

// contentOf returns the content of a ledger as JSON.
func contentOf(t *testing.T, l *Ledger) []byte {
	t.Helper()
	c := content{Head: l.head, Order: l.order, Pools: map[Name]Record{}, Stock: map[Name][]Resource{},
		Tickets: map[TicketID]Ticket{}, Keys: map[string]TicketID{}, Open: l.openOf, Lines: map[string][]TicketID{},
		Leased: slices.Sorted(maps.Keys(l.leased)), Past: slices.Clone(l.past)}
	for name, p := range l.pools {
		c.Pools[name] = p.Record
		for _, r := range p.resources {
			c.Stock[name] = append(c.Stock[name], *r)
		}
	}
	for _, id := range l.ended {
		c.Gone = append(c.Gone, *l.resources[id])
	}
	for id, ticket := range l.tickets {
		c.Tickets[id] = *ticket
	}
	for key, id := range l.keys {
		c.Keys[key.owner+"/"+key.key] = id
	}
	for key, line := range l.waiting {
		for _, ticket := range line.tickets {
			c.Lines[key] = append(c.Lines[key], ticket.ID)
		}
	}
	slices.SortFunc(c.Past, func(a, b TicketID) int {
		return cmp.Or(l.tickets[a].Ended.Compare(l.tickets[b].Ended), cmp.Compare(a, b))
	})
	slices.SortFunc(c.Gone, func(a, b Resource) int {
		return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.ID, b.ID))
	})
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// differences compares two ledgers; a nil field equals an empty one.
func differences(t *testing.T, a, b *Ledger) string {
	t.Helper()
	one, other := contentOf(t, a), contentOf(t, b)
	if bytes.Equal(one, other) {
		return ""
	}
	var x, y content
	if err := errors.Join(json.Unmarshal(one, &x), json.Unmarshal(other, &y)); err != nil {
		t.Fatal(err)
	}
	return gocmp.Diff(x, y, cmpopts.EquateEmpty())
}

// files are versions of pools.yaml.
var files = []string{
	"p:\n" + both + "  tags: [a]\n  max: 3\n  cmd_livecheck: c\n  ttl: 60\n",
	"p:\n" + both + "  tags: [a, b]\n  max: 4\n  max_starting: 3\n  cmd_release: r\n  reuse_opportunity_time: 30\n" +
		"q:\n" + both + "  tags: [a]\n  tags_on_demand: [d]\n  cmd_list: l\n  named_counters: [c]\n",
	"q:\n" + both + "  tags: [a]\n  max_starting: 2\n  cmd_release: r\n  reuse_opportunity_time: 60\n  named_counters: [c]\n",
	"q:\n" + both + "  tags: [a]\n",
}

// After any sequence of events the next leader reads the same ledger: every change is written, and every index is
// rebuilt.
func TestTheNextLeaderHasTheSameLedger(t *testing.T) {
	const seeds, rounds = 8, 200
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random, now := rand.New(rand.NewPCG(seed, 0)), at
			s := &stored{pools: map[Name]Record{}, resources: map[ResourceID]Resource{}, tickets: map[TicketID]Ticket{}}
			l := newLedger("p", s.snapshot())
			ran := map[Op]int{}
			var begun []func(error) // operations that have not ended
			for i := range rounds {
				now = now.Add(time.Duration(random.IntN(20)) * time.Second)
				if i == 0 || random.IntN(40) == 0 {
					set, err := Parse("pools.yaml", []byte(files[random.IntN(len(files))]), nil, nil)
					if err != nil {
						t.Fatal(err)
					}
					l.configure(set, now)
				}
				for range random.IntN(3) {
					l.somebody(random, now)
				}
				for len(begun) > 0 && random.IntN(3) > 0 {
					at := random.IntN(len(begun))
					var err error
					switch random.IntN(8) {
					case 0, 1:
						err = errors.New("it failed")
					case 2:
						err = croft.Errorf(croft.Unavailable, "it took too long")
					case 3:
						err = fmt.Errorf("%w", ErrLost)
					}
					begun[at](err)
					begun = slices.Delete(begun, at, at+1)
				}
				actions, _ := Decide(l, now)
				for _, a := range actions {
					ran[a.Op]++
					if end := l.operation(a, &now); end != nil {
						begun = append(begun, end)
					}
				}
				s.apply(t, l.changes())
				next := newLedger("p", s.snapshot())
				if diff := differences(t, l, next); diff != "" {
					t.Fatalf("round %d, after %v, the next leader (+) has another ledger than this (-):\n%s", i, actions,
						diff)
				}
				if random.IntN(50) == 0 { // this server is killed
					next.takeOver(map[ResourceID][]byte{}, now)
					l, begun = next, nil
					for _, p := range l.pools {
						for _, r := range p.resources {
							if r.State == Releasing || r.State == Deleting || r.State == Starting {
								t.Fatalf("resource %d is %s, which nobody does", r.ID, r.State)
							}
						}
					}
				}
			}
			for _, op := range []Op{OpStart, OpDelete, OpAssign, OpTakeBack, OpCondemn} {
				if ran[op] == 0 {
					t.Errorf("%d rounds had no %s: %v", rounds, op, ran)
				}
			}
		})
	}
}

// somebody makes a random client open, renew or close a ticket.
func (l *Ledger) somebody(random *rand.Rand, now time.Time) {
	open := slices.Sorted(maps.Keys(l.tickets))
	if random.IntN(2) == 0 || len(open) == 0 {
		tags := [][]string{nil, {"a"}, {"a", "d"}, {"b"}, {"x"}}[random.IntN(5)]
		ticket := Ticket{Tags: tags, Sandbox: fmt.Sprint(random.IntN(3)), Owner: []string{"", "alice"}[random.IntN(2)],
			TTL: time.Duration(random.IntN(2)) * time.Minute, Opened: now, Renewed: now}
		if random.IntN(2) == 0 {
			ticket.Key = fmt.Sprint("key ", l.head.Ticket)
		}
		l.open(ticket)
		return
	}
	l.end(l.tickets[open[random.IntN(len(open))]], TicketClosed, "", now)
}

// operation returns the function that ends the work of an action; nil: the action has no work.
func (l *Ledger) operation(a Action, now *time.Time) func(error) {
	switch a.Op {
	case OpStart:
		return func(err error) {
			l.started(a.Resource, startEnd{data: []byte("made"), took: time.Second, err: err}, *now)
		}
	case OpDelete:
		return func(err error) { l.deleted(a.Resource, err, *now) }
	case OpRelease:
		return func(err error) { l.released(a.Resource, err) }
	case OpCheck:
		return func(err error) { l.checked(a.Resource, err, *now) }
	case OpList:
		before := l.liveNames()
		return func(error) {
			for _, name := range l.listed(a.Pool, []byte("orphan"), before, *now) {
				l.orphanGone(a.Pool, name)
			}
		}
	}
	return nil
}

// History is cut in bulk, the records that ended first are removed first, and the store is updated.
func TestHistoryIsForgottenInBulk(t *testing.T) {
	const keep = 5
	l := newLedger("p", Snapshot{})
	set, err := Parse("pools.yaml", []byte(files[0]), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.configure(set, at)
	s := &stored{pools: map[Name]Record{}, resources: map[ResourceID]Resource{}, tickets: map[TicketID]Ticket{}}
	check := func(n, left int) {
		t.Helper()
		l.forget(keep)
		s.apply(t, l.changes())
		if len(s.tickets) != left || len(s.resources) != left || len(l.keys) != left || s.head.Ticket != TicketID(n) {
			t.Errorf("of %d there are %d tickets, %d resources and %d keys, want %d", n, len(s.tickets),
				len(s.resources), len(l.keys), left)
		}
		if diff := differences(t, l, newLedger("p", s.snapshot())); diff != "" {
			t.Error(diff)
		}
	}
	for i := range keep + slack {
		if i == keep+slack-1 {
			check(i, i)
		}
		now := at.Add(time.Duration(i) * time.Second)
		ticket := l.open(Ticket{Owner: "alice", Key: fmt.Sprint(i)})
		l.end(ticket, TicketClosed, "", now)
		l.gone(l.start(l.pools["p"], now), now)
	}
	check(keep+slack, keep)
	if _, has := s.tickets[slack]; has {
		t.Error("the wrong tickets are forgotten")
	}
}
