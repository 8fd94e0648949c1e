package pyjson

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestParseErrorsAreWordedAsInPython(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "Expecting value: line 1 column 1 (char 0)",
		"{":                       "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
		`{"a" 1}`:                 "Expecting ':' delimiter: line 1 column 6 (char 5)",
		`{"a": 1 "b"}`:            "Expecting ',' delimiter: line 1 column 9 (char 8)",
		`{"a": }`:                 "Expecting value: line 1 column 7 (char 6)",
		"[1,\n 2,\n x]":           "Expecting value: line 3 column 2 (char 9)",
		"[1] 2":                   "Extra data: line 1 column 5 (char 4)",
		`"abc`:                    "Unterminated string starting at: line 1 column 1 (char 0)",
		"\"a\tb\"":                "Invalid control character at: line 1 column 3 (char 2)",
		`"a\qb"`:                  `Invalid \escape: line 1 column 3 (char 2)`,
		`"a\u12"`:                 `Invalid \uXXXX escape: line 1 column 4 (char 3)`,
		"\xff":                    "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
		`{"ß": 1, }`:              "Expecting property name enclosed in double quotes: line 1 column 10 (char 9)",
		"01":                      "Extra data: line 1 column 2 (char 1)",
		"-":                       "Expecting value: line 1 column 1 (char 0)",
		strings.Repeat("[", 5000): "maximum recursion depth exceeded while decoding a JSON document",
	} {
		if _, err := Parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.30q: got %v, want %s", text, err, want)
		}
	}
}

// A whole body of digits took over a minute to convert.
func TestIntegersHaveAsManyDigitsAsInPython(t *testing.T) {
	for _, text := range []string{strings.Repeat("9", 4300), "-" + strings.Repeat("9", 4300)} {
		if v, err := Parse([]byte(text)); err != nil || Repr(v) != text {
			t.Errorf("%.10s... of %d bytes: %v", text, len(text), err)
		}
	}
	const want = "an integer has 4000000 digits, and at most 4300 are read"
	began := time.Now()
	for _, before := range []string{"", "-", `[1, {"a": `} {
		if _, err := Parse([]byte(before + strings.Repeat("7", 4_000_000))); err == nil || err.Error() != want {
			t.Errorf("4,000,000 digits after %q: got %.200v", before, err)
		}
	}
	if took := time.Since(began); took > 10*time.Second { // it was 67 s
		t.Errorf("it took %s to refuse them", took)
	}
}

func TestReprShowsValuesAsPython(t *testing.T) {
	for text, want := range map[string]string{
		`null`:                           `None`,
		`[true, false]`:                  `[True, False]`,
		`{"b": 1, "a": [1.0, 2.5e20]}`:   `{'b': 1, 'a': [1.0, 2.5e+20]}`,
		`"it's"`:                         `"it's"`,
		`"it's \"so\""`:                  `'it\'s "so"'`,
		`"tab\tline\nß\u0000\\"`:         `'tab\tline\nß\x00\\'`,
		`123456789012345678901234567890`: `123456789012345678901234567890`,
		`0.00001`:                        `1e-05`,
		`1e16`:                           `1e+16`,
		`-0.0`:                           `-0.0`,
		`{"a": 1, "b": 2, "a": 3}`:       `{'a': 3, 'b': 2}`,
	} {
		v, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := Repr(v); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestPrettyBreaksLinesAsPprint(t *testing.T) {
	v, err := Parse([]byte(`{"type": "object", "properties": {"name": {"type": "string", "maxLength": 200}, "uuid": {"type": "string", "format": "uuid"}}, "required": ["name"], "additionalProperties": false}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{'additionalProperties': False,
 'properties': {'name': {'maxLength': 200, 'type': 'string'},
                'uuid': {'format': 'uuid', 'type': 'string'}},
 'required': ['name'],
 'type': 'object'}`
	if got := Pretty(v, 72); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	deep := []any{[]any{[]any{"", "a  b\n"}}}
	want = "[[['',\n   'a  '\n   'b\\n']]]"
	if got := Pretty(deep, 3); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	long := strings.Repeat("word ", 20)
	want = "('word word word word word word word word word word word word word '\n 'word word word word word word word ')"
	if got := Pretty(long, 72); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStringsAreASCII(t *testing.T) {
	for _, s := range []string{"plain", "größe", "a\"b\\c\n\r\t\b\f", "\x00\x7f", "𝄞", "<&>"} {
		out := AppendString(nil, s)
		for _, c := range out {
			if c > 0x7f || c < ' ' {
				t.Errorf("%q: %q is not ASCII", s, out)
			}
		}
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != s {
			t.Errorf("%q: %q reads back as %q, %v", s, out, back, err)
		}
	}
	if got := string(AppendString(nil, "<&>")); got != `"<&>"` {
		t.Errorf("HTML is escaped: %s", got)
	}
}

func TestObjectsOfManyKeysKeepTheirOrder(t *testing.T) {
	o := &Object{}
	for i := range 40 {
		o.Set(string(rune('a'+i%26))+string(rune('0'+i/26)), int64(i))
	}
	o.Set("a0", int64(99))
	if k, v := o.At(0); k != "a0" || v != int64(99) || o.Len() != 40 {
		t.Errorf("%s %v of %d", k, v, o.Len())
	}
	if v, ok := o.Get("b1"); !ok || v != int64(27) {
		t.Errorf("b1 is %v, %v", v, ok)
	}
}

// FuzzParse asks that whatever parses is shown and read back without a change.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null, true, "x\u00e9\ud834\udd1e"]}`, `[NaN, -Infinity]`, `"\ud800"`, "1e999", "{", `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		Repr(v)
		Pretty(v, 72)
		if s, ok := v.(string); ok {
			again, err := Parse(AppendString(nil, s))
			if err != nil || again != s && !strings.ContainsRune(s, '\uFFFD') {
				t.Errorf("%q reads back as %q, %v", s, again, err)
			}
		}
	})
}
