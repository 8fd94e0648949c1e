package scheduletest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/schedule"
)

// Store is a store of schedule, with the operations of agents on it.
type Store struct {
	Partition croft.PartitionID // of the orders that it accepts
	schedule.Records
	schedule.Holds
	schedule.View
	schedule.Registry
	schedule.Groups
	Agents
	Orders
	Losses
}

// Agents are the operations of agents on their hosts.
type Agents interface {
	PutHost(ctx context.Context, h croft.Host) error
	StayAlive(ctx context.Context, host croft.HostID) error
}

// Orders are the operations of agents on their orders.
type Orders interface {
	Observe(ctx context.Context, o croft.Observation) error
	Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error)
	Forget(ctx context.Context, o croft.Order) error
}

// contract is a list of named test cases.
type contract []struct {
	name string
	test func(*testing.T, *cloud)
}

var records = contract{
	{"an ID and a name are taken once", testTaken},
	{"a name is free in another project", testProjects},
	{"an order is written for a live host only", testAssignAlive},
	{"an order is written for an unchanged record only", testAssignOnce},
	{"after a fence no order is written for the record as it was, and another record with its ID differs", testFence},
	{"a record that was discarded is gone and its name free", testDiscard},
	{"a record that moved on is not discarded", testDiscardLate},
	{"a new order replaces the last", testReorder},
	{"a chosen address is given once on a host, and freed with its instance", testAddress},
	{"an instance expires when the last change says", testExpiry},
	{"a buried instance leaves its tombstone alone", testBury},
	{"a lost instance keeps what recreates it, and its name", testLost},
	{"a lost instance whose recreation fails is lost as before", testLostAgain},
	{"the return of a forgotten host leaves the lost instance alone", testLostHostReturns},
	{"a lost instance keeps nobody out of its groups, and joins them again", testLostGroups},
}

var view = contract{
	{"a record is found by its ID and by its name", testFind},
	{"a watch tells the present, every change and the end", testWatch},
	{"a watch ends with its context", testWatchEnds},
	{"a watch on all instances wakes on each change", testWatchAll},
	{"instances are listed in the order of their creation", testList},
}

var registry = contract{
	{"hosts are returned with their life", testHosts},
}

var groups = contract{
	{"members that stay apart share no host", testApart},
	{"members that stay together share one host", testTogether},
	{"a soft rule bars no host", testSoft},
	{"a group goes by one rule", testOneRule},
	{"a membership ends with its instance", testMembershipEnds},
	{"a clause gives so many seats in a location", testSeats},
	{"a clause keeps all seats in one location", testSeatsTogether},
	{"seats end with their instance", testSeatsEnd},
}

// TestStore checks that the parts of a store keep their contracts. open returns a separate empty store for each
// case.
func TestStore(t *testing.T, open func(*testing.T) Store) {
	for part, cases := range map[string]contract{"records": records, "holds": holds, "view": view, "registry": registry,
		"groups": groups} {
		t.Run(part, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					c.test(t, &cloud{Store: open(t), t: t, host: croft.NewHostID()})
				})
			}
		})
	}
}

// cloud is a store under test, with a host that is not alive yet.
type cloud struct {
	Store
	t    *testing.T
	host croft.HostID
}

func (c *cloud) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cloud) want(err error, kind croft.Kind) {
	c.t.Helper()
	if croft.KindOf(err) != kind {
		c.t.Fatalf("got error %v of kind %q, want kind %q", err, croft.KindOf(err), kind)
	}
}

func (c *cloud) create(name string) croft.Instance {
	c.t.Helper()
	inst, err := c.Create(c.t.Context(), record(name))
	c.check(err)
	return inst
}

var created = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func record(name string) croft.Instance {
	return croft.Instance{
		ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: name, State: croft.StateScheduling,
		Created: created,
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 1}, Image: "file:///image",
			GuestSettings: croft.GuestSettings{UserData: []byte{0, 1}}},
	}
}

func (c *cloud) order(inst croft.Instance, want croft.Want) croft.Order {
	return croft.Order{
		Partition: c.Partition, Host: c.host, Instance: inst.ID, Generation: inst.Generation + 1, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: created,
	}
}

