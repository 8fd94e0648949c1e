package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"croft"
)

func TestAdmitBounds(t *testing.T) {
	here := croft.Host{ID: "h", Location: "s/r/k"}
	aggregates := map[string]croft.Aggregate{"ssd": {Name: "ssd", Hosts: []croft.HostID{"g", "h"}},
		"gpu": {Name: "gpu", Hosts: []croft.HostID{"g"}}, "t": {Name: "t", Hosts: []croft.HostID{"h"}}}
	for _, c := range []struct {
		name  string
		bound croft.Bound
		host  croft.Host
		want  string // reason of the refusal
	}{
		{"in an aggregate", "ssd", here, ""},
		{"not in it", "gpu", here, "is not in gpu"},
		{"in one of several", "in:gpu,ssd", here, ""},
		{"in none of several", "in:gpu,none", here, "is not in one of gpu, none"},
		{"in an aggregate that is excluded", "!in:gpu,ssd", here, "is in ssd, where it is not to be"},
		{"in none that is excluded", "!gpu", here, ""},
		{"in a site", "s", here, ""},
		{"in a row, with dots", "s.r", here, ""},
		{"in another rack", "s/r/l", here, "is not in s/r/l"},
		{"in a site that is excluded", "!s", here, "is in s, where it is not to be"},
		{"an aggregate counts before a site of its name", "t", here, ""},
		{"what there is not admits nobody", "none", here, "is not in none"},
		{"what there is not excludes nobody", "!none", here, ""},
		{"a location that cannot be read is nowhere", "s", croft.Host{ID: "h", Location: "Somewhere"}, "is not in s"},
		{"but may be in an aggregate", "ssd", croft.Host{ID: "h", Location: "Somewhere"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := AdmitBounds([]croft.Bound{c.bound}, c.host, aggregates)
			if c.want == "" && err != nil || c.want != "" && (croft.KindOf(err) != croft.NoCapacity ||
				err.Error() != c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestMembersAreWhatBoundsAdmit compares the sets with the result of AdmitBounds for each host.
func TestMembersAreWhatBoundsAdmit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	restrictions := 0
	for range 500 {
		aggregates := map[string]croft.Aggregate{}
		var hosts []croft.Host
		for i := range 8 {
			hosts = append(hosts, croft.Host{ID: croft.HostID(fmt.Sprint("h", i)), Location: "s/r"})
		}
		for i := range 4 {
			a := croft.Aggregate{Name: fmt.Sprint("a", i)}
			for _, h := range hosts {
				if r.IntN(2) == 0 {
					a.Hosts = append(a.Hosts, h.ID)
				}
			}
			aggregates[a.Name] = a
		}
		var bounds []croft.Bound
		for range r.IntN(4) {
			names := []string{fmt.Sprint("a", r.IntN(4))}
			for r.IntN(2) == 0 {
				names = append(names, []string{fmt.Sprint("a", r.IntN(4)), "s"}[r.IntN(2)])
			}
			b, err := croft.NewBound(r.IntN(3) == 0, names...)
			if err != nil {
				t.Fatal(err)
			}
			bounds = append(bounds, b)
		}
		got, restricted := Members(bounds, aggregates)
		if restricted {
			restrictions++
		}
		for _, h := range hosts {
			admitted := AdmitBounds(bounds, h, aggregates) == nil
			if restricted && admitted && !slices.Contains(got, h.ID) {
				t.Fatalf("%v admit %s, which is not among %v of %v", bounds, h.ID, got, aggregates)
			}
			onlyAggregates := !slices.Contains(croft.NamesIn(bounds), "s")
			if restricted && onlyAggregates && !admitted && slices.Contains(got, h.ID) {
				t.Fatalf("%v bar %s, which is among %v", bounds, h.ID, got)
			}
		}
	}
	if restrictions < 100 {
		t.Errorf("only %d cases restrict anything", restrictions)
	}
}
