package system

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/etcdstore/etcdtest"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/schedule"
)

// The tests of this file delay one call each, or make it take effect late, at points that once caused a loss. The
// random runs do the same at any point.

// lone returns a world with one host that is alive only by its lease.
func lone(t *testing.T) (*world, croft.HostID) {
	w := newWorld(t, 1, 0, 0)
	host := croft.Host{ID: croft.NewHostID(), Name: "lone", VirtType: "sim"}
	facts := compute.Facts{CPUs: 4, MemoryMiB: 4096, DiskGiB: 40}
	w.await(t, "the host is offered", func() bool { // Placement may be starting
		return w.claims.EnsureProvider(t.Context(), compute.Offer{VCPURatio: 1}.Provider(host, w.store.Partition(),
			facts)) == nil
	})
	if err := w.store.Registry.PutHost(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() { _ = w.store.Registry.StayAlive(ctx, host.ID) })
	t.Cleanup(func() { stop(); work.Wait() })
	w.await(t, "the host is alive", func() bool {
		hosts, err := w.store.Registry.Hosts(t.Context(), host.ID)
		return err == nil && hosts[host.ID].Alive
	})
	return w, host.ID
}

// await polls until a condition holds.
func (w *world) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	patient.Until(t, what, is)
}

// claimed fails if an instance is ordered without a claim on its host, or has a claim without an order.
func (w *world) claimed(t *testing.T, host croft.HostID) {
	t.Helper()
	all, err := w.store.Instances.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	claims, err := w.claims.Claims(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if st.Instance.Host != host {
			continue
		}
		if len(claims[st.Instance.ID]) == 0 {
			t.Errorf("instance %s is %s and has no claim", st.Instance.Name, st.Instance.State)
		}
		delete(claims, st.Instance.ID)
	}
	for id := range claims {
		t.Errorf("a claim of instance %s, which is not here", id)
	}
}

// hookedShared is the Shared of a caretaker that is delayed before and after some calls.
type hookedShared struct {
	audit.Shared
	afterEvidence, beforeDiscard func()
}

func (h *hookedShared) Evidence(ctx context.Context) (audit.Evidence, error) {
	b, err := h.Shared.Evidence(ctx)
	h.afterEvidence()
	return b, err
}

func (h *hookedShared) Discard(ctx context.Context, i croft.Instance) error {
	h.beforeDiscard()
	return h.Shared.Discard(ctx, i)
}

// A scheduler was suspended for longer than its session lives, and resumes exactly when its request is being undone.
func TestASchedulerThatWakesUpOrdersNothing(t *testing.T) {
	for name, when := range map[string]struct{ early, older bool }{
		"before anything is undone":                             {early: true},
		"before the record goes":                                {},
		"before the record goes, of a version without sessions": {older: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, host := lone(t)
			dying := w.open()
			inst, err := dying.Instances.Create(t.Context(), croft.Instance{
				ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: "vm",
				Spec: croft.Spec{Resources: query.Total(), Image: simulated},
			})
			if err != nil {
				t.Fatal(err)
			}
			c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{host: query.Total()}}
			if err := w.claims.Claim(t.Context(), inst.ID, w.owner(inst), c); err != nil {
				t.Fatal(err)
			}
			if err := dying.Close(); err != nil { // its lease has ended
				t.Fatal(err)
			}
			awake := make(chan struct{})
			resume := sync.OnceFunc(func() {
				defer close(awake)
				if when.older { // then the order does not depend on the lease
					if err := etcdtest.Put(t.Context(), w.etcd.Endpoint(), w.store.Partition(),
						"sessions/"+inst.Session, ""); err != nil {
						t.Error(err)
					}
				}
				_, err := w.store.Instances.Assign(t.Context(), inst, croft.Order{
					Partition: w.store.Partition(), Host: host, Instance: inst.ID, Generation: 1,
					Want:    croft.WantRunning,
					Project: inst.Project, Name: inst.Name, Spec: inst.Spec,
				})
				t.Logf("its order: %v", err)
			})
			r := &hookedShared{w.store.Turn, func() {}, resume}
			if when.early {
				r = &hookedShared{w.store.Turn, resume, func() {}}
			}
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			work.Go(func() {
				_ = (&audit.Caretaker{Records: w.store.Records, Shared: r, Inventory: w.claims, Every: time.Second,
					Log: slog.New(slog.DiscardHandler)}).Run(ctx)
			})
			<-awake
			w.await(t, "the request is undone, or its order is out", func() bool {
				now, err := w.store.Instances.Instance(t.Context(), inst.ID)
				return errors.Is(err, croft.NotFound) || now.State == croft.StateScheduled
			})
			stop()
			work.Wait()
			w.claimed(t, host)
		})
	}
}

// lateAssign loses the answer to an order, which is written only after the claim is released.
type lateAssign struct {
	*schedulerSide
	late func()
}

