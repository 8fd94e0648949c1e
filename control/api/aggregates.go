package api

import "croft"

// AggregateList has the aggregates that the caller sees.
type AggregateList struct {
	Aggregates []croft.Aggregate `json:"aggregates"` // by name
	More
}

// AggregateNamed names an aggregate.
type AggregateNamed struct {
	Name string `path:"name" json:"-"` // name of the aggregate
}

// NewAggregate is the input of createAggregate.
type NewAggregate struct {
	// Lower-case letters and digits, with dashes in between.
	Name string `json:"name" maxLength:"63" minLength:"1"`
	Note string `json:"note,omitempty" maxLength:"256" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // for people
	// whether requests of tenants may name it
	Public bool     `json:"public,omitempty"`
	Hosts  []string `json:"hosts,omitempty" maxItems:"50" maxLength:"256" minLength:"1"` // names or UUIDs
}

// AggregateChange is the input of changeAggregate.
type AggregateChange struct {
	Name string `path:"name"       json:"-"` // name of the aggregate
	// generation that the change builds on; left out: any
	Base Match   `header:"If-Match" json:"-"`
	Note *string `json:"note,omitempty" maxLength:"256" pattern:"^[^\\p{C}\\p{Zl}\\p{Zp}]*$"` // replaces the note
	// whether requests of tenants may name it
	Public   *bool    `json:"public,omitempty"`
	AddHosts []string `json:"add_hosts,omitempty" maxItems:"50" maxLength:"256" minLength:"1"` // names or UUIDs
	// Names or UUIDs.
	RemoveHosts []string `json:"remove_hosts,omitempty" maxItems:"50" maxLength:"256" minLength:"1"`
}

// AggregateRemoval is the input of removeAggregate.
type AggregateRemoval struct {
	Name string `path:"name"       json:"-"` // name of the aggregate
	Base Match  `header:"If-Match" json:"-"` // generation that the removal builds on; left out: any
}
