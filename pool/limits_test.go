package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
)

// The limits of words in a file or a request: the longest valid value is accepted, and the next one is not.
func TestLimitsOfWords(t *testing.T) {
	ok := func(Instance) error { return nil }
	pool := func(name string) error {
		_, err := Parse("f", []byte(fmt.Sprintf("%q:\n", name)+both), ok, nil)
		return err
	}
	counter := func(name string) error {
		_, err := Parse("f", []byte("p:\n"+both+fmt.Sprintf("  named_counters: [%q]\n", name)), ok, nil)
		return err
	}
	ticketID := func(text string) error { _, err := ParseTicketID(text); return err }
	resourceID := func(text string) error { _, err := ParseResourceID(text); return err }
	const letters, others = "a z A Z 0 9 _", "` { @ [ / : ! ä"
	for _, c := range []struct {
		name     string
		check    func(string) error
		ok, bad  []string
		okLength int // 0: any
	}{
		{"pool", pool, strings.Fields(letters + " - ."), append(strings.Fields(others), ""), 128},
		{"counter", counter, strings.Fields(letters), append(strings.Fields(others+" - ."), ""), 0},
		{"tag", CheckTag, []string{"a", "ä b", "-"}, []string{"", "\xff", "a\nb", "\x1b[m"}, maxWord},
		{"ticket number", ticketID, []string{"1", " 7\n", "9223372036854775807"},
			[]string{"0", "-1", "", "x", "1.5", "9223372036854775808"}, 0},
		{"resource number", resourceID, []string{"1", " 7\n", "9223372036854775807"},
			[]string{"0", "-1", "", "x", "1.5", "9223372036854775808"}, 0},
	} {
		if c.okLength > 0 {
			c.ok = append(c.ok, strings.Repeat("a", c.okLength))
			c.bad = append(c.bad, strings.Repeat("a", c.okLength+1))
		}
		for _, word := range c.ok {
			if err := c.check(word); err != nil {
				t.Errorf("%s %q: %v", c.name, word, err)
			}
		}
		for _, word := range c.bad {
			if err := c.check(word); !errors.Is(err, croft.Invalid) {
				t.Errorf("%s %q: got %v", c.name, word, err)
			}
		}
	}
}

func TestLimitsOfSettings(t *testing.T) {
	for setting, want := range map[string]bool{
		"max: 0": true, "max: 1.5": false, "max: '4'": false, "max: [4]": false, "max: ~": true,
		"livecheck_attempts: 1": true,
		"start_delay: 0":        true, "start_delay: -1": false, "start_delay: -5s": false, "start_delay: [5]": false,
		"start_delay: 0.5": true, "start_delay: 1000000000": true, "start_delay: 1000000001": false,
		"cmd_new_timeout: 1ns": true, "cmd_new_timeout: 0": false,
		"cmd_list: [l]":                    false,
		"tags: [[a]]":                      false,
		"tags: [{name: [a]}]":              false,
		"named_counters: abc":              false,
		"named_counters: [a, b]":           true,
		"named_counters: [a, a]":           false,
		"named_counters: [[a]]":            false,
		"name_pattern: 'x{'":               false,
		"name_pattern: 'x}'":               false,
		"name_pattern: '{{}}'":             true,
		"name_pattern: 'x}y'":              false,
		"<<: 5":                            false,
		"<<: [5]":                          false,
		"<<: [{max: 1}]":                   true,
		"tags: [{name: a, priority: 1.5}]": false,
	} {
		_, err := Parse("f", []byte("p:\n"+both+"  "+setting+"\n"), nil, nil)
		if (err == nil) != want || err != nil && !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: got %v", setting, err)
		}
	}
}

func TestLimitsOfFiles(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"two documents", "p:\n" + both + "---\nq:\n" + both, "f: more than one document"},
		{"a pool without settings", "p:\n", "f:1: pool p: cmd_new is required"},
		{"aliases of aliases", "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + doubled("abcdef"),
			"aliases make more of this than can be read"},
		{"an instance that the cloud refuses", instances, "f:2: pool p: instance: no such image"},
		{"an instance without resources", "p:\n  instance: {image: x}\n",
			"f:2: pool p: instance: resources is required"},
		{"an instance with a command that cleans", instances + "  cmd_release: r\n", "f:2: pool p: instance and cmd_"},
	} {
		_, err := Parse("f", []byte(c.text), func(Instance) error { return errors.New("no such image") }, nil)
		if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
	for _, text := range []string{"", "# nothing\n", "~\n", "{}\n"} {
		if all, err := Parse("f", []byte(text), nil, nil); len(all) > 0 || err != nil {
			t.Errorf("%q: got %v, %v", text, all, err)
		}
	}
	// Of several merged mappings the first has precedence, and the pool's own settings precede them all.
	const merges = "p:\n  <<: [{max: 7, max_starting: 3}, {max: 8, max_prealloc: 5}]\n  max_starting: 2\n"
	all, err := Parse("f", []byte(merges+both), nil, nil)
	if err != nil || all[0].Max != 7 || all[0].MaxStarting != 2 || all[0].MaxPrealloc != 5 {
		t.Errorf("got %+v, %v", all, err)
	}
}

