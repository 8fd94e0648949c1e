package pool

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
)

// at is the time of all decisions here.
var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// ledger makes a ledger from a file of pools, resources and tickets.
func ledger(t *testing.T, file string, resources []Resource, tickets []Ticket, change ...func(*Ledger)) *Ledger {
	t.Helper()
	set, err := Parse("pools.yaml", []byte(file), func(Instance) error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var from Snapshot
	for i, s := range set {
		from.Pools = append(from.Pools, Record{Settings: s, Position: i, Created: at.Add(-time.Hour)})
	}
	for i, r := range resources {
		r.ID = ResourceID(i + 1)
		if r.Pool == "" {
			r.Pool = "p"
		}
		if r.Name == "" {
			r.Name = fmt.Sprint("name", r.ID)
		}
		if r.InPool == 0 {
			r.InPool = i
		}
		from.Resources = append(from.Resources, r)
	}
	for i, ticket := range tickets {
		ticket.ID = TicketID(i + 1)
		if ticket.State == "" {
			ticket.State = TicketOpen
		}
		if ticket.Sandbox == "" {
			ticket.Sandbox = fmt.Sprint("box of ", ticket.ID)
		}
		from.Tickets = append(from.Tickets, ticket)
	}
	l := newLedger("p", from)
	for _, c := range change {
		c(l)
	}
	l.changes()
	return l
}

// told returns a short form of an action.
func told(a Action) string {
	text := string(a.Op)
	if a.Op == OpStart || a.Op == OpList || a.Op == OpForget {
		text += " " + string(a.Pool)
	}
	if a.Resource != 0 && a.Op != OpStart {
		text += fmt.Sprint(" ", a.Resource)
	}
	if a.Ticket != 0 && a.Op != OpTakeBack {
		text += fmt.Sprint(" for ", a.Ticket)
	}
	return text
}

const (
	both = "  cmd_new: n\n  cmd_delete: d\n"
	// max 4, 2 warm, 1 starting
	warm = "p:\n" + both + "  tags: [a]\n"
	two  = off + "q:\n" + both + "  tags: [a]\n  max_prealloc: 0\n"                  // and another one
	off  = "p:\n" + both + "  tags: [a]\n  max_prealloc: 0\n"                        // starts nothing
	onD  = "p:\n" + both + "  tags: [a]\n  tags_on_demand: [d]\n  max_starting: 2\n" // on demand
	onQ  = onD + "q:\n" + both + "  tags_on_demand: [{name: d, priority: 5}]\n"      // two of them
	onD2 = onQ + "  tags: [a]\n"                                                     // with the same tags
)

func up(change ...func(*Resource)) Resource {
	r := Resource{State: Up, Tags: []Tag{{Name: "a"}}, CameUp: at.Add(-time.Hour), Checked: at}
	for _, c := range change {
		c(&r)
	}
	return r
}

func used(ago time.Duration, times int, box string) func(*Resource) {
	return func(r *Resource) {
		r.Released, r.Sandboxed, r.Releases, r.Sandbox = at.Add(-ago), at.Add(-30*time.Minute), times, box
	}
}

func of(t TicketID) func(*Resource) { return func(r *Resource) { r.Ticket, r.Sandbox = t, "x" } }

func ownedBy(name string) func(*Resource) { return func(r *Resource) { r.Owner = name } }

func in(pool Name) func(*Resource) { return func(r *Resource) { r.Pool = pool } }

func tagged(tags ...Tag) func(*Resource) { return func(r *Resource) { r.Tags = tags } }

func wants(tags ...string) Ticket { return Ticket{Tags: tags} }

func checked(ago time.Duration) func(*Resource) {
	return func(r *Resource) { r.Checked = at.Add(-ago) }
}

func failed(times int) func(*Resource) { return func(r *Resource) { r.Failures = times } }

func madeBy(recipe string) func(*Resource) { return func(r *Resource) { r.Recipe = recipe } }

func unchecked(r *Resource) { r.Checked = time.Time{} }

// paced sets a pace for livechecks, for a server that has just started.
func paced(l *Ledger) { l.pace, l.began = 10*time.Second, at }

// backingOff makes a pool back off for a minute from now.
func backingOff(name Name) func(*Ledger) {
	return func(l *Ledger) { l.pools[name].Failed, l.pools[name].NotBefore = 3, at.Add(time.Minute) }
}

type decision struct {
	name      string
	file      string
	resources []Resource
	tickets   []Ticket
	change    func(*Ledger)
	want      []string
}

func TestDecide(t *testing.T) {
	for _, c := range slices.Concat(startCases, onDemandCases, assignCases, endCases) {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Ledger) {}
			}
			l := ledger(t, c.file, c.resources, c.tickets, c.change)
			actions, _ := Decide(l, at)
			var got []string
			for _, a := range actions {
				got = append(got, told(a))
				if a.Reason == "" {
					t.Errorf("%s has no reason", told(a))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
			again := ledger(t, c.file, c.resources, c.tickets, c.change)
			if twice, _ := Decide(again, at); !reflect.DeepEqual(actions, twice) {
				t.Errorf("the same state leads elsewhere: %v, then %v", actions, twice)
			}
		})
	}
}

