package api

import "croft"

// DistanceList has the distances that the caller sees.
type DistanceList struct {
	Types []croft.Distances `json:"types"`
}

// DistanceBetween is the input of getDistance.
type DistanceBetween struct {
	Type string `query:"type" json:"-" minLength:"1" maxLength:"32" default:"failure"` // type of distances

	// A and B are aggregates, locations such as site1.row2, or names or UUIDs of hosts.
	A string `query:"a" json:"-" required:"true" minLength:"1" maxLength:"600"`
	B string `query:"b" json:"-" required:"true" minLength:"1" maxLength:"600"`
}

// DistanceRemoval is the input of removeDistance.
type DistanceRemoval struct {
	DistanceBetween

	Base *int64 `header:"If-Match" json:"-"` // generation of the distances of the type; nil: any
}

// NewDistance is the input of setDistance.
type NewDistance struct {
	Base     *int64 `header:"If-Match" json:"-"` // generation of the distances of the type; nil: any
	Type     string `json:"type,omitempty"`      // croft.FailureDistance if empty
	A        string `json:"a"`                   // names or UUIDs of hosts, locations or aggregates
	B        string `json:"b"`
	Distance int    `json:"distance"`
}
