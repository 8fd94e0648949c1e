// Package nearest finds the word that somebody who mistyped one most likely
// meant. It proposes nothing rather than something far-fetched.
package nearest

import (
	"fmt"
	"strings"
)

// Word returns the candidate closest to the word, the first of equals, or "" where
// none is close: at most one edit for every three letters, and at least one. Case
// does not count.
func Word(word string, candidates []string) string {
	if word == "" {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// Hint returns the end of an error message, `; did you mean "x"?`, or "" where no
// candidate is close.
func Hint(word string, candidates []string) string {
	if best := Word(word, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// distance counts the insertions, deletions, replacements and swaps of neighbours
// that make b of a (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
