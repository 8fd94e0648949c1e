// Package nearest suggests the word that a mistyped one most likely stands for, or nothing if no word is similar.
package nearest

import (
	"fmt"
	"strings"
)

// Word returns the candidate closest to the word, the first of equally close ones, or "" if none is close enough: at
// most one edit for every three letters, and at least one edit, is allowed. If no candidate is close enough and the
// word has three letters or more, it returns the shortest candidate that starts with the word, or ends with it after a
// _. Case is ignored.
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
	if best == "" && len(word) >= shortest {
		return longer(strings.ToLower(word), candidates)
	}
	return best
}

// shortest is the minimum length of a word that is matched as part of another.
const shortest = 3

// longer returns the shortest candidate that contains the word as a part.
func longer(word string, candidates []string) string {
	best := ""
	for _, candidate := range candidates {
		lower := strings.ToLower(candidate)
		part := strings.HasPrefix(lower, word) || strings.HasSuffix(lower, "_"+word)
		if part && (best == "" || len(candidate) < len(best)) {
			best = candidate
		}
	}
	return best
}

// Hint returns the end of an error message, `; did you mean "x"?`, or "" if no candidate is close.
func Hint(word string, candidates []string) string {
	if best := Word(word, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal string
// alignment).
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
