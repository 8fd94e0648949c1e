package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/internal/hostkey"
	"croft/placement/ledger"
	"croft/schedule"
	"croft/tenant"
)

// placing is a store with a ledger and one live host that has 40 VCPU.
type placing struct {
	*fixture
	ledger *ledger.Ledger
	placer *etcdstore.Placer
}

func newPlacing(t *testing.T) *placing {
	t.Helper()
	p := &placing{fixture: newFixture(t)}
	p.ledger, p.placer = placer(t, p.Store)
	offer(t, p.ledger, p.host, 40)
	return p
}

// placer returns a loaded ledger over a store, and a Placer through it. The ledger makes no writes of its own.
func placer(t *testing.T, s *etcdstore.Store) (*ledger.Ledger, *etcdstore.Placer) {
	t.Helper()
	l := etcdtest.Must(ledger.New(ledger.Config{Store: s.Placement(0), Log: slog.New(slog.DiscardHandler),
		Beat: time.Hour, Tidy: time.Hour, Patience: 20 * time.Second}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() { cancel(); run.Wait() })
	if err := l.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, s.NewPlacer(l)
}

// offer creates the provider of a host.
func offer(t *testing.T, l *ledger.Ledger, host croft.HostID, vcpus int64) {
	t.Helper()
	if err := l.Change(t.Context(), func(tx *ledger.Tx) error {
		if _, _, err := tx.CreateProvider(string(host), string(host), ""); err != nil {
			return err
		}
		_, err := tx.CreateInventory(string(host), ledger.InventorySpec{Name: "VCPU", Inventory: ledger.Inventory{
			Total: vcpus, MinUnit: 1, MaxUnit: vcpus, StepSize: 1, Ratio: 1}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// wanted returns an instance to place.
func wanted(t *testing.T, name string) croft.Instance {
	t.Helper()
	inst := etcdtest.NewInstance(name)
	inst.Spec.HostKey, inst.Spec.UserData = etcdtest.Must(hostkey.New())(t), nil
	inst.Spec.Resources = croft.Resources{croft.VCPU: 1}
	return inst
}

// place places an instance on the fixture's host.
func (p *placing) place(ctx context.Context, by *etcdstore.Placer, inst croft.Instance) (croft.Instance, error) {
	c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.host: inst.Spec.Resources}}
	return by.Place(ctx, inst, schedule.NewOrder(p.Partition(), inst, p.host, croft.WantRunning), c)
}

// used returns the amount claimed from the fixture's host.
func (p *placing) used(t *testing.T) (n int64) {
	t.Helper()
	if err := p.ledger.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.ledger.View(func(s *ledger.State) error {
		found := etcdtest.Must(s.FindProvider(string(p.host)))(t)
		for _, inv := range found.Inventories {
			n += found.Used(inv.Class)
		}
		return nil
	})
	return n
}

// whole asserts that instances, claims and charges agree, and that n instances are placed.
func (p *placing) whole(t *testing.T, n int) {
	t.Helper()
	b := etcdtest.Must(p.Records.Evidence(t.Context()))(t)
	placed := 0
	for _, inst := range b.Instances {
		if inst.State != croft.StateScheduled {
			continue
		}
		placed++
		o := etcdtest.Must(p.Orders.Order(t.Context(), inst.Host, inst.ID))(t)
		st := etcdtest.Must(p.Instances.Find(t.Context(), inst.Project, inst.Name))(t)
		if o.Want != croft.WantRunning || st.Instance.ID != inst.ID || inst.Session != "" {
			t.Errorf("order %+v, record %+v", o, st.Instance)
		}
	}
	if placed != n || p.used(t) != int64(n) || len(b.Orders) != n {
		t.Errorf("%d instances are placed, %d VCPU claimed and %d orders written, want %d", placed, p.used(t),
			len(b.Orders), n)
	}
	if wrong := etcdtest.Must(p.Projects.Check(t.Context()))(t); len(wrong) > 0 {
		t.Errorf("what is charged: %+v", wrong)
	}
}

func TestAnInstanceIsPlacedInOneTransaction(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t) // creates the session, and reads the quota
	inst := wanted(t, "db")
	inst.Spec.UserData = []byte("#cloud-config")
	placed := etcdtest.Must(p.place(t.Context(), p.placer, inst))(t)
	st := etcdtest.Must(p.Instances.Find(t.Context(), inst.Project, "db"))(t)
	o := etcdtest.Must(p.Orders.Order(t.Context(), p.host, inst.ID))(t)
	if placed.State != croft.StateScheduled || placed.Host != p.host || placed.Generation != 1 ||
		st.Instance.Revision != placed.Revision || o.Revision != placed.Revision ||
		string(o.Spec.UserData) != "#cloud-config" {
		t.Errorf("placed %+v, found %+v, ordered %+v", placed, st.Instance, o)
	}
	p.whole(t, 2)
}

func TestWhatIsTakenIsRefusedAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	had := etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "db")))(t)
	_, err := p.place(t.Context(), p.placer, wanted(t, "db"))
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantSays(t, err.Error(), "the name db is taken by instance "+string(had.ID))
	_, err = p.place(t.Context(), p.placer, wanted(t, "web")) // the fixture's instance, which only has a record
	etcdtest.WantKind(t, err, croft.Conflict)
	again := wanted(t, "other")
	again.ID = had.ID
	_, err = p.place(t.Context(), p.placer, again)
	etcdtest.WantKind(t, err, croft.Conflict)
	again.ID = p.inst.ID
	_, err = p.place(t.Context(), p.placer, again)
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantSays(t, err.Error(), "there is an instance "+string(p.inst.ID))
	large := wanted(t, "large")
	large.Spec.Resources = croft.Resources{croft.VCPU: 40}
	if _, err = p.place(t.Context(), p.placer, large); !errors.Is(err, schedule.ErrFull) {
		t.Errorf("a host that is full: %v", err)
	}
	etcdtest.WantKind(t, err, croft.NoCapacity)
	p.whole(t, 1)
}

func TestRequestsOfOneTransactionThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	id := croft.NewInstanceID()
	for name, c := range map[string]struct {
		change func(i int, inst *croft.Instance)
		placed int
		kind   croft.Kind
	}{
		"by their name": {func(_ int, inst *croft.Instance) { inst.Name = "db" }, 1, croft.Conflict},
		"by their UUID": {func(_ int, inst *croft.Instance) { inst.ID = id }, 1, croft.Conflict},
		"by a group": {func(_ int, inst *croft.Instance) {
			inst.Spec.Affinities = []croft.Affinity{{Group: "g", Rule: croft.Apart}}
		}, 1, croft.NoCapacity},
		"by their address": {func(_ int, inst *croft.Instance) { inst.Spec.FixedAddress = "10.0.0.9" }, 1,
			croft.NoCapacity},
		"by the rules of a group": {func(i int, inst *croft.Instance) {
			rules := []croft.AffinityRule{croft.ApartSoft, croft.TogetherSoft}
			inst.Spec.Affinities = []croft.Affinity{{Group: "g", Rule: rules[i%2]}}
		}, 3, croft.Conflict},
		"by the seats of a rack": {func(_ int, inst *croft.Instance) {
			const rule = "at-most-4-per-rack"
			inst.Spec.Affinities = []croft.Affinity{{Group: "g", Rule: rule}}
			inst.Seats = []croft.Seat{{Group: "g", Clause: rule, Location: "s/r/k", Number: 1}}
		}, 4, croft.NoCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlacing(t)
			etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
			var placed atomic.Int64
			var work sync.WaitGroup
			for i := range 6 {
				inst := wanted(t, fmt.Sprintf("vm-%d", i))
				c.change(i, &inst)
				work.Go(func() {
					_, err := p.place(t.Context(), p.placer, inst)
					if err == nil {
						placed.Add(1)
					} else if croft.KindOf(err) != c.kind || errors.Is(err, schedule.ErrFull) {
						t.Errorf("refused with %v", err)
					}
				})
			}
			work.Wait()
			if placed.Load() != int64(c.placed) {
				t.Errorf("%d are placed, want %d", placed.Load(), c.placed)
			}
			p.whole(t, c.placed+1)
		})
	}
}

func TestAHostThatClosesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]func(*testing.T, *placing, croft.Instance){
		"drained": func(t *testing.T, p *placing, _ croft.Instance) {
			if err := p.Registry.Drain(t.Context(), p.host); err != nil {
				t.Error(err)
			}
		},
		"with an older order": func(t *testing.T, p *placing, inst croft.Instance) {
			etcdtest.Must(p.place(t.Context(), p.placer, inst))(t)
			inst = etcdtest.Must(p.Instances.Instance(t.Context(), inst.ID))(t)
			o := schedule.NewOrder(p.Partition(), inst, p.host, croft.WantGone)
			if err := p.Instances.Bury(t.Context(), inst, o); err != nil {
				t.Error(err)
			}
			if err := p.ledger.Change(t.Context(), func(tx *ledger.Tx) error {
				return tx.Release(string(inst.ID))
			}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlacing(t)
			inst := wanted(t, "db")
			closes(t, p, inst)
			if _, err := p.place(t.Context(), p.placer, inst); !errors.Is(err, schedule.ErrClosed) {
				t.Errorf("refused with %v", err)
			}
			if n := p.used(t); n != 0 {
				t.Errorf("%d VCPU are claimed", n)
			}
		})
	}
}

func TestAQuotaLetsExactlyItsLimitThroughManyPlacers(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	for _, one := range []tenant.Tenant{
		{Name: "org", Limits: tenant.Limits{tenant.CountInstances: 20}}, {Name: "web", Parent: "org"},
		{Name: "db", Parent: "org", Limits: tenant.Limits{tenant.CountInstances: 15}},
	} {
		etcdtest.Must(p.Projects.Create(t.Context(), one))(t)
	}
	other := etcdtest.Open(t, p.server)
	_, second := placer(t, other)
	placers := []*etcdstore.Placer{p.placer, second}
	var placed, refused atomic.Int64
	var work sync.WaitGroup
	for i := range 60 {
		inst := wanted(t, fmt.Sprintf("vm-%d", i))
		inst.Project = []croft.Project{"web", "db"}[i/2%2]
		work.Go(func() {
			var err error
			if i%5 == 4 { // concurrently with requests in three steps
				_, err = other.Instances.Create(t.Context(), inst)
			} else {
				_, err = p.place(t.Context(), placers[i%2], inst)
			}
			if err == nil {
				placed.Add(1)
				return
			}
			if refusal, is := errors.AsType[*tenant.Refusal](err); croft.KindOf(err) != croft.OverQuota || !is ||
				refusal.Used != refusal.Limit {
				t.Errorf("refused with %v", err)
			}
			refused.Add(1)
		})
	}
	work.Wait()
	if placed.Load() != 20 || refused.Load() != 40 {
		t.Errorf("%d placed and %d refused, want 20 and 40", placed.Load(), refused.Load())
	}
	if wrong := etcdtest.Must(p.Projects.Check(t.Context()))(t); len(wrong) > 0 {
		t.Errorf("what is charged: %+v", wrong)
	}
}

func TestAnotherLedgerWasFaster(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
	_, second := placer(t, etcdtest.Open(t, p.server))
	p.BeforeTxn(func() { etcdtest.Must(p.place(t.Context(), second, wanted(t, "faster")))(t) })
	etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "slower")))(t)
	if p.ledger.Conflicts() == 0 {
		t.Error("no transaction was tried again")
	}
	p.whole(t, 3)
}

func TestATransactionOfUnknownOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	t.Run("it was done", func(t *testing.T) {
		t.Parallel()
		p := newPlacing(t)
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
		p.LoseAnswer()
		inst := etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "db")))(t)
		if inst.State != croft.StateScheduled || inst.Revision == 0 {
			t.Errorf("got %+v", inst)
		}
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "next")))(t)
		p.whole(t, 3)
	})
	t.Run("it was sent twice", func(t *testing.T) {
		t.Parallel()
		p := newPlacing(t)
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
		p.SendTwice()
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "db")))(t)
		p.whole(t, 2)
	})
	t.Run("it comes later", func(t *testing.T) {
		t.Parallel()
		p := newPlacing(t)
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
		release := p.HoldTxns(1)
		inst := wanted(t, "db")
		_, err := p.place(t.Context(), p.placer, inst)
		etcdtest.WantKind(t, err, croft.Unavailable)
		etcdtest.WantSays(t, err.Error(), "nothing was written")
		if release() {
			t.Error("it was done after it had been given up")
		}
		p.whole(t, 1)
		etcdtest.Must(p.place(t.Context(), p.placer, inst))(t)
		p.whole(t, 2)
	})
	t.Run("nobody can tell", func(t *testing.T) {
		t.Parallel()
		p := newPlacing(t)
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
		p.HoldTxns(2) // the fence fails too
		_, err := p.place(t.Context(), p.placer, wanted(t, "db"))
		etcdtest.WantKind(t, err, croft.Unavailable)
		etcdtest.WantSays(t, err.Error(), "whether it was done is not known")
		etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "next")))(t)
		p.whole(t, 2)
	})
}

// A process that was suspended past its lease creates another session and continues.
func TestASessionThatIsGoneIsBegunAgain(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
	etcd := etcdtest.Client(t, p.server, etcdstore.Credentials{})
	for session := range etcdtest.Must(p.Records.Evidence(t.Context()))(t).Sessions {
		etcdtest.Must(etcd.Delete(t.Context(), "/croft/"+string(p.Partition())+"/sessions/"+session))(t)
	}
	etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "db")))(t)
	p.whole(t, 2)
}

// Entries of an earlier instance are counted before another instance with its UUID is charged.
func TestAnInstanceThatFollowsAnotherOfItsUUID(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	inst := etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
	if err := p.Instances.Bury(t.Context(), inst, croft.Order{}); err != nil {
		t.Fatal(err)
	}
	o := etcdtest.Must(p.Orders.Order(t.Context(), p.host, inst.ID))(t)
	if err := p.Records.Drop(t.Context(), audit.Difference{Kind: audit.LostOrder, Host: o.Host,
		Instance: o.Instance, Revision: o.Revision}); err != nil {
		t.Fatal(err)
	}
	if err := p.ledger.Change(t.Context(), func(tx *ledger.Tx) error {
		return tx.Release(string(inst.ID))
	}); err != nil {
		t.Fatal(err)
	}
	next := wanted(t, "second")
	next.ID = inst.ID
	etcdtest.Must(p.place(t.Context(), p.placer, next))(t)
	p.whole(t, 1)
}

// Many requests at once need far fewer transactions than there are requests.
func TestRequestsShareTransactions(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	first := etcdtest.Must(p.place(t.Context(), p.placer, wanted(t, "first")))(t)
	var work sync.WaitGroup
	revisions := make([]int64, 30)
	p.BeforeTxn(func() { time.Sleep(100 * time.Millisecond) }) // the others arrive meanwhile
	for i := range revisions {
		inst := wanted(t, fmt.Sprintf("vm-%d", i))
		work.Go(func() {
			placed, err := p.place(t.Context(), p.placer, inst)
			if err != nil {
				t.Error(err)
			}
			revisions[i] = placed.Revision
		})
	}
	work.Wait()
	slices.Sort(revisions)
	if n := len(slices.Compact(revisions)); n > 10 || revisions[0] <= first.Revision {
		t.Errorf("%d transactions for 30 requests", n)
	}
	p.whole(t, 31)
}

// Without limits, requests of many projects through several ledgers do not wait long for each other's counters.
func TestManyProjectsThroughTwoLedgers(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	more := croft.NewHostID()
	if err := p.Registry.PutHost(t.Context(), croft.Host{ID: more, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	p.live(t, more)
	p.host = more
	offer(t, p.ledger, more, 1000)
	_, second := placer(t, etcdtest.Open(t, p.server))
	placers := []*etcdstore.Placer{p.placer, second}
	var work sync.WaitGroup
	for i := range 120 {
		inst := wanted(t, fmt.Sprintf("vm-%d", i))
		inst.Project = croft.Project(fmt.Sprintf("project-%d", i%8))
		work.Go(func() {
			if _, err := p.place(t.Context(), placers[i/8%2], inst); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	p.whole(t, 120)
}
