package schedule_test

import (
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

// newSite creates live hosts with room for three instances each, at locations.
func newSite(t *testing.T, locations ...string) *cloud {
	t.Helper()
	places := make([]int64, len(locations))
	for i := range places {
		places[i] = 3
	}
	c := newCloud(t, places...)
	hosts, err := c.store.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, location := range locations {
		h := hosts[c.hosts[i]]
		h.Location = location
		if err := c.store.PutHost(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestRulesAboutLocationsChooseHosts(t *testing.T) {
	racks := []string{"s/r/k1", "s/r/k1", "s/r/k2", "t/r/k1"}
	for _, c := range []struct {
		name, rule string
		locations  []string
		want       string // of members a, b, c; "-": refused
	}{
		{"no two in one rack", "at-most-1-per-rack", racks, "host1 host3 host4"},
		{"at most two in one site", "at-most-2-per-site", racks, "host1 host1 host4"},
		{"all in one site", "same-site", racks[1:], "host1 host1 host1"},
		{"apart within a site", "at-most-1-per-rack+same-site", racks, "host1 host3 -"},
		{"no two in one row", "at-most-1-per-row", racks, "host1 host4 -"},
		{"a wish gives way", "at-most-1-per-row-soft", racks, "host1 host4 host1"},
		{"a wish to be together is met", "same-rack-soft", []string{"s/r/k1", "s/r/k2", "s/r/k2"},
			"host1 host1 host1"},
		{"a wish for two in a rack fills the rack first", "at-most-2-per-rack-soft", racks, "host1 host1 host3"},
		{"hosts without a location are racks of their own", "at-most-1-per-rack", []string{"", "", "s/r/k"},
			"host1 host2 host3"},
		{"and sites", "same-site", []string{"", "s"}, "host1 host1 host1"},
		{"a host whose row is missing", "at-most-1-per-row", []string{"s/rack=k", "s/rack=k", "s/rack=l"},
			"host1 host3 -"},
		{"a location that cannot be read is not used", "at-most-1-per-rack", []string{"Somewhere", "s/r/k"},
			"host2 - -"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newSite(t, c.locations...)
			var hosts []string
			for _, name := range []string{"a", "b", "c"} {
				d, err := cloud.Request(t.Context(), member(t, name, croft.AffinityRule(c.rule)))
				if err != nil {
					wantKind(t, err, croft.NoCapacity)
					d.Host.Name = "-"
				}
				hosts = append(hosts, d.Host.Name)
			}
			if got := strings.Join(hosts, " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			n := 3 - strings.Count(c.want, "-")
			if len(cloud.placement.Claimed()) != n || len(cloud.instances(t)) != n {
				t.Errorf("left: claims %q, records %q", cloud.placement.Claimed(), cloud.instances(t))
			}
		})
	}
}

func TestWhyARuleAboutLocationsRefuses(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		locations  []string
		want       string
	}{
		{"the rack is named", "at-most-1-per-rack", []string{"s/r/k"}, "rack s/r/k has a member of group web already"},
		{"the number is named", "at-most-2-per-site", []string{"s"}, "site s has 2 members of group web already"},
		{"the location of the others is named", "same-rack", []string{"s/r/k1", "s/r/k2"},
			"is not in the rack of group web, s/r/k1, whose members stay together"},
		{"a location is not of the form", "same-rack", []string{"s/r/k1", "S/r"},
			`cannot be placed by group web: the location "S/r" has a part "S"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newSite(t, c.locations...)
			var why error
			for _, name := range []string{"a", "b", "c", "d"} {
				if _, err := cloud.Request(t.Context(), member(t, name, croft.AffinityRule(c.rule))); err != nil {
					why = err
				}
			}
			wantKind(t, why, croft.NoCapacity)
			e, err := cloud.Explain(t.Context(), member(t, "e", croft.AffinityRule(c.rule)))
			if err != nil {
				t.Fatal(err)
			}
			said := false
			for _, row := range e.Rows {
				said = said || strings.Contains(strings.Join(row.Missing, "\n"), c.want)
			}
			if !said || len(e.Requirements) == 0 {
				t.Errorf("got %+v and %+v, want %q", e.Rows, e.Requirements, c.want)
			}
		})
	}
}

// A rival takes the last seat of a rack after the request has chosen a host there.
func TestARivalTakesTheSeat(t *testing.T) {
	for _, c := range []struct {
		name, rule, want string
	}{
		{"the only one", "at-most-1-per-rack", "host2"},
		{"one of two", "at-most-2-per-rack", "host1"},
		{"in another rack, though all are to be in one", "same-rack", "host1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newSite(t, "s/r/k1", "s/r/k2")
			cloud.placement.Fail("Claim", func() error {
				other, err := schedule.New(schedule.Config{Partition: cloud.Partition,
					Records: cloud.store, Holds: cloud.store,
					View: cloud.store, Registry: cloud.store, Groups: cloud.store, Claims: cloud.placement,
					Policy: cloud.Policy})
				if err != nil {
					return err
				}
				_, err = other.Request(t.Context(), member(t, "rival", croft.AffinityRule(c.rule)))
				return err
			})
			if got := cloud.hostNames(t, croft.AffinityRule(c.rule), "web"); got != c.want {
				t.Errorf("went to %s, want %s", got, c.want)
			}
		})
	}
}

// The location at the time of the order is used, both for the member whose host moved and for members that join later.
func TestAMemberKeepsItsSeatWhereItsHostWas(t *testing.T) {
	c := newSite(t, "s/r/k1", "s/r/k2")
	c.hostNames(t, "at-most-1-per-rack", "a")
	hosts, err := c.store.Hosts(t.Context(), c.hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	moved := hosts[c.hosts[0]]
	moved.Location = "s/r/k2"
	if err := c.store.PutHost(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	st, err := c.store.Find(t.Context(), croft.DefaultProject, "a")
	if err != nil || len(st.Instance.Seats) != 1 || st.Instance.Seats[0].Location != "s/r/k1" {
		t.Fatalf("seats are %+v, %v", st.Instance.Seats, err)
	}
	if got := c.hostNames(t, "at-most-1-per-rack", "b"); got != "host1" && got != "host2" {
		t.Errorf("went to %s", got)
	}
	_, err = c.Request(t.Context(), member(t, "c", "at-most-1-per-rack"))
	wantKind(t, err, croft.NoCapacity)
}
