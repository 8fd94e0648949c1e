package fencer

import (
	"errors"
	"testing"
	"testing/fstest"

	"croft"
	"croft/grid/state"
	"croft/grid/watch"
)

func TestAFenceIsBelievedForItsExitCodeAlone(t *testing.T) {
	one := &state.Value{Kind: state.String, Text: "10.0.0.4"}
	vars := &state.Value{Kind: state.Map, Fields: map[string]*state.Value{"bmc4": one, "many": {Kind: state.List}}}
	node := &state.Node{Name: "web1", Values: &state.Value{Kind: state.Map, Fields: map[string]*state.Value{
		"var": vars}}}
	for name, c := range map[string]struct {
		text string
		want watch.Answer
	}{
		"0 says that it is off":       {"fence: {argv: [test, \"${name}\", =, web1]}", watch.Yes},
		"1 does not":                  {"fence: {argv: [test, \"${name}\", =, other]}", watch.No},
		"a code that is listed as no": {"fence: {argv: [sh, -c, exit 3], no: [3]}", watch.No},
		"a program that is not there": {"fence: {argv: [/no/such/program]}", watch.No},
		"a variable of the node":      {"fence: {argv: [test, \"${var.bmc4}\", =, 10.0.0.4]}", watch.Yes},
		"it goes before the hard point's own": {"variables: {bmc4: none}\nfence: {argv: [test, \"${var.bmc4}\", =, 10.0.0.4]}",
			watch.Yes},
		"the hard point's own":                   {"variables: {bmc: none}\nfence: {argv: [test, \"${var.bmc}\", =, none]}", watch.Yes},
		"a variable that is no text":             {"fence: {argv: [echo, \"${var.many}\"]}", watch.Unknown},
		"a variable that the node does not have": {"fence: {argv: [echo, \"${var.bmc}\"]}", watch.Unknown},
	} {
		p, err := Open(fstest.MapFS{"hardpoints/fence/f.yaml": {Data: []byte(c.text)}}, "f")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Fence(t.Context(), node); got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	if _, err := Open(fstest.MapFS{}, "f"); !errors.Is(err, croft.NotFound) {
		t.Errorf("no such fence: %v", err)
	}
}