var startCases = []decision{
	{name: "an empty pool starts one, since one may be starting", file: warm, want: []string{"start p"}},
	{name: "as many start at once as may", file: warm + "  max_starting: 5\n  max_prealloc: 3\n",
		want: []string{"start p", "start p", "start p"}},
	{name: "while one is starting, no other may", file: warm, resources: []Resource{{State: Starting}}},
	{name: "what is warm is enough", file: warm, resources: []Resource{up(), up()}},
	{name: "what is starting counts as warm", file: warm + "  max_starting: 2\n",
		resources: []Resource{up(), {State: Starting}}},
	{name: "what is taken is not warm", file: warm, resources: []Resource{up(of(1)), up()},
		tickets: []Ticket{{Resource: 1}}, want: []string{"start p"}},
	{name: "what was used and is ready is not warm", file: warm + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), up()}, want: []string{"start p"}},
	{name: "everything that has not ended counts for max", file: warm + "  max: 3\n",
		resources: []Resource{{State: Deleting}, {State: DeleteRequest, NotBefore: at.Add(time.Hour)},
			{State: Releasing}}},
	{name: "max_prealloc 0 starts nothing, whoever waits", file: off, tickets: []Ticket{wants("a")}},
	{name: "start_delay keeps starts apart", file: warm + "  start_delay: 30\n",
		change: func(l *Ledger) { l.pools["p"].LastStart = at.Add(-29 * time.Second) }},
	{name: "after start_delay the next one starts", file: warm + "  start_delay: 30\n", change: func(l *Ledger) {
		l.pools["p"].LastStart = at.Add(-30 * time.Second)
	}, want: []string{"start p"}},
	{name: "a pool that failed waits", file: warm, change: backingOff("p")},
	{name: "a paused pool starts nothing", file: warm, change: func(l *Ledger) { l.pools["p"].Mode = Paused }},
	{name: "pools start in the order of the file", file: "z:\n" + both + "a:\n" + both,
		want: []string{"start z", "start a"}},
	{name: "the search for orphans begins when its period is over", file: off + "  cmd_list: l\n",
		want: []string{"list p"}},
	{name: "and not before", file: off + "  cmd_list: l\n",
		change: func(l *Ledger) { l.pools["p"].Listed = at.Add(-29 * time.Minute) }},
	{name: "one search runs at a time", file: off + "  cmd_list: l\n",
		change: func(l *Ledger) { l.listing["p"] = true }},
	{name: "a livecheck is made when its period is over", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(func(r *Resource) {
			r.Checked = at.Add(-10 * time.Minute)
		}), up()}, want: []string{"livecheck 1"}},
	{name: "what is taken is checked too", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(of(1), func(r *Resource) {
			r.Checked = time.Time{}
		})}, tickets: []Ticket{{Resource: 1}}, want: []string{"livecheck 1"}},
	{name: "a livecheck that runs is not made again", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(func(r *Resource) {
			r.Checked = time.Time{}
		})}, change: func(l *Ledger) { l.busy[1] = true }},
	{name: "the resource that was checked first is checked first again", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(checked(11 * time.Minute)), up(checked(12 * time.Minute)),
			up(checked(11 * time.Minute))}, want: []string{"livecheck 2", "livecheck 1", "livecheck 3"}},
	{name: "without the command nothing is checked", file: off, resources: []Resource{up(unchecked)}},
	{name: "what is being cleaned is not checked", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{{State: Releasing}, {State: Starting}}},
	{name: "without a pace the first livecheck is made at once", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(unchecked)}, change: func(l *Ledger) { l.began = at }, want: []string{"livecheck 1"}},
	{name: "resources are handed out before they are checked", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(unchecked)}, tickets: []Ticket{wants("a")},
		want: []string{"assign 1 for 1", "livecheck 1"}},
	{name: "what must go goes before others start, and orphans are searched for last", file: warm + "  cmd_list: l\n",
		resources: []Resource{{State: DeleteRequest, Reason: "why"}},
		want:      []string{"delete 1", "start p", "list p"}},
	{name: "without start_delay the last start is no matter, whatever the clock did", file: warm,
		change: func(l *Ledger) { l.pools["p"].LastStart = at.Add(time.Minute) }, want: []string{"start p"}},
	{name: "nothing is started beyond max, even for a warm stock", file: warm + "  max: 1\n",
		resources: []Resource{up(of(1))}, tickets: []Ticket{{Resource: 1}}},
	{name: "a pool that is in the file no more is not searched for orphans", file: off + "  cmd_list: l\n",
		resources: []Resource{up(of(1))}, tickets: []Ticket{{Resource: 1}},
		change: func(l *Ledger) { l.configure(nil, at) }},
}

