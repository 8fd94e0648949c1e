package state

import (
	"cmp"
	"slices"
	"strings"

	"croft/internal/nearest"
)

// The known keys. Other keys are kept, and only used through ${...}.
var (
	clusterKeys = []string{"id", "vcs", "runtime", "ip", "state_dir", "upstream", "types", "timeouts", "parallel",
		"ssh", "watch", "var"}
	nodeKeys = []string{
		"id",
		"type",
		"address",
		"ip",
		"interface",
		"user",
		"weight",
		"capacity",
		"facts",
		"state",
		"local",
		"host_key",
		"state_dir",
		"runtime",
		"var",
	}
	belowKeys = map[string][]string{
		"timeouts": {"dial"}, "ssh": {"certificate"}, "watch": {"every", "grace", "term", "fence"},
		"image": {"rootfs", "archive", "registry"}, "limits": {"cpu", "memory"},
		"replicas": {"want", "min"}, "ready": checkKeys, "gate": checkKeys,
		"files": {"path", "mode", "content", "from", "secret"},
		"vm":    {"vcpus", "memory", "disk", "image", "network", "virt_type", "user_data"},
	}
	checkKeys = []string{"command", "here", "url", "query", "timeout", "restore"}
)

// Unknown lists the keys that croft does not know, each with a similar known key if there is one. Keys below var belong
// to the user and are not listed.
func (s *State) Unknown() []Problem { return s.unread(false) }

// Mistyped lists the unknown keys that resemble a known one.
func (s *State) Mistyped() []Problem { return s.unread(true) }

func (s *State) unread(similar bool) []Problem {
	u := unknowns{similar: similar, seen: map[Position]bool{}}
	u.keys(s.Settings, "", clusterKeys)
	for _, b := range s.Buckets {
		u.keys(b.Values, "", nodeKeys)
	}
	for _, n := range s.Leaves {
		u.keys(n.Values, "", nodeKeys)
	}
	for _, j := range s.Jobs {
		u.keys(j.Values, "", jobKeys)
	}
	slices.SortFunc(u.list, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line),
			strings.Compare(a.Text, b.Text))
	})
	return u.list
}

type unknowns struct {
	list    []Problem
	similar bool              // only keys that resemble a known one
	seen    map[Position]bool // positions that were reported, since many may inherit one key
}

func (u *unknowns) keys(v *Value, in string, known []string) {
	if v == nil || v.Kind != Map {
		return
	}
	for _, key := range v.Keys {
		one := v.Fields[key]
		if slices.Contains(known, key) {
			u.below(one, key, in)
			continue
		}
		at := one.At
		if u.seen[at] {
			continue
		}
		u.seen[at] = true
		hint := nearest.Hint(key, known)
		if u.similar && hint == "" {
			continue
		}
		u.list = append(u.list, Problem{at, in + key + " is not read" + hint})
	}
}

func (u *unknowns) below(v *Value, key, in string) {
	known := belowKeys[key]
	if known == nil || in != "" {
		return
	}
	u.keys(v, key+".", known)
	for _, item := range v.Items {
		u.keys(item, key+".", known)
	}
}
