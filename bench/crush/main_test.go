package main

import "testing"

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
