package api

import "croft"

// DistanceList has the distances that the caller sees.
type DistanceList struct {
	Types []croft.Distances `json:"types"` // the types of distances
	More
}

// DistanceBetween is the input of getDistance.
type DistanceBetween struct {
	Type string `query:"type" json:"-" minLength:"1" maxLength:"32" default:"failure"` // type of distances

	// A and B are aggregates, locations such as site1.row2, or names or UUIDs of hosts.
	A string `query:"a" json:"-" required:"true" minLength:"1" maxLength:"600"`
	B string `query:"b" json:"-" required:"true" minLength:"1" maxLength:"600"` // the other location or host
}

// DistanceRemoval is the input of removeDistance.
type DistanceRemoval struct {
	DistanceBetween

	Base Match `header:"If-Match" json:"-"` // generation of the distances of the type; left out: any
}

// NewDistance is the input of setDistance.
type NewDistance struct {
	// generation of the distances of the type; left out: any
	Base Match  `header:"If-Match" json:"-"`
	Type string `json:"type,omitempty" default:"failure" maxLength:"32" minLength:"1"` // of the distance
	// names or UUIDs of hosts, locations or aggregates
	A string `json:"a" maxLength:"600" minLength:"1"`
	// An aggregate, a location such as site1.row2, or the name or UUID of a host.
	B        string `json:"b" maxLength:"600" minLength:"1"`
	Distance int    `json:"distance" maximum:"1000000" minimum:"0"` // any unit; 0: the same place
}
