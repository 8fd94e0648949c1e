// Package plain makes untrusted text safe for terminals, logs and records: the result cannot move the cursor, change
// what is on the screen, or reorder text.
package plain

import (
	"bufio"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Longest is how many bytes of a text that another machine sent are shown or kept.
const Longest = 1 << 10

// Line is a text as one line: controls, line breaks among them, become spaces, and what
// is invisible, such as marks of direction, is taken out.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case breaks(r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Lines is a text of which line breaks and tabs are kept.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case breaks(r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Cut is what Line makes of at most the first bytes of a text. A letter that is cut in two
// is marked as no text.
func Cut(text string, bytes int) string { return Line(text[:min(len(text), bytes)]) }

// Steers tells whether a rune does something else than be shown.
func Steers(r rune) bool { return breaks(r) || invisible(r) }

// breaks are controls, those of eight bits among them, and separators of lines.
func breaks(r rune) bool { return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) }

// invisible are format characters: marks of direction, joiners, tags, and the like.
func invisible(r rune) bool { return unicode.Is(unicode.Cf, r) }

const escape = 0x1b

// Copy copies what a guest or a program wrote to a terminal: text, line breaks, tabs and
// colors, and no other sequence of controls.
func Copy(w io.Writer, from io.Reader) error {
	r := bufio.NewReader(from)
	out := bufio.NewWriter(w)
	for {
		if r.Buffered() == 0 { // what there is is shown before more is waited for
			if err := out.Flush(); err != nil {
				return err
			}
		}
		c, size, err := r.ReadRune()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			if flushed := out.Flush(); err == nil {
				err = flushed
			}
			return err
		}
		switch {
		case c == escape:
			_, _ = out.WriteString(sequence(r))
		case c == '\n' || c == '\t':
			_, _ = out.WriteRune(c)
		case c == utf8.RuneError && size == 1:
			_, _ = out.WriteRune(utf8.RuneError)
		case !Steers(c):
			_, _ = out.WriteRune(c)
		}
	}
}

// mostParameters bounds a sequence that is looked at as a whole.
const mostParameters = 32

// sequence reads what follows an escape character, and returns it where it is a color
// (CSI digits m), else nothing. What makes a terminal take up a string ends with the line.
func sequence(r *bufio.Reader) string {
	kind, err := r.ReadByte()
	switch {
	case err != nil:
		return ""
	case kind == '\n':
		return "\n"
	case kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_':
		return skipString(r)
	case kind != '[':
		return ""
	}
	parameters := []byte{}
	for len(parameters) < mostParameters {
		c, err := r.ReadByte()
		switch {
		case err != nil:
			return ""
		case c >= '0' && c <= '9' || c == ';':
			parameters = append(parameters, c)
		case c == 'm':
			return "\x1b[" + string(parameters) + "m"
		case c >= 0x20 && c <= 0x3f: // a parameter that colors do not have
			skipTo(r)
			return ""
		case c == '\n':
			return "\n"
		default:
			return ""
		}
	}
	return ""
}

// skipTo reads to the last byte of a sequence, or the end of the line.
func skipTo(r *bufio.Reader) {
	for range mostParameters {
		c, err := r.ReadByte()
		if c == '\n' && err == nil {
			_ = r.UnreadByte()
		}
		if err != nil || c == '\n' || c >= 0x40 && c <= 0x7e {
			return
		}
	}
}

// mostString bounds a string that a terminal would take up, such as a title.
const mostString = 4 << 10

// skipString reads such a string to its end, and returns the end of the line if it came
// before.
func skipString(r *bufio.Reader) string {
	for range mostString {
		c, err := r.ReadByte()
		switch {
		case err != nil || c == 0x07:
			return ""
		case c == '\n':
			return "\n"
		case c == escape:
			if next, err := r.ReadByte(); err == nil && next != '\\' {
				_ = r.UnreadByte()
			}
			return ""
		}
	}
	return ""
}
