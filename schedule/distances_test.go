package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
	"croft/schedule/scheduletest"
)

// newDistances is like newAggregates, with distances of type network stated between racks, and between ssd and gpu.
func newDistances(t *testing.T, inOneStep bool) (*cloud, scheduletest.Aggregates, scheduletest.Distances) {
	t.Helper()
	c, all := newAggregates(t, inOneStep)
	stated := scheduletest.Distances{Memory: c.store}
	err := stated.Put(t.Context(), "network", croft.Distance{A: "s/r/k1", B: "s/r/k2", Distance: 10},
		croft.Distance{A: "s", B: "t", Distance: 500}, croft.Distance{A: "gpu", B: "ssd", Distance: 90})
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config
	config.Distances = stated
	s, err := schedule.New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Scheduler = s
	return c, all, stated
}

func apart(t *testing.T, name, near, far, kind string) schedule.Request {
	t.Helper()
	r := request(t, name)
	var err error
	if r.Query.Near, err = croft.ParseNears(strings.Fields(near), strings.Fields(far), kind); err != nil {
		t.Fatal(err)
	}
	return r
}

// host1 and host2 are in s/r/k1, host3 in s/r/k2, host4 in t/r/k1; host1 and host3 are in ssd, host4 in gpu.
func TestDistancesChooseHosts(t *testing.T) {
	for _, c := range []struct{ name, near, far, kind, want string }{
		{"the nearest by what is stated, of which one is not known", "host4", "", "network",
			"host4 host4 host4 host1 host1 host1 host3 host3 host3 host2"},
		{"not farther than that", "gpu:90", "", "network", "host4 host4 host4 host1 host1 host1 host3"},
		{"not farther than less", "gpu:89 s:0", "", "network", "host2 host2 host2 -"},
		{"far from a host", "", "host4:91", "network", "host2 host2 host2 -"},
		{"far from a rack, by location", "", "s/r/k1:rack", "", "host3 host3 host3 host4 host4 host4 -"},
		{"far from an aggregate, by location", "", "ssd:site", "", "host4 host4 host4 -"},
		{"near to an aggregate, by location", "gpu:rack", "", "", "host4 host4 host4 -"},
		{"near and far", "s/r/k1:10", "s/r/k1:5", "network", "host3 host3 host3 -"},
	} {
		for _, inOneStep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, _, _ := newDistances(t, inOneStep)
				var got []string
				for i := range strings.Fields(c.want) {
					d, err := cloud.Request(t.Context(), apart(t, fmt.Sprint("web", i), c.near, c.far, c.kind))
					if err != nil {
						wantKind(t, err, croft.NoCapacity)
						d.Host.Name = "-"
					}
					got = append(got, d.Host.Name)
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

func TestStatedDistancesOfTypeFailureReplaceThoseOfLocations(t *testing.T) {
	cloud, _, stated := newDistances(t, false)
	if err := stated.Put(t.Context(), "failure", croft.Distance{A: "s/r/k1", B: "t/r/k1", Distance: 1}); err != nil {
		t.Fatal(err)
	}
	cloud.only(t, "db", "host4")
	for i, want := range []string{"host4", "host4", "host1"} {
		d, err := cloud.Request(t.Context(), apart(t, fmt.Sprint("web", i), "db:rack", "", ""))
		if err != nil || d.Host.Name != want {
			t.Errorf("went to %s, %v, want %s", d.Host.Name, err, want)
		}
	}
}

// TestDistancesChangeBeforeTheOrder: the host of an order has the distance that is stated at the moment of the order.
func TestDistancesChangeBeforeTheOrder(t *testing.T) {
	for _, inOneStep := range []bool{false, true} {
		for _, c := range []struct {
			name string
			then func(c *cloud, all scheduletest.Aggregates, stated scheduletest.Distances) error
			want string
		}{
			{"the host is farther", func(c *cloud, _ scheduletest.Aggregates, stated scheduletest.Distances) error {
				return stated.Put(t.Context(), "network", croft.Distance{A: "gpu", B: "s/r/k1", Distance: 91},
					croft.Distance{A: "gpu", B: "s", Distance: 90})
			}, "host3"},
			{"another host is", func(c *cloud, _ scheduletest.Aggregates, stated scheduletest.Distances) error {
				return stated.Put(t.Context(), "network", croft.Distance{A: "gpu", B: "s/r/k2", Distance: 91},
					croft.Distance{A: "gpu", B: "s", Distance: 90})
			}, "host1"},
			{"the host leaves the aggregate that is near", func(c *cloud, all scheduletest.Aggregates,
				stated scheduletest.Distances) error {
				return all.Put(t.Context(), "ssd", c.hosts[2])
			}, "host3"},
		} {
			t.Run(fmt.Sprintf("%s, in one step %v", c.name, inOneStep), func(t *testing.T) {
				cloud, all, stated := newDistances(t, inOneStep)
				if err := stated.Put(t.Context(), "network", croft.Distance{A: "gpu", B: "ssd", Distance: 90},
					croft.Distance{A: "gpu", B: "s", Distance: 100}); err != nil {
					t.Fatal(err)
				}
				r := apart(t, "web", "gpu:90", "gpu:1", "network")
				cloud.placement.Fail("Claim", func() error { return c.then(cloud, all, stated) })
				d, err := cloud.Request(t.Context(), r)
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

func TestDistancesInTheQueryAndInExplanations(t *testing.T) {
	cloud, _, _ := newDistances(t, false)
	r := request(t, "web")
	var err error
	if r.Query, err = schedule.ParseQuery(query + "&near=gpu:90&far=host4:1&distance=network"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Query.Encode(), "near") {
		t.Errorf("Placement is asked for %s", r.Query.Encode())
	}
	d, err := cloud.Request(t.Context(), r)
	if err != nil || d.Host.Name != "host1" || len(d.Instance.Spec.Near) != 2 {
		t.Fatalf("went to %s with %v, %v", d.Host.Name, d.Instance.Spec.Near, err)
	}
	why, err := cloud.Explain(t.Context(), apart(t, "web", "gpu:89", "host4:1", "network"))
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("%+v", why.Requirements)
	for _, part := range []string{"{Requirement:near gpu:89 by network Dropped:2 ",
		"is farther from gpu than 89 by network", "{Requirement:far host4:1 by network Dropped:1 ",
		"is nearer to host4 than 1 by network"} {
		if !strings.Contains(said, part) {
			t.Errorf("got %s, want %q", said, part)
		}
	}
	for text, kind := range map[string]croft.Kind{"&near=gpu:rack&distance=network": croft.Invalid,
		"&distance=network": croft.Invalid, "&near=gpu&distance=a&distance=b": croft.Invalid,
		"&far=gpu": croft.Invalid} {
		if _, err := schedule.ParseQuery(query + text); croft.KindOf(err) != kind {
			t.Errorf("%s: got %v", text, err)
		}
	}
	_, err = cloud.Request(t.Context(), apart(t, "web2", "gpu", "", "netwrk"))
	wantKind(t, err, croft.NotFound)
	if !strings.Contains(err.Error(), "the types are: failure, network") {
		t.Errorf("got %v", err)
	}
	r.Query.Near = append(r.Query.Near, croft.Near{To: "gpu", Soft: true})
	_, err = cloud.Request(t.Context(), r)
	wantKind(t, err, croft.Invalid)
}
