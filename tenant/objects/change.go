package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
	"croft/tenant/access"
)

// Change is a requested change of one object. It is made completely or not at all.
type Change struct {
	Set    map[string]Value `json:"set,omitempty"`
	Remove []string         `json:"remove,omitempty"` // keys of properties

	AddTags    []string `json:"add_tags,omitempty"`
	RemoveTags []string `json:"remove_tags,omitempty"`

	// Generation is the generation of the object that the change is based on. Nil: any.
	Generation *int64 `json:"generation,omitempty"`
}

// ForbiddenError is the cause of a Denied error: the caller may not write these properties. It contains only keys from
// the request.
type ForbiddenError struct {
	Ref
	Keys []string
}

func (e *ForbiddenError) Error() string {
	noun, verb := "property ", "it"
	if len(e.Keys) > 1 {
		noun, verb = "properties ", "them"
	}
	return fmt.Sprintf("%s: you may not write the %s%s; ask somebody who may, or leave %s out", e.Ref, noun,
		strings.Join(e.Keys, ", "), verb)
}

// check validates a change without its object. Invalid.
func (c Change) check() error {
	if len(c.Set)+len(c.Remove)+len(c.AddTags)+len(c.RemoveTags) == 0 {
		return croft.Errorf(croft.Invalid, "there is nothing to change: name properties or tags")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		if err := CheckNewKey(key); err != nil {
			return err
		}
		if err := c.Set[key].Check(); err != nil {
			return croft.Errorf(croft.Invalid, "the property %s: %w", key, err)
		}
		if slices.Contains(c.Remove, key) {
			return croft.Errorf(croft.Invalid, "the property %s is to be set and removed: do one of them", key)
		}
	}
	for _, key := range c.Remove {
		if err := CheckKey(key); err != nil {
			return err
		}
	}
	for _, tag := range c.AddTags {
		if err := checkComposed("tag", tag); err != nil {
			return err
		}
	}
	for _, tag := range slices.Concat(c.AddTags, c.RemoveTags) {
		if err := CheckTag(tag); err != nil {
			return err
		}
		if slices.Contains(c.AddTags, tag) && slices.Contains(c.RemoveTags, tag) {
			return croft.Errorf(croft.Invalid, "the tag %q is to be added and removed: do one of them", tag)
		}
	}
	return nil
}

// decision is a change of one object by one caller under one definition.
type decision struct {
	under  Definition
	caller access.Caller
	change Change
	// again: an earlier attempt may have taken effect, so properties to remove may be gone already
	again bool
}

// apply returns the changed object. Denied: *ForbiddenError, or tags that the caller may not write. NotFound: a
// property or tag to remove does not exist. Conflict: the generation differs. Invalid: a limit or *ViolationsError.
// Violations by properties that the caller cannot write are no error; Check lists them.
func (d decision) apply(old Object) (Object, error) {
	if err := d.mayWrite(old.Ref); err != nil {
		return old, err
	}
	seen := d.under.visible(d.caller, old)
	if g := d.change.Generation; g != nil && *g != seen.Generation {
		return old, croft.Errorf(croft.Conflict,
			"%s was changed by another request: it has generation %d, not %d; read it again", old.Ref, seen.Generation,
			*g)
	}
	if err := d.present(seen); err != nil {
		return old, err
	}
	next := old.clone()
	maps.Copy(next.Properties, d.change.Set)
	for _, key := range d.change.Remove {
		delete(next.Properties, key)
	}
	next.Tags = slices.DeleteFunc(append(next.Tags, d.change.AddTags...), func(tag string) bool {
		return slices.Contains(d.change.RemoveTags, tag)
	})
	slices.Sort(next.Tags)
	next.Tags = slices.Compact(next.Tags)
	if err := d.permitted(next); err != nil {
		return old, err
	}
	return next, nil
}

// mayWrite rejects a change of properties or tags that the caller may not write.
func (d decision) mayWrite(ref Ref) error {
	var forbidden []string
	for _, key := range slices.Sorted(maps.Keys(d.change.keys())) {
		if !d.under.allowed(d.caller, ref.Kind, key).write {
			forbidden = append(forbidden, key)
		}
	}
	if len(forbidden) > 0 {
		return croft.Errorf(croft.Denied, "%w", &ForbiddenError{ref, forbidden})
	}
	if len(d.change.AddTags)+len(d.change.RemoveTags) > 0 && !writes(d.caller, ref.Kind) {
		return croft.Errorf(croft.Denied, "%s: you may not change its tags; ask a member of its project", ref)
	}
	return nil
}

// keys returns the keys of all properties in the change.
func (c Change) keys() map[string]bool {
	all := map[string]bool{}
	for key := range c.Set {
		all[key] = true
	}
	for _, key := range c.Remove {
		all[key] = true
	}
	return all
}

// present rejects the removal of properties and tags that do not exist, unless the caller cannot know that.
func (d decision) present(seen Object) error {
	if d.again {
		return nil
	}
	for _, key := range d.change.Remove {
		if _, there := seen.Properties[key]; !there && d.under.allowed(d.caller, seen.Kind, key).read {
			return croft.Errorf(croft.NotFound, "%s has no property %s%s", seen.Ref, key,
				nearest.Hint(key, slices.Sorted(maps.Keys(seen.Properties))))
		}
	}
	for _, tag := range d.change.RemoveTags {
		if !slices.Contains(seen.Tags, tag) {
			return croft.Errorf(croft.NotFound, "%s has no tag %q%s", seen.Ref, tag, nearest.Hint(tag, seen.Tags))
		}
	}
	return nil
}

// permitted checks the changed object against the limits and its definition.
func (d decision) permitted(next Object) error {
	if len(next.Tags) > MaxTags {
		return croft.Errorf(croft.Invalid, "%s would have %d tags: it may have %d; remove some first", next.Ref,
			len(next.Tags), MaxTags)
	}
	if len(d.change.keys()) == 0 {
		return nil // definitions do not govern tags
	}
	mine := 0 // does not count properties that the caller cannot access
	for key := range next.Properties {
		if (d.under.allowed(d.caller, next.Kind, key) != allowed{}) {
			mine++
		}
	}
	if mine > MaxProperties {
		return croft.Errorf(croft.Invalid, "%s would have %d properties: it may have %d; remove some first", next.Ref,
			mine, MaxProperties)
	}
	if mine == 0 {
		return nil // required properties apply only to objects with properties
	}
	compiled, err := d.under.compile()
	if err != nil {
		return err
	}
	all, err := d.under.violations(compiled, next.Properties, d.under.known(d.caller, next.Kind))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v Violation) bool { return !d.under.allowed(d.caller, next.Kind, v.Key).write })
	if len(all) > 0 {
		return croft.Errorf(croft.Invalid, "%w", &ViolationsError{next.Ref, all})
	}
	return nil
}

// proposal is nearest.Hint for the middle of a sentence.
func proposal(word string, candidates []string) string {
	if best := nearest.Word(word, candidates); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
