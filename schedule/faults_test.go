package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"croft"
	"croft/schedule"
)

var errPlanned = croft.Errorf(croft.Unavailable, "planned")

// faulty is a store with some methods replaced.
type faulty struct {
	schedule.Records
	schedule.Holds
	schedule.View
	schedule.Registry
	schedule.Groups
	assign  func(croft.Instance, croft.Order) (croft.Instance, error)
	fence   func(croft.Instance) (croft.Instance, error)
	use     func(croft.Instance, croft.Order) error
	hold    func(croft.Instance) error
	create  func(croft.Instance) (croft.Instance, error)
	discard func() error
	hosts   func() error
	members func() error
	find    func() (croft.Status, error)
	watch   func() error
}

// fail replaces methods of the cloud's store.
func (c *cloud) fail(f faulty) {
	f.Records, f.Holds, f.View, f.Registry, f.Groups = c.store, c.store, c.store, c.store, c.store
	c.Records, c.Holds, c.View, c.Registry, c.Groups = f, f, f, f, f
}

func (f faulty) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if f.create != nil {
		return f.create(inst)
	}
	return f.Records.Create(ctx, inst)
}

func (f faulty) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	if f.assign != nil {
		if now, err := f.assign(inst, o); err != nil {
			return now, err
		}
	}
	return f.Records.Assign(ctx, inst, o)
}

func (f faulty) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if f.fence != nil {
		return f.fence(inst)
	}
	return f.Records.Fence(ctx, inst)
}

// Use fails after it was done, as if the answer were lost; so does Hold.
func (f faulty) Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	used, err := f.Holds.Use(ctx, inst, o)
	if err == nil && f.use != nil {
		return inst, f.use(inst, o)
	}
	return used, err
}

func (f faulty) Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	held, err := f.Holds.Hold(ctx, inst, host)
	if err == nil && f.hold != nil {
		return inst, f.hold(inst)
	}
	return held, err
}

func (f faulty) Discard(ctx context.Context, inst croft.Instance) error {
	if f.discard != nil {
		return f.discard()
	}
	return f.Records.Discard(ctx, inst)
}

func (f faulty) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	if f.hosts != nil {
		if err := f.hosts(); err != nil {
			return nil, err
		}
	}
	return f.Registry.Hosts(ctx, ids...)
}

func (f faulty) Members(ctx context.Context, project croft.Project, group string) ([]croft.GroupMember, []croft.Seat,
	error) {
	if f.members != nil {
		if err := f.members(); err != nil {
			return nil, nil, err
		}
	}
	return f.Groups.Members(ctx, project, group)
}

func (f faulty) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	if f.find != nil {
		return f.find()
	}
	return f.View.Find(ctx, project, idOrName)
}

func (f faulty) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	if f.find != nil {
		return f.find()
	}
	return f.View.FindByID(ctx, id)
}

func (f faulty) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	if f.watch != nil {
		return f.watch()
	}
	return f.View.WatchInstance(ctx, id, changed)
}

// The claim stays unless the fence has shown that the record still belongs to the request.
func TestAFailedOrderKeepsTheClaimUnlessTheFenceHolds(t *testing.T) {
	lost := func(inst croft.Instance, _ croft.Order) (croft.Instance, error) { return inst, errPlanned }
	for name, fence := range map[string]func(croft.Instance) (croft.Instance, error){
		"not answered": func(inst croft.Instance) (croft.Instance, error) { return inst, errPlanned },
		"scheduled on another host": func(inst croft.Instance) (croft.Instance, error) {
			inst.State, inst.Host = croft.StateScheduled, croft.NewHostID()
			return inst, nil
		},
		"another request's": func(inst croft.Instance) (croft.Instance, error) {
			inst.Session = "another"
			return inst, nil
		},
		"being destroyed": func(inst croft.Instance) (croft.Instance, error) {
			inst.State = croft.StateDestroying
			return inst, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1, 1)
			c.fail(faulty{assign: lost, fence: fence})
			_, err := c.Request(t.Context(), request(t, "web"))
			wantKind(t, err, croft.Unavailable)
			if claims, records := c.placement.Claimed(), c.instances(t); len(claims) != 1 || len(records) != 1 {
				t.Errorf("claims %q, records %q; want one of each", claims, records)
			}
		})
	}
}

