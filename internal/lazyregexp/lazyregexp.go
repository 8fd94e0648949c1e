// Package lazyregexp compiles a regular expression when it is first used. A command starts in a few milliseconds and
// uses few of the program's expressions; compiling all of them took longer than most commands take.
package lazyregexp

import (
	"regexp"
	"sync"
)

// A Regexp is a regular expression that is compiled at its first use. It is safe for concurrent use.
type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the regular expression. Its first use panics if it does not compile.
func New(expression string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
}

// Get returns the compiled expression.
func (r *Regexp) Get() *regexp.Regexp { return r.compiled() }

// MatchString reports whether s contains a match.
func (r *Regexp) MatchString(s string) bool { return r.Get().MatchString(s) }

// Match reports whether b contains a match.
func (r *Regexp) Match(b []byte) bool { return r.Get().Match(b) }

// FindStringSubmatch returns the leftmost match in s and the matches of its groups, or nil.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.Get().FindStringSubmatch(s) }
