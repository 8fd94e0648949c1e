package api

import "croft"

// DistanceList has the distances that the caller sees.
type DistanceList struct {
	Types []croft.Distances `json:"types"`
}

// NewDistance is the body of setDistance.
type NewDistance struct {
	Type     string `json:"type,omitempty"` // croft.FailureDistance if empty
	A        string `json:"a"`              // names or UUIDs of hosts, locations or aggregates
	B        string `json:"b"`
	Distance int    `json:"distance"`
}