func (l *lateAssign) Assign(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	l.late = sync.OnceFunc(func() { _, _ = l.schedulerSide.Records.Assign(context.WithoutCancel(ctx), i, o) })
	return i, croft.Errorf(croft.Unavailable, "etcdserver: request timed out")
}

func (l *lateAssign) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	defer l.late()
	return l.schedulerSide.Release(ctx, id, may)
}

func TestAnOrderThatIsWrittenLateHasItsClaim(t *testing.T) {
	w, host := lone(t)
	side := &lateAssign{schedulerSide: &schedulerSide{w: w, gate: w.gate(0), Records: w.store.Instances,
		View: w.store.Instances, Registry: w.store.Registry, Groups: w.store.Groups, Claims: w.claims}}
	s, err := schedule.New(schedule.Config{Partition: w.store.Partition(), Records: side,
		Holds: w.store.Instances, View: side, Registry: side, Groups: side, Claims: side})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Request(t.Context(), schedule.Request{Query: query, Image: simulated, Name: "vm"})
	t.Logf("the request: %v", err)
	side.late()
	w.claimed(t, host)
}

func (w *world) machineOf(id croft.HostID) *machine {
	i := slices.IndexFunc(w.hosts, func(m *machine) bool { return m.id == id })
	return w.hosts[i]
}

