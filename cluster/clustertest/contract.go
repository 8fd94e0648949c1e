package clustertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/cluster"
)

// NewCluster returns a record as a request creates it.
func NewCluster(name string) cluster.Cluster {
	return cluster.Cluster{ID: croft.NewClusterID(), Name: name, Project: "dev", User: "ann", Appliance: "slurm",
		Slaves: 2, Indexes: []int{0, 1}, NextIndex: 2, State: cluster.Scheduling,
		Parameters: map[string]any{"partition": "long"}, Members: []cluster.Member{}, Uses: []cluster.Use{},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Updated: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Generation: 1}
}

// Furnish stores the records that NewCluster and a cluster in state BUILDING refer to: an appliance slurm, a site of
// type Sim named sim, a credential of ann for it in project dev, and an implementation.
func Furnish(t testing.TB, s cluster.ApplianceStore) (cluster.Implementation, cluster.Credential) {
	t.Helper()
	ctx := t.Context()
	_, err := s.PutSite(ctx, cluster.Site{Name: "sim", Type: cluster.Sim, Enabled: true})
	_, err2 := s.PutAppliance(ctx, cluster.Appliance{Name: "slurm", Owner: "op", Public: true})
	i, err3 := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm",
		Site: "sim", Template: "{}", Enabled: true})
	c, err4 := s.PutCredential(ctx, cluster.Credential{ID: cluster.NewCredentialID(), Name: "mine", Project: "dev",
		User: "ann", Site: "sim", Kind: cluster.Password, Secret: cluster.Sealed(`{"v":"c2VhbGVk"}`)})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return i, c
}

