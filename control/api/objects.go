package api

import "croft/tenant/objects"

// ObjectList is a page of objects.
type ObjectList struct {
	Objects []objects.Object `json:"objects"`
	Next    string           `json:"next,omitempty"` // where the next page starts; empty: this is the last page
}

// ObjectChange is the body of changeObject. The generation that it builds on is in the header If-Match.
type ObjectChange struct {
	Set        map[string]objects.Value `json:"set,omitempty"`
	Remove     []string                 `json:"remove,omitempty"`
	AddTags    []string                 `json:"add_tags,omitempty"`
	RemoveTags []string                 `json:"remove_tags,omitempty"`
}

// PropertyValue is the value of a property.
type PropertyValue struct {
	Value objects.Value `json:"value"`
}

// NewDefinition is a definition without its level and kind.
type NewDefinition struct {
	Unknown     objects.Unknown             `json:"unknown,omitempty"` // objects.Allow by default
	Properties  map[string]objects.Property `json:"properties,omitempty"`
	Permissions []objects.Permission        `json:"permissions,omitempty"`
}

// BreachList has the things that violate a definition.
type BreachList struct {
	Breaches []objects.Breach `json:"breaches"`
}
