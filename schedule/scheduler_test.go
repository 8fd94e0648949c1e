package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/schedule"
	"croft/schedule/scheduletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const query = "resources=VCPU:1,MEMORY_MB:256,DISK_GB:1"

// cloud is a scheduler on a store and a Placement in memory.
type cloud struct {
	*schedule.Scheduler
	store     *scheduletest.Memory
	placement *scheduletest.Placement
	hosts     []croft.HostID
}

// newCloud creates one live host for each number of places.
func newCloud(t *testing.T, places ...int64) *cloud {
	t.Helper()
	c := &cloud{store: scheduletest.NewMemory()}
	var providers []croft.Provider
	for i, n := range places {
		host := croft.Host{ID: croft.NewHostID(), Name: fmt.Sprintf("host%d", i+1)}
		if err := c.store.PutHost(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		c.store.SetAlive(host.ID, +1)
		c.hosts = append(c.hosts, host.ID)
		providers = append(providers, provider(host, n))
	}
	c.placement = scheduletest.NewPlacement(providers...)
	var err error
	c.Scheduler, err = schedule.New(schedule.Config{
		Partition: croft.NewPartitionID(), Records: c.store, Holds: c.store, View: c.store, Registry: c.store,
		Groups: c.store, Claims: c.placement, Crush: scheduletest.Crush{Memory: c.store},
		// first host first
		Policy: &schedule.Policy{Sample: 256, Order: func(all []croft.Candidate) []croft.Candidate { return all }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// provider has room for n instances of query.
func provider(host croft.Host, n int64) croft.Provider {
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	return croft.Provider{ID: host.ID, Name: host.Name, Inventories: map[croft.ResourceClass]croft.Inventory{
		croft.VCPU: inv(n), croft.MemoryMB: inv(256 * n), croft.DiskGB: inv(n),
	}}
}

func request(t *testing.T, name string) schedule.Request {
	t.Helper()
	q, err := schedule.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Request{Name: name, Query: q, Image: "file:///image"}
}

// instances returns the names of all records.
func (c *cloud) instances(t *testing.T) []string {
	t.Helper()
	all, err := c.store.List(context.WithoutCancel(t.Context()), "")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, st := range all {
		names = append(names, st.Instance.Name)
	}
	slices.Sort(names)
	return names
}

// nothingLeft fails if there is a record or a claim.
func (c *cloud) nothingLeft(t *testing.T) {
	t.Helper()
	if records, claims := c.instances(t), c.placement.Claimed(); len(records)+len(claims) > 0 {
		t.Errorf("left behind: records %q, claims %q", records, claims)
	}
}

func wantKind(t *testing.T, err error, kind croft.Kind) {
	t.Helper()
	if croft.KindOf(err) != kind || err == nil {
		t.Fatalf("got error %v of kind %q, want kind %q", err, croft.KindOf(err), kind)
	}
}

func TestRequest(t *testing.T) {
	c := newCloud(t, 1)
	d, err := c.Request(t.Context(), request(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Host.Name != "host1" || d.Instance.Host != c.hosts[0] || d.Instance.Name != "web" ||
		d.Instance.State != croft.StateScheduled {
		t.Errorf("decided %+v", d)
	}
	o, err := c.store.Order(t.Context(), c.hosts[0], d.Instance.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := croft.Order{
		Partition: c.Partition, Host: c.hosts[0], Instance: d.Instance.ID, Generation: 1, Want: croft.WantRunning,
		Project: croft.DefaultProject, Name: "web", Issued: o.Issued,
		CreateRevision: o.CreateRevision,
	}
	spec := o.Spec
	o.Spec = croft.Spec{}
	if fmt.Sprint(o) != fmt.Sprint(want) || spec.Image != "file:///image" ||
		spec.Resources.String() != "DISK_GB:1,MEMORY_MB:256,VCPU:1" {
		t.Errorf("ordered %+v with %+v, want %+v", o, spec, want)
	}
	if got := c.placement.Claimed(); !slices.Equal(got, []croft.InstanceID{d.Instance.ID}) {
		t.Errorf("claimed %q", got)
	}
}

func TestRequestRefusesBeforeItWrites(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*schedule.Request)
		want   string
	}{
		{"a bad name", func(r *schedule.Request) { r.Name = "Web" }, "not a host name"},
		{"no image", func(r *schedule.Request) { r.Image = "" }, "no image is named"},
		{"too much user-data", func(r *schedule.Request) { r.UserData = make([]byte, croft.MaxUserData+1) },
			"65537 bytes"},
		{"a query that was not parsed", func(r *schedule.Request) { r.Query = schedule.Query{} }, "asks for no VCPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud, r := newCloud(t, 1), request(t, "web")
			c.change(&r)
			_, err := cloud.Request(t.Context(), r)
			wantKind(t, err, croft.Invalid)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q in it", err, c.want)
			}
			cloud.nothingLeft(t)
		})
	}
}

func TestRequestTaken(t *testing.T) {
	c := newCloud(t, 5)
	first := request(t, "web")
	first.ID = croft.NewInstanceID()
	if _, err := c.Request(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_, err := c.Request(t.Context(), first)
	wantKind(t, err, croft.Conflict)
	_, err = c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Conflict)
	if got := c.placement.Claimed(); !slices.Equal(got, []croft.InstanceID{first.ID}) {
		t.Errorf("claims are %q, want the first one's alone", got)
	}
}

func TestRequestGoesOnToTheNextHost(t *testing.T) {
	fail := func(kind croft.Kind) func() error { return func() error { return croft.Errorf(kind, "planned") } }
	for _, c := range []struct {
		name  string
		first func(*testing.T, *cloud)
	}{
		{"when the first is not alive", func(_ *testing.T, c *cloud) { c.store.SetAlive(c.hosts[0], -1) }},
		{"when the first is drained", func(t *testing.T, c *cloud) {
			if err := c.store.PutHost(t.Context(), croft.Host{ID: c.hosts[0], Drained: true}); err != nil {
				t.Fatal(err)
			}
		}},
		{"when the first was filled meanwhile", func(_ *testing.T, c *cloud) {
			c.placement.Fail("Claim", fail(croft.NoCapacity))
		}},
		{"when the first is too busy", func(_ *testing.T, c *cloud) {
			c.placement.Fail("Claim", fail(croft.Conflict))
		}},
		{"when the first dies after it was claimed", func(_ *testing.T, c *cloud) {
			c.placement.Fail("Claim", func() error { c.store.SetAlive(c.hosts[0], -1); return nil })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, 1, 1)
			c.first(t, cloud)
			d, err := cloud.Request(t.Context(), request(t, "web"))
			if err != nil {
				t.Fatal(err)
			}
			if d.Host.Name != "host2" {
				t.Errorf("went to %s", d.Host.Name)
			}
			if got := cloud.placement.Claimed(); !slices.Equal(got, []croft.InstanceID{d.Instance.ID}) {
				t.Errorf("claimed %q", got)
			}
		})
	}
}

func TestRequestNothingLeft(t *testing.T) {
	for _, c := range []struct {
		name   string
		places []int64
		first  func(*cloud)
		want   string
	}{
		{"no hosts at all", nil, nil, "start an agent"},
		{"a host without room", []int64{0}, nil,
			"host1: 1 GB short of DISK_GB 1, 256 MB short of MEMORY_MB 256, 1 short of VCPU 1"},
		{"a host that is not alive", []int64{1}, func(c *cloud) { c.store.SetAlive(c.hosts[0], -1) },
			"its agent is not running"},
		{"a host that was filled meanwhile", []int64{1}, func(c *cloud) {
			c.placement.Fail("Claim", func() error { return croft.Errorf(croft.NoCapacity, "planned") })
		}, "another request was faster"},
		{"a host that died after the claim", []int64{1}, func(c *cloud) {
			c.placement.Fail("Claim", func() error { c.store.SetAlive(c.hosts[0], -1); return nil })
		}, "its agent is not running"},
		{"even if why cannot be told", nil, func(c *cloud) {
			c.placement.Fail("Providers", func() error { return errors.New("planned") })
		}, "the reason cannot be read: planned"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, c.places...)
			if c.first != nil {
				c.first(cloud)
			}
			_, err := cloud.Request(t.Context(), request(t, "web"))
			wantKind(t, err, croft.NoCapacity)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			cloud.nothingLeft(t)
		})
	}
}

func TestRequestUndoesWhatItBegan(t *testing.T) {
	broken := func() error { return croft.Errorf(croft.Unavailable, "planned") }
	for _, c := range []struct {
		name  string
		first func(*cloud, context.CancelFunc)
	}{
		{"when Placement does not answer", func(c *cloud, _ context.CancelFunc) {
			c.placement.Fail("Candidates", broken)
		}},
		{"when a claim is not answered", func(c *cloud, _ context.CancelFunc) { c.placement.Fail("Claim", broken) }},
		{"when the caller gives up before the claim", func(c *cloud, cancel context.CancelFunc) {
			c.placement.Fail("Candidates", func() error { cancel(); return nil })
		}},
		{"when the caller gives up after the claim", func(c *cloud, cancel context.CancelFunc) {
			c.placement.Fail("Claim", func() error { cancel(); return nil })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.first(cloud, cancel)
			if _, err := cloud.Request(ctx, request(t, "web")); err == nil {
				t.Error("no error")
			}
			cloud.nothingLeft(t)
		})
	}
}

func TestRequestKeepsTheRecordOfAClaimItCannotGiveBack(t *testing.T) {
	c := newCloud(t, 1)
	broken := func() error { return croft.Errorf(croft.Unavailable, "planned") }
	c.placement.Fail("Claim", broken)
	c.placement.Fail("Release", broken)
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Unavailable)
	if !strings.Contains(err.Error(), "give the claim of web back") {
		t.Errorf("%q does not say what is left", err)
	}
	if got := c.instances(t); !slices.Equal(got, []string{"web"}) {
		t.Errorf("records are %q: nothing leads to the claim", got)
	}
}

