package plain_test

import (
	"strings"
	"testing"

	"croft/internal/plain"
)

func TestNothingSteers(t *testing.T) {
	for text, want := range map[string]string{
		"as it is: äöü 漢字 🙂":             "as it is: äöü 漢字 🙂",
		"\x1b[2Jgone\x07":                " [2Jgone ",
		"one\ncroft: two\r\n":            "one croft: two  ",
		"eight bits: \u009b2J":           "eight bits:  2J",
		"file\u202egnp.exe\u2066x\u2069": "filegnp.exex",
		"joined\u200bup\ufeff\U000e0041": "joinedup",
		"lines\u2028and\u2029paragraphs": "lines and paragraphs",
		"not text: \xff\xfe":             "not text: \uFFFD",
		"deleted\x7f":                    "deleted ",
	} {
		if got := plain.Line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := plain.Lines("a\n\tb\x1b[1mc\r\n"); got != "a\n\tb [1mc \n" {
		t.Errorf("of several lines: %q", got)
	}
	if got := plain.Cut(strings.Repeat("ä", 600), plain.Longest); got != strings.Repeat("ä", 512) {
		t.Errorf("cut to %d bytes", len(got))
	}
	if got := plain.Cut("aä", 2); got != "a\uFFFD" {
		t.Errorf("cut in the middle: %q", got)
	}
}

func TestATerminalGetsColorsAndNothingElse(t *testing.T) {
	for text, want := range map[string]string{
		"[  \x1b[0;32mOK\x1b[0m  ] Started\r\n":       "[  \x1b[0;32mOK\x1b[0m  ] Started\n",
		"\x1b[2J\x1b[1;1Hcleared":                     "cleared",
		"\x1b]0;title\x07after":                       "after",
		"\x1b]52;c;ZXZpbA==\x1b\\after":               "after",
		"\x1bPq#0\x1b\\after":                         "after",
		"\x1b]0;without an end\nnext line":            "\nnext line",
		"\x1b[?1049hother screen":                     "other screen",
		"\x1b[>4;2mkeys":                              "keys",
		"\x1bcreset":                                  "reset",
		"\u009b2Jeight bits":                          "2Jeight bits",
		"over\rwritten\b\b":                           "overwritten",
		"\u202ebackwards":                             "backwards",
		"\x1b[12;\nnext":                              "\nnext",
		"cut off \x1b[1":                              "cut off ",
		"\xff not text":                               "\uFFFD not text",
		"\x1b[" + strings.Repeat("1;", 100) + "mtext": strings.Repeat("1;", 84) + "mtext",
	} {
		var out strings.Builder
		if err := plain.Copy(&out, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%q: got %q, want %q", text, out.String(), want)
		}
	}
}

func FuzzCopy(f *testing.F) {
	for _, seed := range []string{"\x1b[0m", "\x1b\x1b[2J", "\x1b]\x1b]\n\x1b[2J", "\x1b[?\n\x1b[J"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		if err := plain.Copy(&out, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		left := out.String()
		for {
			before, after, found := strings.Cut(left, "\x1b")
			if i := strings.IndexFunc(before, func(r rune) bool {
				return plain.Steers(r) && r != '\n' && r != '\t'
			}); i >= 0 {
				t.Fatalf("%q: %q is left", text, before[i:])
			}
			if !found {
				return
			}
			end := strings.TrimLeft(strings.TrimPrefix(after, "["), "0123456789;")
			if !strings.HasPrefix(after, "[") || !strings.HasPrefix(end, "m") {
				t.Fatalf("%q: a sequence is left that is no color: %.20q", text, after)
			}
			left = end[1:]
		}
	})
}
