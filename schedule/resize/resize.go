// Package resize changes the resources of instances. A request writes its intent into the record of the instance,
// claims of each class the larger amount, writes the new size with the order for the host's agent, which changes the
// domain, and releases what became smaller. If its process dies, a caretaker makes the claim fit the recorded size.
package resize

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/schedule"
)

// Records stores requests to resize instances. Every write compares the record that it is based on. Conflict: it has
// changed.
type Records interface {
	// Find returns the project's instance with this ID or name. NotFound.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// BeginResize writes which resources an instance is to have, under a session that lasts as long as this process,
	// and charges the project. OverQuota. Invalid: this cloud's programs are too old.
	BeginResize(ctx context.Context, inst croft.Instance, to croft.Resources) (croft.Instance, error)
	// Resize writes the resources of the order's spec, and the order. The request goes on.
	Resize(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error)
	// EndResize ends a request, and repays what the project was charged for it in excess of the instance's resources.
	EndResize(ctx context.Context, inst croft.Instance) (croft.Instance, error)
	// Retire lets a session of this process end, so that a caretaker ends the requests under it.
	Retire(session string)
	// Fence rewrites an unchanged record and returns it as stored: no pending write that compares it can succeed
	// afterwards. NotFound: it is gone.
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
}

// Claims is the part of the Placement API that a resize needs.
type Claims interface {
	// ClaimOf returns the claim of a consumer.
	ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error)
	// Reclaim replaces a consumer's claim by a candidate's. Conflict: the claim differs from had. NoCapacity.
	Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, c croft.Candidate) error
	// Providers returns all providers.
	Providers(ctx context.Context) ([]croft.Provider, error)
}

// Manager carries out requests. It keeps no state. The other fields are required.
type Manager struct {
	Partition croft.PartitionID
	Records   Records
	Claims    Claims
	Volumes   Volumes // nil in a process that only ends requests
	Log       *slog.Logger
}

// Volumes is the access to the snapshots of instances.
type Volumes interface {
	// WithoutSnapshots returns an error if an instance has snapshots. Conflict.
	WithoutSnapshots(ctx context.Context, inst croft.Instance, remedy string) error
}

// undoTime is the timeout of undoing a request that failed.
const undoTime = 5 * time.Second

// resizable lists the classes whose amounts can be changed.
var resizable = []croft.ResourceClass{croft.VCPU, croft.MemoryMB, croft.DiskGB}

// Resize gives an instance other amounts of VCPU, MEMORY_MB or DISK_GB; classes that to does not name stay. It returns
// once the new size is claimed and ordered. Of a guest that runs, only the disk can be made larger. Invalid: a disk
// would become smaller, or a class cannot be changed. Conflict: the instance runs, or is being scheduled, moved,
// resized or destroyed, or is part of a cluster. NoCapacity: its host has no room; the error names the largest amounts
// that fit. OverQuota. Unavailable: its host is silent.
func (m *Manager) Resize(ctx context.Context, project croft.Project, idOrName string, to croft.Resources) (
	croft.Instance, error) {
	return m.change(ctx, project, idOrName, func(inst croft.Instance) (wanted croft.Resources, size string, err error) {
		wanted, err = target(inst, to)
		if maps.Equal(wanted, inst.Spec.Resources) {
			size = inst.Spec.Size
		}
		return wanted, size, err
	})
}

// ResizeTo is Resize to the amounts of a named size, whose name the record then has. Classes that the size does not
// name stay.
func (m *Manager) ResizeTo(ctx context.Context, project croft.Project, idOrName string, size croft.Size) (
	croft.Instance, error) {
	return m.change(ctx, project, idOrName, func(inst croft.Instance) (croft.Resources, string, error) {
		to := maps.Clone(size.Resources)
		maps.DeleteFunc(to, func(class croft.ResourceClass, amount int64) bool {
			return amount == inst.Spec.Resources[class]
		})
		if len(to) == 0 {
			return inst.Spec.Resources, size.Name, nil
		}
		wanted, err := target(inst, to)
		return wanted, size.Name, err
	})
}