var onDemandCases = []decision{
	{name: "an on-demand pool starts nothing for nobody", file: onD},
	{name: "it starts one for each that waits", file: onD, tickets: []Ticket{wants("d"), wants("d", "a")},
		want: []string{"start p", "start p"}},
	{name: "and no more than may start", file: onD, tickets: []Ticket{wants("d"), wants("d"), wants("d")},
		want: []string{"start p", "start p"}},
	{name: "what is starting will serve one", file: onD, resources: []Resource{{State: Starting}},
		tickets: []Ticket{wants("d"), wants("d")}, want: []string{"start p"}},
	{name: "a ticket without a tag on demand starts nothing there", file: onD, tickets: []Ticket{wants("a")}},
	{name: "a ticket for a tag that the pool has not starts nothing", file: onD, tickets: []Ticket{wants("d", "x")}},
	{name: "what another sandbox has used serves nobody else", file: onD + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "other"))}, tickets: []Ticket{wants("d")},
		want: []string{"start p"}},
	{name: "what its sandbox has used serves it", file: onD + "  reuse_opportunity_time: 60\n",
		resources: []Resource{{State: Releasing, Sandbox: "s"}},
		tickets:   []Ticket{{Tags: []string{"d"}, Sandbox: "s"}}},
	{name: "the pool with the highest priority starts", file: onD2, tickets: []Ticket{wants("d")},
		want: []string{"start q"}},
	{name: "where that is full, the next one does", file: onD2, resources: []Resource{{Pool: "q", State: Starting}},
		tickets: []Ticket{wants("d"), wants("d")}, want: []string{"start p"}},
	{name: "where that failed lately, the next one does", file: onD2, tickets: []Ticket{wants("d")},
		change: backingOff("q"), want: []string{"start p"}},
	{name: "where that is paused, the next one does", file: onD2, tickets: []Ticket{wants("d")},
		change: func(l *Ledger) { l.pools["q"].Mode = Paused }, want: []string{"start p"}},
	{name: "what nobody waits for any more is deleted, the lowest number first", file: onD,
		resources: []Resource{up(), up()}, tickets: []Ticket{{Tags: []string{"a"}, Sandbox: "s"}},
		want: []string{"condemn 1", "delete 1", "assign 2 for 1"}},
	{name: "what waits for nothing that the pool has is no reason to keep any", file: onD, resources: []Resource{up()},
		tickets: []Ticket{wants("x")}, want: []string{"condemn 1", "delete 1"}},
	{name: "what somebody has is no surplus", file: onD, resources: []Resource{up(of(1)), up()},
		tickets: []Ticket{{Resource: 1}}, want: []string{"condemn 2", "delete 2"}},
	{name: "what failed its livechecks is replaced and takes nothing from who waits",
		file: onD + "  cmd_livecheck: c\n", resources: []Resource{up(failed(3)), up(tagged(Tag{Name: "d"})),
			up(failed(3))}, tickets: []Ticket{wants("d")},
		want: []string{"condemn 1", "condemn 3", "delete 1", "delete 3", "assign 2 for 1"}},
	{name: "what has just failed a livecheck serves nobody", file: onD + "  cmd_livecheck: c\n",
		resources: []Resource{up(failed(1))}, tickets: []Ticket{wants("d")}, want: []string{"start p"}},
	{name: "nor does what is to be deleted", file: onD,
		resources: []Resource{{State: DeleteRequest, NotBefore: at.Add(time.Hour)}}, tickets: []Ticket{wants("d")},
		want: []string{"start p"}},
	{name: "nor what its sandbox has used for long enough", file: onD + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Minute, 1, "s"))}, tickets: []Ticket{{Tags: []string{"d"}, Sandbox: "s"}},
		want: []string{"condemn 1", "delete 1", "start p"}},
	{name: "nor what somebody has", file: onD, resources: []Resource{up(of(1))},
		tickets: []Ticket{{Resource: 1}, {Tags: []string{"d"}, Sandbox: "x"}}, want: []string{"start p"}},
	{name: "who has used something leaves what starts to others", file: onD + "  reuse_opportunity_time: 60\n",
		resources: []Resource{{State: Starting}, {State: Releasing, Sandbox: "s"}},
		tickets:   []Ticket{{Tags: []string{"d"}, Sandbox: "s"}, wants("d")}},
	{name: "each has one of what starts", file: onD, resources: []Resource{{State: Starting}},
		tickets: []Ticket{wants("d"), wants("d")}, want: []string{"start p"}},
	{name: "and one of what is cleaned", file: onD, resources: []Resource{{State: Releasing, Sandbox: "s"}},
		tickets: []Ticket{{Tags: []string{"d"}, Sandbox: "s"}, {Tags: []string{"d"}, Sandbox: "s"}},
		want:    []string{"start p"}},
	{name: "what starts in a pool without the tags serves nobody", file: onQ + "  max: 1\n  tags: [b]\n",
		resources: []Resource{{Pool: "q", State: Starting}}, tickets: []Ticket{wants("a", "d")},
		want: []string{"start p"}},
	{name: "the pool with the highest priority has no more than may start", file: onD2,
		tickets: []Ticket{wants("d"), wants("d")}, want: []string{"start p", "start q"}},
	{name: "nor more than its max", file: onD2 + "  max_starting: 2\n  max: 1\n",
		tickets: []Ticket{wants("d"), wants("d")}, want: []string{"start p", "start q"}},
	{name: "where that lacks a tag, the next one starts", file: onQ + "  tags: [b]\n",
		tickets: []Ticket{wants("a", "d")}, want: []string{"start p"}},
	{name: "of equal pools the first name starts",
		file:    "z:\n" + both + "  tags_on_demand: [d]\nb:\n" + both + "  tags_on_demand: [d]\n",
		tickets: []Ticket{wants("d")}, want: []string{"start b"}},
	{name: "a pool that is in the file no more has no tags on demand", file: onD,
		resources: []Resource{up(in("r"), tagged(Tag{Name: "a"}, Tag{Name: "d"}))},
		tickets:   []Ticket{wants("a"), wants("d")}, change: func(l *Ledger) {
			l.configure([]Settings{{Name: "r", Max: 1}}, at)
		}, want: []string{"forget p", "assign 1 for 1"}},
}

