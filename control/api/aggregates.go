package api

import "croft"

// AggregateList has the aggregates that the caller sees.
type AggregateList struct {
	Aggregates []croft.Aggregate `json:"aggregates"`
}

// NewAggregate is the body of createAggregate.
type NewAggregate struct {
	Name   string   `json:"name"`
	Note   string   `json:"note,omitempty"`
	Public bool     `json:"public,omitempty"`
	Hosts  []string `json:"hosts,omitempty"` // names or UUIDs
}

// AggregateChange is the body of changeAggregate. The generation that it builds on is in the header If-Match.
type AggregateChange struct {
	Note        *string  `json:"note,omitempty"`
	Public      *bool    `json:"public,omitempty"`
	AddHosts    []string `json:"add_hosts,omitempty"` // names or UUIDs
	RemoveHosts []string `json:"remove_hosts,omitempty"`
}
