package out

import (
	"bytes"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	tab := Table{}
	tab.Head("NAME", "STATE")
	tab.Row(Cell{Text: "größer"}, Cell{Text: "running", Color: Green})
	tab.Texts("x", "y")
	const want = "NAME    STATE\ngrößer  running\nx       y\n"
	if got := tab.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	tab.Color = true
	if got := tab.String(); !strings.Contains(got, "größer  \x1b[32mrunning\x1b[0m\n") {
		t.Errorf("colors shift the columns: %q", got)
	}
}

func TestPrintData(t *testing.T) {
	value := map[string]any{"number": 1, "text": "1", "lines": "a\nb", "truth": "true", "list": []string{}}
	for format, want := range map[string]string{
		FormatJSON: "{\n  \"lines\": \"a\\nb\",\n  \"list\": [],\n  \"number\": 1,\n  \"text\": \"1\",\n  \"truth\": " +
			"\"true\"\n}\n",
		FormatYAML: "lines: |-\n    a\n    b\nlist: []\nnumber: 1\ntext: \"1\"\ntruth: \"true\"\n",
	} {
		var b bytes.Buffer
		if err := PrintData(&b, format, value); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, &b, want)
		}
	}
}