// An order that is refused for a reason other than the host ends the request.
func TestAnOrderThatIsRefusedForGoodEndsTheRequest(t *testing.T) {
	c, tries := newCloud(t, 1, 1), 0
	c.fail(faulty{assign: func(inst croft.Instance, _ croft.Order) (croft.Instance, error) {
		tries++
		return inst, croft.Errorf(croft.Conflict, "planned")
	}})
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Conflict)
	if tries != 1 {
		t.Errorf("%d hosts were tried", tries)
	}
	c.nothingLeft(t)
}

// Whether anything is left is then unknown, so the request was not refused: a server that looks for an identical
// earlier request would find the record, which may still go.
func TestARecordThatCannotBeDiscardedIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		kind     croft.Kind
		reported bool
	}{
		"unless another request changed it": {croft.Errorf(croft.Conflict, "changed"), croft.NoCapacity, false},
		"when etcd does not answer":         {errPlanned, croft.Unavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud(t, 1)
			cloud.fail(faulty{discard: func() error { return c.err },
				assign: func(inst croft.Instance, _ croft.Order) (croft.Instance, error) {
					return inst, croft.Errorf(croft.NoCapacity, "barred")
				}})
			_, err := cloud.Request(t.Context(), request(t, "web"))
			wantKind(t, err, c.kind)
			if strings.Contains(err.Error(), "undoing it") != c.reported ||
				errors.Is(err, croft.NoCapacity) == c.reported {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestARequestFailsWhereItCannotRead(t *testing.T) {
	fails := func() error { return errPlanned }
	for name, f := range map[string]faulty{"the hosts": {hosts: fails}, "the groups": {members: fails}} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1)
			c.fail(f)
			_, err := c.Request(t.Context(), member(t, "web", croft.ApartSoft))
			wantKind(t, err, croft.Unavailable)
			c.nothingLeft(t)
			if _, err := c.Explain(t.Context(), member(t, "web", croft.ApartSoft)); !errors.Is(err, croft.Unavailable) {
				t.Errorf("explained with %v", err)
			}
		})
	}
	t.Run("more hosts", func(t *testing.T) {
		c, reads := newCloud(t, slices.Repeat([]int64{1}, 9)...), 0
		for _, host := range c.hosts {
			c.store.SetAlive(host, -1)
		}
		c.fail(faulty{hosts: func() error {
			if reads++; reads > 1 {
				return errPlanned
			}
			return nil
		}})
		_, err := c.Request(t.Context(), request(t, "web"))
		wantKind(t, err, croft.Unavailable)
		c.nothingLeft(t)
	})
	t.Run("the groups again, after another member joined", func(t *testing.T) {
		c, reads := newCloud(t, 1, 1), 0
		c.fail(faulty{
			assign: func(inst croft.Instance, _ croft.Order) (croft.Instance, error) {
				return inst, croft.Errorf(croft.NoCapacity, "barred")
			},
			members: func() error {
				if reads++; reads > 1 {
					return errPlanned
				}
				return nil
			},
		})
		_, err := c.Request(t.Context(), member(t, "web", croft.Apart))
		wantKind(t, err, croft.Unavailable)
		c.nothingLeft(t)
	})
}

func TestExplainFailsWhereARequestWould(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cloud, *schedule.Request)
		want   croft.Kind
	}{
		"for a request that is wrong": {func(_ *cloud, r *schedule.Request) { r.Image = "" }, croft.Invalid},
		"without Placement": {func(c *cloud, _ *schedule.Request) {
			c.placement.Fail("Candidates", func() error { return errPlanned })
		}, croft.Unavailable},
		"without the providers": {func(c *cloud, _ *schedule.Request) {
			c.placement.Fail("Providers", func() error { return errPlanned })
		}, croft.Unavailable},
		"for another rule of a group": {func(_ *cloud, r *schedule.Request) {
			r.Affinities = []croft.Affinity{{Group: "web", Rule: croft.Together}}
		}, croft.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			cloud, r := newCloud(t, 3), request(t, "late")
			cloud.hostNames(t, croft.Apart, "web")
			c.change(cloud, &r)
			_, err := cloud.Explain(t.Context(), r)
			wantKind(t, err, c.want)
		})
	}
}

