package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"croft/internal/plain"
)

// The formats of results.
const (
	formatText  = "text"  // for people and for $(...)
	formatTable = "table" // for people who want to see everything
	formatWide  = "wide"  // a list with all its columns; of one thing the same as formatTable
	formatJSON  = "json"
	formatYAML  = "yaml"
)

var formats = []string{formatText, formatTable, formatWide, formatJSON, formatYAML}

func isTable(format string) bool { return format == formatTable || format == formatWide }

// printData prints a value as JSON or YAML, with the same keys in the same order.
func printData(w io.Writer, format string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	if format == formatYAML {
		var node yaml.Node // JSON is YAML already: only its style changes
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

// flow has YAML's own style, and texts that steer no terminal.
func flow(n *yaml.Node) {
	n.Style, n.Value = 0, plain.Lines(n.Value)
	for _, child := range n.Content {
		flow(child)
	}
}

// escaped writes what steers a terminal as JSON's escapes; encoding/json leaves all but
// the controls of seven bits as they are. In JSON such runes are in texts alone.
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

// steersInJSON leaves out the line breaks between values.
func steersInJSON(r rune) bool { return r != '\n' && plain.Steers(r) }

// isTerminal tells whether somebody looks at what is written to w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// isColored tells whether colors are welcome there (https://no-color.org).
func isColored(w any) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }
