// Package plain makes untrusted text safe for terminals, logs and records: the result cannot move the cursor, change
// the screen otherwise, or reorder text.
package plain

import (
	"bufio"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Longest is how many bytes of a text from another machine are shown or stored.
const Longest = 1 << 10

// Line returns a text as one line: controls, including line breaks, become spaces, and invisible characters,
// such as direction marks, are removed.
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

// Lines is like Line, but keeps line breaks and tabs.
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

// Cut applies Line to at most the first bytes of a text. A character cut in two becomes the replacement character.
func Cut(text string, bytes int) string { return Line(text[:min(len(text), bytes)]) }

// Steers reports whether a rune is more than a displayed character.
func Steers(r rune) bool { return breaks(r) || invisible(r) }

// breaks reports control characters, including eight-bit ones, and line separators.
func breaks(r rune) bool { return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) }

// invisible reports format characters: direction marks, joiners, tags, and the like.
func invisible(r rune) bool { return unicode.Is(unicode.Cf, r) }

const escape = 0x1b

// Copy copies the output of a guest or a program to a terminal: text, line breaks, tabs and colors, but no other
// control sequences.
func Copy(w io.Writer, from io.Reader) error {
	r := bufio.NewReader(from)
	out := bufio.NewWriter(w)
	for {
		if r.Buffered() == 0 { // show the text read so far before waiting for more
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

// mostParameters is the maximum length, in bytes, of a sequence that is parsed as a whole.
const mostParameters = 32

// sequence reads the rest of a sequence after an escape character, and returns the sequence if it is a color (CSI
// digits m), else "". A string sequence ends at the latest with its line.
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
		case c >= 0x20 && c <= 0x3f: // a parameter that colors do not use
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

// skipTo reads to the last byte of a sequence or the end of the line.
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

// mostString bounds a string sequence, such as a title, in bytes.
const mostString = 4 << 10

// skipString reads such a string to its end, and returns the line break if that comes first.
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
