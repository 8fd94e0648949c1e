package resize_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"croft"
	"croft/control/cloud"
	"croft/control/cloud/direct"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/schedule"
	"croft/schedule/resize"
	"croft/tenant"
	"croft/test/simcloud"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// world is a cloud with one host, which has room for four instances of one VCPU, 256 MEMORY_MB and 1 DISK_GB.
type world struct {
	*testing.T
	ctx  context.Context
	sim  *simcloud.Cloud
	over *cloud.Cloud
}

func start(t *testing.T) *world {
	t.Helper()
	return startWith(t, func(*simcloud.Cloud) error { return nil })
}

// startWith starts a cloud; prepare changes it before its host starts.
func startWith(t *testing.T, prepare func(*simcloud.Cloud) error) *world {
	t.Parallel()
	ctx := patient.Context(t)
	c, err := simcloud.New(context.WithoutCancel(ctx), t.TempDir(), etcdserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := prepare(c); err != nil {
		t.Fatal(err)
	}
	if err := c.AddHost(context.WithoutCancel(ctx), "host1", 4); err != nil {
		t.Fatal(err)
	}
	s := direct.Defaults()
	s.Etcd.Endpoints, s.Placement.Endpoint = []string{c.Etcd.Endpoint()}, c.Placement.URL
	over, err := direct.Over(c.Store, c.Claims, s, direct.Scheduling{})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, ctx, c, over}
}

// must ends the test on an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// request requests an instance, and waits until it runs, or is stopped.
func (w *world) request(name string, stopped bool) croft.Instance {
	w.Helper()
	q, err := schedule.ParseQuery("resources=VCPU:1,MEMORY_MB:256,DISK_GB:1&required=!HW_CPU_X86_AVX512F")
	w.must(err)
	made, err := w.over.Scheduler.Request(w.ctx, schedule.Request{Name: name, Project: croft.DefaultProject, Query: q,
		Image: "file:///image"})
	w.must(err)
	inst := made.Instance
	w.must(w.over.Scheduler.Wait(w.ctx, inst, schedule.Running, nil))
	if stopped {
		inst, err = w.over.Scheduler.Stop(w.ctx, croft.DefaultProject, name)
		w.must(err)
		w.must(w.over.Scheduler.Wait(w.ctx, inst, schedule.Stopped, nil))
	}
	return inst
}

func (w *world) resize(name string, to croft.Resources) (croft.Instance, error) {
	return w.over.Sizes.Resize(w.ctx, croft.DefaultProject, name, to)
}

// has checks that the record of an instance, its claim, the charge of its project and, once the order is carried out,
// its domain have a size.
func (w *world) has(inst croft.Instance, want croft.Resources) {
	w.Helper()
	now, err := w.sim.Store.Instances.Instance(w.ctx, inst.ID)
	w.must(err)
	if now.Resizing != nil || !maps.Equal(now.Spec.Resources, want) {
		w.Errorf("its record has %s, and the request %+v; want %s", now.Spec.Resources, now.Resizing, want)
	}
	if now.Spec.Query != "" {
		q, err := schedule.ParseQuery(now.Spec.Query)
		if w.must(err); !maps.Equal(q.Total(), want) {
			w.Errorf("its query has %s, want %s", q.Total(), want)
		}
	}
	claim, err := w.sim.Claims.ClaimOf(w.ctx, inst.ID)
	if w.must(err); !maps.Equal(claim.Allocations[now.Host], want) {
		w.Errorf("it claims %v, want %s", claim.Allocations, want)
	}
	w.must(w.over.Scheduler.Wait(w.ctx, now, schedule.Settled, nil))
	m, err := w.sim.Hosts["host1"].Hypervisor.Machine(inst.ID)
	if w.must(err); m.VCPUs != want[croft.VCPU] || m.MemoryMiB != want[croft.MemoryMB] {
		w.Errorf("its domain has %d VCPU and %d MiB, want %s", m.VCPUs, m.MemoryMiB, want)
	}
	differences, err := w.sim.Store.Projects.Check(w.ctx)
	if w.must(err); len(differences) > 0 {
		w.Errorf("the charges differ from the records: %+v", differences)
	}
}

func size(vcpu, memory, disk int64) croft.Resources {
	return croft.Resources{croft.VCPU: vcpu, croft.MemoryMB: memory, croft.DiskGB: disk}
}

