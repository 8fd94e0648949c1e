package out

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"croft/internal/plain"
)

// The formats of results.
const (
	FormatText  = "text"  // for users and for $(...)
	FormatTable = "table" // for users who want all details
	FormatWide  = "wide"  // a list with all columns; for a single object the same as FormatTable
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

var Formats = []string{FormatText, FormatTable, FormatWide, FormatJSON, FormatYAML}

func IsTable(format string) bool { return format == FormatTable || format == FormatWide }

// IsData reports whether a format is for programs.
func IsData(format string) bool { return format == FormatJSON || format == FormatYAML }

// Print prints a result: data for programs, and for people a table that fill fills.
func Print(w io.Writer, format string, data any, fill func(*Table)) error {
	if IsData(format) {
		return PrintData(w, format, data)
	}
	t := Table{Color: IsColored(w)}
	fill(&t)
	return t.Print(w)
}

// PrintData prints a value as JSON or YAML. Both have the same keys in the same order.
func PrintData(w io.Writer, format string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	if format == FormatYAML {
		var node yaml.Node // JSON is valid YAML: only the style changes
		if err := yaml.Unmarshal(text, &node); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
		flow(&node)
		if text, err = yaml.Marshal(&node); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
	} else {
		text = append(escaped(text), '\n')
	}
	_, err = w.Write(text)
	return err
}

// flow resets a node to YAML's block style, and removes characters that control a terminal.
func flow(n *yaml.Node) {
	n.Style, n.Value = 0, plain.Lines(n.Value)
	for _, child := range n.Content {
		flow(child)
	}
}

// escaped replaces characters that control a terminal by escapes of JSON: encoding/json escapes only ASCII
// controls. In JSON such characters occur only inside strings.
func escaped(text []byte) []byte {
	if !bytes.ContainsFunc(text, steersInJSON) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		switch {
		case !steersInJSON(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// steersInJSON is like plain.Steers, except for the line breaks between values.
func steersInJSON(r rune) bool { return r != '\n' && plain.Steers(r) }

// IsTerminal reports whether w is a terminal that can draw.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Draws reports whether lines on w can be redrawn: w is a terminal with a known size. Serial consoles often do not know
// their size, and get one line after the other instead.
func Draws(w any) bool {
	f, ok := w.(*os.File)
	if !ok || !IsTerminal(w) {
		return false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0 && height > 0
}

// IsColored reports whether w should get colors (https://no-color.org).
func IsColored(w any) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Bytes formats a size for users.
func Bytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("% .1f", decor.SizeB1024(n))
}

// Readable waits briefly for input, because a blocking read of a terminal cannot be interrupted, and this process may
// have other work.
func Readable(in *os.File) bool {
	const moment = 100 // milliseconds
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, moment)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// ShowText prints the output of a guest or a program. On a terminal it prints only text and colors, so that the output
// cannot control the terminal; elsewhere it is unchanged.
func ShowText(w io.Writer, from io.Reader) error {
	if IsTerminal(w) {
		return plain.Copy(w, from)
	}
	_, err := io.Copy(w, from)
	return err
}