// live registers the host and keeps it alive until stop or the end of the test.
func (c *cloud) live() (stop func()) {
	c.t.Helper()
	c.check(c.PutHost(c.t.Context(), croft.Host{ID: c.host, Name: "host1"}))
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.StayAlive(ctx, c.host) // fails only when ctx ends
	}()
	end := func() { cancel(); <-ended }
	c.t.Cleanup(end)
	c.alive(true)
	return func() { end(); c.alive(false) }
}

// alive waits until the store reports the host as alive, or not alive.
func (c *cloud) alive(want bool) {
	c.t.Helper()
	c.until(func(ctx context.Context) bool {
		hosts, err := c.Hosts(ctx, c.host)
		c.check(err)
		return hosts[c.host].Alive == want
	})
}

// until evaluates reached again at every change, until it is true.
func (c *cloud) until(reached func(context.Context) bool) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- c.WatchInstances(ctx, func() {
			select {
			case wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		})
	}()
	for !reached(ctx) {
		<-wake
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		c.t.Errorf("the watch ended with %v, want that it was cancelled", err)
	}
}

func (c *cloud) assign(name string) croft.Instance {
	c.t.Helper()
	inst := c.create(name)
	inst, err := c.Assign(c.t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
	return inst
}

func testFind(t *testing.T, c *cloud) {
	inst := c.create("web")
	for _, key := range []string{"web", string(inst.ID)} {
		st, err := c.Find(t.Context(), croft.DefaultProject, key)
		c.check(err)
		if got := st.Instance; got.ID != inst.ID || got.State != croft.StateScheduling ||
			!slices.Equal(got.Spec.UserData, inst.Spec.UserData) {
			t.Errorf("found %+v by %s, want %+v", got, key, inst)
		}
		if st.Instance.Session == "" {
			t.Error("a record in scheduling names no session")
		}
	}
	_, err := c.Find(t.Context(), croft.DefaultProject, "nobody")
	c.want(err, croft.NotFound)
	_, err = c.Find(t.Context(), croft.DefaultProject, string(croft.NewInstanceID()))
	c.want(err, croft.NotFound)
}

func testTaken(t *testing.T, c *cloud) {
	inst := c.create("web")
	taken := func(what string, wanted croft.Instance) {
		t.Helper()
		_, err := c.Create(t.Context(), wanted)
		c.want(err, croft.Conflict)
		if is, ok := errors.AsType[*croft.TakenError](err); !ok || is.What != what || is.By != string(inst.ID) {
			t.Errorf("%v does not say that the %s is taken by %s", err, what, inst.ID)
		}
	}
	taken("name", record("web"))
	again := record("other")
	again.ID = inst.ID
	taken("id", again)
	_, err := c.Find(t.Context(), croft.DefaultProject, "other")
	c.want(err, croft.NotFound)
}

func testProjects(t *testing.T, c *cloud) {
	c.create("web")
	other := record("web")
	other.Project = "research"
	_, err := c.Create(t.Context(), other)
	c.check(err)
	byID, err := c.Find(t.Context(), "research", string(other.ID))
	c.check(err)
	anywhere, err := c.FindByID(t.Context(), other.ID)
	c.check(err)
	if byID.Instance.ID != other.ID || anywhere.Instance.ID != other.ID {
		t.Errorf("found %+v by its ID in its project, and %+v in any project", byID, anywhere)
	}
	_, err = c.Find(t.Context(), croft.DefaultProject, string(other.ID))
	c.want(err, croft.NotFound)
	_, err = c.FindByID(t.Context(), croft.NewInstanceID())
	c.want(err, croft.NotFound)
	st, err := c.Find(t.Context(), "research", "web")
	c.check(err)
	if st.Instance.ID != other.ID {
		t.Errorf("found %s in project research, want %s", st.Instance.ID, other.ID)
	}
}

func testAssignAlive(t *testing.T, c *cloud) {
	inst := c.create("web")
	_, err := c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.want(err, croft.Unavailable)
	stop := c.live()
	inst, err = c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
	if inst.State != croft.StateScheduled || inst.Host != c.host || inst.Generation != 1 {
		t.Errorf("assigned %+v, want it scheduled on host %s at generation 1", inst, c.host)
	}
	stop()
	late := c.create("late")
	_, err = c.Assign(t.Context(), late, c.order(late, croft.WantRunning))
	c.want(err, croft.Unavailable)
}

func testAssignOnce(t *testing.T, c *cloud) {
	c.live()
	inst := c.create("web")
	_, err := c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
	_, err = c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.want(err, croft.Conflict)
	gone := c.create("gone")
	c.check(c.Discard(t.Context(), gone))
	_, err = c.Assign(t.Context(), gone, c.order(gone, croft.WantRunning))
	c.want(err, croft.Conflict)
}

func testFence(t *testing.T, c *cloud) {
	c.live()
	before := c.create("web")
	after, err := c.Fence(t.Context(), before)
	c.check(err)
	if after.State != croft.StateScheduling || after.Revision == before.Revision ||
		!slices.Equal(after.Spec.UserData, before.Spec.UserData) {
		t.Errorf("a fence left %+v of %+v", after, before)
	}
	_, err = c.Assign(t.Context(), before, c.order(before, croft.WantRunning))
	c.want(err, croft.Conflict)
	assigned, err := c.Assign(t.Context(), after, c.order(after, croft.WantRunning))
	c.check(err)
	now, err := c.Fence(t.Context(), after)
	c.check(err)
	if now.State != croft.StateScheduled || now.Host != c.host || now.Revision != assigned.Revision {
		t.Errorf("a fence that came too late returned %+v, want %+v", now, assigned)
	}
	if before.CreateRevision == 0 || after.CreateRevision != before.CreateRevision ||
		now.CreateRevision != before.CreateRevision {
		t.Errorf("one record was created at the revisions %d, %d and %d", before.CreateRevision, after.CreateRevision,
			now.CreateRevision)
	}
	gone := c.create("gone")
	c.check(c.Discard(t.Context(), gone))
	_, err = c.Fence(t.Context(), gone)
	c.want(err, croft.NotFound)
	_, err = c.Find(t.Context(), croft.DefaultProject, "gone")
	c.want(err, croft.NotFound)
	again, err := c.Create(t.Context(), gone)
	c.check(err)
	st, err := c.Find(t.Context(), croft.DefaultProject, "gone")
	c.check(err)
	if again.CreateRevision == gone.CreateRevision || st.Instance.CreateRevision != again.CreateRevision {
		t.Errorf("created at revision %d, another record with its ID at %d, read as %d", gone.CreateRevision,
			again.CreateRevision, st.Instance.CreateRevision)
	}
}

func testDiscard(t *testing.T, c *cloud) {
	inst := c.create("web")
	c.check(c.Discard(t.Context(), inst))
	_, err := c.Find(t.Context(), croft.DefaultProject, "web")
	c.want(err, croft.NotFound)
	c.want(c.Discard(t.Context(), inst), croft.Conflict)
	c.create("web")
}

func testDiscardLate(t *testing.T, c *cloud) {
	c.live()
	before := c.create("web")
	after, err := c.Assign(t.Context(), before, c.order(before, croft.WantRunning))
	c.check(err)
	c.want(c.Discard(t.Context(), before), croft.Conflict)
	c.want(c.Discard(t.Context(), after), croft.Conflict)
	_, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
}

func testReorder(t *testing.T, c *cloud) {
	c.live()
	before := c.assign("web")
	after, err := c.Reorder(t.Context(), before, c.order(before, croft.WantStopped))
	c.check(err)
	o, err := c.Order(t.Context(), c.host, before.ID)
	c.check(err)
	if o.Want != croft.WantStopped || o.Generation != 2 || after.Generation != 2 ||
		after.State != croft.StateScheduled {
		t.Errorf("order %+v and record %+v, want generation 2 and stopped", o, after)
	}
	_, err = c.Reorder(t.Context(), before, c.order(before, croft.WantRunning))
	c.want(err, croft.Conflict)
	after, err = c.Reorder(t.Context(), after, c.order(after, croft.WantGone))
	c.check(err)
	if after.State != croft.StateDestroying {
		t.Errorf("the record is %s under a tombstone", after.State)
	}
	tombstone, err := c.Order(t.Context(), c.host, before.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), tombstone))
	_, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.want(err, croft.NotFound)
}