// doubled returns a mapping of lists, each of which contains the list before it ten times.
func doubled(names string) string {
	var b strings.Builder
	for i := 1; i < len(names); i++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", names[i], names[i], strings.Repeat(fmt.Sprintf("*%c, ", names[i-1]), 10))
	}
	return b.String()
}

func TestASizeIsBounded(t *testing.T) {
	nest := func(levels int) *yaml.Node {
		n := &yaml.Node{Kind: yaml.ScalarNode}
		for range levels {
			n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
		}
		return n
	}
	for _, c := range []struct {
		levels, most int
		want         bool
	}{{maxDepth, maxNodes, true}, {maxDepth + 1, maxNodes, false}, {9, 10, true}, {9, 9, false}} {
		if err := bounded(nest(c.levels), 0, &c.most); (err == nil) != c.want {
			t.Errorf("%d levels, %d nodes: got %v", c.levels, c.most, err)
		}
	}
}

func TestNamesOfResources(t *testing.T) {
	for pattern, want := range map[string]string{
		"aa-{{{id}}}-}}": "aa-{00000007}-}", "{pool_name}{id}": "p00000007", "x": "x", "{wrong}": "p_00000007",
	} {
		if got := (&Settings{Name: "p", NamePattern: pattern}).resourceName(7, at); got != want {
			t.Errorf("%s: got %s, want %s", pattern, got, want)
		}
	}
}

func TestLimitsOfTickets(t *testing.T) {
	tags := func(n, size int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%0*d", size, i))
		}
		return all
	}
	word := func(n int) string { return strings.Repeat("k", n) }
	for _, c := range []struct {
		name string
		o    Opening
		want bool
	}{
		{"as many tags as there may be", Opening{Tags: tags(maxTags, 4)}, true},
		{"one tag more", Opening{Tags: tags(maxTags+1, 4)}, false},
		{"an empty tag", Opening{Tags: []string{""}}, false},
		{"as many bytes as there may be", Opening{Tags: tags(14, 256), Sandbox: word(256), Key: word(256)}, true},
		{"one byte more", Opening{Tags: append(tags(14, 256), "x"), Sandbox: word(256), Key: word(256)}, false},
		{"a sandbox that is too long", Opening{Sandbox: word(257)}, false},
		{"a lease of a second", Opening{TTL: time.Second}, true},
		{"a shorter one", Opening{TTL: time.Second - 1}, false},
		{"a negative one", Opening{TTL: -time.Hour}, false},
		{"a key that is too long", Opening{Key: word(257)}, false},
		{"a key that is no text", Opening{Key: "\xff"}, false},
	} {
		if _, err := c.o.ticket(); (err == nil) != c.want || err != nil && !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	named, err := Opening{Sandbox: "s", Tags: []string{"b", "a", "b"}, Owner: "alice", Key: "k",
		TTL: time.Hour}.ticket()
	if err != nil || named.Sandbox != "s" || named.Private || !slices.Equal(named.Tags, []string{"a", "b"}) ||
		named.Owner != "alice" || named.Key != "k" || named.TTL != time.Hour {
		t.Errorf("got %+v, %v", named, err)
	}
	one, _ := Opening{}.ticket()
	if other, _ := (Opening{}).ticket(); !one.Private || one.Sandbox == "" || one.Sandbox == other.Sandbox {
		t.Errorf("two without a sandbox: %+v and %+v", one, other)
	}
}

func TestDelaysDouble(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
		20: time.Hour, 21: time.Hour, 63: time.Hour, 1000: time.Hour} {
		if got := backOff(n, time.Hour); got != want {
			t.Errorf("after %d failures: %s, want %s", n, got, want)
		}
	}
}
