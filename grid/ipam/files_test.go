package ipam

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/foreign"
	"croft/grid/ipam/setexpr"
)

// everything reads all files of a directory.
func everything(d *Dir) error {
	n, err := d.Read()
	if err == nil {
		_, err = n.Check()
	}
	if err == nil {
		_, err = n.Grid.Cluster()
	}
	if err == nil {
		_, err = source{n}.Node("**")
	}
	return err
}

func TestBadFilesAreToldWithTheirPlace(t *testing.T) {
	const pool = "net/pools/web.yaml"
	for _, c := range []struct{ name, file, text, want string }{
		{"a pool without a prefix", pool, "gateway: 10.0.0.1", "net/pools/web.yaml: a pool has a prefix"},
		{"a prefix with more bits", pool, "\nprefix: 10.0.0.1/24",
			"web.yaml:2: prefix: 10.0.0.1/24 has bits beyond its length"},
		{"no prefix", pool, "prefix: web", `web.yaml:1: prefix: "web" is no prefix`},
		{"a number in place of a prefix", pool, "prefix: 10", "web.yaml:1: prefix: want a text, not 10"},
		{"a gateway elsewhere", pool, "{prefix: 10.0.0.0/24, gateway: 10.1.0.1}",
			"gateway 10.1.0.1 is not in 10.0.0.0/24"},
		{"excluded elsewhere", pool, "prefix: 10.0.0.0/24\nexclude: [10.1.0.0/24]", "addresses outside of 10.0.0.0/24"},
		{"excluded by name", pool, "prefix: 10.0.0.0/24\nexclude: ['#db']", "web.yaml:2: exclude: #db: give addresses"},
		{"no strategy", pool, "{prefix: 10.0.0.0/24, strategy: hsah}",
			`want first or hash, not hsah; did you mean "hash"?`},
		{"no time", pool, "{prefix: 10.0.0.0/24, hold: -1h}",
			"hold: want a duration such as 30m or 24h, or 0, not -1h"},
		{"a day", pool, "{prefix: 10.0.0.0/24, hold: 1d}", "want a duration"},
		{"a tag with blanks", pool, "{prefix: 10.0.0.0/24, tags: [a b]}", `tags: "a b" is no name`},
		{"a key twice", pool, "prefix: 10.0.0.0/24\nprefix: 10.0.0.0/24", "web.yaml:2: prefix is set twice"},
		{"a tab", pool, "prefix: 10.0.0.0/24\n\ttags: []", "web.yaml:2: found a tab character"},
		{"two documents", pool, "prefix: 10.0.0.0/24\n---\n{}", "more than one document"},
		{"a list", pool, "- a", "web.yaml:1: write key: value"},
		{"an alias", pool, "prefix: &a 10.0.0.0/24\ngateway: *a", "web.yaml:1: anchors and aliases"},
		{"a bomb of aliases", pool, "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]", "web.yaml:1: anchors and aliases"},
		{"a merge key", pool, "<<: {prefix: 10.0.0.0/24}", "a key is one word"},
		{"a conflict of branches", pool, "<<<<<<< HEAD\nprefix: 10.0.0.0/24",
			"web.yaml:1: a conflict of version control"},
		{"not UTF-8", pool, "prefix: \xff", "is not in UTF-8"},
		{"too large", pool, strings.Repeat("#", 1<<20+1), "has more than 1048576 bytes"},
		{"too deep", pool, "a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "more than 16 deep"},
		{"a name in capitals", "net/pools/Web.yaml", "prefix: 10.0.0.0/24", `net/pools/Web.yaml: "Web" is no name`},
		{"another ending", "net/pools/web.yml", "prefix: 10.0.0.0/24", "files here end in .yaml"},
		{"a link to nowhere", pool, "-> nowhere.yaml", "read net/pools/web.yaml: no such file"},
		{"a link out of the directory", pool, "-> /etc/passwd", "net/pools/web.yaml"},
		{"a directory", pool + "/x", "", "net/pools/web.yaml is no file"},
		{"within nothing", pool, "{prefix: 10.0.0.0/24, within: other}", `within: there is no pool "other"`},
		{"a lease that is no address", "net/lease/v4/web", "-> ../../../alloc/a/0",
			"net/lease/v4/web: the name is no address"},
		{"a lease with zeros before", "net/lease/v4/10.0.0.05", "-> ../../../alloc/a/0", "the name is no address"},
		{"IPv6 written otherwise", "net/lease/v6/2001-DB8--1", "-> ../../../alloc/a/0",
			"2001:db8::1 is written 2001-db8--1"},
		{"IPv6 among IPv4", "net/lease/v4/2001-db8--1", "-> ../../../alloc/a/0", "belongs into net/lease/v6"},
		{"IPv4 as IPv6", "net/lease/v6/--ffff-10.0.0.1", "-> ../../../alloc/a/0", "belongs into net/lease/v4"},
		{"a lease that leads elsewhere", "net/lease/v4/10.0.0.1", "-> ../../../nodes/a.yaml",
			"leads to alloc/JOB/SLOT"},
		{"out of the directory", "net/lease/v4/10.0.0.1", "-> ../../../../alloc/a/0",
			"outside the cluster's directory"},
		{"to an absolute path", "net/lease/v4/10.0.0.1", "-> /alloc/a/0", "outside the cluster's directory"},
		{"without a slot", "net/lease/v4/10.0.0.1", "-> ../../../alloc/a/b", "leads to alloc/JOB/SLOT"},
		{"of a job with a bad name", "net/lease/v4/10.0.0.1", "-> ../../../alloc/a b/0", `"a b" is no name of a job`},
		{"a slot with zeros before", "net/lease/v4/10.0.0.1", "-> ../../../alloc/a/00", "without zeros before it"},
		{"a link that became a file", "net/lease/v4/10.0.0.1", "../../../alloc/a/0\n",
			"version control did not keep it"},
		{"a lease that says nothing", "net/lease/v4/10.0.0.1", "",
			"is neither a link nor a file with the former owner"},
		{"held until no time", "net/lease/v4/10.0.0.1", "freed: a/0\nuntil: tomorrow",
			"10.0.0.1:2: until: want a time"},
		{"freed by nobody", "net/lease/v4/10.0.0.1", "freed: A\nuntil: 2026-01-01T00:00:00Z",
			`10.0.0.1:1: freed: "A" is no name`},
		{"facts of no prefix", "net/meta/v4/web.yaml", "a: b",
			"net/meta/v4/web.yaml: the name is no address in this form"},
		{"facts with more bits", "net/meta/v4/10.0.0.1_8.yaml", "a: b", "the name is no prefix"},
		{"a length with zeros before", "net/meta/v4/10.0.0.0_08.yaml", "a: b", "the name is no prefix"},
		{"an address with a length", "net/meta/v4/10.0.0.1_32.yaml", "a: b", "an address alone has no length"},
		{"tags that are a mapping", "net/meta/v4/10.0.0.1.yaml", "a: b\ntags: {x: y}",
			"10.0.0.1.yaml:2: tags: want a text"},
		{"reserved by a word", "net/meta/v4/10.0.0.1.yaml", "reserved: NO",
			"10.0.0.1.yaml:1: reserved: want true or false"},
		{"a set that is no expression", "net/sets/s", "10.0.0.1 |\n", "net/sets/s:2:1: the expression ends"},
		{"a set with an ending", "net/sets/s.YAML", "none", `"s.YAML" is no name`},
		{"sets in a circle", "net/sets/s", "@s", "net/sets/s:1:1 says @s"},
		{"a rule without from", "net/access/a.yaml", "to: all4", "net/access/a.yaml:1: from is missing"},
		{"a rule with a bad set", "net/access/a.yaml", "from: all4\nto: |\n  none |\n  @x y",
			"net/access/a.yaml:4:4: "},
		{"a rule with an unknown set", "net/access/a.yaml", "from: all4\nto: '@x'",
			"net/access/a.yaml:2:6: there is no set @x"},
		{"a port that is none", "net/access/a.yaml", "{from: all4, to: all4, proto: tcp, ports: [0]}",
			`ports: "0" is no port`},
		{"a range of ports backwards", "net/access/a.yaml", "{from: all4, to: all4, proto: tcp, ports: 90-80}",
			"is no port"},
		{"ports of ICMP", "net/access/a.yaml", "{from: all4, to: all4, proto: icmp, ports: 80}", "write proto: tcp"},
		{"no protocol", "net/access/a.yaml", "{from: all4, to: all4, proto: sctp}",
			"want tcp or udp or icmp or any, not sctp"},
		{"a cluster without an id", "cluster.yaml", "id: x", "cluster.yaml: id: want"},
		{"a slot that is a file", "alloc/a/0", "nodes/x.yaml", "alloc/a/0 should be a link"},
		{"a slot that leads to no node", "alloc/a/0", "-> ../../jobs/a.yaml", "which is no node"},
		{"a node with a bad address", "nodes/a.yaml", "address: [x]\naddresses: {}",
			"nodes/a.yaml:2: addresses: want a text"},
		{"a node whose address is a name", "nodes/a.yaml", "address: a.example:22",
			"nodes/a.yaml: no address of the node a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"net/pools/all.yaml": "prefix: 10.9.0.0/16",
				"net/lease/v4/10.9.0.1": "-> ../../../alloc/a/0"}
			files[c.file] = c.text
			d := tree(t, files)
			err := everything(d)
			if kind := croft.KindOf(err); kind != croft.Invalid && kind != croft.NotFound ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, want %s", err, c.want)
			}
		})
	}
	if err := everything(tree(t, nil)); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestKeysThatAreLikelyMistypedAreNoted(t *testing.T) {
	n := read(t, tree(t,
		map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24\nexlude: [10.0.0.1]\ncontact: ops"}))
	want := []string{`net/pools/web.yaml:2: exlude means nothing here; did you mean "exclude"?`}
	if diff := cmp.Diff(want, n.Notes); diff != "" {
		t.Error(diff)
	}
}

func TestPoolsOverlapOnlyAsDeclared(t *testing.T) {
	for _, c := range []struct {
		name  string
		pools map[string]string
		want  string // empty: the pools are valid together
	}{
		{"apart", map[string]string{"a": "prefix: 10.0.0.0/24", "b": "prefix: 10.0.1.0/24"}, ""},
		{"one in another", map[string]string{"a": "prefix: 10.0.0.0/16", "b": "prefix: 10.0.1.0/24"},
			"net/pools/b.yaml: the prefix 10.0.1.0/24 overlaps the prefix of the pool a: if it is part"},
		{"declared", map[string]string{"b": "prefix: 10.0.0.0/16", "a": "{prefix: 10.0.1.0/24, within: b}"}, ""},
		{"three deep", map[string]string{"a": "prefix: 10.0.0.0/16", "b": "{prefix: 10.0.1.0/24, within: a}",
			"c": "{prefix: 10.0.1.0/28, within: b}", "d": "{prefix: 10.0.2.0/24, within: a}"}, ""},
		{"within the wrong one", map[string]string{"a": "prefix: 10.0.0.0/16", "b": "{prefix: 10.0.1.0/24, within: a}",
			"c": "{prefix: 10.0.1.0/28, within: a}"}, "write within: b"},
		{"within one elsewhere", map[string]string{"a": "prefix: 10.0.0.0/16", "b": "{prefix: 10.1.1.0/24, within: a}"},
			"10.1.1.0/24 is not within the pool a"},
		{"the same", map[string]string{"a": "prefix: 10.0.0.0/16", "b": "{prefix: 10.0.0.0/16, within: a}"},
			"the same prefix"},
		{"families are apart", map[string]string{"a": "prefix: 0.0.0.0/0", "b": "prefix: '::/0'"}, ""},
	} {
		files := map[string]string{}
		for name, text := range c.pools {
			files["net/pools/"+name+".yaml"] = text
		}
		_, err := tree(t, files).Read()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: it says %v, want %s", c.name, err, c.want)
		}
	}
}

func TestWhatIsSaidOfLongerPrefixesGoesBefore(t *testing.T) {
	d := tree(t, map[string]string{
		"net/pools/web.yaml":           "{prefix: 10.0.0.0/24, tags: [web]}",
		"net/meta/v4/0.0.0.0_0.yaml":   "contact: all\nsite: {name: world, zone: x}\ndns: [a]",
		"net/meta/v4/10.0.0.0_8.yaml":  "tags: [office]\nsite: {name: syd}\ndns+: [b]\nextra: 1",
		"net/meta/v4/10.0.0.0_24.yaml": "tags+: [lab]\ncontact: ~\ndns+: [c]\nsite: {zone: ~, floor: 010}",
		"net/meta/v4/10.0.0.5.yaml":    "tags: [only]\ndns: [z]\nratio: 1.10",
	})
	f, err := read(t, d).Facts()
	must(t, err)
	for text, want := range map[string]map[string]any{
		"9.9.9.9/32": {"contact": "all", "site": map[string]any{"name": "world", "zone": "x"}, "dns": []any{"a"}},
		"10.0.0.4/32": {"tags": []any{"office", "web", "lab"}, "site": map[string]any{"name": "syd", "floor": 8},
			"dns": []any{"a", "b", "c"}, "extra": 1},
		"10.0.0.5/32": {"tags": []any{"only"}, "site": map[string]any{"name": "syd", "floor": 8}, "dns": []any{"z"},
			"extra": 1, "ratio": "1.10"},
	} {
		got, err := f.Of(prefix(text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

// TestTagsAreWhereEachAddressHasThem compares the address set of each tag with the facts of each single address.
func TestTagsAreWhereEachAddressHasThem(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for range 60 {
		files := map[string]string{}
		for range 1 + r.IntN(100) {
			base := addr("255.255.255.240")
			if r.IntN(2) == 0 {
				base = addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0")
			}
			b := base.AsSlice()
			b[len(b)-1] += byte(r.IntN(16))
			a, _ := netip.AddrFromSlice(b)
			p, err := a.Prefix(a.BitLen() - r.IntN(5))
			must(t, err)
			files[metaPath(p)] = fmt.Sprintf("tags%s: [t%d]\nreserved: %v", []string{"", "+"}[r.IntN(2)], r.IntN(3),
				r.IntN(2) == 0)
		}
		n := read(t, tree(t, files))
		f, err := n.Facts()
		must(t, err)
		reserved, err := n.reserved(prefix("255.255.255.240/28"))
		must(t, err)
		for _, base := range []string{"255.255.255.240", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"} {
			for a := addr(base); a.IsValid(); a = a.Next() {
				facts, err := f.Of(netip.PrefixFrom(a, a.BitLen()))
				must(t, err)
				for _, tag := range []string{"t0", "t1", "t2"} {
					s, err := source{n}.Tag(tag)
					must(t, err)
					if want := slices.Contains(TagsIn(facts), tag); s.Contains(a) != want {
						t.Fatalf("seed %d: %s has %s: %v, want %v", seed, a, tag, !want, want)
					}
				}
				if want := facts[reservedKey] == true; a.Is4() && reserved.Contains(a) != want {
					t.Fatalf("seed %d: %s is reserved: %v", seed, a, !want)
				}
			}
		}
	}
}

func TestChangesKeepWhatAFileSaysElse(t *testing.T) {
	d := tree(
		t,
		map[string]string{
			"net/meta/v4/10.0.0.0_8.yaml": "# ours\ntags: [old] # for ever\nnested: {a: [1, 2]}\nnote: x\n",
		},
	)
	change := func(c Change) (did bool, err error) {
		err = d.Change(context.Background(), func(n *Net) error {
			did, err = n.Describe(prefix("10.0.0.0/8"), c)
			return err
		})
		return did, err
	}
	for _, c := range []struct {
		change Change
		did    bool
		want   string
	}{
		{Change{AddTags: []string{"old"}, Set: map[string]string{"note": "x"}}, false,
			"# ours\ntags: [old] # for ever\nnested: {a: [1, 2]}\nnote: x\n"},
		{Change{AddTags: []string{"new"}, Set: map[string]string{"note": "y: #z"}}, true,
			"# ours\ntags: [old, new]\nnested: {a: [1, 2]}\nnote: 'y: #z'\n"},
		{Change{RemoveTags: []string{"old"}, Remove: []string{"note"}}, true,
			"# ours\ntags: [new]\nnested: {a: [1, 2]}\n"},
		{Change{Set: map[string]string{"n": "1"}, Reserve: true}, true,
			"# ours\ntags: [new]\nnested: {a: [1, 2]}\nn: \"1\"\nreserved: true\n"},
	} {
		did, err := change(c.change)
		text, readErr := d.read("net/meta/v4/10.0.0.0_8.yaml")
		if err != nil || readErr != nil || did != c.did || string(text) != c.want {
			t.Errorf("%+v: %v, %v\n%s", c.change, did, err, text)
		}
	}
	for _, c := range []Change{{RemoveTags: []string{"none"}}, {Remove: []string{"none"}}, {AddTags: []string{"A"}},
		{Set: map[string]string{"tags": "x"}}, {Set: map[string]string{"": "x"}}} {
		if _, err := change(c); croft.KindOf(err) != croft.Invalid && croft.KindOf(err) != croft.NotFound {
			t.Errorf("%+v: %v", c, err)
		}
	}
	_, err := change(Change{RemoveTags: []string{"new"}, Remove: []string{"nested", "n", "reserved", "tags"}})
	if err != nil || strings.Contains(listing(t, d), "10.0.0.0_8") {
		t.Errorf("of what nothing is said there is a file: %v\n%s", err, listing(t, d))
	}
}

func TestCheckFindsWhatMergesLeave(t *testing.T) {
	d := tree(t,
		map[string]string{"net/pools/web.yaml": "{prefix: 10.0.0.0/24, gateway: 10.0.0.1, exclude: [10.0.0.9]}",
			"net/lease/v4/10.0.0.2": "-> ../../../alloc/a/0", "net/lease/v4/10.0.0.3": "-> ../../../alloc/a/0",
			"net/lease/v4/10.0.0.1": "-> ../../../alloc/b/0", "net/lease/v4/10.0.0.9": "-> ../../../alloc/c/0",
			"net/lease/v4/192.0.2.1": "-> ../../../alloc/d/0",
			"net/lease/v4/10.0.0.4":  "{freed: a/0, until: 2999-01-01T00:00:00Z}"})
	got, err := read(t, d).Check()
	must(t, err)
	want := []string{
		"net/lease/v4/10.0.0.3: a/0 has 10.0.0.2 of pool web already: free one of them",
		"net/lease/v4/192.0.2.1: 192.0.2.1 is in no pool",
		"net/lease/v4/10.0.0.1: b/0 has 10.0.0.1, which is never given by pool web: gateway",
		"net/lease/v4/10.0.0.9: c/0 has 10.0.0.9, which is never given by pool web: excluded",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzYAML checks that no text causes a panic, and that every error names the file.
func FuzzYAML(f *testing.F) {
	for _, text := range []string{"prefix: 10.0.0.0/24\nexclude: [10.0.0.1]", "{tags: [a], tags+: [b], x: {y: ~}}",
		"a: &a [*a]",
		"from: all4\nto: |\n  none", "? [a]\n: b", "!!binary x: y", "? {a: b}\n: c\n<<: x", "\"a\\\n b\": 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, err := parse("f", []byte(text))
		if err != nil {
			if croft.KindOf(err) != croft.Invalid || !strings.HasPrefix(err.Error(), "f") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		r := &reader{file: "f", root: root}
		_, _ = readAccess("a", r)
		r.names(tagsKey)
		r.prefix("prefix")
		r.duration("hold", 0)
		m, err := mapping("f", root)
		if err == nil {
			m = overlay(map[string]any{}, m)
			_ = overlay(m, m)
			_ = TagsIn(m)
		}
		e := &editor{file: "f", root: root}
		e.tags(Change{AddTags: []string{"a"}, RemoveTags: []string{"b"}})
		e.set("k", "v")
		if out, err := inYAML(root); err == nil && e.err == nil {
			if again, err := parse("f", out); err != nil || len(again.Content) != len(root.Content) {
				t.Fatalf("%q is written %q, which is not read: %v", text, out, err)
			}
		}
	})
}

func TestSetsOfNodesAndJobs(t *testing.T) {
	d := tree(t, map[string]string{
		"nodes/syd/r1/web1.yaml": "address: 192.0.2.1:2222\naddresses: [10.9.0.1, '2001:db8::1']",
		"nodes/syd/_.yaml":       "type: site",
		"nodes/mel/web2.yaml":    "{address: web2.example, addresses: [192.0.2.2]}",
		"nodes/mel/db1.yaml":     "address: db1.example", "net/pools/p.yaml": "prefix: 10.0.0.0/24",
		"net/lease/v4/10.0.0.5": "-> ../../../alloc/web/front@7/0",
		"net/lease/v4/10.0.0.6": "-> ../../../alloc/web/front@8/1",
		"net/lease/v4/10.0.0.7": "{freed: web/front@9/0, until: 2999-01-01T00:00:00Z}",
		"alloc/web/front@7/0":   "-> ../../../nodes/syd/r1/web1.yaml",
	})
	n := read(t, d)
	for p, want := range map[string]string{"syd/**": "10.9.0.1/32 192.0.2.1/32 2001:db8::1/128",
		"web?":   "10.9.0.1/32 192.0.2.1/32 192.0.2.2/32 2001:db8::1/128",
		"none/*": ""} {
		s, err := source{n}.Node(setexpr.Pattern(p))
		if got := prefixes(s); err != nil || got != want {
			t.Errorf("node:%s is %s, %v", p, got, err)
		}
	}
	if s, err := (source{n}).Job("web/*"); err != nil || prefixes(s) != "10.0.0.5/32 10.0.0.6/32" {
		t.Errorf("job:web/* is %s, %v", prefixes(s), err)
	}
	node, err := n.FindNode("web1")
	must(t, err)
	if node.Path != "syd/r1/web1" || node.SSHPort != 2222 {
		t.Errorf("web1 is %+v", node)
	}
	if _, err := n.FindNode("web9"); croft.KindOf(err) != croft.NotFound || !strings.Contains(err.Error(),
		"did you mean") {
		t.Errorf("no node: %v", err)
	}
	table, err := n.Firewall(t.Context(), node)
	must(t, err)
	if got := prefixes(table.Managed); got != "10.0.0.5/32" ||
		fmt.Sprint(table.SSH) != "[10.9.0.1:2222 192.0.2.1:2222 [2001:db8::1]:2222]" {
		t.Errorf("on web1 are %s, ssh at %s", got, table.SSH)
	}
	about, err := n.About(addr("10.0.0.5"))
	must(t, err)
	if about.Node != "syd/r1/web1" || about.State != Leased {
		t.Errorf("it is %+v", about)
	}
}

func prefixes(s *netipx.IPSet) string { return strings.Trim(fmt.Sprint(s.Prefixes()), "[]") }

func TestAnyTextIsKept(t *testing.T) {
	d := tree(t, nil)
	for i, text := range []string{"", " ", "a: b", "# x", "'\"", "\x00\x07\x1b[31m", "a\nb\n", "\t", "\u2028\u202e",
		"~", "no", "010",
		"<<: *a", "- a", "{}", "&a", "!!int 5", "|", strings.Repeat("long ", 50), "\ufeff", "\u0085"} {
		key := fmt.Sprint("k", i)
		must(t, d.Change(t.Context(), func(n *Net) error {
			_, err := n.Describe(prefix("10.0.0.0/8"), Change{Set: map[string]string{key: text}})
			return err
		}))
		f, err := read(t, d).Facts()
		must(t, err)
		got, err := f.Of(prefix("10.0.0.1/32"))
		if err != nil || got[key] != text {
			t.Errorf("%q is read as %q, %v", text, got[key], err)
		}
	}
}

// A checkout may replace net/ and everything below it at any time.
func TestACheckoutReplacesDirectories(t *testing.T) {
	files := map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
		"net/lease/v4/10.0.0.1": "-> ../../../alloc/old/0", "net/meta/v4/10.0.0.9.yaml": "note: old"}
	d := tree(t, files)
	checkout := func() {
		t.Helper()
		root := d.root.Name()
		must(t, os.Rename(filepath.Join(root, "net"), filepath.Join(t.TempDir(), "net")))
		other := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
			"net/lease/v4/10.0.0.1": "-> ../../../alloc/new/0", "net/meta/v4/10.0.0.9.yaml": "note: new",
			"net/meta/v4/10.0.0.8.yaml": "note: new"})
		must(t, os.Rename(filepath.Join(other.root.Name(), "net"), filepath.Join(root, "net")))
	}
	read(t, d)
	if _, err := d.read("net/meta/v4/10.0.0.9.yaml"); err != nil {
		t.Fatal(err)
	}
	checkout()
	if text, err := d.read("net/meta/v4/10.0.0.8.yaml"); err != nil || string(text) != "note: new" {
		t.Errorf("a file that the old directory did not have: %q, %v", text, err)
	}
	if l := read(t, d).Leases[addr("10.0.0.1")]; l.Owner.Job != "new" {
		t.Errorf("the lease is of %s", l.Owner)
	}
	if text, err := d.read("net/meta/v4/10.0.0.9.yaml"); err != nil || string(text) != "note: new" {
		t.Errorf("after another read of the whole: %q, %v", text, err)
	}
	before := ""
	err := d.Change(t.Context(), func(n *Net) error {
		checkout()
		before = listing(t, d)
		_, err := n.Get("web", Owner{"mine", 0}, addr("10.0.0.2"))
		return err
	})
	if croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(), "replaced meanwhile") {
		t.Errorf("net/ was replaced during a change: %v", err)
	}
	if now := listing(t, d); now != before {
		t.Errorf("the change was made all the same:\n%s", now)
	}
}

// TestAFileOfTheGreatestSizeIsRead: a file that is one byte larger is refused.
func TestAFileOfTheGreatestSizeIsRead(t *testing.T) {
	text := "prefix: 10.0.0.0/24\n#"
	d := tree(t, map[string]string{"net/pools/web.yaml": text + strings.Repeat("#", 1<<20-len(text))})
	if got, err := get(d, "web", Owner{"a", 0}, netip.Addr{}); err != nil || got != addr("10.0.0.1") {
		t.Errorf("it gets %s, %v", got, err)
	}
}

// TestTheLockIsThatOfTheDirectoryCalledNet: a process that waits for the lock of a directory that is replaced gets the
// lock of the new directory.
func TestTheLockIsThatOfTheDirectoryCalledNet(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	old, err := d.lock(t.Context())
	must(t, err)
	waits := make(chan *os.File)
	go func() {
		lock, err := open(t, d.root.Name()).lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		waits <- lock
	}()
	must(t, os.Rename(filepath.Join(d.root.Name(), "net"), filepath.Join(t.TempDir(), "net")))
	must(t, os.Mkdir(filepath.Join(d.root.Name(), "net"), 0o755))
	must(t, old.Close())
	lock := <-waits
	defer lock.Close()
	if !d.isNet(lock) {
		t.Error("the lock is on a directory that has the name no more")
	}
}

// watchFlush calls do for each file and directory that is flushed, until the test ends.
func watchFlush(t *testing.T, do func(f *os.File) error) {
	before := flush
	flush = do
	t.Cleanup(func() { flush = before })
}

func TestWhatIsWrittenSurvivesACrashOfTheMachine(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	var flushed []string
	watchFlush(t, func(f *os.File) error {
		name := f.Name()
		if info, err := f.Stat(); err == nil && !info.IsDir() {
			name = "a file"
		}
		flushed = append(flushed, name)
		return nil
	})
	must(t, d.Change(t.Context(), func(n *Net) error {
		if _, err := n.Get("web", Owner{"a", 0}, addr("10.0.0.1")); err != nil {
			return err
		}
		_, err := n.Describe(prefix("10.0.0.1/32"), Change{Set: map[string]string{"note": "x"}})
		return err
	}))
	in := func(name string) string { return filepath.Join(d.root.Name(), name) }
	want := []string{in("net"), in("net/lease"), // the parents of the new directories lease and v4
		in("net"), in("net/meta"), "a file", in("net/lease/v4"), in("net/meta/v4")}
	if !slices.Equal(flushed, want) {
		t.Errorf("flushed:\n%s\nwant\n%s", strings.Join(flushed, "\n"), strings.Join(want, "\n"))
	}
}

func TestADiskThatIsFullChangesNothing(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	before, files := listing(t, d), 0
	watchFlush(t, func(f *os.File) error {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			if files++; files == 3 {
				return syscall.ENOSPC
			}
		}
		return nil
	})
	err := d.Change(t.Context(), func(n *Net) error {
		var all []foreign.Record
		for i := range 5 {
			all = append(all, foreign.Record{Prefix: prefix(fmt.Sprintf("10.0.0.%d/32", i+1))})
		}
		_, err := n.Import(all, AsReserved)
		return err
	})
	if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
	if now := listing(t, d); now != before {
		t.Errorf("there is\n%s", now)
	}
}

func TestLeasesWithoutANameAreReserved(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
		"net/lease/v4/10.0.0.3": "-> ../../../alloc/mine/0"})
	var done Imported
	for range 2 {
		must(t, d.Change(t.Context(), func(n *Net) (err error) {
			done, err = n.Import([]foreign.Record{
				{Prefix: prefix("10.0.0.1/32"), Facts: map[string]string{"name": "Web"}, At: "line 1"},
				{Prefix: prefix("10.0.0.2/32"), Facts: map[string]string{"mac": "02:00:00:00:00:01"}, At: "line 2"},
				{Prefix: prefix("10.0.0.3/32"), Facts: map[string]string{}, At: "line 3"},
			}, AsLeases)
			return err
		}))
	}
	if !slices.Equal(done.Nameless, []netip.Addr{addr("10.0.0.2")}) || done.Changed+done.Leased != 0 {
		t.Errorf("the second time: %+v", done)
	}
	n := read(t, d)
	if n.Leases[addr("10.0.0.1")].Owner.Job != "web" || n.Leases[addr("10.0.0.3")].Owner.Job != "mine" ||
		len(n.Leases) != 2 {
		t.Errorf("leases: %v", n.Leases)
	}
	if a, err := get(d, "web", Owner{"next", 0}, netip.Addr{}); err != nil || a != addr("10.0.0.4") {
		t.Errorf("the next one gets %s, %v", a, err)
	}
}