func testBury(t *testing.T, c *cloud) {
	c.live()
	before := c.assign("web")
	inst, err := c.Reorder(t.Context(), before, c.order(before, croft.WantGone))
	c.check(err)
	c.want(c.Bury(t.Context(), before, c.order(before, croft.WantGone)), croft.Conflict)
	c.check(c.Bury(t.Context(), inst, c.order(inst, croft.WantGone)))
	_, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.want(err, croft.NotFound)
	o, err := c.Order(t.Context(), c.host, inst.ID)
	c.check(err)
	if o.Want != croft.WantGone {
		t.Errorf("left the order %+v, want a tombstone", o)
	}
	c.create("web") // the name is free
	c.check(c.Forget(t.Context(), o))
	_, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
}

func testWatch(t *testing.T, c *cloud) {
	c.live()
	inst := c.create("web")
	var seen []string
	c.check(c.WatchInstance(t.Context(), inst.ID, func(st *croft.Status) bool {
		if st == nil {
			seen = append(seen, "gone")
			return true // ignored: the watch ends anyway
		}
		word := schedule.Describe(st)
		if len(seen) > 0 && seen[len(seen)-1] == word {
			return true // a watch may report the same status twice
		}
		seen = append(seen, word)
		c.advance(st)
		return true
	}))
	want := []string{"scheduling", "ordered", "running", "destroying", "gone"}
	if !slices.Equal(seen, want) {
		t.Errorf("saw %q, want %q", seen, want)
	}
}

