package schedule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/hostkey"
	"croft/internal/span"
)

// Request describes a wanted instance.
type Request struct {
	ID      croft.InstanceID // empty: a new one
	Project croft.Project    // empty: croft.DefaultProject
	Name    string           // empty: DefaultName
	Query   Query
	Size    string // name of the size that the amounts of the query come from; empty: none
	Image   string
	Named   string        // name under which a user asked for the image; empty: its address
	Public  bool          // see croft.Spec.ImagePublic
	CD      *croft.ISO    // Machine.ISO, in the form of Image and Public
	Expires time.Duration // life from now on; 0: unlimited
	Protect bool          // see croft.Instance.Protected
	Hold    time.Duration // only claim, and hold the claim for this long; 0: order the instance
	croft.GuestSettings
	croft.InstanceSettings

	Volumes []string          // names of volumes of the project to attach
	Disks   []croft.NewDisk   // volumes to create on the instance's host, and to attach
	Backup  *croft.FromBackup // the backup that its disk is made from; nil: from the image

	Hidden []string // keys of properties that the caller may not read; tag: stands for tags
	Policy *Policy  // nil: the scheduler's policy
	// the cluster that it becomes part of: then only Of(Cluster) may stop, use or destroy it without force
	Cluster croft.ClusterID
	MadeFor string // see croft.Instance
}

func (r Request) label() string { return cmp.Or(r.Name, string(r.ID), "an instance") }

// record returns the record of the undecided request. Invalid: the request cannot be carried out.
func (r Request) record() (croft.Instance, error) {
	inst := croft.Instance{
		ID:      cmp.Or(r.ID, croft.NewInstanceID()),
		Project: cmp.Or(r.Project, croft.DefaultProject),
		Spec: croft.Spec{Resources: r.Query.Total(), Image: r.Image, ImageName: r.Named, ImagePublic: r.Public,
			ISO: r.CD, Size: r.Size,
			GuestSettings: r.GuestSettings, InstanceSettings: r.InstanceSettings},
		State:   croft.StateScheduling,
		Created: time.Now().UTC(),
		Cluster: r.Cluster,
		MadeFor: r.MadeFor,
		Backup:  r.Backup,
		Ejected: r.CD != nil && r.Backup != nil, // what the ISO was to install is in the backup

		Protected: r.Protect,
	}
	inst.Name = cmp.Or(r.Name, DefaultName(inst.ID))
	if err := errors.Join(CheckName(inst.Name), inst.Project.Check()); err != nil {
		return inst, err
	}
	if r.Image == "" && r.Hold == 0 && r.Backup == nil && r.Machine.NeedsImage() {
		return inst, croft.Errorf(croft.Invalid, "schedule %s: no image is named, nor an ISO (--iso) that installs one",
			inst.Name)
	}
	if (r.CD == nil) != (r.Machine.ISO == "") {
		return inst, croft.Errorf(croft.Invalid, "schedule %s: the ISO %s is not resolved to an image", inst.Name,
			r.Machine.ISO)
	}
	if err := CheckGuest(r.GuestSettings); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := CheckStorage(r.InstanceSettings, r.Restart, len(r.Disks)); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := checkNetworks(r.Networks); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := croft.CheckFixedAddress(r.FixedAddress, r.Networks); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := croft.CheckOpenPorts(r.Open); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := r.Machine.Check(); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if err := CheckAffinities(r.Affinities); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	inst.Spec.In = slices.Compact(slices.Sorted(slices.Values(r.Query.In)))
	inst.Spec.Where, inst.Spec.WhereNot = r.Query.Where, r.Query.WhereNot
	inst.Spec.Disks = r.namedDisks()
	if err := croft.CheckBounds(inst.Spec.In); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if _, err := r.disks(inst); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	var err error
	switch {
	case r.Protect && r.Hold != 0:
		return inst, croft.Errorf(croft.Invalid, "schedule %s: what is held has an end, so it cannot be protected: protect "+
			"the instance once it is used", inst.Name)
	case r.Protect && r.Expires != 0:
		return inst, croft.Errorf(croft.Invalid, "schedule %s: a protected instance cannot expire: leave out one of both",
			inst.Name)
	}
	if r.Hold != 0 && r.Expires != 0 {
		return inst, croft.Errorf(croft.Invalid,
			"schedule %s: what is held ends by itself; say when the instance expires where the claim is used",
			inst.Name)
	}
	if inst.Expires, err = expiry(inst.Created, cmp.Or(r.Hold, r.Expires)); err != nil {
		return inst, fmt.Errorf("schedule %s: %w", inst.Name, err)
	}
	if inst.Spec.HostKey, err = hostkey.New(); err != nil {
		return inst, fmt.Errorf("make the host key of %s: %w", inst.Name, err)
	}
	if r.Ephemeral || !r.Query.plain() || len(r.Machine.Traits()) > 0 {
		inst.Spec.Query = r.Query.on(r.InstanceSettings).Encode() // used to move the instance, and by Wants
	}
	return inst, r.Query.bootable()
}

