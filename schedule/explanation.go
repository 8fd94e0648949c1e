package schedule

import (
	"fmt"
	"strings"

	"croft"
)

// Explanation lists the hosts that a request fits on and the reasons why others are dropped. The scheduler returns it
// as an error of kind NoCapacity.
type Explanation struct {
	Wanted croft.Resources `json:"wanted"`
	Hosts  int             `json:"hosts"` // number of all hosts
	// best first; empty when the scheduler returns it as an error
	Fits         []Fit         `json:"fits"`
	Requirements []Requirement `json:"requirements"` // that drop hosts, by number of hosts, descending
	Rows         []Row         `json:"dropped"`      // nearest miss first
}

// Fit is a host that the request fits on.
type Fit struct {
	Host string       `json:"host"` // name
	ID   croft.HostID `json:"id"`
	Rank int          `json:"rank"` // from 1; equal ranks are ordered by chance
	Free float64      `json:"free"` // fraction of its scarcest resource that stays free
}

// Requirement is a part of the request and its effect. A host that fails several is included in each.
type Requirement struct {
	Requirement string `json:"requirement"`
	Dropped     int    `json:"dropped"` // hosts
	Nearest     string `json:"nearest"` // the nearest of these hosts
	Miss        string `json:"miss"`    // what that host lacks
}

// Row is one or several hosts that lack the same.
type Row struct {
	Hosts   []string `json:"hosts"`   // names, nearest miss first
	Missing []string `json:"missing"` // what the first of them lacks, one phrase each
}

// Error returns one sentence with the nearest miss.
func (e *Explanation) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf(
			"no host offers anything to claim %s from; start an agent with `croft up` or `croft compute`", e.Wanted)
	}
	nearest := e.Rows[0]
	return fmt.Sprintf("no host has %s left; the nearest, %s: %s", e.Wanted, nearest.Hosts[0],
		strings.Join(nearest.Missing, ", "))
}