var assignCases = []decision{
	{name: "what is handed out is made anew in a later round, so that the next ticket finds what is warm elsewhere",
		file: warm, resources: []Resource{up(), up()}, tickets: []Ticket{wants("a")}, want: []string{"assign 1 for 1"}},
	{name: "who came first is served first", file: off, resources: []Resource{up()},
		tickets: []Ticket{wants("a"), wants("a")}, want: []string{"assign 1 for 1"}},
	{name: "a ticket gets all of its tags", file: off, resources: []Resource{up(),
		up(tagged(Tag{Name: "a"}, Tag{Name: "b"}))}, tickets: []Ticket{wants("a", "b")},
		want: []string{"assign 2 for 1"}},
	{name: "a ticket without tags gets anything", file: off, resources: []Resource{up()}, tickets: []Ticket{wants()},
		want: []string{"assign 1 for 1"}},
	{name: "what another ticket passes by may serve a later one", file: off, resources: []Resource{up()},
		tickets: []Ticket{wants("b"), wants("a")}, want: []string{"assign 1 for 2"}},
	{name: "the highest sum of priorities wins", file: off, resources: []Resource{up(),
		up(tagged(Tag{"a", 3}, Tag{"b", -1})), up(tagged(Tag{"a", 1}, Tag{"b", 2}))},
		tickets: []Ticket{wants("a", "b")}, want: []string{"assign 3 for 1"}},
	{name: "only the ticket's tags count", file: off, resources: []Resource{up(tagged(Tag{"a", 1})),
		up(tagged(Tag{"a", 0}, Tag{"b", 9}))}, tickets: []Ticket{wants("a")}, want: []string{"assign 1 for 1"}},
	{name: "of equals the lowest number wins", file: off, resources: []Resource{up(), up()},
		tickets: []Ticket{wants("a")}, want: []string{"assign 1 for 1"}},
	{name: "what the sandbox has used comes first, whatever the priorities",
		file: off + "  reuse_opportunity_time: 60\n", resources: []Resource{up(tagged(Tag{"a", 400})),
			up(used(time.Second, 1, "s"))}, tickets: []Ticket{{Tags: []string{"a"}, Sandbox: "s"}},
		want: []string{"assign 2 for 1"}},
	{name: "what another sandbox has used is never given", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "other"))},
		tickets:   []Ticket{{Tags: []string{"a"}, Sandbox: "s"}}},
	{name: "what failed its livecheck is not given", file: off,
		resources: []Resource{up(func(r *Resource) { r.Failures = 1 })}, tickets: []Ticket{wants("a")}},
	{name: "nor what somebody else has used in a sandbox of that name", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "s"), ownedBy("mallory")),
			up(used(time.Second, 1, "s"), ownedBy("alice"))},
		tickets: []Ticket{{Tags: []string{"a"}, Sandbox: "s"}, {Tags: []string{"a"}, Sandbox: "s", Owner: "alice"}},
		want:    []string{"assign 2 for 2"}},
	{name: "a ticket with a tag on demand comes before those that came first", file: onD,
		resources: []Resource{up(tagged(Tag{Name: "a"}, Tag{Name: "d"}))}, tickets: []Ticket{wants("a"), wants("d")},
		want: []string{"assign 1 for 2"}},
	{name: "what lacks a tag that the pool has now is not warm", file: "p:\n" + both + "  tags: [a, b]\n",
		resources: []Resource{up(), up()}, want: []string{"start p"}},
	{name: "what failed its newest livecheck is not warm", file: warm + "  cmd_livecheck: c\n",
		resources: []Resource{up(failed(1)), up()}, want: []string{"start p"}},
	{name: "in a full pool what another sandbox may have makes room, the longest idle first",
		file:      warm + "  max: 2\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), up(used(2*time.Second, 1, "x"))},
		tickets:   []Ticket{wants("a")}, want: []string{"condemn 2", "delete 2"}},
	{name: "one for each ticket that waits", file: warm + "  max: 2\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), up(used(2*time.Second, 1, "x"))},
		tickets:   []Ticket{wants("a"), wants("a"), wants("a")},
		want:      []string{"condemn 2", "condemn 1", "delete 1", "delete 2"}},
	{name: "its own sandbox is served first", file: warm + "  max: 2\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), up(used(2*time.Second, 1, "x"))},
		tickets:   []Ticket{wants("a"), {Tags: []string{"a"}, Sandbox: "x"}},
		want:      []string{"assign 1 for 2", "condemn 2", "delete 2"}},
	{name: "what starts or is deleted makes room already", file: warm + "  max: 3\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), {State: Starting},
			{State: DeleteRequest, NotBefore: at.Add(time.Hour)}}, tickets: []Ticket{wants("a"), wants("a")}},
	{name: "but not what cannot be deleted", file: warm + "  max: 2\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")),
			{State: DeleteRequest, Deletes: 1, NotBefore: at.Add(time.Hour)}}, tickets: []Ticket{wants("a")},
		want: []string{"condemn 1", "delete 1"}},
	{name: "nobody has to make room in a pool that has some", file: warm + "  max: 3\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), up(used(time.Second, 1, "x"))},
		tickets:   []Ticket{wants("a")}, want: []string{"start p"}},
	{name: "nor for a ticket that the pool starts nothing for", file: off + "  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("a")}},
	{name: "nor for other tags", file: warm + "  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("b")}},
	{name: "nor in a paused pool", file: warm + "  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("a")},
		change: func(l *Ledger) { l.pools["p"].Mode = Paused }},
	{name: "nor in a pool that is not full, however many wait",
		file:      warm + "  max: 3\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("a"), wants("a"), wants("a")},
		want: []string{"start p"}},
	{name: "nor where another one is being deleted", file: warm + "  max: 2\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x")), {State: Deleting}}, tickets: []Ticket{wants("a")}},
	{name: "the room of a pool that starts nothing for it helps no ticket",
		file:      off + "q:\n" + both + "  tags: [a]\n  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(in("q"), used(time.Second, 1, "x"))}, tickets: []Ticket{wants("a")},
		want: []string{"condemn 1", "delete 1"}},
	{name: "nor in a pool that fails to start anything", file: warm + "  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("a")},
		change: backingOff("p")},
	{name: "what has former tags makes room",
		file: "p:\n" + both + "  max: 1\n  tags: [b]\n", resources: []Resource{up()},
		tickets: []Ticket{wants("b")}, want: []string{"condemn 1", "delete 1"}},
	{name: "also on demand", file: onD + "  max: 1\n  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "x"))}, tickets: []Ticket{wants("d")},
		want: []string{"condemn 1", "delete 1"}},
	{name: "what is failing its livecheck waits for the next one", file: warm + "  max: 1\n  cmd_livecheck: c\n",
		resources: []Resource{up(failed(1))}, tickets: []Ticket{wants("a")}},
	{name: "without renew more than max_prealloc stay warm", file: warm, resources: []Resource{up(), up(), up()}},
	{name: "with renew they go", file: warm + "  renew: true\n", resources: []Resource{up(), up(), up()},
		want: []string{"condemn 1", "delete 1"}},
	{name: "and so does what is idle beyond max, what was used first", file: warm + "  renew: true\n  max: 2\n" +
		"  reuse_opportunity_time: 60\n", resources: []Resource{up(), up(used(time.Second, 1, "x")), up()},
		want: []string{"condemn 2", "delete 2"}},
	{name: "without renew other commands make nothing anew", file: warm,
		resources: []Resource{up(madeBy("other")), up()}},
	{name: "with renew the stock is completed first", file: warm + "  renew: true\n",
		resources: []Resource{up(madeBy("other")), up()}, want: []string{"start p"}},
	{name: "then what was made in another way goes", file: warm + "  renew: true\n",
		resources: []Resource{up(madeBy("other")), up(), up()}, want: []string{"condemn 1", "delete 1"}},
	{name: "in a full pool one at a time", file: warm + "  renew: true\n  max: 2\n",
		resources: []Resource{up(madeBy("other")), up(madeBy("other"))}, want: []string{"condemn 1", "delete 1"}},
	{name: "but not what was made in this way", file: warm + "  renew: true\n", resources: []Resource{up(), up()},
		change: func(l *Ledger) {
			for _, r := range l.resources {
				r.Recipe = l.pools["p"].Settings.recipe()
			}
		}},
	{name: "but not what somebody has", file: warm + "  renew: true\n  max: 1\n",
		resources: []Resource{up(of(1), madeBy("other"))}, tickets: []Ticket{{Resource: 1}}},
	{name: "a paused pool hands nothing out", file: off, resources: []Resource{up()}, tickets: []Ticket{wants("a")},
		change: func(l *Ledger) { l.pools["p"].Mode = Paused }},
	{name: "of equals in several pools the lowest number wins", file: two, resources: []Resource{up(in("q")), up()},
		tickets: []Ticket{wants("a")}, want: []string{"assign 1 for 1"}},
	{name: "and of several the lowest are handed out in turn", file: two,
		resources: []Resource{up(in("q")), up(), up(in("q")), up()}, tickets: []Ticket{wants("a"), wants("a"), wants()},
		want: []string{"assign 1 for 1", "assign 2 for 2", "assign 3 for 3"}},
	{name: "also where other tags differ, the lowest in the later pool", file: two,
		resources: []Resource{up(in("q"), tagged(Tag{Name: "b"}, Tag{Name: "a"})), up()}, tickets: []Ticket{wants("a")},
		want: []string{"assign 1 for 1"}},
	{name: "or in the earlier one", file: two,
		resources: []Resource{up(), up(in("q"), tagged(Tag{Name: "b"}, Tag{Name: "a"}))}, tickets: []Ticket{wants("a")},
		want: []string{"assign 1 for 1"}},
	{name: "a higher priority comes before a lower number", file: two,
		resources: []Resource{up(in("q")), up(tagged(Tag{"a", 1}))}, tickets: []Ticket{wants("a")},
		want: []string{"assign 2 for 1"}},
	{name: "two of one sandbox share what it has used", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "s"))},
		tickets:   []Ticket{{Tags: []string{"a"}, Sandbox: "s"}, {Tags: []string{"a"}, Sandbox: "s"}},
		want:      []string{"assign 1 for 1"}},
}

