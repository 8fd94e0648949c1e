package setexpr

import (
	"path"
	"strings"

	"croft"
)

// A Pattern selects paths. * and ? match any characters or one character within a part, [a-c] matches one of the
// characters, and a part ** matches any number of parts.
type Pattern string

const maxParts = 64

// Check returns an error if the pattern is malformed, so that no path can match. Invalid.
func (p Pattern) Check() error {
	parts := strings.Split(string(p), "/")
	if len(parts) > maxParts {
		return croft.Errorf(croft.Invalid, "a pattern of more than %d parts", maxParts)
	}
	for _, part := range parts {
		if _, err := path.Match(part, ""); err != nil || part == "" || part == "." || part == ".." {
			return croft.Errorf(croft.Invalid, "%q is no pattern of paths: write web/front, web/*, or web/**",
				string(p))
		}
	}
	return nil
}

// Match reports whether a path matches.
func (p Pattern) Match(name string) bool {
	// reached[i]: the parts of the path so far match the first i parts of the pattern.
	pattern := strings.Split(string(p), "/")
	reached := make([]bool, len(pattern)+1)
	reached[0] = true
	passAny(reached, pattern)
	for part := range strings.SplitSeq(name, "/") {
		next := make([]bool, len(pattern)+1)
		for i, want := range pattern {
			if !reached[i] {
				continue
			}
			if want == "**" {
				next[i] = true
			} else if ok, _ := path.Match(want, part); ok {
				next[i+1] = true
			}
		}
		passAny(next, pattern)
		reached = next
	}
	return reached[len(pattern)]
}

// passAny steps over each ** that is reached, because ** may match no part at all.
func passAny(reached []bool, pattern []string) {
	for i, want := range pattern {
		if reached[i] && want == "**" {
			reached[i+1] = true
		}
	}
}