// advance performs the next step in an instance's life.
func (c *cloud) advance(st *croft.Status) {
	c.t.Helper()
	ctx, inst := c.t.Context(), st.Instance
	var err error
	switch {
	case inst.State == croft.StateScheduling:
		_, err = c.Assign(ctx, inst, c.order(inst, croft.WantRunning))
	case inst.State == croft.StateDestroying:
		var o croft.Order
		if o, err = c.Order(ctx, c.host, inst.ID); err == nil {
			err = c.Forget(ctx, o)
		}
	case st.Observation == nil:
		err = c.Observe(ctx, croft.Observation{Host: c.host, Instance: inst.ID, Generation: 1,
			State: croft.StateRunning})
	default:
		_, err = c.Reorder(ctx, inst, c.order(inst, croft.WantGone))
	}
	c.check(err)
}

func testWatchEnds(t *testing.T, c *cloud) {
	inst := c.create("web")
	ctx, cancel := context.WithCancel(t.Context())
	err := c.WatchInstance(ctx, inst.ID, func(*croft.Status) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	calls := 0
	c.check(c.WatchInstance(t.Context(), inst.ID, func(*croft.Status) bool { calls++; return false }))
	if calls != 1 {
		t.Errorf("%d calls after the first returned false", calls)
	}
}

func testWatchAll(t *testing.T, c *cloud) {
	c.live()
	inst := c.create("web")
	c.until(func(ctx context.Context) bool {
		st, err := c.Find(ctx, croft.DefaultProject, "web")
		c.check(err)
		if inst.Host == "" {
			inst, err = c.Assign(ctx, inst, c.order(inst, croft.WantRunning))
			c.check(err)
			return false
		}
		if st.Observation == nil {
			c.check(c.Observe(ctx, croft.Observation{Host: c.host, Instance: inst.ID, Generation: 1,
				State: croft.StateRunning}))
			return false
		}
		return true
	})
}

func testList(t *testing.T, c *cloud) {
	for i, name := range []string{"c", "a", "b"} {
		inst := record(name)
		inst.Created = created.Add(time.Duration(i) * time.Second)
		if name == "a" {
			inst.Project = "research"
		}
		_, err := c.Create(t.Context(), inst)
		c.check(err)
	}
	for project, want := range map[croft.Project][]string{"": {"c", "a", "b"}, "research": {"a"}, "nobody's": nil} {
		all, err := c.List(t.Context(), project)
		c.check(err)
		var got []string
		for _, st := range all {
			got = append(got, st.Instance.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("project %q lists %q, want %q", project, got, want)
		}
	}
}

func testHosts(t *testing.T, c *cloud) {
	stop := c.live()
	other := croft.Host{ID: croft.NewHostID(), Name: "host2", Token: "secret"}
	c.check(c.PutHost(t.Context(), other))
	all, err := c.Hosts(t.Context())
	c.check(err)
	if len(all) != 2 || !all[c.host].Alive || all[other.ID].Alive || all[other.ID].Token != "secret" {
		t.Errorf("hosts are %+v", all)
	}
	stop()
	one, err := c.Hosts(t.Context(), c.host, croft.NewHostID())
	c.check(err)
	if len(one) != 1 || one[c.host].Alive || one[c.host].Name != "host1" {
		t.Errorf("the named host is %+v", one)
	}
	inst := c.create("web")
	_, err = c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.want(err, croft.Unavailable)
}
