// Package guestname says by which names guests find each other: web.PROJECT.croft, in the DNS of the network that they
// share on a host.
package guestname

import (
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// Zone is the end of all names. It is no domain of the internet, so no name is one of another owner.
const Zone = "croft"

// reserved are labels that programs look for to find something other than a guest.
var reserved = []string{"localhost", "localdomain", "wpad", "isatap"}

// label is one part of a name (RFC 1123). Names that differ in upper case alone are the same in the DNS, so only lower
// case is accepted.
var label = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// longest is the length of the longest name in the DNS.
const longest = 253

// Search returns the domain of the names of a project; false: there are none, because the project's name is no part of
// a name.
func Search(project croft.Project) (domain string, ok bool) {
	for part := range strings.SplitSeq(string(project), ".") {
		if !label.MatchString(part) {
			return "", false
		}
	}
	return string(project) + "." + Zone, true
}

// Full returns the name of an instance; false: it has none. The first part is the instance, so two projects never have
// the same name.
func Full(name string, project croft.Project) (full string, ok bool) {
	domain, ok := Search(project)
	full = name + "." + domain
	return full, ok && label.MatchString(name) && !slices.Contains(reserved, name) && len(full) <= longest
}
