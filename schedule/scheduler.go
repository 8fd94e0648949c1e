package schedule

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/span"
)

// Config joins a Scheduler to the rooms that it needs.
type Config struct {
	Partition croft.PartitionID // required: whose orders it writes
	Records   Records           // required
	View      View              // required
	Claims    Claims            // required

	Policy      *Policy       // of requests that name none; Spread by default
	Log         *slog.Logger  // discards by default
	UndoTimeout time.Duration // how long giving back may take after a failure; 5 s by default
	Backoff     time.Duration // before a host that was too busy is tried again, doubled each round; 20 ms by default
}

// Scheduler turns requests into claims and orders. It holds no state that others need:
// any number of them may run at once, here and elsewhere. Requests of one scheduler
// know of each other, and so spread better than those of several.
type Scheduler struct {
	Config
	inFlight  *inFlight
	providers *sharedRead[[]croft.Provider]
	hosts     *sharedRead[map[croft.HostID]croft.Host]
}

// New checks the config. It does nothing yet.
func New(c Config) (*Scheduler, error) {
	if c.Partition == "" || c.Records == nil || c.View == nil || c.Claims == nil {
		return nil, croft.Errorf(croft.Invalid, "schedule: Partition, Records, View and Claims are required")
	}
	if c.Policy == nil {
		c.Policy = Spread
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.UndoTimeout = cmp.Or(c.UndoTimeout, 5*time.Second)
	c.Backoff = cmp.Or(c.Backoff, 20*time.Millisecond)
	return &Scheduler{Config: c, inFlight: newInFlight(), providers: newSharedRead[[]croft.Provider](),
		hosts: newSharedRead[map[croft.HostID]croft.Host]()}, nil
}

// Decision is what became of a request: an instance and the host that was told.
type Decision struct {
	Instance croft.Instance
	Host     croft.Host
}

// writeOrder writes an order with write, and in it, where the host's agent knows of such, the
// span of its own, of which what the host does about it becomes part.
func (s *Scheduler) writeOrder(ctx context.Context, host *croft.Host,
	write func(context.Context, croft.Instance, croft.Order) (croft.Instance, error),
	inst croft.Instance, o croft.Order) (croft.Instance, error) {
	ctx, end := span.Start(ctx, "order", attribute.String("croft.instance", string(inst.ID)),
		attribute.String("croft.host", string(o.Host)))
	if host != nil && host.Traces {
		o.Trace = span.Parent(ctx)
	}
	inst, err := write(ctx, inst, o)
	end(err)
	return inst, err
}

// order is the next order of an instance, one generation on.
func (s *Scheduler) order(inst croft.Instance, host croft.HostID, want croft.Want) croft.Order {
	return croft.Order{
		Partition:  s.Partition,
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

// afterwards is a context for giving back, which has to happen although ctx ended.
func (s *Scheduler) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.UndoTimeout)
}
