package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"croft/crush"
)

const sites = `tunable choose_total_tries 50
tunable chooseleaf_descend_once 1
tunable chooseleaf_vary_r 1
tunable chooseleaf_stable 1
device 0 a0
device 1 a1
device 2 a2
device 3 a3
device 4 b0
device 5 b1
type 0 node
type 1 host
type 2 site
type 3 root
host ha { item a0 item a1 }
host hb { item a2 item a3 }
host hc { item b0 }
host hd { item b1 }
site here { item ha item hb }
site there { item hc item hd }
root default { item here item there }
`

func placed(t *testing.T, text string, r Request) []crush.ID {
	t.Helper()
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	program, err := crush.Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compile(p, m)
	if err != nil {
		t.Fatal(err)
	}
	return c.Place(program.NewMapper(), r, nil)
}

var hosts = []string{"ha", "ha", "hb", "hb", "hc", "hd"}

func TestPolicies(t *testing.T) {
	refuse := func(ids ...crush.ID) func(crush.ID) bool {
		return func(id crush.ID) bool { return slices.Contains(ids, id) }
	}
	for _, c := range []struct {
		name, text string
		r          Request
		ok         func([]crush.ID) bool
	}{
		{"a device each on so many hosts", "select 0 host; take 1", Request{Want: 4}, func(got []crush.ID) bool {
			on := map[string]bool{}
			for _, id := range got {
				on[hosts[id]] = true
			}
			return len(got) == 4 && len(on) == 4
		}},
		{"two here, the third there",
			"use here; select 2 host; take 1; emit; use there; select -2 host; take 1",
			Request{Want: 3}, func(got []crush.ID) bool {
				return len(got) == 3 && got[0] < 4 && got[1] < 4 && hosts[got[0]] != hosts[got[1]] && got[2] > 3
			}},
		{"two devices on each of two hosts", "use here; select 2 host; take 2", Request{Want: 4},
			func(got []crush.ID) bool {
				return len(got) == 4 && hosts[got[0]] == hosts[got[1]] && hosts[got[2]] == hosts[got[3]] &&
					got[0] != got[1]
			}},
		{"a later block gives what an earlier one has not", "use there; take 1; emit; use there; take 1",
			Request{Want: 2}, func(got []crush.ID) bool { return len(got) == 2 && got[0] != got[1] }},
		{"again until enough", "select 1 host; take 1", Request{Want: 6}, func(got []crush.ID) bool {
			return len(got) == 6 && len(slices.Compact(slices.Sorted(slices.Values(got)))) == 6
		}},
		{"no more than there are", "take 0", Request{Want: 20}, func(got []crush.ID) bool { return len(got) == 6 }},
		{"what is kept is not given again, and counts", "take 0", Request{Want: 5, Kept: []crush.ID{1, 4}},
			func(got []crush.ID) bool {
				return len(got) == 3 && !slices.Contains(got, 1) && !slices.Contains(got, 4)
			}},
		{"nothing refused is given", "take 0", Request{Want: 6, Refuse: refuse(0, 5)}, func(got []crush.ID) bool {
			return len(got) == 4 && !slices.Contains(got, 0) && !slices.Contains(got, 5)
		}},
		{"as Ceph has it, one pass", "use there; select 1 host; take 1", Request{Want: 2, Ceph: true},
			func(got []crush.ID) bool { return len(got) == 1 }},
		{"nothing is wanted", "take 0", Request{}, func(got []crush.ID) bool { return len(got) == 0 }},
		{"more is kept than wanted", "take 0", Request{Want: 1, Kept: []crush.ID{1, 2}}, func(got []crush.ID) bool {
			return len(got) == 0
		}},
	} {
		for x := range uint32(200) {
			c.r.X = x
			if got := placed(t, c.text, c.r); !c.ok(got) {
				t.Errorf("%s: x %d gives %v", c.name, x, got)
				break
			}
		}
	}
}

// TestASelectHoldsForEachTake checks that the compiled form of one take does not change the following ones.
func TestASelectHoldsForEachTake(t *testing.T) {
	for x := range uint32(200) {
		got := placed(t, "use here; select 2 host; take 1; take 1", Request{Want: 4, X: x})
		if len(got) != 4 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 4 {
			t.Fatalf("x %d gives %v", x, got)
		}
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"no instructions", "# nothing\n", "has no instructions"},
		{"a word that is none", "use here\ntak 1", `line 2: "tak" is none of use, select, take and emit`},
		{"a word too many", "take 1 host", `line 1: "take 1 host": write it as take N`},
		{"a word too few", "select 1", "write it as select N TYPE"},
		{"a number that is none", "take one", `take: "one" is no number`},
		{"a number that is too great", "take 5000", "from -1024 to 1024"},
		{"nothing taken before an emit", "take 1\nemit\nuse here\nemit", "line 4: there is no take before this emit"},
		{"nothing taken at all", "use here", "line 1: there is no take before this emit"},
		{"too many instructions", strings.Repeat("take 1;", 65), "has 66 instructions, and 64 are allowed"},
		{"too long", strings.Repeat("#", 20<<10), "longer than 16 KiB"},
		{"a bucket that is not there", "use nowhere; take 1", `line 1: there is no bucket "nowhere" to use`},
		{"a type that is not there", "select 1 rack; take 1", `there is no type "rack" to select`},
		{"devices selected", "select 1 node; take 1", "is the type of devices; take them"},
	} {
		p, err := Parse(c.text)
		if err == nil {
			_, err = Compile(p, m)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestCodeIsReadBack(t *testing.T) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse("use here\nselect -2 host\ntake 1\nemit\ntake 0\nemit")
	if err != nil {
		t.Fatal(err)
	}
	code, err := p.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(code, m)
	if err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%v, %v", again, err)
	}
	for n := range code {
		if _, err := Decode(code[:n], m); err == nil && n > 0 {
			if got, _ := Decode(code[:n], m); got[len(got)-1].Op != Emit {
				t.Errorf("%d bytes of the code are read as %v", n, got)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	m, err := crush.ReadText(strings.NewReader(sites))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{2, 2, 2, 3, 2, 4})
	f.Fuzz(func(t *testing.T, code []byte) {
		p, err := Decode(code, m)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("%s is read back as %s: %v", p, again, err)
		}
	})
}
