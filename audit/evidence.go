package audit

import (
	"time"

	"croft"
)

// Evidence is everything on record about instances, and what hosts and Placement have of them. Its parts may
// be read at different moments. A change in progress differs a moment later, so compare twice and act only on
// what Confirm returns.
type Evidence struct {
	// Only is the one host that the evidence covers; of other hosts it then holds at most instances, to look
	// them up. Empty: it covers everything.
	Only croft.HostID

	Hosts        map[croft.HostID]croft.Host
	Instances    map[croft.InstanceID]croft.Instance
	Sessions     map[string]bool // of live schedulers
	Names        []Name
	UserData     []UserData
	Members      []Member
	Seats        []TakenSeat
	Orders       []croft.Order
	Observations []croft.Observation

	Claims map[croft.HostID]map[croft.InstanceID]croft.Resources // of the hosts whose claims were read
	// Elsewhere is what instances claim from providers other than hosts, such as shared storage; nil: not read.
	Elsewhere map[croft.InstanceID]croft.Resources
	Contents  map[croft.HostID]Contents // of the hosts that were asked
	// Clocks is why nothing may end because of the time: the clock of this machine differs from a host's. Only a
	// caretaker's evidence has it.
	Clocks error
	// ClockDifference is the largest difference of a living host's clock to that of this machine, as
	// croft.Host.ClockDifference tells it; with Clocks.
	ClockDifference time.Duration
}

// Name is an entry in the directory of names.
type Name struct {
	Project  croft.Project
	Name     string
	Instance croft.InstanceID
	Revision int64
}

// UserData is the key of an instance's user-data.
type UserData struct {
	Instance croft.InstanceID
	Revision int64
}

// Member is an entry in the directory of groups.
type Member struct {
	croft.Member
	Project  croft.Project
	Revision int64
}

// TakenSeat is an entry in the directory of seats.
type TakenSeat struct {
	croft.Seat
	Project  croft.Project
	Revision int64
}

// Contents is what a host has.
type Contents struct {
	Guests      []Guest            `json:"guests"`
	Directories []croft.InstanceID `json:"directories"` // with disks
}

// Guest is a domain that belongs to this installation.
type Guest struct {
	Instance   croft.InstanceID `json:"instance"`
	Generation int64            `json:"generation"`
	Running    bool             `json:"running"`
}

// Guest returns the guest of an instance; nil: no guest here.
func (c Contents) Guest(id croft.InstanceID) *Guest {
	for i := range c.Guests {
		if c.Guests[i].Instance == id {
			return &c.Guests[i]
		}
	}
	return nil
}
