package api

import "croft"

// AggregateList has the aggregates that the caller sees.
type AggregateList struct {
	Aggregates []croft.Aggregate `json:"aggregates"`
}

// AggregateNamed names an aggregate.
type AggregateNamed struct {
	Name string `path:"name" json:"-"` // name of the aggregate
}

// NewAggregate is the input of createAggregate.
type NewAggregate struct {
	Name   string   `json:"name"`
	Note   string   `json:"note,omitempty"`
	Public bool     `json:"public,omitempty"`
	Hosts  []string `json:"hosts,omitempty"` // names or UUIDs
}

// AggregateChange is the input of changeAggregate.
type AggregateChange struct {
	Name        string   `path:"name"       json:"-"` // name of the aggregate
	Base        *int64   `header:"If-Match" json:"-"` // generation that the change builds on; nil: any
	Note        *string  `json:"note,omitempty"`
	Public      *bool    `json:"public,omitempty"`
	AddHosts    []string `json:"add_hosts,omitempty"` // names or UUIDs
	RemoveHosts []string `json:"remove_hosts,omitempty"`
}

// AggregateRemoval is the input of removeAggregate.
type AggregateRemoval struct {
	Name string `path:"name"       json:"-"` // name of the aggregate
	Base *int64 `header:"If-Match" json:"-"` // generation that the removal builds on; nil: any
}
