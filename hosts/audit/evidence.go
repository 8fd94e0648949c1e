package audit

import (
	"context"
	"errors"
	"time"

	"croft"
)

// Evidence is all records about instances, and the data of hosts and Placement about them. Its parts may be read at
// different moments. A change in progress differs a moment later, so compare twice and act only on the differences that
// Confirm returns.
type Evidence struct {
	// Only is the one host that the evidence covers; of other hosts it then has at most instances, to look them up.
	// Empty: it covers everything.
	Only croft.HostID

	Hosts        map[croft.HostID]croft.Host
	Instances    map[croft.InstanceID]croft.Instance
	Sessions     map[string]bool // of live schedulers
	Names        []Name
	UserData     []UserData
	Members      []GroupMember
	Seats        []TakenSeat
	Addresses    []TakenAddress
	Orders       []croft.Order
	Observations []croft.Observation
	Volumes      map[croft.VolumeID]croft.Volume // of the host; of all hosts, if it covers everything

	Claims map[croft.HostID]map[croft.InstanceID]croft.Resources // of the hosts whose claims were read
	// Stored is the claims on the storages that hosts mount, by their providers.
	Stored map[croft.HostID]map[croft.InstanceID]croft.Resources
	// Elsewhere is the claims of instances on providers other than hosts, such as shared storage; nil: not read.
	Elsewhere map[croft.InstanceID]croft.Resources
	Contents  map[croft.HostID]Contents // of the hosts that were asked
	// Clocks is the reason why nothing may end because of the time: the clock of this machine differs from a host's. It
	// is set only in the evidence of a caretaker.
	Clocks error
	// ClockDifference is the largest difference between the clocks of a living host and this machine, see
	// croft.Host.ClockDifference; set together with Clocks.
	ClockDifference time.Duration
}

// addStored reads the claims on the storages that hosts mount. They are read after the records: a claim is younger than
// its record.
func (e *Evidence) addStored(ctx context.Context, from interface {
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
}) error {
	e.Stored = map[croft.HostID]map[croft.InstanceID]croft.Resources{}
	for _, h := range e.Hosts {
		for _, s := range h.Storages {
			if _, read := e.Stored[s.ID.Provider()]; read {
				continue
			}
			claims, err := from.Claims(ctx, s.ID.Provider())
			if err != nil && !errors.Is(err, croft.NotFound) {
				return err
			}
			e.Stored[s.ID.Provider()] = claims
		}
	}
	return nil
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

// GroupMember is an entry in the directory of groups.
type GroupMember struct {
	croft.GroupMember
	Project  croft.Project
	Revision int64
}

// TakenSeat is an entry in the directory of seats.
type TakenSeat struct {
	croft.Seat
	Project  croft.Project
	Revision int64
}

// TakenAddress is an entry in the directory of chosen addresses.
type TakenAddress struct {
	Address  string
	Host     croft.HostID
	Instance croft.InstanceID
	Revision int64
}

// Contents is the guests and disks on a host.
type Contents struct {
	Guests      []Guest            `json:"guests"`
	Directories []croft.InstanceID `json:"directories"` // with disks
	Volumes     []croft.VolumeID   `json:"volumes,omitempty"`
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
