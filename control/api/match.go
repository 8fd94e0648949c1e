package api

import (
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// Match is the value of the header If-Match: the versions of an object that a change may build on, as entity tags of
// RFC 9110. The zero value accepts any version. A number without quotes is read as the tag of this generation.
type Match struct {
	any  bool
	tags []string // strong tags with their quotes, and weak ones, which match nothing
}

// EntityTag returns the value of ETag for a generation.
func EntityTag(generation int64) string { return `"` + strconv.FormatInt(generation, 10) + `"` }

// MatchOf returns the Match that accepts one generation.
func MatchOf(generation int64) Match { return Match{tags: []string{EntityTag(generation)}} }

// Given reports whether the request has If-Match.
func (m Match) Given() bool { return m.any || m.tags != nil }

// Accepts reports whether a change may build on the version of an existing object that has this entity tag.
func (m Match) Accepts(tag string) bool {
	return m.any || m.tags == nil || slices.Contains(m.tags, tag)
}

// AcceptsNone reports whether a change may create the object, which does not exist: its generation is 0.
func (m Match) AcceptsNone() bool { return !m.any && m.Accepts(EntityTag(0)) }

// MarshalText implements encoding.TextMarshaler.
func (m Match) MarshalText() ([]byte, error) {
	if m.any {
		return []byte("*"), nil
	}
	return []byte(strings.Join(m.tags, ", ")), nil
}

// tagForm is an entity tag, or a number without quotes.
var tagForm = lazyregexp.New(`^(?:(?:W/)?"[\x21\x23-\x7e]*"|[0-9]+)`)

// UnmarshalText implements encoding.TextUnmarshaler. Invalid.
func (m *Match) UnmarshalText(text []byte) error {
	rest := strings.TrimSpace(string(text))
	if rest == "*" {
		*m = Match{any: true}
		return nil
	}
	*m = Match{}
	for {
		tag := tagForm.Get().FindString(rest)
		if rest = strings.TrimSpace(rest[len(tag):]); tag == "" || rest != "" && rest[0] != ',' {
			return croft.Errorf(croft.Invalid, "is * or a list of entity tags, as the header ETag of answers has them")
		}
		if !strings.HasSuffix(tag, `"`) {
			tag = `"` + tag + `"`
		}
		if m.tags = append(m.tags, tag); rest == "" {
			return nil
		}
		rest = strings.TrimSpace(rest[1:])
	}
}