var endCases = []decision{
	{name: "what comes back is deleted where nothing is used twice", file: off, resources: []Resource{up(of(1))},
		tickets: []Ticket{{Resource: 1, State: TicketClosed}}, want: []string{"take back 1", "condemn 1", "delete 1"}},
	{name: "it is cleaned first where there is a command for that",
		file: off + "  cmd_release: r\n  reuse_opportunity_time: 60\n", resources: []Resource{up(of(1))},
		tickets: []Ticket{{Resource: 1, State: TicketClosed}}, want: []string{"take back 1", "release 1"}},
	{name: "it waits for its sandbox", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(59*time.Second, 1, "s"))}},
	{name: "and no longer than it may", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(60*time.Second, 1, "s"))}, want: []string{"condemn 1", "delete 1"}},
	{name: "what nobody else can have does not wait", file: off + "  reuse_opportunity_time: 60\n",
		resources: []Resource{up(used(time.Second, 1, "s"), func(r *Resource) {
			r.Private = true
		})}, want: []string{"condemn 1", "delete 1"}},
	{name: "reuse_max_count 2 allows three tickets", file: off + "  reuse_opportunity_time: 60\n  reuse_max_count: 2\n",
		resources: []Resource{up(used(time.Second, 2, "s")), up(used(time.Second, 3, "s"))},
		want:      []string{"condemn 2", "delete 2"}},
	{name: "reuse_max_time counts from the first ticket", file: off +
		"  reuse_opportunity_time: 60\n  reuse_max_time: 1800\n", resources: []Resource{up(used(time.Second, 1, "s"))},
		want: []string{"condemn 1", "delete 1"}},
	{name: "as many livechecks as may fail condemn, and fail the ticket", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(of(1), func(r *Resource) {
			r.Failures = 3
		})}, tickets: []Ticket{{Resource: 1}}, want: []string{"condemn 1", "fail 1 for 1", "delete 1"}},
	{name: "fewer do not", file: off + "  cmd_livecheck: c\n",
		resources: []Resource{up(of(1), func(r *Resource) { r.Failures = 2 })}, tickets: []Ticket{{Resource: 1}}},
	{name: "a delete that failed waits for its next attempt", file: off,
		resources: []Resource{{State: DeleteRequest, NotBefore: at.Add(time.Second)}}},
	{name: "what is being started and has to go is stopped first", file: off,
		resources: []Resource{{State: DeleteRequest, Reason: "why"}}, change: func(l *Ledger) {
			l.jobs[1] = false
		}, want: []string{"abort 1"}},
	{name: "and once it was told to, it is waited for", file: off, resources: []Resource{{State: DeleteRequest}},
		change: func(l *Ledger) { l.jobs[1] = true }},
	{name: "a drained pool deletes what nobody has", file: off, resources: []Resource{up(), up(of(1))},
		tickets: []Ticket{{Resource: 2}}, change: func(l *Ledger) {
			l.pools["p"].Mode = Drained
		}, want: []string{"condemn 1", "delete 1"}},
	{name: "a paused pool keeps it", file: off, resources: []Resource{up()},
		change: func(l *Ledger) { l.pools["p"].Mode = Paused }},
	{name: "a pool that is in the file no more drains", file: "q:\n" + both + "  max: 0\n",
		resources: []Resource{up(in("q"))}, change: func(l *Ledger) {
			l.configure(nil, at)
		}, want: []string{"condemn 1", "delete 1"}},
	{name: "and is forgotten when nothing is left", file: "q:\n" + both,
		change: func(l *Ledger) { l.configure(nil, at) }, want: []string{"forget q"}},
	{name: "a ticket that nobody uses is closed, and gives back what it has", file: off,
		resources: []Resource{up(of(1))}, tickets: []Ticket{{Resource: 1, TTL: time.Minute,
			Renewed: at.Add(-time.Minute)}}, want: []string{"expire for 1", "take back 1", "condemn 1", "delete 1"}},
	{name: "one that was used is not", file: off, resources: []Resource{up(of(1))},
		tickets: []Ticket{{Resource: 1, TTL: time.Minute, Renewed: at.Add(-59 * time.Second)}}},
	{name: "what is to be deleted already is not taken back", file: off,
		resources: []Resource{{State: DeleteRequest, Ticket: 1, NotBefore: at.Add(time.Hour)}},
		tickets:   []Ticket{{Resource: 1, State: TicketClosed}}},
	{name: "what an unknown ticket has is taken back", file: off, resources: []Resource{up(of(9))},
		want: []string{"take back 1", "condemn 1", "delete 1"}},
	{name: "without livechecks there are none that failed", file: off, resources: []Resource{up(failed(3))}},
	{name: "a ticket that ended with a lease does not end again", file: off,
		tickets: []Ticket{{State: TicketClosed, TTL: time.Minute}, {State: TicketFailed, TTL: time.Minute}}},
	{name: "a pool is not forgotten while orphans are searched for", file: "q:\n" + both, change: func(l *Ledger) {
		l.configure(nil, at)
		l.listing["q"] = true
	}},
	{name: "nor while they are deleted", file: "q:\n" + both, change: func(l *Ledger) {
		l.listed("q", []byte("orphan"), nil, at)
		l.configure(nil, at)
	}},
	{name: "nor while it has a resource", file: "q:\n" + both, resources: []Resource{{Pool: "q", State: Deleting}},
		change: func(l *Ledger) { l.configure(nil, at) }},
}

