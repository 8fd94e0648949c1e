// Package out prints the output of commands: tables, JSON and YAML, progress on a terminal. Its output never controls a
// terminal, whatever texts it contains.
package out

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"croft/internal/plain"
)

// color is an ANSI color; empty: no color.
type color string

const (
	Red    color = "31"
	Green  color = "32"
	Yellow color = "33"
	Bold   color = "1"
)

// Cell is a text of a table, with its color.
type Cell struct {
	Text  string
	Color color
}

// Table aligns rows of cells in columns. The zero value is an empty table without colors.
type Table struct {
	rows  [][]Cell
	Color bool
}

// Head adds a row of column names.
func (t *Table) Head(names ...string) {
	var row []Cell
	for _, name := range names {
		row = append(row, Cell{name, Bold})
	}
	t.rows = append(t.rows, row)
}

// Row adds a row of cells. Characters that control a terminal are removed.
func (t *Table) Row(cells ...Cell) {
	for i := range cells {
		cells[i].Text = plain.Line(cells[i].Text)
	}
	t.rows = append(t.rows, cells)
}

// Texts adds a row of texts without colors.
func (t *Table) Texts(texts ...string) {
	var row []Cell
	for _, text := range texts {
		row = append(row, Cell{Text: text})
	}
	t.Row(row...)
}

func (t *Table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			b.WriteString(Paint(c.Text, c.Color, t.Color))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+2))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *Table) Print(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// Paint colors a text if welcome is set.
func Paint(text string, c color, welcome bool) string {
	if c == "" || !welcome || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// AndMore adds a last row with the number of omitted rows; nothing for n <= 0.
func (t *Table) AndMore(n int) *Table {
	if n > 0 {
		t.Texts(fmt.Sprintf("... and %d more", n))
	}
	return t
}