// lossy loses the answers of successful transactions.
type lossy struct {
	schedule.Records
	after func()
}

func (l lossy) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	if _, err := l.Records.Assign(ctx, inst, o); err != nil {
		return inst, err
	}
	l.after()
	return inst, croft.Errorf(croft.Unavailable, "the answer was lost")
}

func TestRequestWhoseAnswerWasLost(t *testing.T) {
	t.Run("succeeds where the order was written", func(t *testing.T) {
		c := newCloud(t, 1)
		c.Records = lossy{c.store, func() {}}
		d, err := c.Request(t.Context(), request(t, "web"))
		if err != nil || d.Instance.State != croft.StateScheduled || len(c.placement.Claimed()) != 1 {
			t.Errorf("got %+v, %v and claims %q", d, err, c.placement.Claimed())
		}
	})
	t.Run("leaves the claim to whoever destroys the instance", func(t *testing.T) {
		c := newCloud(t, 1)
		c.Records = lossy{c.store, func() {
			if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil {
				t.Error(err)
			}
		}}
		if _, err := c.Request(t.Context(), request(t, "web")); err == nil {
			t.Error("no error")
		}
		if len(c.placement.Claimed()) != 1 {
			t.Error("the claim was taken from under a domain that its host may have begun")
		}
	})
}