// found returns an instance's current status.
func (w *world) found(t *testing.T, id croft.InstanceID) croft.Status {
	t.Helper()
	st, err := w.store.Instances.Find(t.Context(), croft.DefaultProject, string(id))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// runsOn reports whether an instance is on record, and observed running, on a host other than those in not.
func (w *world) runsOn(t *testing.T, id croft.InstanceID, not ...croft.HostID) bool {
	st := w.found(t, id)
	return !slices.Contains(not, st.Instance.Host) && st.Observation != nil &&
		st.Observation.State == croft.StateRunning
}

// empty drains a host and moves its instances away.
func (w *world) empty(t *testing.T, host croft.HostID) {
	t.Helper()
	err := w.operate(0, func(o *operator) error {
		h, err := o.Drain(t.Context(), string(host))
		if err != nil {
			return err
		}
		moved, err := o.MoveAll(t.Context(), h)
		for _, m := range moved {
			t.Logf("%s goes from %s to %s %s", m.Instance.Name, m.Instance.Host, m.To.ID, m.Stays)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// heldReclaim is an operator that is delayed before a claim first changes hosts.
type heldReclaim struct {
	*operatorSide
	hold func()
}

func (s *heldReclaim) Reclaim(ctx context.Context, had croft.Claim, p croft.Owner, c croft.Candidate) error {
	s.hold()
	return s.operatorSide.Reclaim(ctx, had, p, c)
}

// Two operators drain one host; the first is delayed with the record written and the claim unchanged.
func TestTwoMoversLeaveTheClaimWhereTheInstanceIs(t *testing.T) {
	for name, whole := range map[string]bool{"the second's move is over": true,
		"the second is held up as well": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 4, 0)
			inst := w.throwaway(t.Context())
			store := w.open()
			side := &heldReclaim{operatorSide: &operatorSide{w: w, gate: w.gate(0), hostBook: store.Registry,
				instanceBook: store.Instances, claimBook: w.claims}}
			side.hold = sync.OnceFunc(func() {
				if whole { // and moves elsewhere
					if err := store.Registry.Drain(t.Context(), w.found(t, inst.ID).Instance.Moving); err != nil {
						t.Error(err)
					}
					w.empty(t, inst.Host)
					w.await(t, "the second's move is over", func() bool { return w.runsOn(t, inst.ID, inst.Host) })
					return
				}
				now := w.found(t, inst.ID).Instance
				if _, err := store.Instances.SetMoving(t.Context(), now, now.Moving); err != nil {
					t.Error(err)
				}
			})
			o, err := hosts.New(hosts.Config{
				Partition: store.Partition(), Hosts: side, Members: store.Cluster, Instances: side,
				Orders: store.Orders, Claims: side,
			})
			if err != nil {
				t.Fatal(err)
			}
			h, err := o.Drain(t.Context(), string(inst.Host))
			if err != nil {
				t.Fatal(err)
			}
			moved, err := o.MoveAll(t.Context(), h)
			t.Logf("the first: %v %v", len(moved), err)
			now := w.found(t, inst.ID).Instance
			claims, err := w.claims.ClaimOf(t.Context(), inst.ID)
			at := now.Places()
			if err != nil || len(claims.Allocations) != 1 ||
				!slices.Contains(at, slices.Collect(maps.Keys(claims.Allocations))[0]) {
				t.Errorf("it is on %s and claims %v, %v", at, claims.Allocations, err)
			}
			w.settle()
		})
	}
}

func TestAnAuditBringsClaimsBackWhereTheyFit(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.throwaway(t.Context())
	other := w.hosts[1-w.machineOf(inst.Host).n].id
	on := func(hosts ...croft.HostID) croft.Candidate {
		c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{}}
		for _, h := range hosts {
			c.Allocations[h] = query.Total()
		}
		return c
	}
	mend := func() (errs []error) {
		err := w.operate(0, func(o *operator) error {
			report, err := o.Audit(t.Context())
			for _, d := range report.Differences {
				errs = append(errs, o.Mend(t.Context(), d))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return errs
	}
	for name, hosts := range map[string][]croft.HostID{"on the other host": {other}, "on both": {inst.Host, other},
		"nowhere": {}} {
		had, err := w.claims.ClaimOf(t.Context(), inst.ID)
		if err == nil {
			err = w.claims.Reclaim(t.Context(), had, w.owner(inst), on(hosts...))
		}
		if err != nil {
			t.Fatal(err)
		}
		if errs := mend(); len(errs) != 1 || errs[0] != nil {
			t.Errorf("a claim %s: mended with %v, want one thing that is mended", name, errs)
		}
		w.claimed(t, inst.Host)
		w.claimed(t, other)
	}
	release := func(id croft.InstanceID) {
		t.Helper()
		if err := w.claims.Release(t.Context(), id, croft.On()); err != nil && !errors.Is(err, croft.NotFound) {
			t.Fatal(err)
		}
	}
	// The caretakers of the hosts repair this, too: on a busy machine before the audit finds it.
	patient.Until(t, "a claim that does not fit is not brought back", func() bool {
		release(inst.ID)
		var errs []error
		for range 4 { // a host has capacity for four
			rival := croft.NewInstanceID()
			defer release(rival)
			errs = append(errs, w.claims.Claim(t.Context(), rival, w.owner(inst), on(inst.Host)))
		}
		if errors.Join(errs...) != nil {
			return false
		}
		lacks := audit.Difference{Kind: audit.MissingClaim, Host: inst.Host, Instance: inst.ID,
			Revision: w.found(t, inst.ID).Instance.Revision, Mendable: true}
		err := w.operate(0, func(o *operator) error { return o.Mend(t.Context(), lacks) })
		return errors.Is(err, croft.NoCapacity) && strings.Contains(err.Error(), "has no room for it any more")
	})
	mend()
	w.claimed(t, inst.Host)
	w.settle()
}

// The hypervisor of the first host is down while the instance is moved away, and moved again.
func TestMovesOneAfterTheOtherWaitForEveryHost(t *testing.T) {
	w := newWorld(t, 1, 3, 0)
	inst := w.throwaway(t.Context())
	first := w.machineOf(inst.Host)
	first.dead.Store(true)
	w.empty(t, first.id)
	second := w.machineOf(w.found(t, inst.ID).Instance.Host)
	w.empty(t, second.id)
	third := w.machineOf(w.found(t, inst.ID).Instance.Host)
	w.await(t, "the second has nothing of it", func() bool {
		_, err := w.store.Orders.Order(t.Context(), second.id, inst.ID)
		return errors.Is(err, croft.NotFound)
	})
	looked := func() int { return w.tally.counts()["crossed before hypervisor Get"] }
	before := looked()
	w.await(t, "the third has looked at it", func() bool { return third.runs(inst.ID) || looked() > before+10 })
	if second == first || third == first || !first.runs(inst.ID) || third.runs(inst.ID) {
		t.Errorf("moved by way of %d, %d and %d; it runs on the first: %v, on the last: %v", first.n, second.n, third.n,
			first.runs(inst.ID), third.runs(inst.ID))
	}
	first.dead.Store(false)
	w.await(t, "the third runs it", func() bool { return third.runs(inst.ID) })
	w.settle()
}

// A host dies for good after a move from it was ordered.
func TestAMoveFromAHostThatIsForgottenGoesOn(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.throwaway(t.Context())
	from := w.machineOf(inst.Host)
	from.dead.Store(true)
	w.empty(t, from.id)
	from.kill()
	from.expire()
	w.await(t, "the host is silent", func() bool {
		hosts, err := w.store.Registry.Hosts(t.Context(), from.id)
		return err == nil && !hosts[from.id].Alive
	})
	// the other one: it is unchecked
	if found := w.audit(t.Context()); len(found) < 2 || !strings.Contains(found[0], "croft host fence") {
		t.Errorf("the audit finds %q, want what the instance waits for", found)
	}
	forget := func(force bool) error {
		return w.operate(0, func(o *operator) error {
			_, err := o.Forget(t.Context(), string(from.id), force)
			return err
		})
	}
	if err := forget(false); !errors.Is(err, croft.Conflict) {
		t.Errorf("forgotten without force: %v", err)
	}
	if err := forget(true); err != nil {
		t.Fatal(err)
	}
	w.await(t, "it runs on the other host", func() bool { return w.runsOn(t, inst.ID, from.id) })
	from.dead.Store(false) // it returns, with its tombstone
	w.settle()
}
