package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/schedule/volumes"
	"croft/tenant"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// claims is a Placement with one host, which has room for 10 GB, like each shared storage.
type claims struct {
	host  croft.HostID
	all   map[croft.InstanceID]croft.Claim
	types map[croft.InstanceID]string
	left  int // calls until the process that makes them dies; negative: it lives on
	after bool
	gone  croft.HostID // its provider does not exist any more
}

var errDead = errors.New("the process is dead")

// call counts a change, before which or after which the process dies.
func (c *claims) call(change func() error) error {
	dies := c.left == 0
	if c.left < 0 || c.left > 0 {
		c.left--
		return change()
	}
	if dies && c.after {
		c.after = false
		_ = change()
	}
	return errDead
}

func (c *claims) Candidates(context.Context, string, int) ([]croft.Candidate, error) {
	return []croft.Candidate{{Allocations: map[croft.HostID]croft.Resources{c.host: {croft.DiskGB: 1}},
		Summaries: map[croft.HostID]croft.Summary{c.host: {Capacity: croft.Resources{croft.DiskGB: 10}}}}}, nil
}

func (c *claims) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	claim := c.all[id]
	claim.Instance = id
	return claim, nil
}

func (c *claims) Reclaim(_ context.Context, had croft.Claim, o croft.Owner, to croft.Candidate) error {
	return c.call(func() error {
		now := c.all[had.Instance]
		if (now.Generation == nil) != (had.Generation == nil) || now.Generation != nil &&
			*now.Generation != *had.Generation {
			return croft.Errorf(croft.Conflict, "it changed")
		}
		if slices.ContainsFunc(slices.Collect(maps.Values(to.Allocations)), func(a croft.Resources) bool {
			return a[croft.DiskGB] > 10
		}) {
			return croft.Errorf(croft.NoCapacity, "%w", croft.Errorf(croft.Conflict, "full"))
		}
		if _, there := to.Allocations[c.gone]; there {
			return croft.Errorf(croft.Invalid, "Allocation for a resource provider that does not exist")
		}
		next := int64(1)
		if now.Generation != nil {
			next = *now.Generation + 1
		}
		c.all[had.Instance] = croft.Claim{Instance: had.Instance, Allocations: maps.Clone(to.Allocations),
			Generation: &next}
		c.types[had.Instance] = o.Type
		return nil
	})
}

func (c *claims) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	return c.call(func() error {
		_, err := may(ctx)
		if err == nil {
			delete(c.all, id)
		}
		return err
	})
}

// dying is a store whose process dies together with its claims.
type dying struct {
	*claims
	volumes.Store
}

func (d dying) Create(ctx context.Context, v croft.Volume) (next croft.Volume, err error) {
	err = d.call(func() error { next, err = d.Store.Create(ctx, v); return err })
	return next, err
}

func (d dying) Settle(ctx context.Context, v croft.Volume) (next croft.Volume, err error) {
	err = d.call(func() error { next, err = d.Store.Settle(ctx, v); return err })
	return next, err
}

func (d dying) Fence(ctx context.Context, v croft.Volume) (next croft.Volume, err error) {
	err = d.call(func() error { next, err = d.Store.Fence(ctx, v); return err })
	return next, err
}

func (d dying) GiveUp(ctx context.Context, v croft.Volume) error {
	return d.call(func() error { return d.Store.GiveUp(ctx, v) })
}

// world is a cloud with one host.
type world struct {
	*testing.T
	store *etcdstore.Store
	*claims
	*volumes.Manager
}

