package transfer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"croft"
)

// Kinds of lines.
const (
	kindHeader   = "placement"
	kindClass    = "class"
	kindTrait    = "trait"
	kindProvider = "provider"
	kindConsumer = "consumer"
	kindEnd      = "end"
)

// version is the version of the file format.
const version = 1

// maxLine bounds the length of a line.
const maxLine = 64 << 20

type (
	headerLine struct {
		Kind     string `json:"kind"`
		Version  int    `json:"version"`
		Revision int64  `json:"revision,omitempty"`
	}
	nameLine struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	providerLine struct {
		Kind string `json:"kind"`
		Provider
	}
	consumerLine struct {
		Kind string `json:"kind"`
		Consumer
	}
	endLine struct {
		Kind string `json:"kind"`
	}
)

// Encode writes a state as JSON Lines. Equal states give equal bytes.
func Encode(w io.Writer, s *State) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	var failed error
	put := func(v any) { failed = cmp.Or(failed, lines.Encode(v)) }
	put(headerLine{kindHeader, version, s.Revision})
	for _, c := range s.Classes {
		put(nameLine{kindClass, string(c)})
	}
	for _, t := range s.Traits {
		put(nameLine{kindTrait, string(t)})
	}
	for _, p := range s.Providers {
		put(providerLine{kindProvider, p})
	}
	for _, c := range s.Consumers {
		put(consumerLine{kindConsumer, c})
	}
	put(endLine{kindEnd})
	return cmp.Or(failed, out.Flush())
}

// Decode reads a file written by Encode. Invalid: it names the line and the error.
func Decode(r io.Reader) (*State, error) {
	d := decoder{lines: bufio.NewScanner(r)}
	d.lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for d.lines.Scan() {
		d.line++
		if err := d.take(bytes.TrimSpace(d.lines.Bytes())); err != nil {
			return nil, croft.Errorf(croft.Invalid, "line %d: %w", d.line, err)
		}
	}
	switch err := d.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, croft.Errorf(croft.Invalid, "line %d is longer than %d MiB", d.line+1, maxLine>>20)
	case err != nil:
		return nil, fmt.Errorf("read line %d: %w", d.line+1, err)
	case d.line == 0:
		return nil,
			croft.Errorf(croft.Invalid,
				`line 1: it is empty, want {"kind":"placement","version":1}; is this what croft serve placement export wrote?`)
	case !d.ended:
		return nil,
			croft.Errorf(croft.Invalid,
				`line %d: it ends without {"kind":"end"}, so something is missing; export it again`, d.line+1)
	}
	if f := d.state.check(); f != nil {
		return nil, croft.Errorf(croft.Invalid, "line %d: %w", d.at[f.of][f.index], f.err)
	}
	slices.SortFunc(d.state.Consumers, compareConsumers)
	return &d.state, nil
}

type decoder struct {
	lines *bufio.Scanner
	line  int
	ended bool
	state State
	at    [part(4)][]int // line number of each object
}

// take decodes one line.
func (d *decoder) take(text []byte) error {
	var kind struct {
		Kind *string `json:"kind"`
	}
	switch err := json.Unmarshal(text, &kind); {
	case err != nil:
		return fmt.Errorf("it is not a JSON object: %w", err)
	case kind.Kind == nil:
		return errors.New("it has no kind")
	case d.ended:
		return errors.New("something follows the end")
	case (*kind.Kind == kindHeader) != (d.line == 1):
		return errors.New(`the first line, and no other, is {"kind":"placement","version":1}`)
	}
	return d.takeKind(*kind.Kind, text)
}

func (d *decoder) takeKind(kind string, text []byte) error {
	s := &d.state
	switch kind {
	case kindHeader:
		return d.header(text)
	case kindClass:
		l, err := strictly[nameLine](text)
		s.Classes, d.at[classes] = append(s.Classes, croft.ResourceClass(l.Name)), append(d.at[classes], d.line)
		return err
	case kindTrait:
		l, err := strictly[nameLine](text)
		s.Traits, d.at[traits] = append(s.Traits, croft.Trait(l.Name)), append(d.at[traits], d.line)
		return err
	case kindProvider:
		l, err := strictly[providerLine](text)
		err = cmp.Or(err, complete(text, l.Inventories))
		l.Provider.canonical()
		s.Providers, d.at[providers] = append(s.Providers, l.Provider), append(d.at[providers], d.line)
		return err
	case kindConsumer:
		l, err := strictly[consumerLine](text)
		l.Consumer.canonical()
		s.Consumers, d.at[consumers] = append(s.Consumers, l.Consumer), append(d.at[consumers], d.line)
		return err
	case kindEnd:
		_, err := strictly[endLine](text)
		d.ended = true
		return err
	}
	return fmt.Errorf("the kind %q is unknown, want class, trait, provider, consumer or end", kind)
}

func (d *decoder) header(text []byte) error {
	l, err := strictly[headerLine](text)
	if err == nil && l.Version != version {
		err = fmt.Errorf("the format has version %d and this croft knows %d; use the croft that wrote it", l.Version,
			version)
	}
	d.state.Revision = l.Revision
	return err
}

// strictly decodes a line and refuses unknown fields.
func strictly[T any](text []byte) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return v, d.Decode(&v)
}

// complete requires every field of inventories; there are no defaults.
func complete(text []byte, inventories map[croft.ResourceClass]croft.Inventory) error {
	var given struct {
		Inventories map[croft.ResourceClass]map[string]json.RawMessage `json:"inventories"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	for _, class := range slices.Sorted(maps.Keys(inventories)) {
		for _, field := range []string{"total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"} {
			if given.Inventories[class][field] == nil {
				return fmt.Errorf("inventory of %s: %s is missing", class, field)
			}
		}
	}
	return nil
}

// canonical converts all UUIDs to the form used in comparisons.
func (p *Provider) canonical() {
	p.ID, p.Parent = canonical(p.ID), canonical(p.Parent)
	for i, a := range p.Aggregates {
		p.Aggregates[i] = canonical(a)
	}
}

func (c *Consumer) canonical() {
	c.ID = canonical(c.ID)
	fixed := make(map[croft.HostID]croft.Resources, len(c.Allocations))
	for id, r := range c.Allocations {
		if known := fixed[canonical(id)]; known != nil {
			return // the same provider twice: check will not find the other form
		}
		fixed[canonical(id)] = r
	}
	c.Allocations = fixed
}
