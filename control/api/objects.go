package api

import "croft/tenant/objects"

// Filtered has filters by properties and tags: terms key=value, key=beginning*, key and tag:name with blanks between,
// all of which must match. Several filters are ORed.
type Filtered struct {
	// conditions on properties and tags; all must hold
	Filter []string `query:"filter" json:"-" maxItems:"16" maxLength:"4096"`
}

// ObjectFilter is the input of listObjects.
type ObjectFilter struct {
	InProject
	Filtered
	Page

	Kind objects.Kind `query:"kind" json:"-" required:"true" enum:"instance,image,host,group"` // kind of the objects
}

// ObjectNamed names an object.
type ObjectNamed struct {
	InProject

	Things string `path:"things" json:"-" enum:"instances,images,hosts,groups"` // kind of the object, in the plural
	ID     string `path:"id"     json:"-"`                                      // UUID of the object, or its name
}

// ObjectBase names an object, and the generation that a change of it builds on.
type ObjectBase struct {
	ObjectNamed

	Base Match `header:"If-Match" json:"-"` // generation of the object; left out: any
}

// ObjectList is a page of objects.
type ObjectList struct {
	Objects []objects.Object `json:"objects"` // by name
	More
}

// ObjectChange is the input of changeObject.
type ObjectChange struct {
	ObjectBase

	// Properties to set.
	Set map[string]objects.Value `json:"set,omitempty" maxProperties:"64"`
	// Keys of properties to remove.
	Remove     []string `json:"remove,omitempty" maxItems:"64"`
	AddTags    []string `json:"add_tags,omitempty" maxItems:"32"`    // tags that the object gets
	RemoveTags []string `json:"remove_tags,omitempty" maxItems:"32"` // tags that the object loses
}

// PropertyNamed names a property of an object.
type PropertyNamed struct {
	ObjectNamed

	Key string `path:"key" json:"-"` // key of the property
}

// PropertyRemoval is the input of removeProperty.
type PropertyRemoval struct {
	ObjectBase

	Key string `path:"key" json:"-"` // key of the property
}

// NewProperty is the input of setProperty.
type NewProperty struct {
	PropertyRemoval
	PropertyValue
}

// PropertyValue is the value of a property.
type PropertyValue struct {
	// The value, of at most 2048 bytes.
	Value objects.Value `json:"value"`
}

// TagNamed names a tag of an object.
type TagNamed struct {
	ObjectBase

	Tag string `path:"tag" json:"-"` // the tag
}

// DefinitionNamed names the place of a definition.
type DefinitionNamed struct {
	// instance, image, host or group; or any, which applies where no other is set
	Kind objects.Kind `path:"kind" json:"-"`

	// Level is the partition, or global for all partitions that have none of their own.
	Level objects.Level `query:"level" json:"-" enum:"partition,global" default:"partition"`
}

// DefinitionChosen is the input of getDefinition.
type DefinitionChosen struct {
	DefinitionNamed

	// Effective gets the definition that applies to the kind, wherever it is set; not together with the level.
	Effective bool `query:"effective" json:"-"`
}

// NewDefinition is the input of setDefinition.
type NewDefinition struct {
	DefinitionNamed

	// Base is the generation of the definition that this replaces, as its header ETag had it; 0 if none is set.
	Base    Match           `header:"If-Match"         json:"-" required:"true"`
	Unknown objects.Unknown `json:"unknown,omitempty" enum:"allow,refuse"` // objects.Allow by default
	// The properties by their keys, with keywords of JSON Schema.
	Properties map[string]objects.Property `json:"properties,omitempty" maxProperties:"64"`
	// Who reads and writes properties that have no permissions of their own.
	Permissions []objects.Permission `json:"permissions,omitempty" maxItems:"64"`
}

// KindInProject is the input of checkDefinition.
type KindInProject struct {
	InProject

	Kind objects.Kind `path:"kind" json:"-"` // kind of the objects
}

// BreachList has the objects that violate a definition.
type BreachList struct {
	Breaches []objects.Breach `json:"breaches"` // the objects that break the definition
}
