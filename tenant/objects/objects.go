// Package objects manages properties and tags: data that people and policies attach to instances, images, hosts and
// groups, in addition to the cloud's own records. A definition governs the properties of a kind: their permitted
// values, and who may read and write them. A property that a caller may not read does not exist for that caller: not in
// output, counts, filters or errors.
package objects

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
)

// Kind is a kind of record that can have properties and tags.
type Kind string

// The kinds. Any stands for all of them in definitions.
const (
	Instance Kind = "instance"
	Image    Kind = "image" // by its name in the catalog; the cloud has no record of it
	Host     Kind = "host"
	Group    Kind = "group"
	Any      Kind = "any"
)

// Kinds lists the kinds without Any.
var Kinds = []Kind{Instance, Image, Host, Group}

// Check validates the kind of a record. Invalid.
func (k Kind) Check() error {
	if slices.Contains(Kinds, k) {
		return nil
	}
	var known []string
	for _, one := range Kinds {
		known = append(known, string(one))
	}
	return croft.Errorf(croft.Invalid, "%.40q is not a kind of object: use one of %s%s", string(k),
		strings.Join(known, ", "), nearest.Hint(string(k), known))
}

// InProject reports whether records of the kind belong to a project. Only operators see the others.
func (k Kind) InProject() bool { return k != Host }

// Ref identifies an object.
type Ref struct {
	Kind    Kind          `json:"kind" enum:"instance,image,host,group"` // kind of the object
	Project croft.Project `json:"project,omitempty"`                     // empty for kinds outside of projects
	// UUID of an instance or host, name of a group or image
	ID string `json:"id"`
}

// String returns kind and ID.
func (r Ref) String() string { return string(r.Kind) + " " + r.ID }

// compare orders references by kind, project and ID.
func (r Ref) compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Project, o.Project), cmp.Compare(r.ID, o.ID))
}

// nameForm is the form of names of groups and images.
var nameForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check validates a reference; parts of it become parts of keys. Invalid.
func (r Ref) Check() error {
	if err := r.Kind.Check(); err != nil {
		return err
	}
	if r.Kind.InProject() {
		if err := r.Project.Check(); err != nil {
			return err
		}
	} else if r.Project != "" {
		return croft.Errorf(croft.Invalid, "a %s belongs to no project: leave out the project", r.Kind)
	}
	switch r.Kind {
	case Instance:
		return canonical(r.ID, func(s string) (string, error) {
			id, err := croft.ParseInstanceID(s)
			return string(id), err
		})
	case Host:
		return canonical(r.ID, func(s string) (string, error) {
			id, err := croft.ParseHostID(s)
			return string(id), err
		})
	}
	if !nameForm.MatchString(r.ID) {
		return croft.Errorf(croft.Invalid,
			"%.80q is not the name of %s: use 1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
			r.ID, article(string(r.Kind)))
	}
	return nil
}

func canonical(id string, parse func(string) (string, error)) error {
	parsed, err := parse(id)
	if err == nil && parsed != id {
		return croft.Errorf(croft.Invalid, "the UUID %.80q is not written as stored: use %s", id, parsed)
	}
	return err
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// Object is the properties and tags of one record.
type Object struct {
	Ref
	Properties map[string]Value `json:"properties"` // values by key
	Tags       []string         `json:"tags"`       // sorted, without duplicates
	// Generation is the revision of the stored object. 0: nothing is stored, or nothing that the caller may read.
	Generation int64 `json:"generation"`
}

// Empty reports whether the object has no properties and tags.
func (o Object) Empty() bool { return len(o.Properties) == 0 && len(o.Tags) == 0 }

// clone returns a deep copy without nil maps and slices.
func (o Object) clone() Object {
	o.Properties = maps.Clone(o.Properties)
	if o.Properties == nil {
		o.Properties = map[string]Value{}
	}
	o.Tags = append([]string{}, o.Tags...)
	return o
}

// sameAs reports whether both have the same properties and tags.
func (o Object) sameAs(p Object) bool {
	return maps.Equal(o.Properties, p.Properties) && slices.Equal(o.Tags, p.Tags)
}

// MarshalJSON encodes missing properties and tags as empty, not as null.
func (o Object) MarshalJSON() ([]byte, error) {
	type plainObject Object
	return json.Marshal(plainObject(o.clone()))
}

// Limits of an object.
const (
	MaxProperties = 64 // that one caller can read or write
	MaxKey        = 64 // characters of a key
	MaxText       = 2048
	MaxTags       = 32
	MaxTag        = 64 // characters
)

var keyForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckKey validates the key of a property. Invalid.
func CheckKey(key string) error {
	if !keyForm.MatchString(key) {
		return croft.Errorf(croft.Invalid,
			"%.80q is not a key of a property: use 1 to %d letters, digits, dots, dashes and underscores, beginning with a letter or digit",
			key, MaxKey)
	}
	return nil
}

// CheckNewKey validates the key of a property to be written. Earlier versions of croft wrote keys that it refuses.
// Invalid.
func CheckNewKey(key string) error {
	if rest, marked := strings.CutPrefix(key, labelMark); marked {
		return croft.Errorf(croft.Invalid, "no property can be called %.80q, because filters take %s for the property %s: "+
			"leave %s out", key, key, cmp.Or(rest, "after it"), labelMark)
	}
	return CheckKey(key)
}

// CheckTag validates a tag. Invalid.
func CheckTag(tag string) error {
	n := utf8.RuneCountInString(tag)
	switch {
	case tag == "":
		return croft.Errorf(croft.Invalid, "a tag is empty: use 1 to %d characters", MaxTag)
	case n > MaxTag:
		return croft.Errorf(croft.Invalid, "the tag %.20q... has %d characters: a tag has at most %d", tag, n, MaxTag)
	case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool { return !unicode.IsPrint(r) }):
		return croft.Errorf(croft.Invalid, "the tag %.80q has characters that cannot be printed: leave them out", tag)
	case strings.TrimSpace(tag) != tag:
		return croft.Errorf(croft.Invalid, "the tag %q begins or ends with a blank: leave it out", tag)
	}
	return nil
}