func start(t *testing.T) *world {
	c := &claims{host: croft.NewHostID(), all: map[croft.InstanceID]croft.Claim{}, types: map[croft.InstanceID]string{},
		left: -1}
	s := etcdtest.Start(t)
	w := &world{t, s, c, &volumes.Manager{Partition: s.Partition(), Store: dying{c, s.Volumes}, Claims: c,
		Hosts: s.Registry, Instances: s.Instances, Log: slog.New(slog.DiscardHandler)}}
	w.must(s.Registry.PutHost(t.Context(), croft.Host{ID: c.host, Name: "h"}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Registry.StayAlive(ctx, c.host) }()
	t.Cleanup(func() { cancel(); <-ended })
	for {
		hosts, err := s.Registry.Hosts(t.Context(), c.host)
		w.must(err)
		if hosts[c.host].Alive {
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

// consistent checks that records, claims and charges agree.
func (w *world) consistent() {
	w.Helper()
	all, err := w.store.Volumes.List(w.Context(), "")
	w.must(err)
	sum := int64(0)
	for _, v := range all {
		sum += v.SizeGB
		if claimed := w.all[v.ID.Consumer()].Allocations[v.Provider()][croft.DiskGB]; claimed != v.ClaimedGB ||
			v.ClaimedGB != v.SizeGB {
			w.Errorf("volume %s claims %d of %d GB, and wants %d", v.Name, claimed, v.ClaimedGB, v.SizeGB)
		}
		if w.types[v.ID.Consumer()] != croft.VolumeConsumerType {
			w.Errorf("its consumer has the type %q", w.types[v.ID.Consumer()])
		}
	}
	if len(w.all) != len(all) {
		w.Errorf("there are %d claims of %d volumes", len(w.all), len(all))
	}
	accounts, err := w.store.Projects.Accounts(w.Context(), "lab")
	w.must(err)
	used := accounts[0].Used
	if used[tenant.CountVolumes] != int64(len(all)) || used[tenant.Measure(croft.DiskGB)] != sum {
		w.Errorf("the project is charged for %s, and has %d GB", used, sum)
	}
}

// undo ends requests whose processes died, as a caretaker does.
func (w *world) undo() {
	w.Helper()
	w.left = -1
	all, err := w.store.Volumes.List(w.Context(), "")
	w.must(err)
	for _, v := range all {
		if v.ClaimedGB < v.SizeGB {
			w.must(w.Undo(w.Context(), v))
			w.must(w.Undo(w.Context(), v)) // another caretaker, later
		}
	}
}

func TestARequestThatDiesAnywhereIsUndoneOrDone(t *testing.T) {
	for n := range 9 {
		for _, after := range []bool{false, true} {
			for _, grows := range []bool{false, true} {
				t.Run(fmt.Sprintf("call %d, after it %v, grows %v", n, after, grows), func(t *testing.T) {
					t.Parallel()
					w := start(t)
					if grows {
						_, err := w.Create(t.Context(), "lab", "data", 2, "")
						w.must(err)
					}
					w.left, w.after = n, after
					var err error
					if grows {
						_, err = w.Grow(t.Context(), "lab", "data", 4)
					} else {
						_, err = w.Create(t.Context(), "lab", "data", 2, "h")
					}
					done := err == nil
					w.undo()
					w.consistent()
					v, err := w.Find(t.Context(), "lab", "data")
					switch {
					case !done && !grows && croft.KindOf(err) == croft.NotFound: // undone
					case err != nil:
						t.Error(err)
					case done && grows && v.SizeGB != 4:
						t.Errorf("it was done, and the volume has %d GB", v.SizeGB)
					}
				})
			}
		}
	}
}

func TestARequestAboutAVolumeWhoseHostWasForgottenIsUndone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	host, end := w.live("forgotten")
	v, err := w.Create(ctx, "lab", "data", 2, "forgotten")
	w.must(err)
	v, err = w.store.Volumes.Enlarge(ctx, v, 4)
	w.must(err)
	end()
	w.awaitLife(host, false)
	w.must(w.store.Registry.ForgetHost(ctx, host))
	delete(w.all, v.ID.Consumer()) // with its provider
	w.gone = host
	w.must(w.Undo(ctx, v))
	v, err = w.Find(ctx, "lab", "data")
	w.must(err)
	if v.SizeGB != 2 || v.Session != "" {
		t.Errorf("undone, it is %+v", v)
	}
}

func TestASuspendedRequestDoesNothingAfterItWasUndone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v, err := w.Create(ctx, "lab", "data", 2, "")
	w.must(err)
	suspended, err := w.store.Volumes.Enlarge(ctx, v, 4)
	w.must(err)
	had, err := w.ClaimOf(ctx, v.ID.Consumer())
	w.must(err)
	w.undo()
	owner := croft.Owner{Project: "lab", Type: croft.VolumeConsumerType}
	etcdtest.WantKind(t, w.Claims.Reclaim(ctx, had, owner, croft.Candidate{}), croft.Conflict)
	_, err = w.store.Volumes.Settle(ctx, suspended)
	etcdtest.WantKind(t, err, croft.Conflict)
	w.consistent()
}

func TestRequestsThatCannotBeAreRefused(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	_, err := w.Create(ctx, "lab", "data", 2, "")
	w.must(err)
	for what, c := range map[string]struct {
		kind croft.Kind
		do   func() error
	}{
		"a host that does not exist": {croft.NotFound, func() error {
			_, err := w.Create(ctx, "lab", "x", 1, "nowhere")
			return err
		}},
		"no room":         {croft.NoCapacity, func() error { _, err := w.Create(ctx, "lab", "x", 11, ""); return err }},
		"no room to grow": {croft.NoCapacity, func() error { _, err := w.Grow(ctx, "lab", "data", 11); return err }},
		"smaller":         {croft.Invalid, func() error { _, err := w.Grow(ctx, "lab", "data", 1); return err }},
		"no name":         {croft.Invalid, func() error { _, err := w.Create(ctx, "lab", "A b", 1, ""); return err }},
		"nothing":         {croft.Invalid, func() error { _, err := w.Create(ctx, "lab", "x", 0, ""); return err }},
		"not made yet": {croft.Conflict, func() error {
			_, err := w.ForRequest(ctx, "lab", []string{"data"})
			return err
		}},
		"another project's": {croft.NotFound, func() error { _, err := w.Remove(ctx, "other", "data"); return err }},
	} {
		if err := c.do(); croft.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %s", what, err, c.kind)
		}
		w.consistent()
	}
}

func TestAVolumeOfAForgottenHostIsGivenUp(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v, err := w.Create(ctx, "lab", "data", 2, "")
	w.must(err)
	w.must(w.store.Registry.ForgetHost(ctx, w.host))
	if _, err := w.Grow(ctx, "lab", "data", 4); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("it grows: %v", err)
	}
	if now, err := w.Find(ctx, "lab", "data"); err != nil || now.ID != v.ID {
		t.Errorf("its record: %+v, %v", now, err)
	}
	_, err = w.Remove(ctx, "lab", "data")
	w.must(err)
	w.consistent()
}