// RunRecords is the contract test of cluster.Records. open returns an empty store.
func RunRecords(t *testing.T, open func(t *testing.T) Stores) {
	for name, test := range map[string]func(*testing.T, Stores){
		"what is created can be read":                      testCreate,
		"an ID and a name are taken once":                  testTaken,
		"of two that saw the same latest one is created":   testLatest,
		"of many at once one is created":                   testManyAtOnce,
		"an update compares what it read":                  testUpdate,
		"a name moves with its record":                     testRename,
		"what a record names anew exists":                  testNamed,
		"a site has as many as it may, of many at once":    testSiteRoom,
		"a deleted one leaves its name, accounts and slot": testDeleted,
		"one acts on a cluster at a time":                  testHold,
		"the latest events are kept":                       testEvents,
		"who follows hears of all":                         testFollow,
		"the largest cluster is stored":                    testLargest,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func create(t testing.TB, s cluster.Records, c cluster.Cluster) cluster.Cluster {
	t.Helper()
	latest, err := s.Latest(t.Context(), c.Project, c.User, c.Appliance)
	if err == nil {
		c, err = s.Create(t.Context(), c, latest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func update(t testing.TB, s cluster.Records, c cluster.Cluster, by *cluster.Holder) cluster.Cluster {
	t.Helper()
	c, err := s.Update(t.Context(), c, by)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func want(t testing.TB, err error, kind croft.Kind) {
	t.Helper()
	if err == nil || croft.KindOf(err) != kind {
		t.Errorf("got error %v of kind %q, want kind %q", err, croft.KindOf(err), kind)
	}
}

func wantTaken(t testing.TB, err error, what string, by croft.ClusterID) {
	t.Helper()
	want(t, err, croft.Conflict)
	taken, is := errors.AsType[*croft.TakenError](err)
	if !is || taken.What != what || taken.By != string(by) || taken.Text == "" {
		t.Errorf("got %#v, want that the %s is taken by %s", err, what, by)
	}
}

func wantSame(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func testCreate(t *testing.T, s Stores) {
	ctx := t.Context()
	made := create(t, s, NewCluster("one"))
	if made.Revised == 0 {
		t.Error("it has no revision")
	}
	got, err := s.Get(ctx, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, made, got)
	if got, err = s.Named(ctx, "dev", "one"); err != nil || got.ID != made.ID {
		t.Errorf("by its name: %+v, %v", got, err)
	}
	other := NewCluster("one") // of another project
	other.Project = "lab"
	create(t, s, other)
	for project, n := range map[croft.Project]int{"dev": 1, "lab": 1, "none": 0, "": 2} {
		if all, err := s.List(ctx, project); err != nil || len(all) != n {
			t.Errorf("project %q: %d clusters, %v; want %d", project, len(all), err, n)
		}
	}
	_, err = s.Get(ctx, croft.NewClusterID())
	want(t, err, croft.NotFound)
	_, err = s.Named(ctx, "dev", "two")
	want(t, err, croft.NotFound)
}

func testTaken(t *testing.T, s Stores) {
	ctx, first := t.Context(), create(t, s, NewCluster("one"))
	again := NewCluster("two")
	again.ID = first.ID
	_, err := s.Create(ctx, again, first.Revised)
	wantTaken(t, err, "id", first.ID)
	named := NewCluster("one")
	named.User = "bob"
	_, err = s.Create(ctx, named, 0)
	wantTaken(t, err, "name", first.ID)
	if all, err := s.List(ctx, ""); err != nil || len(all) != 1 {
		t.Errorf("there are %d, %v", len(all), err)
	}
}

func testLatest(t *testing.T, s Stores) {
	ctx := t.Context()
	before, err := s.Latest(ctx, "dev", "ann", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	first := create(t, s, NewCluster("one"))
	after, err := s.Latest(ctx, "dev", "ann", "slurm")
	if err != nil || after == before {
		t.Errorf("the number stays %d, %v", after, err)
	}
	_, err = s.Create(ctx, NewCluster("two"), before)
	want(t, err, croft.Conflict)
	if taken, is := errors.AsType[*croft.TakenError](err); is {
		t.Errorf("neither name nor ID are taken: %v", taken)
	}
	_, err = s.Create(ctx, NewCluster("one"), before) // the caller reads the first one, and joins it
	if _, is := errors.AsType[*croft.TakenError](err); is || croft.KindOf(err) != croft.Conflict {
		t.Errorf("the same request at the same time: %v", err)
	}
	for _, user := range []string{"bob", "ann/slurm", "ann\x00", "%61nn", "../ann", "ann.", ""} { // other users
		other := NewCluster(fmt.Sprintf("x%x", user))
		other.User = user
		if _, err := s.Create(ctx, other, before); err != nil {
			t.Errorf("of user %q: %v", user, err)
		}
	}
	if now, err := s.Latest(ctx, "dev", "ann", "slurm"); err != nil || now != after {
		t.Errorf("those of others changed it: %d, was %d, %v", now, after, err)
	}
	create(t, s, NewCluster("two"))
	first.State = cluster.Deleted
	update(t, s, first, nil)
	_, err = s.Create(ctx, NewCluster("three"), after)
	want(t, err, croft.Conflict) // for the second one
}

func testManyAtOnce(t *testing.T, s Stores) {
	latest, err := s.Latest(t.Context(), "dev", "ann", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		work.Go(func() { _, errs[i] = s.Create(t.Context(), NewCluster(fmt.Sprint("c", i)), latest) })
	}
	work.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			want(t, err, croft.Conflict)
		}
	}
	all, err := s.List(t.Context(), "dev")
	if made != 1 || err != nil || len(all) != 1 {
		t.Errorf("%d were created, %d are there, %v", made, len(all), err)
	}
}

func testUpdate(t *testing.T, s Stores) {
	first := create(t, s, NewCluster("one"))
	next := first
	next.Step = "a site is being chosen"
	next.Sealed = map[string]cluster.Sealed{"password": cluster.Sealed(`{"v":"eA"}`)}
	next = update(t, s, next, nil)
	if next.Revised == first.Revised {
		t.Error("its revision stays")
	}
	if got, err := s.Get(t.Context(), first.ID); err != nil {
		t.Error(err)
	} else {
		wantSame(t, next, got)
	}
	_, err := s.Update(t.Context(), first, nil)
	want(t, err, croft.Conflict)
	_, err = s.Update(t.Context(), NewCluster("none"), nil)
	want(t, err, croft.Conflict)
	for what, change := range map[string]func(*cluster.Cluster){
		"user":      func(c *cluster.Cluster) { c.User = "bob" },
		"project":   func(c *cluster.Cluster) { c.Project = "lab" },
		"appliance": func(c *cluster.Cluster) { c.Appliance = "hadoop" },
	} {
		t.Log("another", what)
		moved := next
		change(&moved)
		_, err := s.Update(t.Context(), moved, nil)
		want(t, err, croft.Invalid)
	}
}

func testDeleted(t *testing.T, s Stores) {
	ctx, c := t.Context(), create(t, s, NewCluster("one"))
	i, k := Furnish(t, s)
	c.Site, c.Credential, c.Implementation, c.State = "sim", k.ID, i.ID, cluster.Ready
	c = update(t, s, c, nil)
	if err := s.AddAccount(ctx, cluster.Account{Cluster: c.ID, User: "bob"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Note(ctx, c, cluster.Event{Message: "it is ready"}); err != nil {
		t.Fatal(err)
	}
	want(t, s.Forget(ctx, c.ID), croft.Conflict)
	h, err := s.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.State = cluster.Deleted
	c = update(t, s, c, h)
	if got, err := s.Get(ctx, c.ID); err != nil || got.State != cluster.Deleted {
		t.Errorf("its end cannot be read: %+v, %v", got, err)
	}
	_, err = s.Named(ctx, "dev", "one")
	want(t, err, croft.NotFound)
	_, err = s.Account(ctx, c.ID, "bob")
	want(t, err, croft.NotFound)
	want(t, s.AddAccount(ctx, cluster.Account{Cluster: c.ID, User: "bob"}), croft.Conflict)
	if latest, err := s.Latest(ctx, "dev", "ann", "slurm"); err != nil || latest != 0 {
		t.Errorf("the latest is %d, %v", latest, err)
	}
	again := create(t, s, NewCluster("one"))
	alive := c
	alive.State = cluster.Ready
	_, err = s.Update(ctx, alive, nil)
	want(t, err, croft.Conflict)
	c.Step = "its name is another's now"
	c = update(t, s, c, nil)
	if got, err := s.Named(ctx, "dev", "one"); err != nil || got.ID != again.ID {
		t.Errorf("the name is that of %s, %v", got.ID, err)
	}
	if err := errors.Join(s.RemoveCredential(ctx, k.ID), s.RemoveImplementation(ctx, i.ID),
		s.RemoveSite(ctx, "sim")); err != nil {
		t.Error(err)
	}
	if err := s.Forget(ctx, c.ID); err != nil {
		t.Error(err)
	}
	_, err = s.Get(ctx, c.ID)
	want(t, err, croft.NotFound)
	_, err = s.Events(ctx, c.ID)
	want(t, err, croft.NotFound)
	want(t, s.Forget(ctx, c.ID), croft.NotFound)

	next := NewCluster("next")
	next.ID, next.Project = c.ID, "lab" // UUIDs may be chosen, so another project can use this one
	next = create(t, s, next)
	want(t, s.Note(ctx, c, cluster.Event{Message: "a late event of the former cluster"}), croft.NotFound)
	if all, err := s.Events(ctx, next.ID); err != nil || len(all) != 0 {
		t.Errorf("the next cluster of the UUID has the events %+v, %v", all, err)
	}
	if err := s.Note(ctx, next, cluster.Event{Message: "its own"}); err != nil {
		t.Error(err)
	}
}

func testHold(t *testing.T, s Stores) {
	ctx, c := t.Context(), create(t, s, NewCluster("one"))
	h, err := s.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Hold(ctx, c.ID)
	want(t, err, croft.Conflict)
	_, err = s.Hold(ctx, croft.NewClusterID())
	want(t, err, croft.NotFound)
	c.Step = "held"
	c = update(t, s, c, h)
	c = update(t, s, c, nil) // a user's request
	if err := s.Release(ctx, h); err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(ctx, c, h)
	want(t, err, croft.Conflict)
	next, err := s.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(ctx, c, h) // the previous holder
	want(t, err, croft.Conflict)
	if err := s.Release(ctx, h); err != nil { // releases nothing
		t.Error(err)
	}
	update(t, s, c, next)
	if err := s.Release(ctx, next); err != nil {
		t.Error(err)
	}
}

func testEvents(t *testing.T, s Stores) {
	ctx, c := t.Context(), create(t, s, NewCluster("one"))
	if all, err := s.Events(ctx, c.ID); err != nil || len(all) != 0 {
		t.Errorf("at first: %v, %v", all, err)
	}
	for i := range cluster.MaxEvents + 3 {
		if err := s.Note(ctx, c, cluster.Event{State: cluster.Building, Message: fmt.Sprint("event ", i),
			At: c.Created.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Events(ctx, c.ID)
	if err != nil || len(all) != cluster.MaxEvents {
		t.Fatalf("got %d events, %v", len(all), err)
	}
	if first, last := all[0], all[len(all)-1]; first.Message != "event 3" ||
		last.Message != fmt.Sprint("event ", cluster.MaxEvents+2) || last.At.IsZero() {
		t.Errorf("got %+v to %+v", first, last)
	}
	want(t, s.Note(ctx, NewCluster("never"), cluster.Event{}), croft.NotFound)
	long := cluster.Event{Message: strings.Repeat("ü", cluster.MaxMessage),
		Console: strings.Repeat("ö", 1<<20) + "end"}
	if err := s.Note(ctx, c, long); err != nil {
		t.Fatal(err)
	}
	all, err = s.Events(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	if len(last.Message) > cluster.MaxMessage || len(last.Console) > cluster.MaxConsole ||
		!strings.HasSuffix(last.Console, "end") {
		t.Errorf("kept %d bytes of a message and %d of a console", len(last.Message), len(last.Console))
	}
}

func testFollow(t *testing.T, s Stores) {
	before := create(t, s, NewCluster("one"))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	heard := make(chan croft.ClusterID, 100)
	ended := make(chan error, 1)
	go func() { ended <- s.Follow(ctx, func(id croft.ClusterID) { heard <- id }) }()
	hear := func(what string, id croft.ClusterID) {
		t.Helper()
		for wait := time.After(time.Minute); ; {
			select {
			case got := <-heard:
				if got == id {
					return
				}
			case <-wait:
				t.Fatalf("heard nothing of %s", what)
			}
		}
	}
	hear("what there was", before.ID)
	after := create(t, s, NewCluster("two"))
	hear("what was created", after.ID)
	before.Step = "changed"
	before = update(t, s, before, nil)
	hear("what was changed", before.ID)
	before.State = cluster.Deleted
	update(t, s, before, nil)
	hear("what was deleted", before.ID)
	if err := s.Forget(t.Context(), before.ID); err != nil {
		t.Error(err)
	}
	hear("what was forgotten", before.ID)
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func testLargest(t *testing.T, s Stores) {
	c := NewCluster("one")
	c.Slaves, c.Indexes = cluster.MaxSlaves, nil
	for i := range cluster.MaxSlaves {
		c.Indexes = append(c.Indexes, 1000+i)
		c.Removed = append(c.Removed, i)
		c.Members = append(c.Members, cluster.Member{ID: cluster.IDOf(c.ID, cluster.Slave, 1000+i), Role: cluster.Slave,
			Index: 1000 + i, Name: strings.Repeat("n", 63), Address: "2001:db8:1234:5678:9abc:def0:1234:5678",
			RemoteID: string(cluster.NewUseID()), State: cluster.MemberBuilding, Step: "booting",
			Error: strings.Repeat("e", 200)})
	}
	c = create(t, s, c)
	if got, err := s.Get(t.Context(), c.ID); err != nil || len(got.Members) != cluster.MaxSlaves {
		t.Errorf("got %d members, %v", len(got.Members), err)
	}
}