func TestAStoppedInstanceGetsAnotherSize(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	for _, want := range []croft.Resources{size(3, 512, 3), size(1, 256, 3), size(2, 1024, 3), size(2, 1024, 3)} {
		got, err := w.resize("web", want)
		if w.must(err); got.Resizing != nil {
			t.Errorf("the request goes on: %+v", got.Resizing)
		}
		w.has(inst, want)
	}
	started, err := w.over.Scheduler.Start(w.ctx, croft.DefaultProject, "web")
	w.must(err)
	w.must(w.over.Scheduler.Wait(w.ctx, started, schedule.Running, nil))
	w.has(inst, size(2, 1024, 3))
}

func TestOnlyTheDiskOfARunningInstanceGrows(t *testing.T) {
	w := start(t)
	inst := w.request("web", false)
	for _, to := range []croft.Resources{{croft.VCPU: 2}, {croft.MemoryMB: 512}} {
		_, err := w.resize("web", to)
		etcdtest.WantKind(t, err, croft.Conflict)
		etcdtest.WantSays(t, err.Error(), "schedule stop")
	}
	_, err := w.resize("web", croft.Resources{croft.DiskGB: 2})
	w.must(err)
	w.has(inst, size(1, 256, 2))
	st, err := w.over.Scheduler.View.FindByID(w.ctx, inst.ID)
	if w.must(err); st.Order.Want != croft.WantRunning || st.Observation.State != croft.StateRunning {
		t.Errorf("it is ordered to be %s and is %s", st.Order.Want, st.Observation.State)
	}
}

func TestARefusedSizeChangesNothing(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	w.request("other", true)
	for _, c := range []struct {
		name string
		to   croft.Resources
		kind croft.Kind
		says string
	}{
		{"nothing", nil, croft.Invalid, "name at least one"},
		{"a class that cannot be changed", croft.Resources{"CUSTOM_GPU": 1}, croft.Invalid, "CUSTOM_GPU"},
		{"no processor", croft.Resources{croft.VCPU: 0}, croft.Invalid, "the least is 1"},
		{"more than the host has", croft.Resources{croft.VCPU: 5}, croft.NoCapacity, "the most that fits is VCPU:3"},
		{"more of two than the host has", croft.Resources{croft.VCPU: 4, croft.MemoryMB: 1 << 20}, croft.NoCapacity,
			"the most that fits is MEMORY_MB:768,VCPU:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.resize("web", c.to)
			etcdtest.WantKind(t, err, c.kind)
			etcdtest.WantSays(t, err.Error(), c.says)
		})
	}
	_, err := w.resize("web", croft.Resources{croft.DiskGB: 2})
	w.must(err)
	_, err = w.resize("web", croft.Resources{croft.DiskGB: 1})
	etcdtest.WantKind(t, err, croft.Invalid)
	_, err = w.resize("nobody", croft.Resources{croft.DiskGB: 1})
	etcdtest.WantKind(t, err, croft.NotFound)
	w.has(inst, size(1, 256, 2))
}

var errDead = errors.New("the process is dead")

// mortal is a process that dies at one of its writes: before it, or after it, so that only the answer is lost.
type mortal struct {
	resize.Records
	resize.Claims
	left  int
	after bool
	then  func() // called at its death
}

func (m *mortal) write(do func() error) error {
	m.left--
	switch {
	case m.left > 0:
		return do()
	case m.left == 0 && m.after:
		_ = do()
	}
	if m.left == 0 && m.then != nil {
		m.then()
	}
	return errDead
}

func (m *mortal) BeginResize(ctx context.Context, inst croft.Instance, to croft.Resources) (next croft.Instance,
	err error) {
	err = m.write(func() (err error) { next, err = m.Records.BeginResize(ctx, inst, to); return err })
	return next, err
}

func (m *mortal) Resize(ctx context.Context, inst croft.Instance, o croft.Order) (next croft.Instance, err error) {
	err = m.write(func() (err error) { next, err = m.Records.Resize(ctx, inst, o); return err })
	return next, err
}

func (m *mortal) EndResize(ctx context.Context, inst croft.Instance) (next croft.Instance, err error) {
	err = m.write(func() (err error) { next, err = m.Records.EndResize(ctx, inst); return err })
	return next, err
}

func (m *mortal) Fence(ctx context.Context, inst croft.Instance) (next croft.Instance, err error) {
	err = m.write(func() (err error) { next, err = m.Records.Fence(ctx, inst); return err })
	return next, err
}

func (m *mortal) Reclaim(ctx context.Context, had croft.Claim, o croft.Owner, c croft.Candidate) error {
	return m.write(func() error { return m.Claims.Reclaim(ctx, had, o, c) })
}

