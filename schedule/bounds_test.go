package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
	"croft/schedule/scheduletest"
)

// within returns a request for hosts within bounds.
func within(t *testing.T, name string, texts ...string) schedule.Request {
	t.Helper()
	r := request(t, name)
	for _, text := range texts {
		b, err := croft.ParseBound(text)
		if err != nil {
			t.Fatal(err)
		}
		r.Query.In = append(r.Query.In, b)
	}
	return r
}

// newAggregates creates hosts at locations, host1 and host3 in ssd, host4 in gpu, and all but host1 in large.
func newAggregates(t *testing.T, inOneStep bool) (*cloud, scheduletest.Aggregates) {
	t.Helper()
	c := newSite(t, "s/r/k1", "s/r/k1", "s/r/k2", "t/r/k1")
	all := scheduletest.Aggregates{Memory: c.store}
	for name, hosts := range map[string][]croft.HostID{"ssd": {c.hosts[0], c.hosts[2]}, "gpu": {c.hosts[3]},
		"large": c.hosts[1:]} {
		if err := all.Put(t.Context(), name, hosts...); err != nil {
			t.Fatal(err)
		}
	}
	config := c.Config
	config.Aggregates, config.Properties = all, scheduletest.HostProperties{Memory: c.store}
	config.Policy = &schedule.Policy{Sample: 256, Order: func(some []croft.Candidate) []croft.Candidate {
		at := func(one croft.Candidate) int { // order of the hosts, which are queried one by one
			return slices.IndexFunc(c.hosts, func(id croft.HostID) bool { return one.Allocations[id] != nil })
		}
		slices.SortFunc(some, func(a, b croft.Candidate) int { return at(a) - at(b) })
		return some
	}}
	if inOneStep {
		p := &scheduletest.Placer{Memory: c.store, Placement: c.placement}
		config.Placer = func() schedule.Placer { return p }
	}
	s, err := schedule.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Scheduler = s
	return c, all
}

func TestBoundsChooseHosts(t *testing.T) {
	for _, c := range []struct{ name, bounds, want string }{
		{"in an aggregate, each host of which has room for three", "ssd", "host1 host1 host1 host3 host3 host3 -"},
		{"in two at once", "ssd large", "host3 host3 host3 -"},
		{"in one of two", "in:gpu,ssd !s.r.k1", "host3 host3 host3 host4 host4 host4 -"},
		{"in none", "!ssd !gpu", "host2 host2 host2 -"},
		{"in a location", "s/r/k1", "host1 host1 host1 host2 host2 host2 -"},
		{"in an aggregate and a location", "large s", "host2 host2 host2 host3 host3 host3 -"},
		{"in a location or an aggregate", "in:gpu,s/r/k2", "host3 host3 host3 host4 host4 host4 -"},
		{"in two that have nothing in common", "gpu s", "-"},
	} {
		for _, inOneStep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, _ := newAggregates(t, inOneStep)
				bounds := strings.Fields(c.bounds)
				for i, want := range strings.Fields(c.want) {
					d, err := cloud.Request(t.Context(), within(t, fmt.Sprint("web", i), bounds...))
					if want == "-" {
						wantKind(t, err, croft.NoCapacity)
						continue
					}
					if err != nil || d.Host.Name != want {
						t.Fatalf("request %d went to %q, %v, want %s", i, d.Host.Name, err, want)
					}
					if len(d.Instance.Spec.In) != len(bounds) {
						t.Errorf("the spec has %v", d.Instance.Spec.In)
					}
				}
			})
		}
	}
}

