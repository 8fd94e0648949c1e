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
	Key     string        `json:"key,omitempty"` // requests of the project with the same key get the same ticket
}

// TicketList is a page of tickets, newest first.
type TicketList struct {
	Tickets []pools.Ticket `json:"tickets"`
	Next    string         `json:"next,omitempty"` // where the next page starts; empty: this is the last page
}
