package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"croft"
)

// forest returns hosts at random locations, some without a location, or without a row.
func forest(r *rand.Rand, n int) []croft.Host {
	var hosts []croft.Host
	for i := range n {
		h := croft.Host{ID: croft.HostID(fmt.Sprintf("h%03d", i))}
		s, w, k := r.IntN(3), r.IntN(3), r.IntN(3)
		h.Location = []string{"", fmt.Sprintf("s%d", s), fmt.Sprintf("s%d/rack=k%d", s, k),
			fmt.Sprintf("s%d/w%d/k%d", s, w, k), fmt.Sprintf("s%d/w%d", s, w), "No Such Form"}[r.IntN(6)]
		hosts = append(hosts, h)
	}
	return hosts
}

func TestTheTreeHoldsEveryHostOnceAndInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		hosts := forest(r, r.IntN(40))
		tree := New(hosts)
		if got := tree.Hosts(-1); len(got) != len(hosts) {
			t.Fatalf("%d hosts of %d", len(got), len(hosts))
		}
		for i := range tree.Len() {
			checkLocation(t, tree, i)
		}
		r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		if !slices.Equal(New(hosts).all, tree.all) {
			t.Fatal("the order of the hosts changes the tree")
		}
	}
}

func checkLocation(t *testing.T, tree *Tree, i int) {
	t.Helper()
	at := tree.At(i)
	if tree.Find(at.Path) != i || at.Parent >= i {
		t.Fatalf("%q is at %d and found at %d, in %d", at.Path, i, tree.Find(at.Path), at.Parent)
	}
	if at.Parent >= 0 && !at.Path.In(tree.At(at.Parent).Path) {
		t.Fatalf("%q is not in its parent %q", at.Path, tree.At(at.Parent).Path)
	}
	var within []croft.HostID
	for j := range tree.Len() {
		if below := tree.At(j); below.Host != "" && below.Path.In(at.Path) {
			within = append(within, below.Host)
		}
	}
	if !slices.Equal(tree.Hosts(i), within) || len(within) == 0 {
		t.Fatalf("%q has the hosts %v, want %v", at.Path, tree.Hosts(i), within)
	}
}

func TestTheTreeOfSomeHosts(t *testing.T) {
	tree := New([]croft.Host{{ID: "h3"}, {ID: "h2", Location: "s/r/k"}, {ID: "h1", Location: "s/r/k"},
		{ID: "h4", Location: "s/rack=z"}})
	var got []string
	for i := range tree.Len() {
		got = append(got, tree.At(i).Path.String())
	}
	if want := "host=h3 s s/rack=z s/rack=z/h4 s/r s/r/k s/r/k/h1 s/r/k/h2"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	nowhere, _ := Parse("s/r/x")
	if tree.Find(nowhere) != -1 {
		t.Error("found a rack without hosts")
	}
}

// Distances between hosts are an ultrametric: of the three distances between any three hosts, the greatest occurs
// twice.
func TestDistancesAreAnUltrametric(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	hosts := forest(r, 60)
	var paths []Path
	for _, h := range hosts {
		p, _ := Of(h)
		paths = append(paths, p)
	}
	seen := map[int]bool{}
	for _, a := range paths {
		for _, b := range paths {
			ab := Distance(a, b)
			seen[ab] = true
			if ab != Distance(b, a) || (ab == 0) != (a == b) || ab < 0 || ab > Far {
				t.Fatalf("from %q to %q it is %d, and back %d", a, b, ab, Distance(b, a))
			}
			for _, c := range paths {
				if ac := Distance(a, c); ac > max(ab, Distance(b, c)) {
					t.Fatalf("%q to %q is %d, by way of %q %d and %d", a, c, ac, b, ab, Distance(b, c))
				}
			}
		}
	}
	if len(seen) != Far+1 {
		t.Errorf("the hosts have the distances %v, want all up to %d", seen, Far)
	}
}

func path(t *testing.T, text string) Path {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"s/r/k/h", "s/r/k/h", 0}, {"s/r/k/h", "s/r/k/i", 1}, {"s/r/k/h", "s/r/l/h", 2}, {"s/r/k/h", "s/q/k/h", 3},
		{"s/r/k/h", "t/r/k/h", Far}, {"s/r/k/h", "s/r", 0}, {"s/r", "s/q/k/h", 3}, {"host=h", "host=i", Far},
		{"s/rack=k/h", "s/rack=k/i", 1}, {"s/rack=k/h", "s/rack=l/h", 3}, {"s/r/k/h", "s/r/host=i", 2},
	} {
		if got := Distance(path(t, c.a), path(t, c.b)); got != c.want {
			t.Errorf("from %s to %s: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
