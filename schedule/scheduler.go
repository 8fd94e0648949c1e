package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/hostkey"
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
	underway *underway
	stock    *stock[[]croft.Provider]
	registry *stock[map[croft.HostID]croft.Host]
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
	return &Scheduler{c, newUnderway(), newStock[[]croft.Provider](), newStock[map[croft.HostID]croft.Host]()}, nil
}

// Request is what somebody asks for.
type Request struct {
	ID       croft.InstanceID // made where empty
	Project  croft.Project    // croft.DefaultProject where empty
	Name     string           // DefaultName where empty
	Query    Query
	Image    string
	Keys     []string
	UserData []byte

	Metadata croft.Metadata // MetadataAuto where empty
	IMDS     croft.IMDS     // IMDSOptional where empty
	Tags     map[string]string
	Restart  croft.Restart // RestartOnFailure where empty

	Networks  []string // of hosts, by name; the host's usual ones where empty
	Ephemeral bool

	Affinities []croft.Affinity // the groups to be in
	Policy     *Policy          // the scheduler's where nil
}

// Decision is what became of a request: an instance and the host that was told.
type Decision struct {
	Instance croft.Instance
	Host     croft.Host
}

// Request finds a host for the request, claims its resources and writes the order.
// It returns as soon as the order is written, before the host has acted on it.
//
// Whatever it returns as an error, nothing of the request stays behind, except
// where a part stopped answering in the middle: then the record stays in
// scheduling, for the agents to clear once this process is gone.
// Conflict: the ID or the name is taken, or the instance was destroyed meanwhile.
// NoCapacity: nothing fits; errors.As finds an *Explanation in it.
func (s *Scheduler) Request(ctx context.Context, r Request) (d Decision, err error) {
	inst, err := r.record()
	if err != nil {
		return Decision{}, err
	}
	ctx, end := span.Start(ctx, "schedule", attribute.String("croft.instance", string(inst.ID)))
	defer func() { end(err) }()
	a := s.attempt(r, inst)
	first, forget := a.lookAhead(ctx)
	a.inst, err = s.Records.Create(ctx, inst)
	if err != nil {
		forget()
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	decision, err := a.place(ctx, first)
	if err == nil {
		s.Log.Info("instance scheduled", "instance", inst.ID, "host", decision.Host.ID)
		return decision, nil
	}
	if undo := a.undo(ctx); undo != nil {
		err = fmt.Errorf("%w; and then, undoing it: %w", err, undo)
	}
	return Decision{}, err
}

// attempt is a request that begins.
func (s *Scheduler) attempt(r Request, inst croft.Instance) *attempt {
	a := &attempt{Scheduler: s, inst: inst, query: r.Query.on(r.Networks), policy: r.Policy,
		dropped: map[croft.HostID]string{}}
	if a.policy == nil {
		a.policy = s.Policy
	}
	return a
}

func (r Request) label() string { return cmp.Or(r.Name, string(r.ID), "an instance") }

// record is the request as it is written down first.
func (r Request) record() (croft.Instance, error) {
	inst := croft.Instance{
		ID:      cmp.Or(r.ID, croft.NewInstanceID()),
		Project: cmp.Or(r.Project, croft.DefaultProject),
		Spec:    croft.Spec{Resources: r.Query.Total(), Image: r.Image, Keys: r.Keys, UserData: r.UserData},
		State:   croft.StateScheduling,
		Created: time.Now().UTC(),
	}
	inst.Name = cmp.Or(r.Name, DefaultName(inst.ID))
	if err := errors.Join(CheckName(inst.Name), inst.Project.Check()); err != nil {
		return inst, err
	}
	if r.Image == "" {
		return inst, croft.Errorf(croft.Invalid, "schedule %s: no image is named", inst.Name)
	}
	inst.Spec.Metadata, inst.Spec.IMDS, inst.Spec.Tags, inst.Spec.Restart = r.Metadata, r.IMDS, r.Tags, r.Restart
	if err := CheckGuest(inst.Spec); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := checkNetworks(r.Networks); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := CheckAffinities(r.Affinities); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	inst.Spec.Affinities = r.Affinities
	var err error
	if inst.Spec.HostKey, err = hostkey.New(); err != nil {
		return inst, fmt.Errorf("make the host key of %s: %w", inst.Name, err)
	}
	inst.Spec.Networks, inst.Spec.Ephemeral = r.Networks, r.Ephemeral
	if r.Ephemeral {
		inst.Spec.Query = r.Query.on(r.Networks).Encode() // it may be moved
	}
	return inst, r.Query.bootable()
}

// tell writes an order with write, and in it, where the host's agent knows of such, the
// span of its own, of which what the host does about it becomes part.
func (s *Scheduler) tell(ctx context.Context, host *croft.Host,
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
