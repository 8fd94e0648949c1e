package schedule

import (
	"time"

	"croft"
)

// NewOrder returns an instance's next order, of the next generation, for a host. All orders are created here.
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
