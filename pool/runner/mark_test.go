package runner

import (
	"strings"
	"testing"
)

func TestTheOutputOfAScriptEndsAtItsMark(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		code             int
		ended            bool
	}{
		{"a line", "hello\nMARKER 0\n", "hello\n", 0, true},
		{"no newline", "helloMARKER 3\n", "hello", 3, true},
		{"a process writes on", "MARKER 0\nmore\nMARKER 7\n", "", 0, true},
		{"parts of the mark", "MARK\nMARMARKEMARKER 255\n", "MARK\nMARMARKE", 255, true},
		{"the connection breaks", "hello MARKE", "hello MARKE", 0, false},
		{"a mark without a code", "hello MARKER no number\n", "hello ", 0, false},
	} {
		for size := 1; size <= len(c.text); size++ {
			var got strings.Builder
			overs := 0
			u := &upToMark{to: &got, mark: []byte("MARKER"), over: func() { overs++ }}
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				if _, err := u.Write([]byte(rest[:n])); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			err := u.flush()
			code, ended := u.code()
			if err != nil || got.String() != c.want || code != c.code || ended != c.ended || overs > 1 ||
				ended && overs == 0 {
				t.Errorf("%s in pieces of %d: %q, code %d, %t, %d times over, %v; want %q, %d, %t", c.name, size,
					got.String(), code, ended, overs, err, c.want, c.code, c.ended)
			}
		}
	}
}
