package setexpr_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/setexpr"
)

// world is an in-memory Source.
type world struct {
	tags, pools map[string]string // expressions of literals
	sets        map[string]string
	jobs, nodes map[string]string // literals by path
}

func (w world) literal(text string) (*netipx.IPSet, error) {
	x, err := setexpr.Parse(text, "", 1)
	if err != nil {
		return nil, err
	}
	return setexpr.NewEvaluator(w).Eval(x)
}

func (w world) Tag(name string) (*netipx.IPSet, error) {
	if w.tags[name] == "" {
		return &netipx.IPSet{}, nil
	}
	return w.literal(w.tags[name])
}

func (w world) Pool(name string) (*netipx.IPSet, error) {
	if w.pools[name] == "" {
		return nil, croft.Errorf(croft.NotFound, "there is no pool %s", name)
	}
	return w.literal(w.pools[name])
}

func (w world) paths(of map[string]string, p setexpr.Pattern) (*netipx.IPSet, error) {
	all := "none"
	for path, text := range of {
		if p.Match(path) {
			all += " | " + text
		}
	}
	return w.literal(all)
}

func (w world) Job(p setexpr.Pattern) (*netipx.IPSet, error)  { return w.paths(w.jobs, p) }
func (w world) Node(p setexpr.Pattern) (*netipx.IPSet, error) { return w.paths(w.nodes, p) }

func (w world) Set(name string) (*setexpr.Expr, error) {
	if w.sets[name] == "" {
		return nil, croft.Errorf(croft.NotFound, "there is no set %s", name)
	}
	return setexpr.Parse(w.sets[name], "net/sets/"+name, 1)
}

var earth = world{
	tags:  map[string]string{"office": "10.0.0.0/8 - 10.1.0.0/16", "db": "10.0.0.5 | 2001:db8::5"},
	pools: map[string]string{"web": "10.0.0.0/24"},
	jobs:  map[string]string{"web/front@1": "10.0.0.7", "web/front@2": "10.0.0.8", "web/old/x": "10.0.0.9"},
	nodes: map[string]string{"syd/r1/web1": "192.0.2.1", "syd/db1": "192.0.2.2"},
	sets: map[string]string{"servers": "# what serves\n#db |\n@front # and those", "front": "job:web/*",
		"a": "none |\n @b", "b": "@c", "c": "\n\n10.0.0.1 | @a", "self": "@self", "broken": "10.0.0.1 |"},
}

func TestExpressions(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an address", "10.0.0.1", "10.0.0.1/32"},
		{"a prefix", "10.0.0.0/8", "10.0.0.0/8"},
		{"an IPv6 prefix", "2001:DB8::/32", "2001:db8::/32"},
		{"a range is the fewest prefixes", "10.0.0.1-10.0.0.6", "10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32"},
		{"neighbours join", "10.0.0.0/25 | 10.0.0.128/25", "10.0.0.0/24"},
		{"an IPv4 address in IPv6 is that one", "::ffff:10.0.0.1 & 10.0.0.0/8", "10.0.0.1/32"},
		{"and a prefix of them", "::ffff:10.0.0.0/104", "10.0.0.0/8"},
		{"all of IPv4", "all4", "0.0.0.0/0"},
		{"all of IPv6", "all6", "::/0"},
		{"nothing", "none", ""},
		{"the complement has both families", "!all4", "::/0"},
		{"twice not", "!!10.0.0.1", "10.0.0.1/32"},
		{"not binds more than all", "!all6 & 10.0.0.1", "10.0.0.1/32"},
		{"& over -", "10.0.0.0/31 - 10.0.0.0/32 & 10.0.0.1", "10.0.0.0/31"},
		{"- over |", "10.0.0.1 | 10.0.0.2 - 10.0.0.1", "10.0.0.1/32 10.0.0.2/32"},
		{"- from the left", "10.0.0.0/30 - 10.0.0.0/31 - 10.0.0.2", "10.0.0.3/32"},
		{"parentheses", "(10.0.0.1 | 10.0.0.2) - 10.0.0.1", "10.0.0.2/32"},
		{"no blanks are needed around other operators", "(10.0.0.1|10.0.0.2)&!10.0.0.1", "10.0.0.2/32"},
		{"a tag", "#db & all4", "10.0.0.5/32"},
		{"a pool", "pool:web", "10.0.0.0/24"},
		{"jobs of a folder", "job:web/*", "10.0.0.7/32 10.0.0.8/32"},
		{"jobs at any depth", "job:web/**", "10.0.0.7/32 10.0.0.8/31"},
		{"jobs of a name", "job:web/front@?", "10.0.0.7/32 10.0.0.8/32"},
		{"nodes of a site", "node:syd/**", "192.0.2.1/32 192.0.2.2/32"},
		{"** is nothing too", "node:**/syd/**/db1", "192.0.2.2/32"},
		{"sets in sets, and remarks", "@servers - 10.0.0.8", "10.0.0.5/32 10.0.0.7/32 2001:db8::5/128"},
		{"several lines", "10.0.0.1 # first\n#\n | 10.0.0.2", "10.0.0.1/32 10.0.0.2/32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := setexpr.Parse(c.text, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			s, err := setexpr.NewEvaluator(earth).Eval(x)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Trim(fmt.Sprint(s.Prefixes()), "[]"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			again, err := setexpr.Parse(x.String(), "", 1)
			if err != nil || again.String() != x.String() {
				t.Errorf("%q is written %q and then %v, %v", c.text, x, again, err)
			}
		})
	}
}

func TestWhatIsNoExpressionIsToldWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "column 1: there is no expression",
		"  # only a remark":        "there is no expression",
		"10.0.0.1 10.0.0.2":        `column 10: "10.0.0.2" has nothing before it to combine`,
		"10.0.0.1 |":               "column 11: the expression ends where",
		"| 10.0.0.1":               `column 1: "|" where an address`,
		"(10.0.0.1":                "column 1: the parenthesis that opens here is not closed",
		"(10.0.0.1 10.0.0.2)":      `column 11: "10.0.0.2" where ) or an operator`,
		"10.0.0.1)":                `column 9: ")" has nothing before it`,
		"()":                       `column 2: ")" where`,
		"!":                        "the expression ends where",
		"10.0.0.5/24":              "column 1: 10.0.0.5/24 has bits beyond its length: write 10.0.0.0/24",
		"10.0.0.0/33":              `"10.0.0.0/33" is no prefix`,
		"10.0.0.0/8-10.1.0.0/16":   "a difference has blanks around its -",
		"10.0.0.9-10.0.0.1":        "ends before it starts",
		"10.0.0.1-2001:db8::1":     "mixes IPv4 and IPv6",
		"10.0.0.256":               `"10.0.0.256" is no address`,
		"fe80::1%eth0":             "leave out %eth0",
		"web":                      "a set is written @web, a tag #web, a pool pool:web",
		"#Web":                     `"#Web" is no name`,
		"@../x":                    `"@../x" is no name`,
		"pool:":                    `"pool:" is no name`,
		"job:":                     "is no pattern",
		"job:../x":                 "is no pattern",
		"node:a//b":                "is no pattern",
		"job:[":                    "is no pattern",
		"10.0.0.1\n|\n  x y":       "line 3, column 3",
		strings.Repeat("(", 200):   "more than 100 parentheses",
		"\xff":                     "not in UTF-8",
		strings.Repeat(" ", 2<<20): "more than 1048576 bytes",
	} {
		_, err := setexpr.Parse(text, "", 1)
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
}

func TestWhatCannotBeComputedIsToldWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1 | @nowhere":   "column 12: there is no set nowhere",
		"pool:nowhere":          "column 1: there is no pool nowhere",
		"@self":                 "the set @self refers to itself: net/sets/self:1:1 says @self",
		"#db | @b":              "net/sets/b:1:1 says @c, net/sets/c:3:12 says @a, net/sets/a:2:2 says @b",
		"@broken":               "net/sets/broken:1:11: the expression ends",
		"none & (none - @self)": "@self",
	} {
		x, err := setexpr.Parse(text, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = setexpr.NewEvaluator(earth).Eval(x); croft.KindOf(err) == "" || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestNamesOfNothingAreNoted(t *testing.T) {
	x, err := setexpr.Parse("#dbs | job:none/* | node:x | #dbs | #db", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	e := setexpr.NewEvaluator(earth)
	if _, err := e.Eval(x); err != nil {
		t.Fatal(err)
	}
	want := []string{"column 1: nothing has #dbs", "column 8: no leased address is of job:none/*",
		"column 21: there is no node:x"}
	if diff := cmp.Diff(want, e.Notes()); diff != "" {
		t.Error(diff)
	}
}

func TestAnExplanationFollowsTheExpression(t *testing.T) {
	x, err := setexpr.Parse("(#office | @servers) - 10.0.0.8/31", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := setexpr.NewEvaluator(earth).Explain(x, netip.MustParseAddr("::ffff:10.0.0.8"))
	if err != nil {
		t.Fatal(err)
	}
	want := setexpr.Explanation{Expr: "(#office | @servers) - 10.0.0.8/31", Parts: []setexpr.Explanation{
		{Expr: "#office | @servers", In: true, Parts: []setexpr.Explanation{
			{Expr: "#office", In: true, By: "10.0.0.0/16"},
			{Expr: "@servers", In: true, At: "net/sets/servers:2:1", Parts: []setexpr.Explanation{
				{Expr: "#db | @front", In: true, Parts: []setexpr.Explanation{
					{Expr: "#db"},
					{Expr: "@front", In: true, At: "net/sets/front:1:1", Parts: []setexpr.Explanation{
						{Expr: "job:web/*", In: true, By: "10.0.0.8"},
					}},
				}},
			}},
		}},
		{Expr: "10.0.0.8/31", In: true, By: "10.0.0.8/31"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// universe lists the addresses of the brute-force model, 16 of each family.
func universe() []netip.Addr {
	var all []netip.Addr
	for i := range 16 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x",
			i)))
	}
	return all
}

// grown returns a random expression, and an independent function that reports whether an address is in it.
func grown(r *rand.Rand, depth int) (string, func(netip.Addr) bool) {
	if depth == 0 || r.IntN(5) == 0 {
		return grownWord(r)
	}
	a, inA := grown(r, depth-1)
	if r.IntN(5) == 0 {
		return "!(" + a + ")", func(at netip.Addr) bool { return !inA(at) }
	}
	b, inB := grown(r, depth-1)
	switch r.IntN(3) {
	case 0:
		return "(" + a + ") | (" + b + ")", func(at netip.Addr) bool { return inA(at) || inB(at) }
	case 1:
		return "(" + a + ") & (" + b + ")", func(at netip.Addr) bool { return inA(at) && inB(at) }
	}
	return "(" + a + ") - (" + b + ")", func(at netip.Addr) bool { return inA(at) && !inB(at) }
}

func grownWord(r *rand.Rand) (string, func(netip.Addr) bool) {
	all := universe()
	a := all[r.IntN(len(all))]
	switch r.IntN(6) {
	case 0:
		p, _ := a.Prefix(a.BitLen() - r.IntN(5))
		return p.String(), p.Contains
	case 1:
		b := all[r.IntN(len(all))]
		if a.Is4() != b.Is4() || b.Less(a) {
			return "none", func(netip.Addr) bool { return false }
		}
		return a.String() + "-" + b.String(), func(at netip.Addr) bool {
			return at.Is4() == a.Is4() && !at.Less(a) && !b.Less(at)
		}
	case 2:
		return "all4", netip.Addr.Is4
	case 3:
		return "all6", netip.Addr.Is6
	}
	return a.String(), func(at netip.Addr) bool { return at == a }
}

// TestSetsAreAsCountedByHand compares random expressions, with and without redundant parentheses, with a function that
// decides for each address.
func TestSetsAreAsCountedByHand(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 3000 {
		text, in := grown(r, 5)
		x, err := setexpr.Parse(text, "", 1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		brief, err := setexpr.Parse(x.String(), "", 1)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, x := range []*setexpr.Expr{x, brief} {
			s, err := setexpr.NewEvaluator(earth).Eval(x)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range universe() {
				if s.Contains(a) != in(a) {
					t.Fatalf("seed %d: %s, in brief %s: %s is in: %v", seed, text, x, a, s.Contains(a))
				}
			}
			checkFewest(t, s)
		}
	}
}

// checkFewest fails the test if two prefixes of a set could be merged.
func checkFewest(t *testing.T, s *netipx.IPSet) {
	t.Helper()
	four, six := setexpr.Prefixes(s)
	for _, all := range [][]netip.Prefix{four, six} {
		for i, p := range all[:max(0, len(all)-1)] {
			q := all[i+1]
			if p.Overlaps(q) || p.Bits() == q.Bits() && p.Bits() > 0 &&
				netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() == netip.PrefixFrom(q.Addr(), q.Bits()-1).Masked() {
				t.Fatalf("%s and %s are one prefix", p, q)
			}
		}
	}
}

func TestPatternsAreAsMatchedByHand(t *testing.T) {
	var match func(p, name []string) bool
	match = func(p, name []string) bool {
		switch {
		case len(p) == 0:
			return len(name) == 0
		case p[0] == "**":
			return match(p[1:], name) || len(name) > 0 && match(p, name[1:])
		}
		return len(name) > 0 && (p[0] == "*" || p[0] == name[0]) && match(p[1:], name[1:])
	}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) []string {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, from[r.IntN(len(from))])
		}
		return parts
	}
	for range 20000 {
		p, name := pick("a", "b", "*", "**"), pick("a", "b")
		if got := setexpr.Pattern(strings.Join(p, "/")).Match(strings.Join(name, "/")); got != match(p, name) {
			t.Fatalf("%q matches %q: %v", p, name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"#db | @servers - 10.0.0.0/8 & !all6", "((node:**))", "10.0.0.1-10.0.0.9 # x\n|none",
		"job:a/[b-c]*",
		"::ffff:10.0.0.0/104 - fe80::1%x", "!!!(a|", "-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := setexpr.Parse(text, "f", 1)
		if err != nil {
			if croft.KindOf(err) != croft.Invalid || !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := setexpr.Parse(x.String(), "f", 1)
		if err != nil || again.String() != x.String() {
			t.Fatalf("%q is written %q, and then %v, %v", text, x, again, err)
		}
		first, err := setexpr.NewEvaluator(earth).Eval(x)
		second, err2 := setexpr.NewEvaluator(earth).Eval(again)
		if (err == nil) != (err2 == nil) || err == nil && !first.Equal(second) {
			t.Fatalf("%q and %q are not the same: %v, %v, %v, %v", text, x, first, second, err, err2)
		}
	})
}
