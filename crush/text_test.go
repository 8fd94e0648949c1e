package crush

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const small = `tunable choose_total_tries 50
device 0 a class ssd
device 1 b
type 0 node
type 1 host
type 2 root
host h1 { id -2 alg straw2 hash 0 item a weight 1.000 }
host h2 { item b weight 0.5 }
root default { id -1 alg straw2 hash rjenkins1 item h1 weight 1.0 item h2 }
rule all { id 0 type replicated step take default step chooseleaf firstn 0 type host step emit }
rule fast { id 1 step take default class ssd step choose firstn 1 type node step emit }
`

func TestTextReadBack(t *testing.T) {
	maps := map[string]*Map{"built": built(100, 4, 5)}
	for _, dir := range vectorsOf(t) {
		maps[dir] = readMap(t, filepath.Join(dir, "map.txt"))
	}
	m, err := ReadText(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	maps["small"] = m
	for name, m := range maps {
		var text bytes.Buffer
		if err := m.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		again, err := ReadText(&text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compared := *m
		compared.Rules = nil
		again.Rules, compared.Buckets = nil, again.Buckets // the kinds of rules and the order of buckets may differ
		if !reflect.DeepEqual(&compared, again) {
			t.Errorf("%s: it is read back as %+v", name, again)
		}
		var second bytes.Buffer
		m2, _ := ReadText(strings.NewReader(textOf(t, m)))
		if err := m2.WriteText(&second); err != nil || second.String() != textOf(t, m) {
			t.Errorf("%s: written again it is another text, %v", name, err)
		}
	}
}

func textOf(t *testing.T, m *Map) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestIDsAndWeightsThatAreLeftOut(t *testing.T) {
	m, err := ReadText(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	root, h2 := m.Bucket(-1), m.Buckets[1]
	if h2.ID != -3 {
		t.Errorf("h2 got the ID %d, not the next one that is free", h2.ID)
	}
	if root.Items[1] != (Item{-3, One / 2}) {
		t.Errorf("h2 in the root is %+v, not of its own weight", root.Items[1])
	}
	if len(root.Shadows) != 1 || len(h2.Shadows) != 1 || root.Shadows[0].ID == h2.Shadows[0].ID {
		t.Errorf("the class that a rule takes has the IDs %v and %v", root.Shadows, h2.Shadows)
	}
	if got := compiled(t, m).NewMapper().Map(1, 5, 3, nil, nil); !reflect.DeepEqual(got, []ID{0}) {
		t.Errorf("the rule for ssd gives %v", got)
	}
}

func TestTextsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"a word that begins nothing", "rule all", "rul all", `line 10: "rul" is none of tunable`},
		{"a map that is cut off", "type node step emit }\n", "type node step", "the map ends where a step should be"},
		{"an item that is not there", "item a weight", "item c weight",
			`line 7: bucket h1 contains "c", which does not exist`},
		{"a weight that is no number", "0.5", "x",
			"line 8: item b of bucket h2: the weight x is not"},
		{"a negative weight", "0.5", "-0.5", "the weight -0.5 is not"},
		{"a weight that is not finite", "0.5", "NaN", "the weight NaN is not"},
		{"another algorithm", "alg straw2 hash 0", "alg list hash 0",
			"line 7: buckets of the kind list are not supported"},
		{"another hash", "hash rjenkins1", "hash 7", "hashes of the kind 7 are not supported"},
		{"a tunable that does not exist", "choose_total_tries", "choose_all", `line 1: there is no tunable "choose_all"`},
		{"a tunable of old", "tunable choose_total_tries 50", "tunable choose_local_tries 2", "is not supported"},
		{"a name given twice", "device 1 b", "device 1 a", "line 3: device \"a\": the name is given twice"},
		{"an ID given twice", "id -1", "id -2", "line 9: the ID -2 of bucket default is taken"},
		{"an ID above 0", "id -2", "id 2", "is taken, or not below 0"},
		{"a rule without an ID", "rule all { id 0", "rule all {", "line 10: rule all has no id"},
		{"a rule that takes nothing", "take default step choosel", "take all step choosel",
			`takes "all", which does not exist`},
		{"a type that is not there", "0 type host", "0 type rack", `there is no type "rack"`},
		{"a way to choose that is none", "chooseleaf firstn", "chooseleaf first", "neither firstn nor indep"},
		{"weight sets", "rule all", "choose_args 0 { }\nrule all", "weight sets (choose_args) are not supported"},
		{"a number that is too great", "id 1 step", "id 99999999999 step", "is no number"},
		{"a position twice", "item h2 }", "item h2 pos 0 }", "the position 0 is taken"},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		_, err := ReadText(strings.NewReader(text))
		if text == small || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestMapsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"a bucket in two others", "item h2 }", "item h2 }\nroot other { item h2 weight 1 }",
			"is in default and in other"},
		{"a bucket in itself", "host h2 { item b weight 0.5 }", "host h2 { item h2 weight 1 }",
			"whose type is not lower than its own"},
		{"a device twice in a bucket", "item b weight 0.5", "item b weight 0.5 item b weight 1",
			"contains an item twice"},
		{"a device that is too heavy", "0.5", "20000", "weighs more than 10000"},
		{"a rule twice", "rule fast { id 1", "rule fast { id 0", "is given twice"},
		{"a type twice", "type 2 root", "type 2 root\ntype 2 zone", "is given twice"},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		m, err := ReadText(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if _, err := Compile(m); text == small || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzReadText checks that every text is an error, or a map that can be written, read back and computed with.
func FuzzReadText(f *testing.F) {
	f.Add(small)
	f.Add("type 1 host\nhost a {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ReadText(strings.NewReader(text))
		if err != nil {
			return
		}
		p, err := Compile(m)
		if err != nil {
			return
		}
		if _, err := ReadText(strings.NewReader(textOf(t, m))); err != nil {
			t.Fatalf("%v, from\n%s", err, textOf(t, m))
		}
		for _, r := range m.Rules {
			for x := range uint32(3) {
				p.NewMapper().Map(r.ID, x, 3, nil, nil)
			}
		}
	})
}
