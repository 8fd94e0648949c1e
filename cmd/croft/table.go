package main

import (
	"io"
	"strings"
	"unicode/utf8"

	"croft/internal/plain"
)

// color is an ANSI color, empty for none.
type color string

const (
	red    color = "31"
	green  color = "32"
	yellow color = "33"
	bold   color = "1"
)

// cell is a text in a table.
type cell struct {
	text  string
	color color
}

// table aligns rows of cells in columns.
type table struct {
	rows  [][]cell
	color bool
}

// head adds a row of column names.
func (t *table) head(names ...string) {
	var row []cell
	for _, name := range names {
		row = append(row, cell{name, bold})
	}
	t.rows = append(t.rows, row)
}

// row adds cells, of whose texts nothing steers a terminal.
func (t *table) row(cells ...cell) {
	for i := range cells {
		cells[i].text = plain.Line(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

// texts adds a row without color.
func (t *table) texts(texts ...string) {
	var row []cell
	for _, text := range texts {
		row = append(row, cell{text: text})
	}
	t.row(row...)
}

func (t *table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			b.WriteString(paint(c.text, c.color, t.color))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *table) print(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// paint colors a text where colors are welcome.
func paint(text string, c color, welcome bool) string {
	if c == "" || !welcome || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
