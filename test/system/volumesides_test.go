package system

import (
	"context"
	"log/slog"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore"
	"croft/hosts"
	"croft/schedule/resize"
	"croft/schedule/volumes"
)

// agentVolumes is an agent's view of the volumes of its host, through its gate.
type agentVolumes struct {
	gate *gate
	compute.Volumes
}

func (a *agentVolumes) Volume(ctx context.Context, h croft.HostID, id croft.VolumeID) (croft.Volume, error) {
	return through(a.gate, "agent Volume", id.Consumer(), func() (croft.Volume, error) {
		return a.Volumes.Volume(ctx, h, id)
	})
}

func (a *agentVolumes) MadeVolume(ctx context.Context, h croft.HostID, id croft.VolumeID, sizeGB int64) error {
	return a.gate.do("agent MadeVolume", id.Consumer(), func() error {
		return a.Volumes.MadeVolume(ctx, h, id, sizeGB)
	})
}

func (a *agentVolumes) FailedVolume(ctx context.Context, h croft.HostID, id croft.VolumeID, why string) error {
	return a.gate.do("agent FailedVolume", id.Consumer(), func() error {
		return a.Volumes.FailedVolume(ctx, h, id, why)
	})
}

func (a *agentVolumes) DetachedVolume(ctx context.Context, h croft.HostID, id croft.VolumeID,
	from croft.InstanceID) error {
	return a.gate.do("agent DetachedVolume", id.Consumer(), func() error {
		return a.Volumes.DetachedVolume(ctx, h, id, from)
	})
}

func (a *agentVolumes) ForgetVolume(ctx context.Context, h croft.HostID, id croft.VolumeID) error {
	return a.gate.do("agent ForgetVolume", id.Consumer(), func() error { return a.Volumes.ForgetVolume(ctx, h, id) })
}

func (a *agentVolumes) TookSnapshot(ctx context.Context, h croft.HostID, id croft.VolumeID, how croft.Snapshot) error {
	return a.gate.do("agent TookSnapshot", id.Consumer(), func() error {
		return a.Volumes.TookSnapshot(ctx, h, id, how)
	})
}

func (a *agentVolumes) RolledBack(ctx context.Context, h croft.HostID, id croft.VolumeID, at time.Time,
	why string) error {
	return a.gate.do("agent RolledBack", id.Consumer(), func() error {
		return a.Volumes.RolledBack(ctx, h, id, at, why)
	})
}

// volumes returns the requests for volumes of one process.
func (w *world) volumes(g *gate, store *etcdstore.Store) *volumes.Manager {
	return &volumes.Manager{Partition: store.Partition(), Store: &volumeStore{g, store.Volumes, w.endSession},
		Claims: &volumeClaims{g, "volumes", w.claims}, Hosts: store.Registry, Instances: store.Instances,
		Log: slog.New(slog.DiscardHandler)}
}

// volumeStore is the store of the volumes of such a process, through its gate.
type volumeStore struct {
	gate *gate
	volumes.Store
	endSession func(session string)
}

// begin makes a write under a session. The store ends the session of a write whose answer is lost.
func (s *volumeStore) begin(point string, v croft.Volume, do func() (croft.Volume, error)) (croft.Volume, error) {
	var begun croft.Volume
	made, err := throughSlowly(s.gate, "volumes "+point, v.ID.Consumer(), func() (_ croft.Volume, err error) {
		begun, err = do()
		return begun, err
	}, func(by time.Duration, gone func()) error {
		gone()
		time.Sleep(by)
		late, err := do()
		s.endSession(late.Session)
		return err
	})
	if err != nil {
		s.endSession(begun.Session)
	}
	return made, err
}

func (s *volumeStore) write(point string, v croft.Volume, do func() (croft.Volume, error)) (croft.Volume, error) {
	return through(s.gate, "volumes "+point, v.ID.Consumer(), do)
}

func (s *volumeStore) Create(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.begin("Create", v, func() (croft.Volume, error) { return s.Store.Create(ctx, v) })
}

func (s *volumeStore) Enlarge(ctx context.Context, v croft.Volume, sizeGB int64) (croft.Volume, error) {
	return s.begin("Enlarge", v, func() (croft.Volume, error) { return s.Store.Enlarge(ctx, v, sizeGB) })
}

func (s *volumeStore) Settle(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.write("Settle", v, func() (croft.Volume, error) { return s.Store.Settle(ctx, v) })
}

func (s *volumeStore) Fence(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.write("Fence", v, func() (croft.Volume, error) { return s.Store.Fence(ctx, v) })
}

