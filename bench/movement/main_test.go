package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestWhatCrushMoves: a lost host causes moves only of its own instances. Placing all instances again moves a few
// shares with CRUSH, and nearly all instances with spread.
func TestWhatCrushMoves(t *testing.T) {
	for _, p := range policies {
		w := newWorld(7, 40, 1000, 3, p.racks)
		if err := w.place(p.text); err != nil {
			t.Fatal(err)
		}
		before := w.save()
		lost := w.busiest()
		forced := len(w.on(lost))
		w.out(lost)
		if err := w.mend(p.text); err != nil {
			t.Fatal(err)
		}
		if n := w.moved(before); n != forced || w.used[lost] > 0 {
			t.Errorf("%s: %d moved for %d that had to", p.name, n, forced)
		}
		w.restore(before, lost)
		if w.moved(before) != 0 || w.in() != 40 {
			t.Errorf("%s: not restored", p.name)
		}
		w.add()
		if err := w.place(p.text); err != nil {
			t.Fatal(err)
		}
		n := w.moved(before)
		if crush := p.text != ""; crush != (n < 4*1000/41) {
			t.Errorf("%s: %d of 1000 move for a host more than 40", p.name, n)
		}
	}
}

func TestTheReportHasALineForEach(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-hosts", "20", "-instances", "100,200"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1+2*3*6 {
		t.Errorf("%d lines:\n%s", n, &out)
	}
	for _, wrong := range [][]string{{"-hosts", "x"}, {"-hosts", "1"}, {"-room", "1"}, {"-room", "NaN"}, {"more"}} {
		if err := run(wrong, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