func TestRequestDestroyedMeanwhile(t *testing.T) {
	c := newCloud(t, 1)
	c.placement.Fail("Claim", func() error {
		_, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
		return err
	})
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Conflict)
	if !strings.Contains(err.Error(), "was destroyed while it was being scheduled") {
		t.Errorf("got %q", err)
	}
	c.nothingLeft(t)
}

func TestRequestTriesABusyHostAgain(t *testing.T) {
	busy := func() error { return croft.Errorf(croft.Conflict, "planned") }
	synctest.Test(t, func(t *testing.T) {
		c, begun := newCloud(t, 1), time.Now()
		c.placement.Fail("Claim", busy, busy)
		if _, err := c.Request(t.Context(), request(t, "web")); err != nil {
			t.Fatal(err)
		}
		// two waits, around 20 and 40 ms, with a jitter of a half
		if waited := time.Since(begun); waited < 30*time.Millisecond || waited > 90*time.Millisecond {
			t.Errorf("waited %s", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 1)
		c.placement.Fail("Claim", slices.Repeat([]func() error{busy}, 100)...)
		_, err := c.Request(t.Context(), request(t, "web"))
		wantKind(t, err, croft.Conflict)
		c.nothingLeft(t)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		c.placement.Fail("Claim", busy)
		if _, err := c.Request(ctx, request(t, "web")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		c.nothingLeft(t)
	})
}

func TestRequestAsksForMoreWhereAFullAnswerFallsThrough(t *testing.T) {
	places := slices.Repeat([]int64{1}, 300)
	c := newCloud(t, places...)
	for _, host := range c.hosts[:299] {
		c.store.SetAlive(host, -1)
	}
	d, err := c.Request(t.Context(), request(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Host.Name != "host300" {
		t.Errorf("went to %s", d.Host.Name)
	}
}

func TestTenRequestsForFivePlaces(t *testing.T) {
	c := newCloud(t, 2, 3)
	errs := make([]error, 10)
	var work sync.WaitGroup
	for i := range errs {
		r := request(t, fmt.Sprintf("web-%d", i))
		work.Go(func() { _, errs[i] = c.Request(t.Context(), r) })
	}
	work.Wait()
	full := 0
	for _, err := range errs {
		if errors.Is(err, croft.NoCapacity) {
			full++
		} else if err != nil {
			t.Error(err)
		}
	}
	if full != 5 || len(c.placement.Claimed()) != 5 || len(c.instances(t)) != 5 {
		t.Errorf("%d found no room, %d claims, records %q", full, len(c.placement.Claimed()), c.instances(t))
	}
}

func TestNewWantsItsParts(t *testing.T) {
	_, err := schedule.New(schedule.Config{})
	wantKind(t, err, croft.Invalid)
}

// A record charges the project, and usage and bills include every charge.
func TestARequestThatNoHostHasRoomForWritesNoRecord(t *testing.T) {
	cloud := newCloud(t, 0, 0)
	cloud.fail(faulty{discard: func() error { return errPlanned }}) // so that a written record would stay
	for _, hold := range []time.Duration{0, time.Hour} {
		r := request(t, "web")
		r.Hold = hold
		_, err := cloud.Request(t.Context(), r)
		wantKind(t, err, croft.NoCapacity)
		if _, ok := errors.AsType[*schedule.Explanation](err); !ok || strings.Contains(err.Error(), "undoing it") {
			t.Errorf("got %v", err)
		}
	}
	cloud.nothingLeft(t)
}