func (s *volumeStore) GiveUp(ctx context.Context, v croft.Volume) error {
	return s.gate.do("volumes GiveUp", v.ID.Consumer(), func() error { return s.Store.GiveUp(ctx, v) })
}

func (s *volumeStore) Attach(ctx context.Context, v croft.Volume, inst croft.Instance) (croft.Volume, error) {
	return s.write("Attach", v, func() (croft.Volume, error) { return s.Store.Attach(ctx, v, inst) })
}

func (s *volumeStore) Detach(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.write("Detach", v, func() (croft.Volume, error) { return s.Store.Detach(ctx, v) })
}

func (s *volumeStore) Detached(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.write("Detached", v, func() (croft.Volume, error) { return s.Store.Detached(ctx, v) })
}

func (s *volumeStore) Condemn(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return s.write("Condemn", v, func() (croft.Volume, error) { return s.Store.Condemn(ctx, v) })
}

func (s *volumeStore) CreateSnapshot(ctx context.Context, v croft.Volume, inst croft.Instance,
	disks []croft.Volume) (croft.Volume, error) {
	return s.begin("CreateSnapshot", v, func() (croft.Volume, error) {
		return s.Store.CreateSnapshot(ctx, v, inst, disks)
	})
}

func (s *volumeStore) RollBack(ctx context.Context, v croft.Volume, how croft.Rollback) (croft.Volume, error) {
	return s.write("RollBack", v, func() (croft.Volume, error) { return s.Store.RollBack(ctx, v, how) })
}

// volumeClaims is the Placement of a process that requests volumes or sizes, through its gate.
type volumeClaims struct {
	gate *gate
	part string
	claims
}

// claims is a client of Placement.
type claims interface {
	volumes.Claims
	resize.Claims
}

func (c *volumeClaims) ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error) {
	return through(c.gate, c.part+" ClaimOf", id, func() (croft.Claim, error) { return c.claims.ClaimOf(ctx, id) })
}

func (c *volumeClaims) Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, to croft.Candidate) error {
	return c.gate.do(c.part+" Reclaim", had.Instance, func() error { return c.claims.Reclaim(ctx, had, owner, to) })
}

func (c *volumeClaims) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return c.gate.release(c.part+" Release", id, may, func(may croft.Permit) error {
		return c.claims.Release(ctx, id, may)
	})
}

// resizes returns the requests for sizes of one process.
func (w *world) resizes(g *gate, store *etcdstore.Store) *resize.Manager {
	return &resize.Manager{Partition: store.Partition(), Records: &sizeRecords{g, store.Instances},
		Claims: &volumeClaims{g, "resize", w.claims}, Volumes: w.volumes(g, store), Log: slog.New(slog.DiscardHandler)}
}

// sizeRecords is the store of the sizes of such a process, through its gate.
type sizeRecords struct {
	gate *gate
	resize.Records
}

func (r *sizeRecords) write(point string, inst croft.Instance, do func() (croft.Instance, error)) (croft.Instance,
	error) {
	return through(r.gate, "resize "+point, inst.ID, do)
}

func (r *sizeRecords) BeginResize(ctx context.Context, inst croft.Instance, to croft.Resources) (croft.Instance,
	error) {
	return r.write("BeginResize", inst, func() (croft.Instance, error) { return r.Records.BeginResize(ctx, inst, to) })
}

func (r *sizeRecords) Resize(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	return r.write("Resize", inst, func() (croft.Instance, error) { return r.Records.Resize(ctx, inst, o) })
}

func (r *sizeRecords) EndResize(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return r.write("EndResize", inst, func() (croft.Instance, error) { return r.Records.EndResize(ctx, inst) })
}

func (r *sizeRecords) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return r.write("Fence", inst, func() (croft.Instance, error) { return r.Records.Fence(ctx, inst) })
}

// fleetVolumes is an operator's view of the volumes of instances, through the gate.
type fleetVolumes struct {
	gate *gate
	hosts.Volumes
}

func (f fleetVolumes) Fence(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	return through(f.gate, "operator Fence volume", v.ID.Consumer(), func() (croft.Volume, error) {
		return f.Volumes.Fence(ctx, v)
	})
}

// diskService has the requests of a user for disks and sizes.
type diskService struct {
	*volumes.Manager
	sizes *resize.Manager
}

// disks runs do as one command of a user: a process with a separate connection, which may die in the middle.
func (w *world) disks(last int, do func(diskService) error) error {
	g, store := w.gate(last), w.open()
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	return do(diskService{w.volumes(g, store), w.resizes(g, store)})
}
