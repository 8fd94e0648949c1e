package volumes_test

import (
	"context"
	"slices"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// world is a store with a host that takes orders.
type world struct {
	*testing.T
	s    *etcdstore.Store
	host croft.HostID
}

func start(t *testing.T) *world {
	t.Parallel()
	w := &world{t, etcdtest.Start(t), croft.NewHostID()}
	w.must(w.s.Registry.PutHost(t.Context(), croft.Host{ID: w.host, Name: "h"}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.s.Registry.StayAlive(ctx, w.host) }()
	t.Cleanup(func() { cancel(); <-ended })
	for {
		hosts, err := w.s.Registry.Hosts(t.Context(), w.host)
		w.must(err)
		if hosts[w.host].Alive {
			return w
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wanted(name string, sizeGB int64) croft.Volume {
	return croft.Volume{ID: croft.NewVolumeID(), Project: "lab", Name: name, Host: w.host, SizeGB: sizeGB}
}

// volume returns a volume that is made.
func (w *world) volume(name string, sizeGB int64) croft.Volume {
	w.Helper()
	v, err := w.s.Volumes.Create(w.Context(), w.wanted(name, sizeGB))
	w.must(err)
	v, err = w.s.Volumes.Settle(w.Context(), v)
	w.must(err)
	w.must(w.s.Volumes.MadeVolume(w.Context(), w.host, v.ID, sizeGB))
	return w.find(name)
}

func (w *world) find(name string) croft.Volume {
	w.Helper()
	v, err := w.s.Volumes.Find(w.Context(), "lab", name)
	w.must(err)
	return v
}

// instance returns an instance on the host.
func (w *world) instance(name string, volumes ...croft.Volume) (croft.Instance, error) {
	w.Helper()
	inst := etcdtest.NewInstance(name)
	inst.Project = "lab"
	inst, err := w.s.Instances.Create(w.Context(), inst)
	w.must(err)
	inst.Volumes = volumes
	return w.s.Instances.Assign(w.Context(), inst, schedule.NewOrder(w.s.Partition(), inst, w.host, croft.WantRunning))
}

func (w *world) used() tenant.Amounts {
	w.Helper()
	accounts, err := w.s.Projects.Accounts(w.Context(), "lab")
	w.must(err)
	if bad, err := w.s.Projects.Check(w.Context()); err != nil || len(bad) > 0 {
		w.Errorf("the counters are wrong: %+v, %v", bad, err)
	}
	return accounts[0].Used
}

func (w *world) wantUsed(volumes, gb int64) {
	w.Helper()
	if used := w.used(); used[tenant.CountVolumes] != volumes || used[tenant.Measure(croft.DiskGB)] != gb {
		w.Errorf("the project uses %s, want %d volumes with %d GB", used, volumes, gb)
	}
}

func TestAProjectIsChargedForTheWantedSizeUntilTheRecordIsGone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	_, err := w.s.Projects.Create(ctx, tenant.Tenant{Name: "lab", Limits: tenant.Limits{
		tenant.Measure(croft.DiskGB): 10, tenant.CountVolumes: 2}})
	w.must(err)
	v, err := w.s.Volumes.Create(ctx, w.wanted("data", 4))
	w.must(err)
	w.wantUsed(1, 4)
	_, err = w.s.Volumes.Create(ctx, w.wanted("data", 1))
	etcdtest.WantKind(t, err, croft.Conflict)
	_, err = w.s.Volumes.Create(ctx, w.wanted("other", 7))
	etcdtest.WantKind(t, err, croft.OverQuota)
	v, err = w.s.Volumes.Settle(ctx, v)
	w.must(err)
	_, err = w.s.Volumes.Enlarge(ctx, v, 11)
	etcdtest.WantKind(t, err, croft.OverQuota)
	larger, err := w.s.Volumes.Enlarge(ctx, v, 9)
	w.must(err)
	w.wantUsed(1, 9)
	_, err = w.s.Volumes.Enlarge(ctx, v, 5)
	etcdtest.WantKind(t, err, croft.Conflict)
	w.must(w.s.Volumes.GiveUp(ctx, larger))
	w.wantUsed(1, 4)
	v = w.find("data")
	if v.SizeGB != 4 || v.ClaimedGB != 4 || v.Session != "" {
		t.Errorf("given up, it is %+v", v)
	}
	etcdtest.WantKind(t, w.s.Projects.Remove(ctx, "lab"), croft.Conflict)
	etcdtest.WantKind(t, w.s.Volumes.ForgetVolume(ctx, w.host, v.ID), croft.Conflict)
	_, err = w.s.Volumes.Condemn(ctx, v)
	w.must(err)
	for range 2 {
		w.must(w.s.Volumes.ForgetVolume(ctx, w.host, v.ID))
	}
	w.wantUsed(0, 0)
	abandoned, err := w.s.Volumes.Create(ctx, w.wanted("abandoned", 4))
	w.must(err)
	w.must(w.s.Volumes.GiveUp(ctx, abandoned))
	etcdtest.WantKind(t, w.s.Volumes.GiveUp(ctx, abandoned), croft.Conflict)
	w.wantUsed(0, 0)
	w.must(w.s.Projects.Remove(ctx, "lab"))
}

func TestAFenceExcludesEveryPendingWrite(t *testing.T) {
	w := start(t)
	v, err := w.s.Volumes.Create(t.Context(), w.wanted("data", 4))
	w.must(err)
	_, err = w.s.Volumes.Fence(t.Context(), v)
	w.must(err)
	_, err = w.s.Volumes.Settle(t.Context(), v)
	etcdtest.WantKind(t, err, croft.Conflict)
}

func TestADrainedHostGetsNoVolume(t *testing.T) {
	w := start(t)
	w.must(w.s.Registry.Drain(t.Context(), w.host))
	_, err := w.s.Volumes.Create(t.Context(), w.wanted("data", 4))
	etcdtest.WantKind(t, err, croft.Unavailable)
	w.wantUsed(0, 0)
}

func TestAVolumeIsAttachedToOneInstanceUntilThatIsGone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v := w.volume("data", 1)
	one, err := w.instance("one", v)
	w.must(err)
	if now := w.find("data"); now.Instance != one.ID || now.State() != croft.VolumeInUse {
		t.Errorf("attached by the request, it is %+v", now)
	}
	// The request of another instance, and an attachment, are based on the volume as it was before.
	if _, err := w.instance("two", v); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a second request: %v", err)
	}
	three, err := w.instance("three")
	w.must(err)
	_, err = w.s.Volumes.Attach(ctx, v, three)
	etcdtest.WantKind(t, err, croft.Conflict)
	o, err := w.s.Orders.Order(ctx, w.host, one.ID)
	w.must(err)
	if !slices.Equal(o.Volumes, []croft.VolumeID{v.ID}) {
		t.Errorf("the order has the volumes %v", o.Volumes)
	}
	w.must(w.s.Instances.Bury(ctx, one, croft.Order{}))
	v = w.find("data")
	if v.Instance != "" {
		t.Errorf("its instance is gone, and it is attached to %s", v.Instance)
	}
	_, err = w.s.Volumes.Attach(ctx, v, three)
	w.must(err)
	attached, err := w.s.Volumes.AttachedTo(ctx, three.ID)
	if err != nil || len(attached) != 1 || attached[0].ID != v.ID {
		t.Errorf("attached are %+v, %v", attached, err)
	}
	// A move that was planned before the attachment fails.
	_, err = w.s.Instances.SetMoving(ctx, three, croft.NewHostID())
	etcdtest.WantKind(t, err, croft.Conflict)
	v, err = w.s.Volumes.Detach(ctx, w.find("data"))
	w.must(err)
	w.must(w.s.Volumes.DetachedVolume(ctx, w.host, v.ID, one.ID)) // it is not to be detached from that one
	if now := w.find("data"); now.Instance != three.ID {
		t.Errorf("detached from another instance: %+v", now)
	}
	for range 2 {
		w.must(w.s.Volumes.DetachedVolume(ctx, w.host, v.ID, three.ID))
	}
	if now := w.find("data"); now.Instance != "" || now.Detaching {
		t.Errorf("detached, it is %+v", now)
	}
}

func TestAProjectFindsItsOwnVolumesAlone(t *testing.T) {
	w := start(t)
	v := w.volume("data", 1)
	for _, name := range []string{"data", string(v.ID), "../lab/data", string(w.host) + "/" + string(v.ID)} {
		_, err := w.s.Volumes.Find(t.Context(), "other", name)
		etcdtest.WantKind(t, err, croft.NotFound)
	}
	all, err := w.s.Volumes.List(t.Context(), "other")
	if err != nil || len(all) > 0 {
		t.Errorf("another project lists %+v, %v", all, err)
	}
	all, err = w.s.Volumes.List(t.Context(), "")
	if err != nil || len(all) != 1 {
		t.Errorf("all are %+v, %v", all, err)
	}
}

// hostNamed returns another host that takes orders.
func (w *world) hostNamed(name string) croft.HostID {
	w.Helper()
	id := croft.NewHostID()
	w.must(w.s.Registry.PutHost(w.Context(), croft.Host{ID: id, Name: name}))
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.s.Registry.StayAlive(ctx, id) }()
	w.Cleanup(func() { cancel(); <-ended })
	for {
		hosts, err := w.s.Registry.Hosts(w.Context(), id)
		w.must(err)
		if hosts[id].Alive {
			return id
		}
	}
}

func TestAVolumeOnSharedStorageGoesToTheHostOfItsInstance(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v := w.volume("data", 1)
	v.Storage = croft.NewStorageID()
	v, err := w.s.Volumes.Keep(ctx, v, croft.Host{ID: w.host}, w.host) // stores that it is on shared storage
	w.must(err)
	far := w.hostNamed("far")
	kept, err := w.s.Volumes.Keep(ctx, v, croft.Host{ID: w.host}, far)
	w.must(err)
	if now := w.find("data"); now.Host != far || now.Revision != kept.Revision || len(now.TakesFrom) > 0 {
		t.Errorf("kept by another host, it is %+v", now)
	}
	if _, err := w.s.Volumes.Volume(ctx, w.host, v.ID); croft.KindOf(err) != croft.NotFound {
		t.Errorf("its former keeper still finds it: %v", err)
	}
	_, err = w.s.Volumes.Condemn(ctx, v) // is based on the earlier record
	etcdtest.WantKind(t, err, croft.Conflict)
	_, err = w.s.Volumes.Keep(ctx, kept, croft.Host{ID: far}, croft.NewHostID())
	etcdtest.WantKind(t, err, croft.Unavailable) // that is not alive

	one, err := w.instance("one") // on the first host
	w.must(err)
	v, err = w.s.Volumes.Attach(ctx, kept, one)
	w.must(err)
	if now := w.find("data"); now.Host != w.host || now.Instance != one.ID {
		t.Errorf("attached, it is %+v", now)
	}
	_, err = w.s.Volumes.Detach(ctx, v)
	w.must(err)
	w.must(w.s.Volumes.DetachedVolume(ctx, w.host, v.ID, one.ID))
	v, err = w.s.Volumes.Keep(ctx, w.find("data"), croft.Host{ID: w.host}, far)
	w.must(err)
	two, err := w.instance("two", v)
	w.must(err)
	if now := w.find("data"); now.Host != w.host || now.Instance != two.ID {
		t.Errorf("attached by the request, it is %+v", now)
	}
	if all, err := w.s.Volumes.AttachedTo(ctx, two.ID); err != nil || len(all) != 1 || all[0].Host != w.host {
		t.Errorf("the instance has %+v, %v", all, err)
	}
}

func TestTheLockOfAVolumeIsTakenFromAKeeperThatWasDeclaredDeadAlone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v := w.volume("data", 1)
	v.Storage = croft.NewStorageID()
	v, err := w.s.Volumes.Keep(ctx, v, croft.Host{ID: w.host}, w.host)
	w.must(err)
	far := w.hostNamed("far")
	one, err := w.instance("one", v)
	w.must(err)

	death, err := w.s.Registry.BeginDeath(ctx, w.host)
	w.must(err)
	death, err = w.s.Registry.DeclareDead(ctx, w.host, death, "operator")
	w.must(err)
	hosts, err := w.s.Registry.Hosts(ctx, w.host)
	w.must(err)
	former := hosts[w.host]
	_, err = w.s.Instances.Lose(ctx, one, croft.Loss{Host: w.host, Death: death.CreateRevision},
		schedule.NewOrder(w.s.Partition(), one, w.host, croft.WantLeft))
	w.must(err)
	v = w.find("data")
	if !slices.Equal(v.TakesFrom, []croft.HostID{w.host}) {
		t.Errorf("its instance is lost, and it is %+v", v)
	}
	v, err = w.s.Volumes.Detached(ctx, v)
	w.must(err)
	taken, err := w.s.Volumes.Keep(ctx, v, former, far)
	w.must(err)
	if !slices.Equal(taken.TakesFrom, []croft.HostID{w.host}) {
		t.Errorf("with another keeper, it is %+v", taken)
	}
	stale := former
	stale.Death = &croft.Death{CreateRevision: death.CreateRevision - 1, Declared: death.Declared}
	etcdtest.WantKind(t, w.s.Volumes.TakeFrom(ctx, taken, stale), croft.Conflict)
	etcdtest.WantKind(t, w.s.Volumes.TakeFrom(ctx, taken, croft.Host{ID: far}), croft.Conflict)
	w.must(w.s.Volumes.TakeFrom(ctx, taken, former))
	if back := taken.KeptBy(w.host); len(back.TakesFrom) > 0 {
		t.Errorf("kept by that host again, it is %+v", back)
	}
}
