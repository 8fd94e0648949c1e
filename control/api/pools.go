package api

import pools "croft/pool/api"

// PoolList has the pools that the caller may use.
type PoolList struct {
	Pools []pools.Pool `json:"pools"`
}

// PoolResourceList has resources of a pool.
type PoolResourceList struct {
	Resources []pools.Resource `json:"resources"`
}

// NewTicket is the body of openTicket.
type NewTicket struct {
	Tags    []string      `json:"tags"`
	Sandbox string        `json:"sandbox,omitempty"`
	TTL     pools.Seconds `json:"ttl,omitempty"`
	Key     string        `json:"key,omitempty"` // the same one gets the same ticket of the project
}

// TicketList is a page of tickets, the newest first.
type TicketList struct {
	Tickets []pools.Ticket `json:"tickets"`
	Next    string         `json:"next,omitempty"` // where the next page begins; empty: this is the last one
}
