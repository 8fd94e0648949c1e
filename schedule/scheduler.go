package schedule

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/span"
)

// Config configures a Scheduler.
type Config struct {
	Partition croft.PartitionID // required: the installation
	Records   Records           // required
	View      View              // required
	Registry  Registry          // required
	Groups    Groups            // required
	Claims    Claims            // required

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
	providers *sharedRead[[]croft.Provider]
	hosts     *sharedRead[map[croft.HostID]croft.Host]
}

// New checks the config. It starts nothing.
func New(c Config) (*Scheduler, error) {
	if c.Partition == "" || c.Records == nil || c.View == nil || c.Registry == nil || c.Groups == nil ||
		c.Claims == nil {
		return nil, croft.Errorf(croft.Invalid, "schedule: Partition and all interfaces are required")
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

// sharedRead performs a slow read, such as of all providers, once for all concurrent callers, as when --count 100 finds
// no room. No caller gets data that was read before its call.
type sharedRead[T any] struct {
	now     atomic.Int64  // logical clock: counts callers and reads
	reading chan struct{} // a mutex with contexts: full while a caller reads
	begun   int64         // when the last successful read began
	last    T
}

func newSharedRead[T any]() *sharedRead[T] { return &sharedRead[T]{reading: make(chan struct{}, 1)} }

// get reads, or returns what another caller began to read after this call. Callers must not change the result.
func (s *sharedRead[T]) get(ctx context.Context, read func(context.Context) (T, error)) (last T, err error) {
	asked := s.now.Add(1)
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	defer func() { <-s.reading }()
	if s.begun > asked {
		return s.last, nil
	}
	begun := s.now.Add(1)
	all, err := read(ctx)
	if err == nil {
		s.begun, s.last = begun, all
	}
	return all, err
}