// namedDisks describes the disks that the request names, apart from the image.
func (r Request) namedDisks() (all []string) {
	all = slices.Clone(r.Volumes)
	for _, d := range r.Disks {
		all = append(all, fmt.Sprintf("%s:%d", d.Name, d.SizeGB))
	}
	if r.Backup != nil {
		all = append(all, "@"+string(r.Backup.ID))
	}
	return all
}

// Wants reports whether an instance is the result of this request, whatever its state is now. A caller that chose the
// ID can therefore repeat the request and recognize its result. The policy is not compared, because it only chooses
// among hosts.
func (r Request) Wants(inst croft.Instance) bool {
	want, err := r.record()
	if err != nil || want.ID != inst.ID || want.Project != inst.Project || want.Name != inst.Name ||
		want.Cluster != inst.Cluster || want.MadeFor != inst.MadeFor {
		return false
	}
	if held := inst.State == croft.StateHeld; held != (r.Hold != 0) && inst.State != croft.StateScheduling {
		return false
	}
	want.Spec.HostKey, inst.Spec.HostKey, inst.Spec.ClusterKey, inst.Spec.Peers = "", "", "", nil
	want.Spec.GuestSettings, inst.Spec.GuestSettings = want.Spec.Explicit(), inst.Spec.Explicit()
	want.Spec.Near, inst.Spec.Near = named(r.Query.Near), named(inst.Spec.Near)
	inst.Spec.Policy = nil
	// older versions do not record these, and settings decide the first
	inst.Spec.ImagePublic, inst.Spec.ImageName = want.Spec.ImagePublic, want.Spec.ImageName
	if want.Spec.ISO != nil && inst.Spec.ISO != nil {
		inst.Spec.ISO = &croft.ISO{Image: inst.Spec.ISO.Image, Public: want.Spec.ISO.Public}
	}
	a, err := json.Marshal(want.Spec) // as JSON, empty and missing lists and maps are equal
	b, other := json.Marshal(inst.Spec)
	return err == nil && other == nil && bytes.Equal(a, b)
}

// named returns near as the request gave it, without the resolved locations.
func named(all []croft.Near) []croft.Near {
	all = slices.Clone(all)
	for i := range all {
		all[i].Location, all[i].Aggregate = "", false
	}
	return all
}

