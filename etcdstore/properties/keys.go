package properties

import (
	"strings"

	"croft"
	"croft/tenant/objects"
)

// Keys builds the keys of objects and definitions; it is the prefix of the partition. The list of all keys is in
// etcdstore.
type Keys string

func (k Keys) kind(o objects.Kind) string { return string(k) + "objects/" + string(o) + "/" }

// Project returns the prefix of the objects of a kind in a project.
func (k Keys) Project(o objects.Kind, p croft.Project) string { return k.kind(o) + string(p) + "/" }

// Object returns the key of an object.
func (k Keys) Object(r objects.Ref) string {
	if !r.Kind.InProject() {
		return k.kind(r.Kind) + r.ID
	}
	return k.Project(r.Kind, r.Project) + r.ID
}

func (k Keys) definitions() string { return string(k) + "definitions/" }

func (k Keys) nameOf(at objects.Place) string { return string(at.Level) + "/" + string(at.Kind) }

func (k Keys) definition(at objects.Place) string { return k.definitions() + k.nameOf(at) }

// placeOf returns the place of a definition's key.
func (k Keys) placeOf(key []byte) objects.Place {
	level, kind, _ := strings.Cut(strings.TrimPrefix(string(key), k.definitions()), "/")
	return objects.Place{Level: objects.Level(level), Kind: objects.Kind(kind)}
}