// Wherever its process dies, the instance has in the end one size in its record, its claim and its charge: the one that
// it had or the one that was asked for.
func TestAResizeWhoseProcessDiesIsEnded(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	has, wants := size(1, 256, 1), size(2, 128, 2) // more of two, and less of one
	for step := 1; ; step++ {
		for _, after := range []bool{false, true} {
			m := &mortal{Records: w.sim.Store.Instances, Claims: w.sim.Claims, left: step, after: after}
			dying := resize.Manager{Partition: w.sim.Store.Partition(), Records: m, Claims: m, Volumes: w.over.Volumes,
				Log: slog.New(slog.DiscardHandler)}
			_, err := dying.Resize(w.ctx, croft.DefaultProject, "web", wants)
			if m.left > 0 {
				w.must(err)
				return // it had fewer writes
			}
			now, err := w.sim.Store.Instances.Instance(w.ctx, inst.ID)
			if w.must(err); now.Resizing != nil {
				w.must(w.over.Sizes.EndResize(w.ctx, now))
			}
			now, err = w.sim.Store.Instances.Instance(w.ctx, inst.ID)
			w.must(err)
			if size := now.Spec.Resources; !maps.Equal(size, has) && !maps.Equal(size, wants) {
				t.Fatalf("dead at write %d, after it: %v: it has %s", step, after, size)
			}
			w.has(inst, now.Spec.Resources)
			if t.Failed() {
				t.Fatalf("dead at write %d, after it: %v", step, after)
			}
			if maps.Equal(now.Spec.Resources, wants) { // disks do not shrink
				has, wants = wants, size(3-wants[croft.VCPU], 384-wants[croft.MemoryMB], wants[croft.DiskGB])
			}
		}
	}
}

// A process that is suspended at a write, and continues after a caretaker ended its request, changes nothing.
func TestASuspendedResizeChangesNothingLater(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	for step := 2; step <= 3; step++ {
		m := &mortal{Records: w.sim.Store.Instances, Claims: w.sim.Claims, left: step}
		var late error
		m.then = func() {
			now, err := w.sim.Store.Instances.Instance(w.ctx, inst.ID)
			w.must(err)
			w.must(w.over.Sizes.EndResize(w.ctx, now))
		}
		resumes := resuming{m, &late}
		suspended := resize.Manager{Partition: w.sim.Store.Partition(), Records: resumes, Claims: resumes,
			Volumes: w.over.Volumes,
			Log:     slog.New(slog.DiscardHandler)}
		_, err := suspended.Resize(w.ctx, croft.DefaultProject, "web", size(2, 512, 2))
		if err == nil || croft.KindOf(late) != croft.Conflict {
			t.Errorf("suspended at write %d: got %v, and later %v", step, err, late)
		}
		w.has(inst, size(1, 256, 1))
	}
}

// resuming does the write at which a process was suspended, late.
type resuming struct {
	*mortal
	late *error
}

func (r resuming) Reclaim(ctx context.Context, had croft.Claim, o croft.Owner, c croft.Candidate) error {
	err := r.mortal.Reclaim(ctx, had, o, c)
	if r.left == 0 {
		*r.late = r.Claims.Reclaim(ctx, had, o, c)
	}
	return err
}

func (r resuming) Resize(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	next, err := r.mortal.Resize(ctx, inst, o)
	if r.left == 0 {
		_, *r.late = r.Records.Resize(ctx, inst, o)
	}
	return next, err
}

// Of requests at the same time for one instance, each is carried out as a whole or refused.
func TestManyResizeAtOnce(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	errs := make(chan error)
	for i := range 6 {
		go func() {
			_, err := w.resize("web", size(1+int64(i)%3, 256, 1))
			errs <- err
		}()
	}
	for range 6 {
		if err := <-errs; err != nil && croft.KindOf(err) != croft.Conflict {
			t.Error(err)
		}
	}
	now, err := w.sim.Store.Instances.Instance(w.ctx, inst.ID)
	w.must(err)
	w.has(inst, now.Spec.Resources)
}

func TestAProjectWithoutQuotaGetsNoLargerInstance(t *testing.T) {
	w := start(t)
	inst := w.request("web", true)
	d, err := w.sim.Store.Projects.Defaults(w.ctx)
	w.must(err)
	d.Limits = tenant.Limits{tenant.Measure(croft.VCPU): 1}
	_, err = w.sim.Store.Projects.SetDefaults(w.ctx, d)
	w.must(err)
	_, err = w.resize("web", croft.Resources{croft.VCPU: 2})
	etcdtest.WantKind(t, err, croft.OverQuota)
	if !strings.Contains(fmt.Sprint(err), "VCPU") {
		t.Error(err)
	}
	w.has(inst, size(1, 256, 1))
}
