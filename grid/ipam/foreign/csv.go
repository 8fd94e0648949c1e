package foreign

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"croft"
)

// separators lists the common separators of columns.
var separators = []rune{',', ';', '\t'}

// columns splits a line with column names at the separator that occurs most often.
func columns(first string) []string {
	all, _ := newReader(first).Read() // reading the whole table reports the error
	return all
}

func newReader(text string) *csv.Reader {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	r := csv.NewReader(strings.NewReader(text))
	r.Comma = slices.MaxFunc(separators, func(a, b rune) int {
		return strings.Count(first, string(a)) - strings.Count(first, string(b))
	})
	r.TrimLeadingSpace = true
	return r
}

// addressColumn returns the index of the column with the address or prefix; -1: no such column.
func addressColumn(names []string) int {
	for _, wanted := range [][]string{addressNames, prefixNames} {
		if i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(wanted, key(n)) }); i >= 0 {
			return i
		}
	}
	return -1
}

func readCSV(text string) ([]Record, error) {
	reader := newReader(text)
	names, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "the list is empty")
	} else if err != nil {
		return nil, croft.Errorf(croft.Invalid, "CSV: %w", err)
	}
	at := addressColumn(names)
	if at < 0 {
		return nil, croft.Errorf(croft.Invalid, "line 1: no column is called address or prefix: there are %q", names)
	}
	isPrefix := slices.Contains(prefixNames, key(names[at]))
	var all []Record
	for {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, croft.Errorf(croft.Invalid, "CSV: %w", err)
		}
		line, _ := reader.FieldPos(0)
		r, err := newRecord(row[at], fmt.Sprint("line ", line), isPrefix)
		if err != nil {
			return nil, err
		}
		for i, value := range row {
			if i == at {
				continue
			}
			if err := r.add(names[i], value); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
}