// change gives an instance the resources that to returns, and the name of their size.
func (m *Manager) change(ctx context.Context, project croft.Project, idOrName string,
	to func(croft.Instance) (wanted croft.Resources, size string, err error)) (croft.Instance, error) {
	st, err := m.Records.Find(ctx, project, idOrName)
	if err != nil {
		return croft.Instance{}, fmt.Errorf("resize %s: %w", idOrName, err)
	}
	inst := st.Instance
	wanted, size, err := to(inst)
	if err == nil {
		inst, err = m.resize(ctx, st, wanted, size)
	}
	if err != nil {
		return inst, fmt.Errorf("resize %s: %w", st.Instance.Name, err)
	}
	return inst, nil
}

func (m *Manager) resize(ctx context.Context, st croft.Status, wanted croft.Resources, size string) (croft.Instance,
	error) {
	inst := st.Instance
	if err := allowed(st, wanted); err != nil {
		return inst, err
	}
	if maps.Equal(wanted, inst.Spec.Resources) && size == inst.Spec.Size {
		return inst, nil
	}
	if wanted[croft.DiskGB] != inst.Spec.Resources[croft.DiskGB] {
		err := m.Volumes.WithoutSnapshots(ctx, inst, "")
		if errors.Is(err, croft.Conflict) {
			err = croft.Errorf(croft.Conflict, "it has snapshots of its disk's size: remove them (`croft snapshot list %s`) "+
				"before the disk is made larger", inst.Name)
		}
		if err != nil {
			return inst, err
		}
	}
	spec, err := spec(inst.Spec, wanted)
	if err != nil {
		return inst, err
	}
	spec.Size = size
	had, err := m.Claims.ClaimOf(ctx, inst.ID)
	if err != nil {
		return inst, err
	}
	// What becomes smaller is released last: then a request that ends anywhere finds its claim large enough.
	claim, err := fit(had, inst.Spec.Resources.Larger(wanted))
	if err != nil {
		return inst, err
	}
	begun, err := m.Records.BeginResize(ctx, inst, wanted)
	if err != nil {
		return inst, err
	}
	err = m.Claims.Reclaim(ctx, had, m.owner(inst), claim)
	if err == nil {
		next := begun
		next.Spec = spec
		order := schedule.NewOrder(m.Partition, next, inst.Host, goal(st))
		order.Resized = order.Generation
		var resized croft.Instance
		if resized, err = m.Records.Resize(ctx, begun, order); err == nil {
			begun = resized
		}
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	now, undo := m.end(after, begun)
	if undo != nil && begun.Resizing != nil {
		m.Records.Retire(begun.Resizing.Session) // a caretaker ends the request
	}
	if now.CreateRevision == inst.CreateRevision && maps.Equal(now.Spec.Resources, wanted) && now.Spec.Size == size {
		// Also if an answer was lost, or if end failed.
		m.Log.Info("instance resized", "instance", inst.ID, "host", inst.Host, "from", inst.Spec.Resources.String(),
			"to", wanted.String())
		return now, nil
	}
	switch {
	case errors.Is(err, croft.NoCapacity):
		err = m.nearest(after, inst, wanted)
	case croft.KindOf(err) == croft.Conflict: // the error of Placement names the host
		err = croft.Errorf(croft.Conflict, "others changed it, or claimed on its host, at the same time: try again")
	}
	return inst, errors.Join(err, undo)
}

func (m *Manager) owner(inst croft.Instance) croft.Owner {
	return croft.Owner{Partition: m.Partition, Project: inst.Project}
}

// target returns the resources that an instance is to have. Invalid.
func target(inst croft.Instance, to croft.Resources) (croft.Resources, error) {
	if len(to) == 0 {
		return nil, croft.Errorf(croft.Invalid, "no amounts are given: name at least one, such as MEMORY_MB:2048")
	}
	wanted := maps.Clone(inst.Spec.Resources)
	for class, amount := range to {
		switch {
		case !slices.Contains(resizable, class):
			return nil, croft.Errorf(croft.Invalid, "the amount of %s cannot be changed, only VCPU, MEMORY_MB and DISK_GB",
				class)
		case amount < 1:
			return nil, croft.Errorf(croft.Invalid, "%s:%d is not a size: the least is 1", class, amount)
		case class == croft.DiskGB && amount < wanted[class]:
			return nil, croft.Errorf(croft.Invalid, "its disk has %d GiB, and a disk does not shrink: create a smaller "+
				"instance and copy the data", wanted[class])
		}
		wanted[class] = amount
	}
	return wanted, nil
}

// allowed returns why the state of an instance forbids a resize.
func allowed(st croft.Status, wanted croft.Resources) error {
	inst := st.Instance
	has := inst.Spec.Resources
	cold := wanted[croft.VCPU] != has[croft.VCPU] || wanted[croft.MemoryMB] != has[croft.MemoryMB]
	switch {
	case inst.Cluster != "":
		return croft.Errorf(croft.Conflict, "it is part of cluster %s, which decides about it", inst.Cluster)
	case inst.State == croft.StateLost:
		return croft.Errorf(croft.Conflict, "it is lost: `schedule show %s` names the ways to have it again", inst.Name)
	case inst.State != croft.StateScheduled || st.Order == nil:
		return croft.Errorf(croft.Conflict, "it is %s", inst.State)
	case inst.Moving != "":
		return croft.Errorf(croft.Conflict, "it is being moved to another host: try again later")
	case inst.Resizing != nil:
		return croft.Errorf(croft.Conflict, "another request is resizing it: try again; if its program died, that is "+
			"undone within a minute")
	case st.Host == nil || !st.Host.Alive:
		return croft.Errorf(croft.Unavailable, "its host is silent")
	case !st.Host.Resizes:
		return croft.Errorf(croft.Unavailable, "its host runs an older croft, which cannot resize: upgrade the host")
	case cold && goal(st) != croft.WantStopped:
		return croft.Errorf(croft.Conflict, "it runs: `schedule stop --wait %s` first; only its disk can be made larger "+
			"while it runs", inst.Name)
	case cold && !off(st):
		return croft.Errorf(croft.Conflict, "it is not shut off yet: try again in a moment")
	}
	return nil
}

// off reports whether the host saw the guest shut off for the newest order.
func off(st croft.Status) bool {
	return st.Observation != nil && st.Observation.Generation >= st.Instance.Generation &&
		st.Observation.State == croft.StateStopped
}

// goal returns the goal of the order for the new size: a guest that its restart policy leaves off stays off.
func goal(st croft.Status) croft.Want {
	if off(st) {
		return croft.WantStopped
	}
	return st.Order.Want
}

// spec returns a spec with other resources, also in its query. Invalid: the query asked for a class in several groups.
func spec(s croft.Spec, wanted croft.Resources) (croft.Spec, error) {
	was := s.Resources
	s.Resources = wanted
	if s.Query == "" {
		return s, nil
	}
	q, err := schedule.ParseQuery(s.Query)
	if err != nil {
		return s, fmt.Errorf("read its query: %w", err)
	}
	for class, amount := range wanted {
		if amount == was[class] {
			continue
		}
		in := -1
		for i, g := range q.Groups {
			if g.Resources[class] > 0 && in >= 0 {
				return s, croft.Errorf(croft.Invalid, "it got its %s from several groups of its query", class)
			}
			if g.Resources[class] > 0 {
				in = i
			}
		}
		if in < 0 {
			return s, croft.Errorf(croft.Invalid, "it was created without %s", class)
		}
		q.Groups[in].Resources = maps.Clone(q.Groups[in].Resources)
		q.Groups[in].Resources[class] = amount
	}
	s.Query = q.Encode()
	return s, nil
}

// fit returns a claim with the wanted amounts of the resizable classes. Conflict: several providers have one of them.
func fit(had croft.Claim, wanted croft.Resources) (croft.Candidate, error) {
	all := map[croft.HostID]croft.Resources{}
	for host, r := range had.Allocations {
		all[host] = maps.Clone(r)
	}
	for _, class := range resizable {
		var of []croft.HostID
		for host, r := range all {
			if r[class] > 0 {
				of = append(of, host)
			}
		}
		if len(of) != 1 {
			return croft.Candidate{}, croft.Errorf(croft.Conflict, "its claim has %s on %d providers, not on one",
				class, len(of))
		}
		all[of[0]][class] = wanted[class]
	}
	return croft.Candidate{Allocations: all}, nil
}

// nearest returns the error of a resize that does not fit, with the largest amounts that do.
func (m *Manager) nearest(ctx context.Context, inst croft.Instance, wanted croft.Resources) error {
	none := croft.Errorf(croft.NoCapacity, "its host has no room for %s; it keeps its size", wanted)
	had, err := m.Claims.ClaimOf(ctx, inst.ID)
	if err != nil {
		return none
	}
	providers, err := m.Claims.Providers(ctx)
	if err != nil {
		return none
	}
	var most []string
	for _, p := range providers {
		for class, own := range had.Allocations[p.ID] {
			i := p.Inventories[class]
			room := min(i.Capacity()-p.Used[class]+own, i.MaxUnit)
			if wanted[class] > room && wanted[class] != inst.Spec.Resources[class] {
				step := max(i.StepSize, 1)
				most = append(most, croft.Resources{class: max(room/step*step, own)}.String())
			}
		}
	}
	if len(most) == 0 {
		return none
	}
	slices.Sort(most)
	return croft.Errorf(croft.NoCapacity, "its host has no room for %s: the most that fits is %s; it keeps its size",
		wanted, strings.Join(most, ","))
}

// EndResize implements audit.Requests.
func (m *Manager) EndResize(ctx context.Context, inst croft.Instance) error {
	_, err := m.end(ctx, inst)
	return err
}

// end ends a request: the claim gets the amounts that the record has then, so a request whose order was not written is
// undone. The claim is read first, then the record is fenced, so that a suspended process that continues later changes
// neither. It returns the record as it is then.
func (m *Manager) end(ctx context.Context, inst croft.Instance) (_ croft.Instance, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("end the request to resize instance %s: %w", inst.Name, err)
		}
	}()
	had, err := m.Claims.ClaimOf(ctx, inst.ID)
	if err != nil {
		return inst, err
	}
	now, err := m.Records.Fence(ctx, inst)
	switch {
	case errors.Is(err, croft.NotFound):
		return now, nil
	case err != nil:
		return now, err
	case now.CreateRevision != inst.CreateRevision || now.Resizing == nil || inst.Resizing == nil ||
		now.Resizing.Session != inst.Resizing.Session:
		return now, nil // it is another instance, or the request has ended
	}
	if now.State == croft.StateScheduled { // else the claim is released with the instance
		claim, err := fit(had, now.Spec.Resources)
		if err != nil {
			return now, err
		}
		// Also if the amounts are the same: a pending change of the claim must fail.
		err = m.Claims.Reclaim(ctx, had, m.owner(now), claim)
		switch {
		case errors.Is(err, croft.NoCapacity) && had.Covers(claim):
			m.Log.Warn("instance claims more than its size: Placement refuses to change the claim", "instance", now.ID,
				"host", now.Host, "err", err)
		case err != nil:
			return now, err
		}
	}
	ended, err := m.Records.EndResize(ctx, now)
	if err != nil {
		return now, err
	}
	return ended, nil
}