// Every rule that waits for a time requests a round at that time, so that no caller needs to poll.
func TestDecideSaysWhenToLookAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		file      string
		resources []Resource
		tickets   []Ticket
		change    func(*Ledger)
		want      time.Duration
	}{
		{"when a pool that failed may try again", warm, nil, nil, backingOff("p"), time.Minute},
		{"when start_delay is over", warm + "  start_delay: 30\n", nil, nil,
			func(l *Ledger) { l.pools["p"].LastStart = at.Add(-time.Second) }, 29 * time.Second},
		{"when the next livecheck is due", off + "  cmd_livecheck: c\n", []Resource{up()}, nil, nil, 10 * time.Minute},
		{"when a livecheck is due that is always due", off + "  cmd_livecheck: c\n  livecheck_period: 0\n",
			[]Resource{up()}, nil, nil, time.Second},
		{"when the pace of livechecks allows one", off + "  cmd_livecheck: c\n  livecheck_period: 1\n",
			[]Resource{up()}, nil, paced, 10 * time.Second},
		{"when the server has been for a period", off + "  cmd_livecheck: c\n  livecheck_period: 30\n",
			[]Resource{up(unchecked)}, nil, paced, 30 * time.Second},
		{"when a resource that was checked before the server began is due", off +
			"  cmd_livecheck: c\n  livecheck_period: 30\n", []Resource{up(checked(10 * time.Second))}, nil, paced,
			20 * time.Second},
		{"when the first of several things is due, which is not the first that was looked at", off,
			[]Resource{{State: DeleteRequest, NotBefore: at.Add(5 * time.Second)}},
			[]Ticket{{TTL: time.Minute, Renewed: at}}, nil, 5 * time.Second},
		{"when a lease ends", off, nil, []Ticket{{TTL: time.Minute, Renewed: at.Add(-time.Second)}}, nil,
			59 * time.Second},
		{"when a delete is tried again", off, []Resource{{State: DeleteRequest, NotBefore: at.Add(5 * time.Second)}},
			nil, nil, 5 * time.Second},
		{"when a sandbox has had its time", off + "  reuse_opportunity_time: 60\n  reuse_max_time: 0\n",
			[]Resource{up(used(20*time.Second, 1, "s"))}, nil, nil, 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Ledger) {}
			}
			if _, next := Decide(ledger(t, c.file, c.resources, c.tickets, c.change), at); next.Sub(at) != c.want {
				t.Errorf("got %s, want %s", next.Sub(at), c.want)
			}
		})
	}
}

func TestNumbersAreTheSmallestFreeOnes(t *testing.T) {
	file := "p:\n" + both + "  max_starting: 3\n  max_prealloc: 5\n  max: 9\n  named_counters: [c]\nq:\n" + both +
		"  named_counters: [c]\n  max_prealloc: 1\n"
	l := ledger(t, file, []Resource{up(func(r *Resource) { r.InPool = 1; r.Counters = map[string]int{"c": 2} })}, nil)
	Decide(l, at)
	var got []string
	for id := ResourceID(2); id <= 5; id++ {
		r := l.resources[id]
		got = append(got, fmt.Sprintf("%s %d c%d", r.Pool, r.InPool, r.Counters["c"]))
	}
	if want := []string{"p 0 c0", "p 2 c1", "p 3 c3", "q 0 c4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if name := l.resources[2].Name; !strings.HasPrefix(name, "p_00000002_2026") {
		t.Errorf("got the name %s", name)
	}
}