// mount makes the host mount a shared storage, or another one with this ID.
func (w *world) mount(host croft.HostID, name string, id croft.StorageID) {
	w.Helper()
	w.must(w.store.Registry.PutHost(w.Context(), croft.Host{ID: host, Name: string(host),
		Storages: []croft.HostStorage{{ID: id, Name: name}}}))
}

// live makes another host, which is alive until end is called.
func (w *world) live(name string) (id croft.HostID, end func()) {
	w.Helper()
	id = croft.NewHostID()
	w.must(w.store.Registry.PutHost(w.Context(), croft.Host{ID: id, Name: name}))
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.store.Registry.StayAlive(ctx, id) }()
	end = func() { cancel(); <-ended }
	w.Cleanup(end)
	w.awaitLife(id, true)
	return id, end
}

func (w *world) awaitLife(id croft.HostID, want bool) {
	w.Helper()
	for {
		hosts, err := w.store.Registry.Hosts(w.Context(), id)
		w.must(err)
		if hosts[id].Alive == want {
			return
		}
	}
}

func TestAVolumeOnSharedStorageClaimsOfItAndHasAKeeperThatIsAlive(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	nfs1 := croft.NewStorageID()
	if _, err := w.CreateShared(ctx, "lab", "data", 2, "shared"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("without a shared storage: %v", err)
	}
	far, end := w.live("far")
	w.mount(far, "nfs1", nfs1)
	for storage, kind := range map[string]croft.Kind{"nfs2": croft.NotFound, "../x": croft.Invalid} {
		if _, err := w.CreateShared(ctx, "lab", "data", 2, storage); croft.KindOf(err) != kind {
			t.Errorf("on %s: %v, want %s", storage, err, kind)
		}
	}
	if _, err := w.CreateShared(ctx, "lab", "data", 11, "nfs1"); croft.KindOf(err) != croft.NoCapacity {
		t.Errorf("too large: %v", err)
	}
	w.consistent()
	v, err := w.CreateShared(ctx, "lab", "data", 2, "shared")
	w.must(err)
	if v.Storage != nfs1 || v.Host != far {
		t.Errorf("created, it is %+v", v)
	}
	w.consistent()
	w.must(w.store.Volumes.MadeVolume(ctx, far, v.ID, 2))
	for host, want := range map[croft.HostID]string{w.host: "does not mount the shared storage that has it",
		far: "is being moved"} {
		inst := croft.Instance{ID: croft.NewInstanceID(), Name: "web", Project: "lab", Host: host,
			State: croft.StateScheduled}
		if host == far {
			inst.Moving = w.host
		}
		if _, err := w.Attach(ctx, "lab", "data", inst); croft.KindOf(err) != croft.Conflict ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("attach: %v, want %q", err, want)
		}
	}

	// its keeper goes silent, and no other host mounts the storage
	end()
	w.awaitLife(far, false)
	for verb, do := range map[string]func() error{
		"grow":    func() error { _, err := w.Grow(ctx, "lab", "data", 3); return err },
		"remove":  func() error { _, err := w.Remove(ctx, "lab", "data"); return err },
		"request": func() error { _, err := w.ForRequest(ctx, "lab", []string{"data"}); return err },
	} {
		if err := do(); croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(),
			"no host that mounts its shared storage is alive") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	again, end := w.live("again")
	w.mount(again, "nfs1", nfs1)
	v, err = w.Grow(ctx, "lab", "data", 3)
	w.must(err)
	if v.Host != again || v.SizeGB != 3 {
		t.Errorf("grown, it is %+v", v)
	}
	w.consistent()
	if _, err := w.Grow(ctx, "lab", "data", 11); croft.KindOf(err) != croft.NoCapacity ||
		!strings.Contains(err.Error(), "its shared storage has no room") {
		t.Errorf("too large: %v", err)
	}
	w.consistent()

	// the host that is to remove it is forgotten
	w.mount(w.host, "nfs1", nfs1)
	v, err = w.Remove(ctx, "lab", "data")
	w.must(err)
	end()
	w.awaitLife(again, false)
	w.must(w.store.Registry.ForgetHost(ctx, again))
	w.must(w.Undo(ctx, v)) // by a caretaker
	v, err = w.Find(ctx, "lab", "data")
	w.must(err)
	if !v.Removing || v.Host != w.host || !slices.Equal(v.TakesFrom, []croft.HostID{again}) {
		t.Errorf("its keeper was forgotten, and it is %+v", v)
	}
}

