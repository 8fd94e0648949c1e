package topology

import (
	"math/rand/v2"
	"testing"

	"croft"
)

// stated makes distances from triples. ssd is an aggregate of the hosts h1 and h2.
func stated(t *testing.T, all ...croft.Distance) Distances {
	t.Helper()
	rows := croft.Distances{Type: "network"}
	for _, d := range all {
		var err error
		if rows, err = rows.With(d); err != nil {
			t.Fatal(err)
		}
	}
	return NewDistances(rows, ssd)
}

var (
	h1, h2, h3 = croft.HostID("00000000-0000-4000-8000-000000000001"),
		croft.HostID("00000000-0000-4000-8000-000000000002"), croft.HostID("00000000-0000-4000-8000-000000000003")
	ssd = map[string]croft.Aggregate{"ssd": {Name: "ssd", Hosts: []croft.HostID{h1, h2}, Generation: 5}}
)

func TestStatedDistancesWin(t *testing.T) {
	d := stated(t, croft.Distance{A: "s", B: "t", Distance: 20}, croft.Distance{A: "t/r", B: "s", Distance: 70},
		croft.Distance{A: "s/r", B: "s/q", Distance: 10}, croft.Distance{A: "ssd", B: "t", Distance: 90},
		croft.Distance{A: string(h3), B: "t", Distance: 3}, croft.Distance{A: "u", B: "v/r", Distance: 8},
		croft.Distance{A: "u/r", B: "v", Distance: 6})
	for _, c := range []struct {
		name, a, b string
		want       int
		known      bool
	}{
		{"what is in two locations has their distance", "s/a/b/c", "t/x/y/z", 20, true},
		{"the finer statement counts", "s/a/b/c", "t/r/y/z", 70, true},
		{"inside of one as well", "s/r/k/h", "s/q/k/h", 10, true},
		{"an aggregate is more explicit than a location", "s/r/k/" + string(h1), "t/r/k/z", 90, true},
		{"a host more than both", "s/r/k/" + string(h3), "t/x/k/z", 3, true},
		{"of equally explicit ones the smaller counts", "u/r/k/h", "v/r/k/h", 6, true},
		{"where nothing is stated, it is not known", "s/r/k/h", "s/z/k/h", 0, false},
		{"a host stays at no distance from itself", "s/r/k/h", "s/r/k/h", 0, true},
		{"and from where it is", "s/r/k/h", "s/r", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := End{Path: path(t, c.a)}, End{Path: path(t, c.b)}
			n, _, known := d.Between("network", a, b)
			back, _, _ := d.Between("network", b, a)
			if n != c.want || back != n || known != c.known {
				t.Errorf("got %d and %d, %v, want %d", n, back, known, c.want)
			}
			if n, is, known := d.Between(croft.FailureDistance, a, b); !known || !is && n != Distance(a.Path, b.Path) {
				t.Errorf("of type failure got %d", n)
			}
		})
	}
}

// TestTheDistanceToAnAggregateIsThatToItsNearestHost compares Derived with a search through all hosts.
func TestTheDistanceToAnAggregateIsThatToItsNearestHost(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	hosts := map[croft.HostID]croft.Host{}
	var all []croft.Host
	for _, h := range forest(r, 60) {
		hosts[h.ID] = h
		all = append(all, h)
	}
	seen := map[int]bool{}
	for range 300 {
		var a, b croft.Aggregate
		a.Name, b.Name = "a", "b"
		for range 1 + r.IntN(3) {
			a.Hosts = append(a.Hosts, all[r.IntN(len(all))].ID)
			b.Hosts = append(b.Hosts, all[r.IntN(len(all))].ID)
		}
		to, _ := Of(all[r.IntN(len(all))])
		if r.IntN(2) == 0 && to.Parent() != (Path{}) {
			to = to.Parent()
		}
		one, two := AggregateEnd(a, hosts), AggregateEnd(b, hosts)
		want, wantTwo := Far, Far
		for _, id := range a.Hosts {
			at, _ := Of(hosts[id])
			want = min(want, Distance(at, to))
			for _, other := range b.Hosts {
				there, _ := Of(hosts[other])
				wantTwo = min(wantTwo, Distance(at, there))
			}
		}
		seen[want] = true
		if got := Derived(one, End{Path: to}); got != want || Derived(End{Path: to}, one) != want {
			t.Fatalf("from %v to %q: got %d, want %d", a.Hosts, to, got, want)
		}
		if got := Derived(one, two); got != wantTwo {
			t.Fatalf("from %v to %v: got %d, want %d", a.Hosts, b.Hosts, got, wantTwo)
		}
	}
	if len(seen) < Far {
		t.Errorf("only the distances %v occurred", seen)
	}
}

func TestMeasureByStatedDistances(t *testing.T) {
	rows := croft.Distances{Type: "network", Generation: 9,
		Distances: []croft.Distance{{A: "s", B: "ssd", Distance: 50}}}
	kinds := map[string]croft.Distances{"network": rows}
	hosts := map[croft.HostID]croft.Host{h1: {ID: h1, Location: "t/r/k"}, h2: {ID: h2, Location: "t/q/k"}}
	near := croft.Near{To: "ssd", Location: "ssd", Aggregate: true, Type: "network", Distance: 50}
	far := croft.Near{To: "ssd", Location: "ssd", Aggregate: true, Distance: 2, Far: true}
	for _, c := range []struct {
		name string
		near croft.Near
		host croft.Host
		want int
		kind croft.Kind
	}{
		{"as near as is stated", near, croft.Host{ID: h3, Location: "s/r/k"}, 50, ""},
		{"not nearer", croft.Near{To: "ssd", Location: "ssd", Aggregate: true, Type: "network", Distance: 49},
			croft.Host{ID: h3, Location: "s/r/k"}, 0, croft.NoCapacity},
		{"in the aggregate", near, croft.Host{ID: h1, Location: "Anywhere"}, 0, ""},
		{"what is not known bars nothing, and is the farthest", near, croft.Host{ID: h3, Location: "u"},
			croft.MaxStatedDistance + 1, ""},
		{"far from an aggregate by location", far, croft.Host{ID: h3, Location: "t/r/l"}, 0, ""},
		{"in the rack of one of its hosts", far, croft.Host{ID: h3, Location: "t/q/k"}, 0, croft.NoCapacity},
		{"in a location that cannot be read", far, croft.Host{ID: h3, Location: "Some/"}, 0, croft.NoCapacity},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMeasure([]croft.Near{c.near}, kinds, ssd, hosts)
			got, err := m.Admit(c.host)
			if got != c.want || croft.KindOf(err) != c.kind {
				t.Errorf("got %d, %v, want %d and kind %q", got, err, c.want, c.kind)
			}
		})
	}
	m := NewMeasure([]croft.Near{near}, kinds, ssd, hosts)
	based := m.BasedOn(map[string]int64{"x": 1})
	for name, want := range map[string]int64{"x": 1, "distances/network": 9, "ssd": 5, "s": 0} {
		if got, there := based[name]; !there || got != want {
			t.Errorf("based on %v, want %s at %d", based, name, want)
		}
	}
}
