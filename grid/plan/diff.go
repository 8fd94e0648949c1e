package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft/grid/unit"
)

// Limits of a displayed difference: lines of output, and bytes of both texts.
const (
	maxDiffLines = 400
	maxDiffText  = 256 << 10
)

// reason returns a short reason why a unit must be replaced.
func reason(was, want *unit.Unit, a *Actual) string {
	switch {
	case a.Runtime != want.Runtime:
		return fmt.Sprintf("its runtime changes from %s to %s", a.Runtime, want.Runtime)
	case a.Hash == want.Hash() && a.OldImage:
		return fmt.Sprintf("its image %s names another image on the node now", want.Image.Registry)
	case a.Hash == want.Hash() && a.OldDefinition:
		return fmt.Sprintf("the definition of its runtime %s changed", want.Runtime)
	case was == nil || was.Hash() != a.Hash:
		return "it differs from the applied definition: after an interrupted change, or changed by hand"
	}
	parts := map[string]bool{}
	for _, f := range changedFields(was, want) {
		parts[f] = true
	}
	for path := range changedFiles(was, want) {
		parts["file "+path] = true
	}
	names := slices.Sorted(maps.Keys(parts))
	if len(names) > 4 {
		names = append(names[:4], fmt.Sprintf("%d more", len(names)-4))
	}
	return "changed: " + strings.Join(names, ", ")
}

// fields returns a unit as JSON keys and values, without its files and its cluster.
func fields(u *unit.Unit) map[string]string {
	all := map[string]string{}
	if u == nil {
		return all
	}
	plain := *u
	plain.Files = nil
	text, err := json.Marshal(plain)
	if err != nil {
		panic(err) // every field can be encoded
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		panic(err) // the text was just encoded
	}
	for key, value := range values {
		all[key] = string(value)
	}
	delete(all, "cluster")
	return all
}

func changedFields(was, want *unit.Unit) []string {
	a, b := fields(was), fields(want)
	var changed []string
	for _, key := range union(a, b) {
		if a[key] != b[key] {
			changed = append(changed, key)
		}
	}
	return changed
}

func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func filesOf(u *unit.Unit) map[string]unit.File {
	all := map[string]unit.File{}
	if u != nil {
		for _, f := range u.Files {
			all[f.Path] = f
		}
	}
	return all
}

// changedFiles maps the path of each file that differs to the old and the new file.
func changedFiles(was, want *unit.Unit) map[string][2]unit.File {
	a, b := filesOf(was), filesOf(want)
	changed := map[string][2]unit.File{}
	for _, path := range union(a, b) {
		old, new := a[path], b[path]
		if old.Digest != new.Digest || old.Mode != new.Mode || old.Secret != new.Secret || old.Path != new.Path {
			changed[path] = [2]unit.File{old, new}
		}
	}
	return changed
}

// diffUnit returns the differences of a unit: its values, and the lines of its files. Secrets are named, and their
// contents are never shown. For a new unit it returns nil.
func diffUnit(was, want *unit.Unit) []string {
	var lines []string
	if was == nil {
		return nil
	}
	a, b := fields(was), fields(want)
	for _, key := range changedFields(was, want) {
		if v, ok := a[key]; ok {
			lines = append(lines, fmt.Sprintf("- %s: %s", key, v))
		}
		if v, ok := b[key]; ok {
			lines = append(lines, fmt.Sprintf("+ %s: %s", key, v))
		}
	}
	files := changedFiles(was, want)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		old, new := files[path][0], files[path][1]
		switch {
		case old.Path == "":
			lines = append(lines, "+ file "+path)
			if !new.Secret && new.Content != "" {
				lines = append(lines, diffText("", "", new.Content)[1:]...)
			}
			continue
		case new.Path == "":
			lines = append(lines, "- file "+path)
			continue
		case old.Secret || new.Secret:
			lines = append(lines, "~ file "+path+" (secret)")
			continue
		case old.Mode != new.Mode:
			lines = append(lines, fmt.Sprintf("~ file %s: mode %04o, was %04o", path, new.Mode, old.Mode))
		}
		if !old.Secret && !new.Secret {
			lines = append(lines, diffText("file "+path, old.Content, new.Content)...)
		}
	}
	return lines[:min(len(lines), maxDiffLines)]
}

// diffText returns the differing lines of two texts, after a line with the name; nil if the texts are equal.
func diffText(name, old, new string) []string {
	if old == new {
		return nil
	}
	lines := []string{"~ " + name}
	if len(old)+len(new) > maxDiffText {
		return append(lines, fmt.Sprintf("  (%d bytes, were %d: too long to show)", len(new), len(old)))
	}
	a, b := splitLines(old), splitLines(new)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] { // skip the common prefix and suffix
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a)*len(b) > 1<<20 { // too expensive to compare line by line: show both texts completely
		for _, l := range a {
			lines = append(lines, "- "+l)
		}
		for _, l := range b {
			lines = append(lines, "+ "+l)
		}
		return lines[:min(len(lines), maxDiffLines)]
	}
	lines = append(lines, subsequence(a, b)...)
	return lines[:min(len(lines), maxDiffLines)]
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// subsequence returns the differing lines of two lists, by their longest common subsequence.
func subsequence(a, b []string) []string {
	length := make([][]int32, len(a)+1)
	for i := range length {
		length[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := len(b) - 1; k >= 0; k-- {
			if a[i] == b[k] {
				length[i][k] = length[i+1][k+1] + 1
			} else {
				length[i][k] = max(length[i+1][k], length[i][k+1])
			}
		}
	}
	var lines []string
	i, k := 0, 0
	for i < len(a) || k < len(b) {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && length[i+1][k] >= length[i][k+1]:
			lines = append(lines, "- "+a[i])
			i++
		default:
			lines = append(lines, "+ "+b[k])
			k++
		}
	}
	return lines
}