func TestARefusalThatCannotBeExplainedSaysSo(t *testing.T) {
	reads := 0
	c := newCloud(t, 0)
	c.fail(faulty{hosts: func() error { reads++; return errPlanned }})
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.NoCapacity)
	if !strings.Contains(err.Error(), "the reason cannot be read: planned") || reads != 1 {
		t.Errorf("got %v after %d reads", err, reads)
	}
}

// Explain reads the hosts of all candidates, not only the first ones.
func TestExplainListsAllHosts(t *testing.T) {
	c := newCloud(t, slices.Repeat([]int64{1}, 20)...)
	e, err := c.Explain(t.Context(), request(t, "web"))
	if err != nil || len(e.Fits) != 20 || len(e.Rows) != 0 {
		t.Fatalf("got %+v, %v", e, err)
	}
	for i, f := range e.Fits {
		if f.Host != fmt.Sprintf("host%d", i+1) {
			t.Errorf("fit %d is %+v", i, f)
		}
	}
}

// A host that a group's rule prefers less has a different rank.
func TestExplainRanksByGroups(t *testing.T) {
	c := newCloud(t, 3, 3, 3)
	c.hostNames(t, croft.ApartSoft, "a")
	r := member(t, "b", croft.ApartSoft)
	r.Policy = &schedule.Policy{Sample: 256, Order: func(all []croft.Candidate) []croft.Candidate {
		for i := range all {
			all[i].Summaries = nil // so that all leave the same fraction free
		}
		return all
	}}
	e, err := c.Explain(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range e.Fits {
		got = append(got, fmt.Sprint(f.Host, " ", f.Rank))
	}
	if want := "host2 1, host3 1, host1 3"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
}

// A candidate taken by another request after this one has read its usages is added to them.
func TestWhatOthersTakeAfterTheReadingCounts(t *testing.T) {
	c := newCloud(t, 4, 4)
	spread := func(name string) schedule.Request {
		r := request(t, name)
		r.Policy = schedule.Spread
		return r
	}
	between, reads := "", 0
	c.fail(faulty{hosts: func() error {
		if reads++; reads == 1 { // the first one has read its candidates
			d, err := c.Request(t.Context(), spread("between"))
			between = d.Host.Name
			return err
		}
		return nil
	}})
	d, err := c.Request(t.Context(), spread("first"))
	if err != nil || d.Host.Name == between {
		t.Errorf("%v: both went to %s", err, between)
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d are in flight after the last request has ended", n)
	}
}

// A claim that is part of the usages is not added again until its order is written.
func TestAClaimCountsOnce(t *testing.T) {
	c := newCloud(t, 20, 8)
	spread := func(name string) schedule.Request {
		r := request(t, name)
		r.Policy = schedule.Spread
		return r
	}
	var second string
	assigns := 0
	c.fail(faulty{assign: func(inst croft.Instance, _ croft.Order) (croft.Instance, error) {
		if assigns++; assigns > 1 {
			return inst, nil
		}
		d, err := c.Request(t.Context(), spread("second"))
		second = d.Host.Name
		return inst, err
	}})
	// 19 of 20 against 7 of 8 stay free; then 18 of 20, or 17 if the first one was added twice
	d, err := c.Request(t.Context(), spread("first"))
	if err != nil || d.Host.Name != "host1" || second != "host1" {
		t.Fatalf("%v: the first went to %s, the second to %s", err, d.Host.Name, second)
	}
}

func TestRequestsThatFailAreNotInFlight(t *testing.T) {
	for name, first := range map[string]func(*cloud){
		"the record": func(c *cloud) {
			c.fail(faulty{create: func(i croft.Instance) (croft.Instance, error) { return i, errPlanned }})
		},
		"the candidates": func(c *cloud) { c.placement.Fail("Candidates", func() error { return errPlanned }) },
		"the hosts":      func(c *cloud) { c.fail(faulty{hosts: func() error { return errPlanned }}) },
		"the claim":      func(c *cloud) { c.placement.Fail("Claim", func() error { return errPlanned }) },
		"the room": func(c *cloud) {
			c.placement.Fail("Claim", func() error { return croft.Errorf(croft.NoCapacity, "full") })
		},
		"nothing": func(*cloud) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1)
			first(c)
			_, err := c.Request(t.Context(), request(t, "web"))
			if (err == nil) != (name == "nothing") {
				t.Errorf("got %v", err)
			}
			if n := c.InFlight(); n != 0 {
				t.Errorf("%d are in flight", n)
			}
		})
	}
}