func TestBoundsInTheQuery(t *testing.T) {
	cloud, _ := newAggregates(t, false)
	r := within(t, "web", "!t")
	var err error
	bounds := r.Query.In
	if r.Query, err = schedule.ParseQuery(query + "&in=large&in=in:gpu,ssd"); err != nil {
		t.Fatal(err)
	}
	r.Query.In = append(r.Query.In, bounds...)
	d, err := cloud.Request(t.Context(), r)
	if err != nil || d.Host.Name != "host3" || len(d.Instance.Spec.In) != 3 {
		t.Fatalf("went to %s with %v, %v", d.Host.Name, d.Instance.Spec.In, err)
	}
	if strings.Contains(r.Query.Encode(), "in=") {
		t.Errorf("Placement is asked for %s", r.Query.Encode())
	}
	if _, err := schedule.ParseQuery(query + "&in=a,b"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestBoundsThatNameNothing(t *testing.T) {
	cloud, all := newAggregates(t, false)
	for _, c := range []struct{ bound, says string }{
		{"sdd", `there is no aggregate "sdd", and no host is in a location of that name; did you mean "ssd"?`},
		{"!s/r/k3", `no host is in a location of that name; did you mean "s/r/k`},
		{"in:ssd,nothing-like-it", `there is no aggregate "nothing-like-it"`},
	} {
		_, err := cloud.Request(t.Context(), within(t, "web", c.bound))
		wantKind(t, err, croft.NotFound)
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want %q", err, c.says)
		}
		_, err = cloud.Explain(t.Context(), within(t, "web", c.bound))
		wantKind(t, err, croft.NotFound)
		cloud.nothingLeft(t)
	}
	if err := all.Put(t.Context(), "gpu"); err != nil {
		t.Fatal(err)
	}
	_, err := cloud.Request(t.Context(), within(t, "web", "gpu"))
	wantKind(t, err, croft.NotFound)
}

func TestExplainCountsWhatBoundsDrop(t *testing.T) {
	cloud, _ := newAggregates(t, false)
	why, err := cloud.Explain(t.Context(), within(t, "web", "ssd", "!s/r/k1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(why.Fits) != 1 || why.Fits[0].Host != "host3" || len(why.Requirements) != 2 {
		t.Fatalf("got %+v", why)
	}
	for i, want := range []schedule.Requirement{{"in ssd", 2, "host2", "is not in ssd"},
		{"not in s/r/k1", 2, "host1", "is in s/r/k1, where it is not to be"}} {
		got := why.Requirements[i]
		got.Nearest, want.Nearest = "", "" // which of several equal ones is named does not matter
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestAnAggregateChangesBeforeTheOrder: the host of an order is in the aggregate at the moment of the order, and a host
// that still is in it is not lost because the aggregate changed elsewhere.
func TestAnAggregateChangesBeforeTheOrder(t *testing.T) {
	for _, inOneStep := range []bool{false, true} {
		for _, c := range []struct {
			name string
			then func(c *cloud, all scheduletest.Aggregates) error
			want string
		}{
			{"the host leaves it", func(c *cloud, all scheduletest.Aggregates) error {
				return all.Put(t.Context(), "ssd", c.hosts[2])
			}, "host3"},
			{"another host leaves it", func(c *cloud, all scheduletest.Aggregates) error {
				return all.Put(t.Context(), "ssd", c.hosts[0])
			}, "host1"},
			{"the host comes into one that is excluded", func(c *cloud, all scheduletest.Aggregates) error {
				return all.Put(t.Context(), "gpu", c.hosts[0], c.hosts[3])
			}, "host3"},
			{"all leave it", func(c *cloud, all scheduletest.Aggregates) error {
				return all.Put(t.Context(), "ssd")
			}, ""},
		} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, all := newAggregates(t, inOneStep)
				cloud.placement.Fail("Claim", func() error { return c.then(cloud, all) })
				d, err := cloud.Request(t.Context(), within(t, "web", "ssd", "!gpu"))
				if c.want == "" {
					wantKind(t, err, croft.NoCapacity)
					if _, explained := errors.AsType[*schedule.Explanation](err); !explained {
						t.Errorf("got %v", err)
					}
					cloud.nothingLeft(t)
					return
				}
				if err != nil || d.Host.Name != c.want {
					t.Fatalf("went to %q, %v, want %s", d.Host.Name, err, c.want)
				}
				if n := len(cloud.placement.Claimed()); n != 1 {
					t.Errorf("%d claims are left", n)
				}
			})
		}
	}
}

// TestASmallAggregateIsFoundAmongMany: Placement answers only with the first hosts.
func TestASmallAggregateIsFoundAmongMany(t *testing.T) {
	places := make([]int64, 600)
	for i := range places {
		places[i] = 1
	}
	for _, c := range []struct {
		name  string
		hosts int
	}{{"three hosts", 3}, {"more than are asked for one by one", 100}} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, places...)
			all := scheduletest.Aggregates{Memory: cloud.store}
			if err := all.Put(t.Context(), "rare", cloud.hosts[600-c.hosts:]...); err != nil {
				t.Fatal(err)
			}
			config := cloud.Config
			config.Aggregates = all
			s, err := schedule.New(config)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.hosts {
				if _, err := s.Request(t.Context(), within(t, fmt.Sprint("web", i), "rare")); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			_, err = s.Request(t.Context(), within(t, "last", "rare"))
			wantKind(t, err, croft.NoCapacity)
		})
	}
}

