package edit

import (
	"strings"
	"testing"
)

func TestAStateIsWrittenAndTheRestStays(t *testing.T) {
	const why = "watch 2026-11-23T19:00:00Z"
	for _, c := range []struct{ name, before, to, why, want string }{
		{"a file without a state gets a line", "id: 3\n", "out", why, "id: 3\nstate: out  # " + why + "\n"},
		{"an empty file gets one", "", "out", why, "state: out  # " + why + "\n"},
		{"a file of comments keeps them", "# rack 3\n", "out", why, "# rack 3\nstate: out  # " + why + "\n"},
		{"a last line without an end gets one", "id: 3", "out", why, "id: 3\nstate: out  # " + why + "\n"},
		{"a state is replaced in its place", "# a\nstate:   up\n\nid: 3 # b\n", "out", why,
			"# a\nstate:   out  # " + why + "\n\nid: 3 # b\n"},
		{"quotes go", "state: \"up\"\nid: 3\n", "out", why, "state: out  # " + why + "\nid: 3\n"},
		{"a comment of somebody stays behind that of the watch", "state: up  # new disk\n", "out", why,
			"state: out  # " + why + "; new disk\n"},
		{"a comment of the watch is replaced", "state: maintenance  # watch then; new disk\n", "out", why,
			"state: out  # " + why + "; new disk\n"},
		{"and goes", "state: out  # " + why + "\nid: 3\n", "up", "", "state: up\nid: 3\n"},
		{"and somebody else's stays then", "state: out  # " + why + "; new disk\n", "up", "",
			"state: up  # new disk\n"},
		{"a state of nothing gets a value", "state:\nid: 3\n", "out", why, "state: out  # " + why + "\nid: 3\n"},
		{"lines of another system keep their ends", "id: 3\r\nstate: up\r\n", "out", why,
			"id: 3\r\nstate: out  # " + why + "\r\n"},
		{"a map in braces keeps its form", "{id: 3, state: up, weight: 2}\n", "out", why,
			"{id: 3, state: out, weight: 2}  # " + why + "\n"},
		{"and gets the key", "{id: 3}\n", "out", why, "{state: out, id: 3}  # " + why + "\n"},
		{"the end of a document stays the end", "---\nid: 3\n...\n", "out", why,
			"---\nid: 3\nstate: out  # " + why + "\n...\n"},
		{"a key of that name further down is another one", "var:\n  state: up\nid: 3\n", "out", why,
			"var:\n  state: up\nid: 3\nstate: out  # " + why + "\n"},
		{"words of an operator go before others", "state: up  # new disk\n", "drain", "hot; loud",
			"state: drain  # hot; loud; new disk\n"},
		{"and are not told twice", "state: up  # hot; new disk\n", "drain", "hot", "state: drain  # hot; new disk\n"},
		{"a text over lines stays", "note: |\n  state: up\n  # x\n", "drain", "",
			"note: |\n  state: up\n  # x\nstate: drain\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := StateText("n.yaml", c.before, c.to, c.why)
			if err != nil || got != c.want {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
			if Marked(got) != (c.why == why) {
				t.Errorf("Marked(%q) is %v", got, Marked(got))
			}
		})
	}
}

func TestAFileThatCannotBeChangedSaysSo(t *testing.T) {
	for name, text := range map[string]string{
		"no map":                "- a\n",
		"not YAML":              "a: [\n",
		"a state that is a map": "state: {a: b}\n",
		"an anchor":             "state: &s up\nx: *s\n",
		"a text over two lines": "state: >\n  up\nid: 3\n",
	} {
		got, err := StateText("nodes/n.yaml", text, "out", "watch now")
		if err == nil || !strings.Contains(err.Error(), "nodes/n.yaml") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func FuzzStateText(f *testing.F) {
	for _, text := range []string{"", "id: 3\n", "state: up # x\n", "{a: b}", "a: |\n  x\n...", "state: 'up'\r\n",
		"\ufeffid: 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := StateText("f", text, "out", "watch then")
		if err != nil {
			return
		}
		if !Marked(out) && !strings.Contains(text, "#") {
			t.Errorf("%q became %q, without the mark of the watch", text, out)
		}
		up, err := StateText("f", out, "up", "")
		if err != nil {
			t.Fatalf("%q became %q, and that cannot be changed: %v", text, out, err)
		}
		if Marked(up) {
			t.Errorf("%q became %q, still with the mark of the watch", text, up)
		}
	})
}