func TestARequestWhoseRecordCannotBeWrittenIsNamed(t *testing.T) {
	c := newCloud(t, 1)
	c.fail(faulty{create: func(inst croft.Instance) (croft.Instance, error) { return inst, errPlanned }})
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Unavailable)
	if err.Error() != "schedule web: planned" {
		t.Errorf("got %v", err)
	}
	c.nothingLeft(t)
}

func TestABusyHostIsTriedSixTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tries := newCloud(t, 1), 0
		c.placement.Fail("Claim", slices.Repeat([]func() error{func() error {
			tries++
			return croft.Errorf(croft.Conflict, "planned")
		}}, 100)...)
		begun := time.Now()
		_, err := c.Request(t.Context(), request(t, "web"))
		wantKind(t, err, croft.Conflict)
		if waited := time.Since(begun); tries != 6 || waited > 2*time.Second {
			t.Errorf("tried %d times in %s", tries, waited)
		}
	})
}

func TestAnOrderCarriesTheTraceToAgentsThatKnowTraces(t *testing.T) {
	recorder := tracetest.NewInMemoryExporter()
	ctx, span := sdk.NewTracerProvider(sdk.WithSyncer(recorder)).Tracer("test").Start(t.Context(), "all")
	for name, host := range map[string]*croft.Host{"no host": nil, "an old agent": {}, "an agent": {Traces: true}} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1)
			inst := scheduled(t, c, "web")
			c.fail(faulty{find: func() (croft.Status, error) {
				st, err := c.store.FindByID(t.Context(), inst.ID)
				st.Host = host
				return st, err
			}})
			if _, err := c.Stop(ctx, inst.Project, string(inst.ID)); err != nil {
				t.Fatal(err)
			}
			o, err := c.store.Order(t.Context(), c.hosts[0], inst.ID)
			if err != nil || (o.Trace != "") != (host != nil && host.Traces) {
				t.Errorf("the order carries %q, %v", o.Trace, err)
			}
		})
	}
	c := newCloud(t, 1)
	if _, err := c.Request(ctx, request(t, "web")); err != nil {
		t.Fatal(err)
	}
	span.End()
	ended := map[string]int{}
	for _, s := range recorder.GetSpans() {
		ended[s.Name]++
	}
	want := map[string]int{"all": 1, "schedule": 1, "candidates": 1, "claim": 1, "order": 4}
	if !maps.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
}

func TestNewRequiresEachPart(t *testing.T) {
	c := newCloud(t)
	for name, drop := range map[string]func(*schedule.Config){
		"Partition": func(c *schedule.Config) { c.Partition = "" },
		"Records":   func(c *schedule.Config) { c.Records = nil },
		"Holds":     func(c *schedule.Config) { c.Holds = nil },
		"View":      func(c *schedule.Config) { c.View = nil },
		"Registry":  func(c *schedule.Config) { c.Registry = nil },
		"Groups":    func(c *schedule.Config) { c.Groups = nil },
		"Claims":    func(c *schedule.Config) { c.Claims = nil },
	} {
		config := c.Config
		drop(&config)
		if _, err := schedule.New(config); croft.KindOf(err) != croft.Invalid {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestOnlyWhatMayMoveKeepsItsQuery(t *testing.T) {
	c := newCloud(t, 2)
	for _, ephemeral := range []bool{false, true} {
		r := request(t, fmt.Sprint("web-", ephemeral))
		r.Ephemeral = ephemeral
		d, err := c.Request(t.Context(), r)
		if err != nil || d.Instance.Spec.Ephemeral != ephemeral || (d.Instance.Spec.Query != "") != ephemeral {
			t.Errorf("ephemeral %v: query %q, %v", ephemeral, d.Instance.Spec.Query, err)
		}
	}
}

func TestARequestForABadProjectIsRefused(t *testing.T) {
	c, r := newCloud(t, 1), request(t, "web")
	r.Project = "../x"
	_, err := c.Request(t.Context(), r)
	wantKind(t, err, croft.Invalid)
	c.nothingLeft(t)
}
