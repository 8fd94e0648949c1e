package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"croft"
	"croft/internal/nearest"
	"croft/internal/plain"
)

// maxTags is the maximum number of a ticket's tags, maxWord the maximum length of a tag, and maxNamed the maximum total
// length, in bytes. They are limited because each ticket is kept for some time after its end.
const (
	maxTags  = 64
	maxWord  = 256
	maxNamed = 4 << 10
)

// CheckTag accepts valid tags and sandboxes. Invalid.
func CheckTag(word string) error {
	if word == "" || len(word) > maxWord || !utf8.ValidString(word) || strings.ContainsFunc(word, plain.Steers) {
		return croft.Errorf(croft.Invalid, "%.40q cannot be a tag: use 1 to %d characters that can be printed", word,
			maxWord)
	}
	return nil
}

// why describes what a waiting ticket waits for, and whether it waits in vain: no existing resource, and no resource
// that the pools would start, has its tags.
func (v *view) why(t *Ticket) (sentence string, never bool) {
	var able []Record
	for _, p := range v.byPosition() {
		if v.canServe(p, t) {
			able = append(able, p)
		}
	}
	if len(able) == 0 {
		return v.whyNever(t), true
	}
	var all []string
	for _, p := range able {
		all = append(all, v.whyPool(p, t))
	}
	return strings.Join(all, "; "), false
}

func (v *view) byPosition() []Record {
	return slices.SortedFunc(maps.Values(v.pools), func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Settings.Name, b.Settings.Name))
	})
}

// canServe reports whether a pool starts resources for the ticket, warm or on demand, or has a suitable one.
func (v *view) canServe(p Record, t *Ticket) bool {
	s := &p.Settings
	if p.Removed || !fits(s, t.Project, t.Tags) {
		return false
	}
	if s.Max > 0 && s.MaxStarting > 0 && p.startsFor(t.Tags) {
		return true
	}
	c := v.counts[s.Name]
	return c != nil && c.Starting+c.Up+c.Releasing > 0
}

// whyPool explains why a pool that can serve a ticket has not served it yet.
func (v *view) whyPool(p Record, t *Ticket) string {
	var c Counts
	if has := v.counts[p.Settings.Name]; has != nil {
		c = *has
	}
	name := p.Settings.Name
	again := p.NotBefore.Local().Format(time.TimeOnly)
	switch {
	case p.Mode != Active:
		return fmt.Sprintf("pool %s is %s", name, p.Mode)
	case c.Starting > 0:
		return fmt.Sprintf("pool %s is starting %d", name, c.Starting)
	case p.Full:
		return fmt.Sprintf("pool %s has no room for another one (%s); it tries again at %s", name, p.LastError, again)
	case p.Failed > 0:
		return fmt.Sprintf("pool %s fails to start anything (%s); it tries again at %s", name, p.LastError, again)
	case c.Live() >= p.Settings.Max:
		return fmt.Sprintf(
			"pool %s has as many as it may, %d, of which %d are taken and %d are being cleaned or deleted%s", name,
			p.Settings.Max, c.Taken, c.Releasing+c.DeleteRequest+c.Deleting, c.unusable())
	case !p.startsFor(t.Tags):
		return fmt.Sprintf("pool %s starts nothing for these tags, and %d of its resources are taken and %d are being "+
			"cleaned%s", name, c.Taken, c.Releasing, c.unusable())
	}
	return fmt.Sprintf("pool %s is about to start one", name)
}

// unusable describes the unassigned resources that the ticket cannot get; empty: there are none.
func (c Counts) unusable() string {
	var all []string
	for _, part := range []struct {
		count int
		text  string
	}{{c.Kept, "kept for the sandbox that used them"}, {c.Failing, "failing their livecheck"},
		{c.Outdated, "made with former settings"}} {
		if part.count > 0 {
			all = append(all, fmt.Sprintf(", %d are %s", part.count, part.text))
		}
	}
	return strings.Join(all, "")
}

// whyNever names the tags that no pool has. It treats pools that do not serve the ticket's project as missing.
func (v *view) whyNever(t *Ticket) string {
	known := map[string]bool{}
	var full []string
	for _, p := range v.byPosition() {
		if p.Removed || !p.Settings.IsFor(t.Project) {
			continue
		}
		for _, tag := range p.Settings.AllTags() {
			known[tag.Name] = true
		}
		if hasAll(p.Settings.AllTags(), t.Tags) {
			full = append(full, string(p.Settings.Name))
		}
	}
	for _, tag := range t.Tags {
		if !known[tag] {
			return fmt.Sprintf("no pool has the tag %s%s", tag, nearest.Hint(tag, slices.Sorted(maps.Keys(known))))
		}
	}
	if len(full) > 0 {
		return fmt.Sprintf("pool %s has the tags and never starts anything: its max, max_starting or max_prealloc is 0",
			strings.Join(full, ", "))
	}
	return fmt.Sprintf("no pool has all of the tags %s", strings.Join(t.Tags, ", "))
}
