package schedule

import (
	"fmt"
	"strings"

	"croft"
)

// Explanation says which hosts a request fits on and what drops the others. It is an
// error, of kind NoCapacity where the scheduler returns it.
type Explanation struct {
	Wanted croft.Resources `json:"wanted"`
	Hosts  int             `json:"hosts"` // how many there are
	// the best first; empty where the scheduler returns it as an error
	Fits         []Fit         `json:"fits"`
	Requirements []Requirement `json:"requirements"` // that drop hosts, the one that drops most first
	Rows         []Row         `json:"dropped"`      // the nearest miss first
}

// Fit is a host that the request fits on.
type Fit struct {
	Host string       `json:"host"` // its name
	ID   croft.HostID `json:"id"`
	Rank int          `json:"rank"` // from 1; of hosts with the same rank chance decides
	Free float64      `json:"free"` // the fraction of its scarcest resource that stays free
}

// Requirement is a part of the request, and what it does. A host that fails several
// counts in each.
type Requirement struct {
	Requirement string `json:"requirement"`
	Dropped     int    `json:"dropped"` // hosts
	Nearest     string `json:"nearest"` // of them
	Miss        string `json:"miss"`    // what that one lacks of it
}

// Row is one host, or several that lack the same.
type Row struct {
	Hosts   []string `json:"hosts"`   // names, the nearest miss first
	Missing []string `json:"missing"` // of the first of them, one phrase each
}

// Error is one sentence with the nearest miss.
func (e *Explanation) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf(
			"no host offers anything to claim %s from; start an agent with `croft up` or `croft compute`", e.Wanted)
	}
	nearest := e.Rows[0]
	return fmt.Sprintf("no host has %s left; the nearest, %s: %s", e.Wanted, nearest.Hosts[0],
		strings.Join(nearest.Missing, ", "))
}
