package hosts

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"croft"
	"croft/schedule"
)

// Config joins a Fleet to the parts that it needs.
type Config struct {
	Partition croft.PartitionID // required: of the orders that it writes
	Hosts     Store             // required, as are all that follow
	Members   Members
	Instances Instances
	Claims    Claims

	UndoTimeout time.Duration // limit for undoing after a failure; 5 s by default
	Log         *slog.Logger  // discards by default
}

// Fleet is all hosts of a cloud. It is stateless.
type Fleet struct{ Config }

// New checks the config. It starts nothing.
func New(c Config) (*Fleet, error) {
	if c.Partition == "" || c.Hosts == nil || c.Members == nil || c.Instances == nil || c.Claims == nil {
		return nil, croft.Errorf(croft.Invalid, "hosts: Partition and all interfaces are required")
	}
	c.UndoTimeout = cmp.Or(c.UndoTimeout, 5*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Fleet{c}, nil
}

// order returns an instance's next order, for any host.
func (f *Fleet) order(inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return schedule.NewOrder(f.Partition, inst, host, want)
}

// Reorder writes an instance's next order for its host.
func (f *Fleet) Reorder(ctx context.Context, inst croft.Instance, want croft.Want) error {
	_, err := f.Instances.Reorder(ctx, inst, f.order(inst, inst.Host, want))
	return err
}
