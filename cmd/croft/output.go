package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
	"gopkg.in/yaml.v3"
)

// The formats of results.
const (
	formatText  = "text"  // for people and for $(...)
	formatTable = "table" // for people who want to see everything
	formatJSON  = "json"
	formatYAML  = "yaml"
)

var formats = []string{formatText, formatTable, formatJSON, formatYAML}

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
		plain(&node)
		if text, err = yaml.Marshal(&node); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
	} else {
		text = append(text, '\n')
	}
	_, err = w.Write(text)
	return err
}

func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}

// isTerminal tells whether somebody looks at what is written to w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// isColored tells whether colors are welcome there (https://no-color.org).
func isColored(w any) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }
