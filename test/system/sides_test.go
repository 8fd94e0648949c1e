package system

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/schedule"
)

// agentSide is an agent's view of the world, through its gate.
type agentSide struct {
	gate *gate
	compute.Orders
	compute.Registry
	compute.Records
	audit.Shared // nil behind a gate
	compute.Inventory
	hangUp   func() // closes its connection to etcd
	volumes  compute.Volumes
	storages compute.Storages // nil behind a gate
	copies   compute.Copies
	backups  compute.Backups
}

// Serve holds the host's agent lock until ctx ends. An agent that died by then does not release the lock.
func (a *agentSide) Serve(ctx context.Context, me croft.Agent, known <-chan struct{},
	seated func(*croft.Agent) bool) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		if a.gate.isDead() {
			a.hangUp()
		}
		end()
	})()
	return a.Registry.Serve(serving, me, known, seated)
}

func (a *agentSide) Order(ctx context.Context, h croft.HostID, id croft.InstanceID) (croft.Order, error) {
	return through(a.gate, "agent Order", id, func() (croft.Order, error) { return a.Orders.Order(ctx, h, id) })
}

func (a *agentSide) Remains(ctx context.Context, h croft.HostID, id croft.InstanceID) (bool, error) {
	return through(a.gate, "agent Remains", id, func() (bool, error) { return a.Orders.Remains(ctx, h, id) })
}

func (a *agentSide) Observe(ctx context.Context, o croft.Observation) error {
	return a.gate.do("agent Observe", o.Instance, func() error { return a.Orders.Observe(ctx, o) })
}

func (a *agentSide) Forget(ctx context.Context, o croft.Order) error {
	return a.gate.do("agent Forget", o.Instance, func() error { return a.Orders.Forget(ctx, o) })
}

func (a *agentSide) Arrived(ctx context.Context, o croft.Order, failure string) error {
	return a.gate.do("agent Arrived", o.Instance, func() error { return a.Orders.Arrived(ctx, o, failure) })
}

func (a *agentSide) HandOver(ctx context.Context, o croft.Order) error {
	return a.gate.do("agent HandOver", o.Instance, func() error { return a.Orders.HandOver(ctx, o) })
}

func (a *agentSide) PutHost(ctx context.Context, h croft.Host) error {
	return a.gate.do("agent PutHost", "", func() error { return a.Registry.PutHost(ctx, h) })
}

func (a *agentSide) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	return through(a.gate, "agent Instance", id, func() (croft.Instance, error) { return a.Records.Instance(ctx, id) })
}

func (a *agentSide) Evidence(ctx context.Context) (audit.Evidence, error) {
	return through(a.gate, "agent Evidence", "", func() (audit.Evidence, error) { return a.Shared.Evidence(ctx) })
}

func (a *agentSide) HostEvidence(ctx context.Context, h croft.HostID, more ...croft.InstanceID) (audit.Evidence,
	error) {
	return through(a.gate, "agent HostEvidence", "", func() (audit.Evidence, error) {
		return a.Records.HostEvidence(ctx, h, more...)
	})
}

func (a *agentSide) Drop(ctx context.Context, d audit.Difference) error {
	return a.gate.do("agent Drop", d.Instance, func() error { return a.Records.Drop(ctx, d) })
}

func (a *agentSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(a.gate, "agent Fence", i.ID, func() (croft.Instance, error) { return a.Shared.Fence(ctx, i) })
}

func (a *agentSide) Abandon(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(a.gate, "agent Abandon", i.ID, func() (croft.Instance, error) { return a.Shared.Abandon(ctx, i) })
}

func (a *agentSide) TakeTurn(ctx context.Context, length time.Duration) (bool, error) {
	return through(a.gate, "agent TakeTurn", "", func() (bool, error) { return a.Shared.TakeTurn(ctx, length) })
}

func (a *agentSide) Discard(ctx context.Context, inst croft.Instance) error {
	return a.gate.do("agent Discard", inst.ID, func() error { return a.Shared.Discard(ctx, inst) })
}

func (a *agentSide) EnsureProvider(ctx context.Context, p croft.Provider) error {
	return a.gate.do("agent EnsureProvider", "", func() error { return a.Inventory.EnsureProvider(ctx, p) })
}

func (a *agentSide) Claims(ctx context.Context, h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return through(a.gate, "agent Claims", "", func() (map[croft.InstanceID]croft.Resources, error) {
		return a.Inventory.Claims(ctx, h)
	})
}

func (a *agentSide) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return a.gate.release("agent Release", id, may, func(may croft.Permit) error {
		return a.Inventory.Release(ctx, id, may)
	})
}

// gatedHypervisor is the agent's hypervisor through its gate.
type gatedHypervisor struct {
	gate *gate
	compute.Hypervisor
}

func (h *gatedHypervisor) List(ctx context.Context) ([]compute.Domain, error) {
	return through(h.gate, "hypervisor List", "", func() ([]compute.Domain, error) { return h.Hypervisor.List(ctx) })
}

func (h *gatedHypervisor) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return through(h.gate, "hypervisor Get", id, func() (compute.Domain, error) { return h.Hypervisor.Get(ctx, id) })
}

func (h *gatedHypervisor) Define(ctx context.Context, m compute.Machine) error {
	return h.gate.do("hypervisor Define", m.ID, func() error {
		err := h.Hypervisor.Define(ctx, m)
		if croft.KindOf(err) == croft.Conflict && strings.Contains(err.Error(), "is not free on the network") {
			h.gate.tally.add("a host refused a chosen address")
		}
		return err
	})
}

func (h *gatedHypervisor) Mark(ctx context.Context, id croft.InstanceID, m compute.Ordered) error {
	return h.gate.do("hypervisor Mark", id, func() error { return h.Hypervisor.Mark(ctx, id, m) })
}

func (h *gatedHypervisor) Start(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Start", id, func() error { return h.Hypervisor.Start(ctx, id) })
}

func (h *gatedHypervisor) Stop(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Stop", id, func() error { return h.Hypervisor.Stop(ctx, id) })
}

func (h *gatedHypervisor) CutPower(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor CutPower", id, func() error { return h.Hypervisor.CutPower(ctx, id) })
}

func (h *gatedHypervisor) Remove(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Remove", id, func() error { return h.Hypervisor.Remove(ctx, id) })
}

func (h *gatedHypervisor) Attach(ctx context.Context, id croft.InstanceID, v compute.Volume) error {
	return h.gate.do("hypervisor Attach", id, func() error { return h.Hypervisor.Attach(ctx, id, v) })
}

func (h *gatedHypervisor) Detach(ctx context.Context, id croft.InstanceID, v croft.VolumeID) error {
	return h.gate.do("hypervisor Detach", id, func() error { return h.Hypervisor.Detach(ctx, id, v) })
}

func (h *gatedHypervisor) Resize(ctx context.Context, id croft.InstanceID, vcpus, memory int64) error {
	return h.gate.do("hypervisor Resize", id, func() error { return h.Hypervisor.Resize(ctx, id, vcpus, memory) })
}

func (h *gatedHypervisor) Grow(ctx context.Context, id croft.InstanceID, v croft.VolumeID, sizeGB int64) (bool, error) {
	return through(h.gate, "hypervisor Grow", id, func() (bool, error) { return h.Hypervisor.Grow(ctx, id, v, sizeGB) })
}

func (h *gatedHypervisor) PutOver(ctx context.Context, id croft.InstanceID, tops map[croft.VolumeID]string,
	quiesce bool) error {
	return h.gate.do("hypervisor PutOver", id, func() error { return h.Hypervisor.PutOver(ctx, id, tops, quiesce) })
}

func (h *gatedHypervisor) Merge(ctx context.Context, id croft.InstanceID, disk croft.VolumeID, layer,
	below string) (bool, error) {
	return through(h.gate, "hypervisor Merge", id, func() (bool, error) {
		return h.Hypervisor.Merge(ctx, id, disk, layer, below)
	})
}

func (h *gatedHypervisor) Redefine(ctx context.Context, id croft.InstanceID, disks compute.Disks) error {
	return h.gate.do("hypervisor Redefine", id, func() error { return h.Hypervisor.Redefine(ctx, id, disks) })
}

func (h *gatedHypervisor) GivePCI(ctx context.Context, id croft.InstanceID, devices []compute.PCI) error {
	return h.gate.do("hypervisor GivePCI", id, func() error { return h.Hypervisor.GivePCI(ctx, id, devices) })
}

func (h *gatedHypervisor) ForeignPCI(ctx context.Context) (map[string]string, error) {
	return through(h.gate, "hypervisor ForeignPCI", "", func() (map[string]string, error) {
		return h.Hypervisor.ForeignPCI(ctx)
	})
}

// schedulerSide is a scheduler's view of the world, through its gate.
type schedulerSide struct {
	w    *world
	gate *gate
	schedule.Records
	schedule.Holds
	schedule.View
	schedule.Registry
	schedule.Groups
	schedule.Claims
	session atomic.Value // string: of its latest request
}

// expire ends the session of the latest request.
func (s *schedulerSide) expire() {
	if session, ok := s.session.Load().(string); ok {
		s.w.endSession(session)
	}
}

// endSession ends a session, if there is one. Sessions survive while etcd is down.
func (w *world) endSession(session string) {
	if session != "" {
		_ = etcdtest.Expire(w.t.Context(), "http://"+w.listen, w.store.Partition(), "sessions/"+session)
	}
}

func (s *schedulerSide) Create(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Create", i.ID, func() (croft.Instance, error) {
		made, err := s.Records.Create(ctx, i)
		s.session.Store(made.Session)
		return made, err
	})
}

func (s *schedulerSide) Assign(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return through(s.gate, "scheduler Assign", i.ID, func() (croft.Instance,
		error) {
		return s.Records.Assign(ctx, i, o)
	})
}

func (s *schedulerSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Fence", i.ID, func() (croft.Instance, error) { return s.Records.Fence(ctx, i) })
}

func (s *schedulerSide) Discard(ctx context.Context, i croft.Instance) error {
	return s.gate.do("scheduler Discard", i.ID, func() error { return s.Records.Discard(ctx, i) })
}

func (s *schedulerSide) Reorder(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return through(s.gate, "scheduler Reorder", i.ID, func() (croft.Instance,
		error) {
		return s.Records.Reorder(ctx, i, o)
	})
}

func (s *schedulerSide) Bury(ctx context.Context, i croft.Instance, o croft.Order) error {
	return s.gate.do("scheduler Bury", i.ID, func() error { return s.Records.Bury(ctx, i, o) })
}

func (s *schedulerSide) Amend(ctx context.Context, i, next croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Amend", i.ID, func() (croft.Instance, error) {
		return s.Records.Amend(ctx, i, next)
	})
}

func (s *schedulerSide) Hold(ctx context.Context, i croft.Instance, h croft.HostID) (croft.Instance, error) {
	return through(s.gate, "scheduler Hold", i.ID, func() (croft.Instance, error) { return s.Holds.Hold(ctx, i, h) })
}

func (s *schedulerSide) Use(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return through(s.gate, "scheduler Use", i.ID, func() (croft.Instance, error) { return s.Holds.Use(ctx, i, o) })
}

func (s *schedulerSide) Abandon(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Abandon", i.ID, func() (croft.Instance, error) { return s.Holds.Abandon(ctx, i) })
}

func (s *schedulerSide) Find(ctx context.Context, p croft.Project, id string) (croft.Status, error) {
	return through(s.gate, "scheduler Find", "", func() (croft.Status, error) { return s.View.Find(ctx, p, id) })
}

func (s *schedulerSide) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return through(s.gate, "scheduler Hosts", "", func() (map[croft.HostID]croft.Host, error) {
		return s.Registry.Hosts(ctx, ids...)
	})
}

func (s *schedulerSide) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	return through(s.gate, "scheduler Candidates", "", func() ([]croft.Candidate,
		error) {
		return s.Claims.Candidates(ctx, query, limit)
	})
}

func (s *schedulerSide) Claim(ctx context.Context, id croft.InstanceID, p croft.Owner, c croft.Candidate) error {
	return s.gate.do("scheduler Claim", id, func() error { return s.Claims.Claim(ctx, id, p, c) })
}

func (s *schedulerSide) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return s.gate.release("scheduler Release", id, may, func(may croft.Permit) error {
		return s.Claims.Release(ctx, id, may)
	})
}
