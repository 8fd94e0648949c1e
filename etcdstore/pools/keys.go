package pools

import (
	"fmt"

	"croft/pool"
)

// Keys builds the keys of the managers of pools; it is a prefix. The list of all keys is in etcdstore.
type Keys string

func (k Keys) head() string                   { return string(k) + "head" }
func (k Keys) leader() string                 { return string(k) + "leader" }
func (k Keys) record(n pool.Name) string      { return k.Records() + string(n) }
func (k Keys) ticket(id pool.TicketID) string { return fmt.Sprintf("%s%016d", k.Tickets(), id) }
func (k Keys) resources() string              { return string(k) + "resources/" }
func (k Keys) resource(id pool.ResourceID) string {
	return fmt.Sprintf("%s%016d", k.resources(), id)
}

// Records returns the prefix of the records of pools.
func (k Keys) Records() string { return string(k) + "pools/" }

// Tickets returns the prefix of tickets.
func (k Keys) Tickets() string { return string(k) + "tickets/" }