// Request finds a host for the request, claims its resources and, unless the claim is only to be held, writes the
// order. It returns once that is written, before the host has acted on it.
//
// After an error nothing of the request remains, unless etcd or Placement stopped answering in between: then the record
// stays in scheduling until agents remove it, after this process has ended. Conflict: the ID or the name is taken, or
// the instance was destroyed concurrently. NoCapacity: nothing fits; errors.As finds an *Explanation in it.
func (s *Scheduler) Request(ctx context.Context, r Request) (d Decision, err error) {
	inst, err := r.record()
	if err != nil {
		return Decision{}, err
	}
	ctx, end := span.Start(ctx, "schedule", attribute.String("croft.instance", string(inst.ID)))
	defer func() { end(err) }()
	if inst.Spec.Near, err = s.locate(ctx, inst.Project, r.Query.Near); err != nil {
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if err := s.checkBounds(ctx, inst.Spec, r.Hidden); err != nil {
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if err := s.choosePolicy(ctx, cmp.Or(r.Policy, s.Policy), &inst); err != nil {
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if inst.Volumes, err = s.Volumes.ForRequest(ctx, inst.Project, r.Volumes); err != nil {
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	a := attempt{search: s.search(r, inst), hold: r.Hold != 0}
	if a.placer = s.Placer(); a.placer != nil && !a.hold && len(inst.Volumes)+len(a.disks) == 0 {
		return a.inOneStep(ctx)
	}
	a.placer = nil
	// The record charges the project, so no record is written for a request that no host has room for.
	first, err := a.look(ctx, a.policy.Sample)
	if err != nil {
		return Decision{}, err
	}
	if len(first.candidates) == 0 && first.seen < a.policy.Sample && !a.known(ctx) {
		defer a.inFlight.done(first.reading)
		return Decision{}, a.noCapacity(ctx, first)
	}
	a.inst, err = s.Records.Create(ctx, inst)
	if err != nil {
		a.inFlight.done(first.reading)
		return Decision{}, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	decision, err := a.run(ctx, func() (*snapshot, error) { return first, nil })
	if err == nil {
		s.Log.Info("instance "+string(decision.Instance.State), "instance", inst.ID, "host", decision.Host.ID)
		return decision, nil
	}
	if undo := a.undo(ctx); undo != nil { // so the record may be there, and go later: no refusal, and no success
		err = croft.Errorf(croft.Unavailable, "%v; and then, undoing it: %v", err, undo)
	}
	return Decision{}, err
}

// known reports whether an instance with the ID or the name may exist already. If so, that determines the answer, since
// the request may be a repetition.
func (a *attempt) known(ctx context.Context) bool {
	if _, err := a.View.FindByID(ctx, a.inst.ID); !errors.Is(err, croft.NotFound) {
		return true
	}
	_, err := a.View.Find(ctx, a.inst.Project, a.inst.Name)
	return !errors.Is(err, croft.NotFound)
}

// Explain returns the hosts that a request would fit on now, in the order in which they would be tried, and why the
// others are dropped. It changes nothing. It is no error if no host fits.
func (s *Scheduler) Explain(ctx context.Context, r Request) (*Explanation, error) {
	inst, err := r.record()
	if err != nil {
		return nil, err
	}
	if inst.Spec.Near, err = s.locate(ctx, inst.Project, r.Query.Near); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if err := s.checkBounds(ctx, inst.Spec, r.Hidden); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if err := s.choosePolicy(ctx, cmp.Or(r.Policy, s.Policy), &inst); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	if inst.Volumes, err = s.Volumes.ForRequest(ctx, inst.Project, r.Volumes); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", r.label(), err)
	}
	a := s.search(r, inst)
	o, err := a.look(ctx, lastLimit)
	if err != nil {
		return nil, err
	}
	defer a.inFlight.done(o.reading)
	if err := a.readHosts(ctx, o, hostsOf(o.candidates)); err != nil {
		return nil, err
	}
	usable, err := a.usable(o, o.candidates)
	if err != nil {
		return nil, err
	}
	why, err := a.explain(ctx, a.ranking(o, usable))
	if err != nil {
		return nil, err
	}
	a.addTrace(why, o, usable)
	return why, nil
}

// search prepares the search for a request's host.
func (s *Scheduler) search(r Request, inst croft.Instance) search {
	policy := cmp.Or(r.Policy, s.Policy)
	// the admissible candidates may be few among many
	if policy.Crush == "" && (byLocation(inst.Spec) || bounded(inst)) {
		policy = &Policy{Order: policy.Order, Sample: max(policy.Sample, Pack.Sample)}
	}
	disks, _ := r.disks(inst) // checked with the record
	return search{Scheduler: s, inst: inst, query: r.Query.on(r.InstanceSettings).WithDisks(disks), policy: policy,
		hidden: r.Hidden, begun: time.Now(), disks: disks,
		dropped: map[croft.HostID]string{}}
}
