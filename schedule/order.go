package schedule

import (
	"time"

	"croft"
)

// NewOrder returns an instance's next order, one generation on, for a host. All orders are made here.
func NewOrder(partition croft.PartitionID, inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return croft.Order{
		Partition:  partition,
		Host:       host,
		Instance:   inst.ID,
		Generation: inst.Generation + 1,
		Want:       want,
		Project:    inst.Project,
		Name:       inst.Name,
		Spec:       inst.Spec,
		Issued:     time.Now().UTC(),
		Rebooted:   inst.Rebooted,
		Rebuilt:    inst.Rebuilt,
		MovedFrom:  inst.MovedFrom,
		LeftBefore: inst.LeftBefore,
	}
}