func TestPropertiesOfHostsChoose(t *testing.T) {
	for _, c := range []struct {
		name                    string
		where, whereNot, hidden []string
		bounds                  []string
		want                    string
	}{
		{"one that is wanted", []string{"gold"}, nil, nil, nil, "host2 host2 host2 -"},
		{"one of two", []string{"gold", "old"}, nil, nil, nil, "host2 host2 host2 host4 host4 host4 -"},
		{"none of two", nil, []string{"gold", "old"}, nil, nil, "host1 host1 host1 host3 host3 host3 -"},
		{"wanted and not", []string{"new"}, []string{"gold"}, nil, nil, "host3 host3 host3 -"},
		{"in an aggregate too", []string{"new"}, nil, nil, []string{"ssd"}, "host3 host3 host3 -"},
		{"in a location too", []string{"new"}, nil, nil, []string{"s/r/k1"}, "host2 host2 host2 -"},
		{"what nobody has", []string{"silver"}, nil, nil, nil, "-"},
		{"what is hidden is wanted in vain", []string{"gold"}, nil, []string{"gold"}, nil, "-"},
		{"what is hidden bars nothing", nil, []string{"gold", "old"}, []string{"gold"}, nil, "host1 host1 host1 host2"},
	} {
		for _, inOneStep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, _ := newAggregates(t, inOneStep)
				notes := scheduletest.HostProperties{Memory: cloud.store}
				for i, words := range [][]string{nil, {"gold", "new"}, {"new"}, {"old"}} {
					if err := notes.SetTags(t.Context(), cloud.hosts[i], words...); err != nil {
						t.Fatal(err)
					}
				}
				for i, want := range strings.Fields(c.want) {
					r := within(t, fmt.Sprint("web", i), c.bounds...)
					r.Query.Where, r.Query.WhereNot, r.Hidden = c.where, c.whereNot, c.hidden
					d, err := cloud.Request(t.Context(), r)
					if want == "-" {
						wantKind(t, err, croft.NoCapacity)
						continue
					}
					if err != nil || d.Host.Name != want {
						t.Fatalf("request %d went to %q, %v, want %s", i, d.Host.Name, err, want)
					}
				}
			})
		}
	}
}

// TestPropertiesChangeBeforeTheOrder is like TestAnAggregateChangesBeforeTheOrder, for the properties of the host.
func TestPropertiesChangeBeforeTheOrder(t *testing.T) {
	for _, inOneStep := range []bool{false, true} {
		for _, c := range []struct {
			name  string
			words []string
			want  string
		}{{"the host loses it", nil, "host2"}, {"the host keeps it", []string{"gold", "more"}, "host1"},
			{"the host gets one that is barred", []string{"gold", "bad"}, "host2"}} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, _ := newAggregates(t, inOneStep)
				notes := scheduletest.HostProperties{Memory: cloud.store}
				for _, host := range cloud.hosts[:2] {
					if err := notes.SetTags(t.Context(), host, "gold"); err != nil {
						t.Fatal(err)
					}
				}
				cloud.placement.Fail("Claim", func() error {
					return notes.SetTags(t.Context(), cloud.hosts[0], c.words...)
				})
				r := request(t, "web")
				r.Query.Where, r.Query.WhereNot = []string{"gold"}, []string{"bad"}
				d, err := cloud.Request(t.Context(), r)
				if err != nil || d.Host.Name != c.want {
					t.Fatalf("went to %q, %v, want %s", d.Host.Name, err, c.want)
				}
			})
		}
	}
}

func TestFiltersInTheQueryAndInExplanations(t *testing.T) {
	cloud, _ := newAggregates(t, false)
	if err := (scheduletest.HostProperties{Memory: cloud.store}).SetTags(t.Context(), cloud.hosts[0],
		"tier=gold"); err != nil {
		t.Fatal(err)
	}
	r := request(t, "web")
	var err error
	if r.Query, err = schedule.ParseQuery(query + "&where=tier=gold&where_not=old"); err != nil {
		t.Fatal(err)
	}
	why, err := cloud.Explain(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(why.Fits) != 1 || why.Fits[0].Host != "host1" || len(why.Requirements) != 1 ||
		why.Requirements[0].Requirement != "where tier=gold, not where old" || why.Requirements[0].Dropped != 3 {
		t.Errorf("got %+v", why)
	}
	r.Query.Where = []string{""}
	_, err = cloud.Request(t.Context(), r)
	wantKind(t, err, croft.Invalid)
	cloud.nothingLeft(t)
}
