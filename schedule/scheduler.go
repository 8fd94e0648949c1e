package schedule

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/share"
	"croft/internal/span"
	"croft/schedule/crushmap"
)

// Config configures a Scheduler.
type Config struct {
	Partition croft.PartitionID // required: the installation
	Records   Records           // required
	Holds     Holds             // required
	View      View              // required
	Registry  Registry          // required
	Groups    Groups            // required
	Claims    Claims            // required

	Aggregates Aggregates // none by default
	Distances  Distances  // none by default
	Properties Properties // none by default
	Crush      Crush      // no policies by default
	Volumes    Volumes    // none by default
	// LastBackup returns the last backup of an instance, and notes that the instance is being restored from it.
	// NotFound: it does not exist. nil: there are no backups.
	LastBackup func(ctx context.Context, inst croft.Instance) (Copy, error)

	// Placer returns a Placer, which writes record, claim and order in one step. If Placer or its result is nil, they
	// are written in three steps.
	Placer func() Placer

	Policy      *Policy       // for requests without a policy; Spread by default
	Log         *slog.Logger  // discards by default
	UndoTimeout time.Duration // timeout of undoing after a failure; 5 s by default
	Backoff     time.Duration // before a busy host is tried again, doubled each round; 20 ms by default
}

// Scheduler turns requests into claims and orders. It keeps no state that others need: any number of schedulers may run
// at once, on any machine. The requests of one scheduler know of each other, so they spread better than requests of
// several.
type Scheduler struct {
	Config
	inFlight  *inFlight
	providers *share.Read[[]croft.Provider]
	hosts     *share.Read[map[croft.HostID]croft.Host]
	maps      *crushMaps
	cluster   croft.ClusterID // whose members it may change; empty: it may change members of no cluster
}

// New checks the config, and starts nothing.
func New(c Config) (*Scheduler, error) {
	if c.Partition == "" || c.Records == nil || c.Holds == nil || c.View == nil || c.Registry == nil ||
		c.Groups == nil || c.Claims == nil {
		return nil, croft.Errorf(croft.Invalid, "schedule: Partition and all interfaces are required")
	}
	if c.Policy == nil {
		c.Policy = Spread
	}
	if c.Aggregates == nil {
		c.Aggregates = nothing{}
	}
	if c.Distances == nil {
		c.Distances = noDistances{}
	}
	if c.Properties == nil {
		c.Properties = nothing{}
	}
	if c.Crush == nil {
		c.Crush = noCrush{}
	}
	if c.Volumes == nil {
		c.Volumes = noVolumes{}
	}
	if c.Placer == nil {
		c.Placer = func() Placer { return nil }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.UndoTimeout = cmp.Or(c.UndoTimeout, 5*time.Second)
	c.Backoff = cmp.Or(c.Backoff, 20*time.Millisecond)
	s := &Scheduler{Config: c, inFlight: newInFlight(), providers: share.NewRead[[]croft.Provider](),
		hosts: share.NewRead[map[croft.HostID]croft.Host]()}
	s.maps = &crushMaps{numbers: c.Crush, hosts: s.allHosts, reading: share.NewRead[*crushmap.Map](),
		providers: func(ctx context.Context) ([]croft.Provider, error) {
			return s.providers.Get(ctx, c.Claims.Providers)
		}}
	return s, nil
}

// CrushMap returns a CRUSH map of the hosts that was read after a time, or if the time is zero, recently.
func (s *Scheduler) CrushMap(ctx context.Context, after time.Time) (*crushmap.Map, error) {
	return s.maps.get(ctx, after)
}

// Decision is the result of a request: the instance, and the host that has the order.
type Decision struct {
	Instance croft.Instance
	Host     croft.Host
}

// writeOrder calls write in its own span. If the host's agent supports traces, the order carries the span, and the
// host's work on the order becomes part of it.
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

// afterwards returns a context for undoing, which must happen even if ctx has ended.
func (s *Scheduler) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.UndoTimeout)
}
