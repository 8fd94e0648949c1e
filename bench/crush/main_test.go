package main

import (
	"testing"
	"time"
)

func TestDiffering(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		want       int
	}{
		{"the same", "0 [1]\n1 [2]\n", "0 [1]\n1 [2]\n", 0},
		{"one line of two", "0 [1]\n1 [2]\n", "0 [1]\n1 [3]\n", 1},
		{"a line more", "0 [1]\n1 [2]\n", "0 [1]\n", 2}, // the line, and the end
		{"nothing printed", "0 [1]\n", "", 2},
	} {
		if got := differing([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%s: %d lines differ, want %d", c.name, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	all := []took{{5, 1, 1}, {1, 1, 30}, {2, 1, 2}}
	if p, c := median(all, took.processor), median(all, took.clock); p != 3 || c != 2*time.Nanosecond {
		t.Errorf("the medians are %d of a processor and %d on the clock; want 3 and 2", p, c)
	}
}
