package api

import pools "croft/pool/api"

// PoolList has the pools that the caller may use.
type PoolList struct {
	Pools []pools.Pool `json:"pools"` // by name
	More
}

// PoolNamed names a pool.
type PoolNamed struct {
	InProject

	Name string `path:"name" json:"-"` // name of the pool
}

// PoolChange is the input of changePool.
type PoolChange struct {
	PoolNamed
	pools.Size
}

// PoolResources is the input of listPoolResources.
type PoolResources struct {
	PoolNamed

	All bool `query:"all" json:"-"` // also ended resources, as far as they are remembered
}

// ResourceNamed names a resource of a pool.
type ResourceNamed struct {
	PoolNamed

	Resource string `path:"resource" json:"-"` // number of the resource, or its name
}

// PoolResourceList has resources of a pool.
type PoolResourceList struct {
	Resources []pools.Resource `json:"resources"` // the oldest first
	More
}

// TicketWait says whether to answer only when a ticket has its resource, has ended, or can never be served.
type TicketWait struct {
	Wait    string   `query:"wait"    json:"-" enum:"ready"` // answer when the ticket has its resource, or has ended
	Timeout Patience `query:"timeout" json:"-" default:"1m"` // longest wait, such as 30s: more than 0, and 10m at most
}

// TicketNamed names a ticket.
type TicketNamed struct {
	InProject

	ID string `path:"id" json:"-"` // number of the ticket
}

// TicketAwaited is the input of getTicket.
type TicketAwaited struct {
	TicketNamed
	TicketWait
}

// TicketFilter is the input of listTickets.
type TicketFilter struct {
	InProject
	Page

	All bool `query:"all" json:"-"` // also closed tickets, as far as they are remembered
}

// NewTicket is the input of openTicket.
type NewTicket struct {
	InProject
	TicketWait

	// What the resource has to have. With sandbox and key 4 KiB at most.
	Tags []string `json:"tags" maxItems:"64" maxLength:"256" minLength:"1"`
	// A name of the project's. What was used in one sandbox goes to no other; a new one by default.
	Sandbox string `json:"sandbox,omitempty" maxLength:"256"`
	// Seconds after which the ticket is closed unless it was used; what its pool says by default.
	TTL pools.Seconds `json:"ttl,omitempty" maximum:"315360000" minimum:"1"`
	// requests of the project with the same key get the same ticket
	Key string `json:"key,omitempty" maxLength:"256"`
}

// TicketList is a page of tickets, newest first.
type TicketList struct {
	Tickets []pools.Ticket `json:"tickets"` // the newest first
	More
}