func TestFailuresBackOff(t *testing.T) {
	l := ledger(t, warm, []Resource{{State: Starting}}, nil)
	var waits []time.Duration
	for range 11 {
		l.resources[1].State = Starting
		l.started(1, startEnd{err: errors.New("no")}, at)
		waits = append(waits, l.pools["p"].NotBefore.Sub(at)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}; !slices.Equal(waits, want) {
		t.Errorf("got %v, want %v", waits, want)
	}
	l.resources[1].State = Starting
	if l.started(1, startEnd{data: []byte{}}, at); l.pools["p"].Failed != 0 || !l.pools["p"].NotBefore.IsZero() {
		t.Error("a success does not end it")
	}
}

// Otherwise a pool whose resources never work replaces them as fast as it can.
func TestAFailedFirstLivecheckCountsAsAFailedStart(t *testing.T) {
	l := ledger(t, warm+"  cmd_livecheck: c\n  livecheck_attempts: 1\n", nil, nil)
	p := l.pools["p"]
	var waits []time.Duration
	for range 4 {
		r := l.start(p, at)
		l.started(r.ID, startEnd{}, at)
		l.checked(r.ID, errors.New("no answer"), at)
		waits = append(waits, p.NotBefore.Sub(at)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8}; !slices.Equal(waits, want) || p.Stats.SuccessRate > 0.5 ||
		!strings.Contains(p.LastError, "failed its first livecheck: no answer") || p.LastFailure == nil {
		t.Errorf("got %v, want %v; %+v", waits, want, p.Record)
	}
	r := l.start(p, at)
	l.started(r.ID, startEnd{}, at)
	if p.NotBefore.IsZero() {
		t.Error("a start that is not proved ends the pause")
	}
	if l.checked(r.ID, nil, at); !p.NotBefore.IsZero() || p.Failed != 0 || p.LastError != "" {
		t.Errorf("the first one that works does not end it: %+v", p.Record)
	}
	if l.checked(r.ID, errors.New("later"), at); p.Failed != 0 || !p.NotBefore.IsZero() {
		t.Errorf("a later livecheck counts as a failed start: %+v", p.Record)
	}
}

func TestAFirstLivecheckThatPassesMendsNoFailedStarts(t *testing.T) {
	l := ledger(t, warm+"  cmd_livecheck: c\n", []Resource{up(unchecked)}, nil, backingOff("p"))
	if l.checked(1, nil, at); l.pools["p"].Failed != 3 || l.pools["p"].NotBefore.IsZero() {
		t.Errorf("got %+v", l.pools["p"].Record)
	}
}

func TestAnInstanceThatIsLostAtOnceCountsAsAFailedStart(t *testing.T) {
	for life, want := range map[time.Duration]int{59 * time.Second: 1, time.Minute: 0} {
		l := ledger(t, instances, []Resource{up(unchecked, func(r *Resource) {
			r.Instance, r.CameUp = "i", at.Add(-life)
		})}, nil)
		l.lose(at, func(Resource, Instance) error { return errors.New("it went off") }, at)
		if got := l.pools["p"].Failed; got != want {
			t.Errorf("after %s: %d failed, want %d", life, got, want)
		}
	}
}

func TestAFileThatLacksAPoolInUseIsSeen(t *testing.T) {
	for _, c := range []struct {
		name      string
		resources []Resource
		change    func(*Ledger)
		want      int
	}{
		{"it has resources", []Resource{up()}, func(*Ledger) {}, 1},
		{"it has none", nil, func(*Ledger) {}, 0},
		{"it is drained", []Resource{up()}, func(l *Ledger) { l.pools["p"].Mode = Drained }, 0},
		{"it is removed already", []Resource{up(of(1))}, func(l *Ledger) { l.pools["p"].Removed = true }, 0},
	} {
		l := ledger(t, off, c.resources, nil, c.change)
		other := []Settings{{Name: "other"}}
		if got := l.missing(other); len(got) != c.want || l.anyInUse([]Name{"unknown", "p"}) != (c.want > 0) {
			t.Errorf("%s: missing %+v, in use %v", c.name, got, l.anyInUse([]Name{"p"}))
		}
		if err := l.checkRemoval("pools.yaml", nil); (err != nil) != (c.want > 0) {
			t.Errorf("%s: an empty file: %v", c.name, err)
		}
		if err := l.checkRemoval("pools.yaml", other); err != nil {
			t.Errorf("%s: another file: %v", c.name, err)
		}
	}
}

func TestAFullCloudIsNoFailure(t *testing.T) {
	for _, kind := range []croft.Kind{croft.NoCapacity, croft.OverQuota} {
		l := ledger(t, instances, []Resource{{State: Starting, Instance: "i"}, {State: Starting, Instance: "j"}}, nil)
		l.started(1, startEnd{err: croft.Errorf(kind, "no host fits")}, at)
		p := l.pools["p"]
		if !p.Full || p.Stats.Failures > 0 || p.Stats.Starts > 0 || p.NotBefore.IsZero() ||
			p.LastError != "no host fits" {
			t.Errorf("%s: got %+v", kind, p.Record)
		}
		if l.started(2, startEnd{}, at); p.Full || p.LastError != "" || p.Stats.SuccessRate != 1 {
			t.Errorf("%s, after a success: got %+v", kind, p.Record)
		}
	}
}

func TestStatisticsAreMovingAverages(t *testing.T) {
	var s Stats
	for _, start := range []struct {
		ok   bool
		took time.Duration
		rate float64
		avg  time.Duration
	}{{false, 9 * time.Second, 0, 0}, {true, 10 * time.Second, 0.2, 10 * time.Second},
		{true, 20 * time.Second, 0.36, 12 * time.Second}, {false, time.Hour, 0.288, 12 * time.Second}} {
		s.started(start.ok, start.took, at)
		if d := s.SuccessRate - start.rate; d > 1e-9 || d < -1e-9 || s.StartTime != start.avg {
			t.Errorf("got %v and %s, want %v and %s", s.SuccessRate, s.StartTime, start.rate, start.avg)
		}
	}
	if s.Starts != 4 || s.Failures != 2 || s.Succeeded != at {
		t.Errorf("got %+v", s)
	}
}

func TestDeletesAreNeverForgotten(t *testing.T) {
	l := ledger(t, off, []Resource{{State: Deleting}, {State: Deleting, Aborted: true}}, nil)
	for range 30 {
		for id := range ResourceID(2) {
			if r := l.resources[id+1]; r.State == DeleteRequest {
				r.State = Deleting
			}
			l.deleted(id+1, errors.New("no"), at)
		}
	}
	if r := l.resources[1]; r.State != DeleteRequest || r.Deletes != 30 || r.NotBefore.Sub(at) != 10*time.Minute {
		t.Errorf("got %+v", r)
	}
	if r := l.resources[2]; r.State != DeleteRequest || r.NotBefore.Sub(at) != time.Hour || !r.GivenUp() {
		t.Errorf("what failed to start by itself: got %+v", r)
	}
}

func failDeletion(l *Ledger, id ResourceID) {
	if r := l.resources[id]; r.State == DeleteRequest {
		r.State = Deleting
	}
	l.deleted(id, errors.New("no"), at)
}

// The machine of a failed start exists if the cloud created it and then did not answer, however long that lasts.
func TestAFailedStartIsDeletedHoweverLongTheCloudDoesNotAnswer(t *testing.T) {
	l := ledger(t, off,
		[]Resource{{State: Deleting, Aborted: true}, {State: Deleting}}, nil)
	p := l.pools["p"]
	for range 100 {
		failDeletion(l, 1)
	}
	r := l.resources[1]
	if c := p.count(); r.State != DeleteRequest || c.GivenUp != 1 || c.Live() != 1 {
		t.Fatalf("it counts for the maximum, or is forgotten: %+v, %+v", c, r)
	}
	l.deleted(2, nil, at)
	if !r.NotBefore.Equal(at) {
		t.Errorf("the cloud answers, and it is deleted at %s only", r.NotBefore)
	}
	r.State = Deleting
	l.deleted(1, nil, at)
	if r.State != Ended || r.Error != "" {
		t.Errorf("got %+v", r)
	}
}

func TestWhatFailedToStartIsForgottenOnceTheCloudAnswersAndDeletesNothing(t *testing.T) {
	l := ledger(t, off, []Resource{{State: Deleting, Aborted: true}}, nil)
	for range abandonAfter {
		failDeletion(l, 1)
	}
	for i := range refusedAfter {
		if r := l.resources[1]; r.State != DeleteRequest {
			t.Fatalf("after %d successes of other commands: %+v", i, r)
		}
		l.listed("p", []byte{}, nil, at)
		failDeletion(l, 1)
	}
	if r := l.resources[1]; r.State != Ended || r.Error == "" {
		t.Errorf("got %+v", r)
	}
}

func TestAPoolKeepsABoundedNumberOfWhatItGaveUp(t *testing.T) {
	all := slices.Repeat([]Resource{{State: DeleteRequest, Aborted: true, Deletes: abandonAfter}}, maxGivenUp+5)
	l := ledger(t, off, all, nil)
	failDeletion(l, 9)
	if c := l.pools["p"].count(); c.GivenUp != maxGivenUp || l.resources[5].State != Ended ||
		l.resources[6].State == Ended {
		t.Errorf("got %+v", c)
	}
}

func TestAResourceThatIsBeingDeletedAgainIsNotForgotten(t *testing.T) {
	all := slices.Repeat([]Resource{{State: DeleteRequest, Aborted: true, Deletes: abandonAfter}}, maxGivenUp+5)
	for i := range 3 {
		all[i].State = Deleting
	}
	l := ledger(t, off, all, nil)
	failDeletion(l, 9)
	for id := ResourceID(1); id <= 3; id++ {
		if r := l.resources[id]; r.State != Deleting {
			t.Errorf("resource %d, whose deletion runs, is %s", id, r.State)
		}
	}
}

func TestOnlyOrphansAreDeleted(t *testing.T) {
	l := ledger(t, off, []Resource{up(), {State: Ended}}, nil)
	got := l.listed("p", []byte("name1 name2\nstranger was-there\n"), map[string]bool{"was-there": true}, at)
	if want := []string{"name2", "stranger"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := l.listed("p", []byte("stranger"), nil, at); len(got) > 0 {
		t.Errorf("what is being deleted is found again: %q", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	l := ledger(t, off, nil, nil)
	for range 100000 {
		ticket := l.open(Ticket{Tags: []string{"a"}})
		l.end(ticket, TicketClosed, "", at)
		l.forget(1000)
	}
	if n := len(l.tickets); n < 1000 || n > 1000+slack || l.head.Ticket != 100000 {
		t.Errorf("got %d tickets of %d", n, l.head.Ticket)
	}
	if b := l.changes(); len(b.GoneTickets)+len(l.tickets) != 100000 || len(b.Tickets) > 1000+slack {
		t.Errorf("got %d gone and %d written", len(b.GoneTickets), len(b.Tickets))
	}
}

func TestATakeOverEndsWhatNobodyKnows(t *testing.T) {
	id := croft.NewInstanceID()
	l := ledger(t, off, []Resource{{State: Starting}, {State: Starting, Instance: id}, {State: Releasing},
		{State: Deleting}, up(), {State: DeleteRequest}}, nil)
	l.takeOver(map[ResourceID][]byte{1: []byte("made it\n"), 6: []byte("made this\n")}, at)
	var got []State
	for i := range ResourceID(6) {
		got = append(got, l.resources[i+1].State)
	}
	if want := []State{DeleteRequest, Starting, DeleteRequest, DeleteRequest, Up, DeleteRequest}; !slices.Equal(got,
		want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if one, condemned := l.resources[1].Data, l.resources[6].Data; string(one) != "made it\n" ||
		string(condemned) != "made this\n" {
		t.Errorf("what starts had printed is lost: %q, %q", one, condemned)
	}
}

// With 10,000 waiting tickets and 1,000 ready resources.
func BenchmarkAssign(b *testing.B) {
	for range b.N {
		b.StopTimer()
		l := newLedger("p", Snapshot{})
		set := defaults("p")
		set.MaxPrealloc = 0
		l.configure([]Settings{set}, at)
		for i := range 1000 {
			l.addResource(&Resource{ID: ResourceID(i + 1), Pool: "p", State: Up,
				Tags: []Tag{{"a", 1}, {fmt.Sprint("b", i%20), 0}}})
		}
		for i := range 10000 {
			l.open(Ticket{Tags: []string{"a", fmt.Sprint("b", i%40)}, Sandbox: fmt.Sprint("s", i)})
		}
		b.StartTimer()
		if actions, _ := Decide(l, at); len(actions) != 1000 {
			b.Fatalf("%d actions", len(actions))
		}
	}
}

// One ticket arrives and is served while 10,000 tickets wait that no resource fits, and 1,000 resources are ready that
// no ticket requests.
func BenchmarkDecideBesideMany(b *testing.B) {
	l := newLedger("p", Snapshot{})
	stock, few := defaults("stock"), defaults("few")
	stock.Max, few.Max = 1000, 0
	few.Tags = []Tag{{"few", 0}}
	l.configure([]Settings{stock, few}, at)
	for i := range 1000 {
		l.addResource(&Resource{ID: ResourceID(i + 1), Pool: "stock", State: Up, Tags: []Tag{{"stock", 0}}})
	}
	l.addResource(&Resource{ID: 1001, Pool: "few", State: Up, Tags: few.Tags})
	for i := range 10000 {
		l.open(Ticket{Tags: []string{"rare"}, Sandbox: fmt.Sprint("s", i)})
	}
	for range b.N {
		t := l.open(Ticket{Tags: []string{"few"}, Sandbox: "s"})
		if actions, _ := Decide(l, at); len(actions) != 1 {
			b.Fatalf("%d actions", len(actions))
		}
		l.resources[1001].Ticket = 0
		l.end(t, TicketClosed, "", at)
	}
}