func TestTheDetachmentOfAVolumeWhoseInstanceIsLostEndsWithTheNextRequest(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	for name, end := range map[string]func(name string) error{
		"removed": func(name string) error { _, err := w.Remove(ctx, "lab", name); return err },
		"detached": func(name string) error {
			v, err := w.Detach(ctx, "lab", name)
			if err == nil && v.Instance != "" {
				t.Errorf("it is still attached: %+v", v)
			}
			return err
		},
		"attached": func(name string) error {
			_, err := w.Attach(ctx, "lab", name, croft.Instance{ID: croft.NewInstanceID(), Name: "web",
				Project: "other", Host: w.host, State: croft.StateScheduled})
			if err != nil && strings.Contains(err.Error(), "another project") { // so it is free
				return nil
			}
			return err
		},
	} {
		v, err := w.Create(ctx, "lab", name, 1, "")
		w.must(err)
		w.must(w.store.Volumes.MadeVolume(ctx, w.host, v.ID, 1))
		v, err = w.Find(ctx, "lab", name)
		w.must(err)
		inst, err := w.store.Instances.Create(ctx, croft.Instance{ID: croft.NewInstanceID(), Project: "lab", Name: name,
			Host: w.host})
		w.must(err)
		v, err = w.store.Volumes.Attach(ctx, v, inst)
		w.must(err)
		_, err = w.store.Volumes.Detach(ctx, v)
		w.must(err)
		st, err := w.store.Instances.FindByID(ctx, inst.ID)
		w.must(err)
		_, err = w.store.Instances.Lose(ctx, st.Instance, croft.Loss{Reason: "its host died"}, croft.Order{
			Partition: w.store.Partition(), Host: w.host, Instance: inst.ID, Generation: 1, Want: croft.WantLeft})
		w.must(err)
		if err := end(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
