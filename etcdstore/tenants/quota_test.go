package tenants_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
)

// asked returns an instance of a project in the form of a request.
func asked(project croft.Project, name string, vcpus int64) croft.Instance {
	inst := etcdtest.NewInstance(name)
	inst.Project, inst.Spec.Resources = project, croft.Resources{croft.VCPU: vcpus}
	return inst
}

// newProject creates a project with limits.
func newProject(t *testing.T, s *etcdstore.Store, name, parent croft.Project, limits tenant.Limits) tenant.Tenant {
	t.Helper()
	return etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: name, Parent: parent, Limits: limits}))(t)
}

// countsHold fails the test unless at every revision the counters equal the sums over the records.
func countsHold(t *testing.T, s *etcdstore.Store) {
	t.Helper()
	_, head, err := s.Projects.Owed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for revision := int64(2); revision <= head; revision++ {
		if found := etcdtest.Must(s.Projects.CheckAt(t.Context(), revision))(t); len(found) > 0 {
			t.Fatalf("at revision %d of %d: %+v", revision, head, found)
		}
	}
}

func used(t *testing.T, s *etcdstore.Store, name croft.Project) tenant.Amounts {
	t.Helper()
	return etcdtest.Must(s.Projects.Accounts(t.Context(), name))(t)[0].Used
}

func TestSixtyRequestsAgainstAQuotaOfTwenty(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	var stores []*etcdstore.Store
	for range 3 {
		stores = append(stores, etcdtest.Open(t, server))
	}
	newProject(t, stores[0], "web", "", tenant.Limits{tenant.CountInstances: 20})
	var made, refused atomic.Int64
	var work sync.WaitGroup
	for i := range 60 {
		work.Go(func() {
			_, err := stores[i%3].Instances.Create(t.Context(), asked("web", fmt.Sprintf("vm-%d", i), 1))
			if err == nil {
				made.Add(1)
				return
			}
			refusal, is := errors.AsType[*tenant.Refusal](err)
			want := &tenant.Refusal{Measure: tenant.CountInstances, Limit: 20, Used: 20, Requested: 1, Project: "web",
				Of: "web"}
			if croft.KindOf(err) != croft.OverQuota || !is || cmp.Diff(want, refusal) != "" {
				t.Errorf("refused with %v", err)
			}
			refused.Add(1)
		})
	}
	work.Wait()
	if made.Load() != 20 || refused.Load() != 40 {
		t.Errorf("%d made and %d refused, want 20 and 40", made.Load(), refused.Load())
	}
	countsHold(t, stores[0])
}

// Random requests and removals in a tree of projects, from several processes: no limit is ever exceeded, counters equal
// records at every revision, and the usage is zero in the end.
func TestCountersEqualRecordsAtEveryRevision(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	var stores []*etcdstore.Store
	for range 3 {
		stores = append(stores, etcdtest.Open(t, server))
	}
	newProject(t, stores[0], "org", "", tenant.Limits{"VCPU": 30})
	newProject(t, stores[0], "dev", "org", tenant.Limits{"VCPU": 20})
	newProject(t, stores[0], "ops", "org", nil)
	newProject(t, stores[0], "ci", "dev", tenant.Limits{tenant.CountInstances: 6})
	projects := []croft.Project{"org", "dev", "ops", "ci", "free"}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var work sync.WaitGroup
	for w := range 6 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			s := stores[w%3]
			var mine []croft.Instance
			for n := range 25 {
				if len(mine) > 0 && random.IntN(3) == 0 {
					i := random.IntN(len(mine))
					if err := s.Instances.Discard(t.Context(), mine[i]); err != nil {
						t.Error(err)
					}
					mine = append(mine[:i], mine[i+1:]...)
					continue
				}
				inst, err := s.Instances.Create(t.Context(), asked(projects[random.IntN(len(projects))],
					fmt.Sprintf("vm-%d-%d", w, n), 1+random.Int64N(4)))
				if err == nil {
					mine = append(mine, inst)
				} else if croft.KindOf(err) != croft.OverQuota {
					t.Error(err)
				}
			}
			for _, inst := range mine {
				if err := s.Instances.Discard(t.Context(), inst); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	countsHold(t, stores[0])
	for _, name := range projects {
		if left := used(t, stores[0], name); len(left) > 0 {
			t.Errorf("project %s has %s left", name, left)
		}
	}
	if owed, _, err := stores[0].Projects.Owed(t.Context()); owed > 0 || err != nil {
		t.Errorf("%d repayments are not settled by who reads the account, %v", owed, err)
	}
}

func TestWhatAChildUsesCountsForThoseAboveIt(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	newProject(t, s, "org", "", tenant.Limits{"VCPU": 4})
	newProject(t, s, "dev", "org", nil)
	newProject(t, s, "ops", "org", tenant.Limits{"VCPU": 3})
	first := etcdtest.Must(s.Instances.Create(t.Context(), asked("ops", "a", 3)))(t)
	_, err := s.Instances.Create(t.Context(), asked("ops", "b", 1))
	etcdtest.WantKind(t, err, croft.OverQuota)
	_, err = s.Instances.Create(t.Context(), asked("dev", "c", 2))
	refusal, _ := errors.AsType[*tenant.Refusal](err)
	want := &tenant.Refusal{Measure: "VCPU", Limit: 4, Used: 3, Requested: 2, Project: "org", Of: "dev"}
	if diff := cmp.Diff(want, refusal); diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	more := tenant.AmountsOf(asked("dev", "c", 2))
	asking, _ := errors.AsType[*tenant.Refusal](s.Projects.Admit(t.Context(), "dev", more))
	if diff := cmp.Diff(want, asking); diff != "" {
		t.Errorf("who only asks is told (-want +got):\n%s", diff)
	}
	if err := s.Instances.Discard(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.Projects.Admit(t.Context(), "dev", more); err != nil {
		t.Errorf("who asks after it was given back is told: %v", err)
	}
	// the room released by ops is available immediately
	etcdtest.Must(s.Instances.Create(t.Context(), asked("dev", "c", 2)))(t)
	if diff := cmp.Diff(tenant.Amounts{"VCPU": 2, tenant.CountInstances: 1}, used(t, s, "org")); diff != "" {
		t.Errorf("org uses (-want +got):\n%s", diff)
	}
	countsHold(t, s)
}

func TestALimitBelowUseRefusesGrowthAlone(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	p := newProject(t, s, "web", "", nil)
	a := etcdtest.Must(s.Instances.Create(t.Context(), asked("web", "a", 4)))(t)
	p.Limits = tenant.Limits{"VCPU": 2}
	p = etcdtest.Must(s.Projects.Change(t.Context(), p))(t)
	_, err := s.Instances.Create(t.Context(), asked("web", "b", 1))
	etcdtest.WantKind(t, err, croft.OverQuota)
	// a request without VCPUs is not refused
	etcdtest.Must(s.Instances.Create(t.Context(), asked("web", "none", 0)))(t)
	if err := s.Instances.Discard(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	etcdtest.Must(s.Instances.Create(t.Context(), asked("web", "b", 2)))(t)
	stale := p
	stale.Generation--
	_, err = s.Projects.Change(t.Context(), stale)
	etcdtest.WantKind(t, err, croft.Conflict)
}

func TestTheDefaultOfThePartitionHoldsForEveryProject(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	d := etcdtest.Must(s.Projects.SetDefaults(t.Context(), tenant.Defaults{Limits: tenant.Limits{"VCPU": 1}}))(t)
	newProject(t, s, "big", "", tenant.Limits{"VCPU": tenant.Unlimited})
	etcdtest.Must(s.Instances.Create(t.Context(), asked("big", "a", 9)))(t)
	_, err := s.Instances.Create(t.Context(), asked("free", "a", 2))
	etcdtest.WantKind(t, err, croft.OverQuota)
	d.Limits = nil
	etcdtest.Must(s.Projects.SetDefaults(t.Context(), d))(t)
	etcdtest.Must(s.Instances.Create(t.Context(), asked("free", "a", 2)))(t)
	_, err = s.Projects.SetDefaults(t.Context(), d)
	etcdtest.WantKind(t, err, croft.Conflict)
}

func TestATakenNameStopsNobodyElse(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	taken := etcdtest.Must(other.Instances.Create(t.Context(), asked("web", "taken", 1)))(t)
	var work sync.WaitGroup
	var made, conflicts atomic.Int64
	for i := range 40 {
		work.Go(func() {
			inst := asked("web", fmt.Sprintf("vm-%d", i/2), 1) // each name twice
			switch i {
			case 0:
				inst.Name = "taken"
			case 2:
				inst.ID = taken.ID
			}
			_, err := s.Instances.Create(t.Context(), inst)
			switch croft.KindOf(err) {
			case "":
				made.Add(1)
			case croft.Conflict:
				conflicts.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	work.Wait()
	if made.Load() != 20 || conflicts.Load() != 20 {
		t.Errorf("%d made, %d refused, want 20 each", made.Load(), conflicts.Load())
	}
	if diff := cmp.Diff(tenant.Amounts{"VCPU": 21, tenant.CountInstances: 21}, used(t, s, "web")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	countsHold(t, s)
}

func TestProjectsAreATree(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	etcdtest.Must(s.Instances.Create(t.Context(), asked("old", "a", 1)))(t)
	newProject(t, s, "org", "", nil)
	dev := newProject(t, s, "dev", "org", nil)
	for _, c := range []struct {
		name string
		make tenant.Tenant
		want croft.Kind
	}{
		{"a name in use becomes a root", tenant.Tenant{Name: "old"}, ""},
		{"a name twice", tenant.Tenant{Name: "org"}, croft.Conflict},
		{"a parent that is not there", tenant.Tenant{Name: "x", Parent: "y"}, croft.NotFound},
		{"its own parent", tenant.Tenant{Name: "x", Parent: "x"}, croft.Invalid},
		{"a name with a slash", tenant.Tenant{Name: "a/b"}, croft.Invalid},
		{"a limit below nothing", tenant.Tenant{Name: "x", Limits: tenant.Limits{"VCPU": -2}}, croft.Invalid},
		{"a limit of nothing known", tenant.Tenant{Name: "x", Limits: tenant.Limits{"vcpu": 1}}, croft.Invalid},
		{"a role that no project has", tenant.Tenant{Name: "x",
			Members: map[string]access.Role{"ann": access.PartitionAdmin}}, croft.Invalid},
	} {
		_, err := s.Projects.Create(t.Context(), c.make)
		if croft.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	etcdtest.Must(s.Instances.Create(t.Context(), asked("busy", "a", 1)))(t)
	_, err := s.Projects.Create(t.Context(), tenant.Tenant{Name: "busy", Parent: "org"})
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantKind(t, s.Projects.Remove(t.Context(), "org"), croft.Conflict)
	a := etcdtest.Must(s.Instances.Create(t.Context(), asked("dev", "a", 1)))(t)
	etcdtest.WantKind(t, s.Projects.Remove(t.Context(), "dev"), croft.Conflict)
	if err := s.Instances.Discard(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	for _, name := range []croft.Project{"dev", "org"} {
		if err := s.Projects.Remove(t.Context(), name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	etcdtest.WantKind(t, s.Projects.Remove(t.Context(), "dev"), croft.NotFound)
	_, err = s.Projects.Change(t.Context(), dev)
	etcdtest.WantKind(t, err, croft.NotFound)
	list := etcdtest.Must(s.Projects.List(t.Context(), access.Everything()))(t)
	if len(list) != 1 || list[0].Name != "old" || list[0].Generation == 0 {
		t.Errorf("left: %+v", list)
	}
	if hidden := etcdtest.Must(s.Projects.List(t.Context(), access.Within("org")))(t); len(hidden) != 0 {
		t.Errorf("somebody else's project is seen: %+v", hidden)
	}
}

// A counter that was modified, or that an older version did not maintain, is found and counted again.
func TestACountThatIsWrongIsFoundAndMended(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	a := etcdtest.Must(s.Instances.Create(t.Context(), asked("web", "a", 2)))(t)
	etcdtest.Must(s.Instances.Create(t.Context(), asked("web", "b", 1)))(t)
	if err := etcdtest.Put(t.Context(), server.Endpoint(), s.Partition(), "quota/used/web",
		`{"used":{"VCPU":7},"ready":true}`); err != nil {
		t.Fatal(err)
	}
	if err := s.Instances.Discard(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want := []tenant.Discrepancy{{Project: "web", Counted: tenant.Amounts{"VCPU": 5, tenant.CountInstances: -1},
		Records: tenant.Amounts{"VCPU": 1, tenant.CountInstances: 1}}}
	if diff := cmp.Diff(want, etcdtest.Must(s.Projects.Check(t.Context()))(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := s.Projects.Recount(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if left := etcdtest.Must(s.Projects.Check(t.Context()))(t); len(left) > 0 {
		t.Errorf("after the count: %+v", left)
	}
	if diff := cmp.Diff(want[0].Records, used(t, s, "web")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Reductions by an earlier instance with the same ID are settled before the ID is charged again.
func TestAnIDThatComesBackIsChargedEachTime(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	stores := []*etcdstore.Store{etcdtest.Open(t, server), etcdtest.Open(t, server)}
	inst := asked("web", "again", 3)
	for i := range 4 {
		var work sync.WaitGroup
		for n := range 6 { // so that some are charged by entries
			work.Go(func() {
				one := asked("web", fmt.Sprintf("vm-%d-%d", i, n), 1)
				etcdtest.Must(stores[n%2].Instances.Create(t.Context(), one))(t)
			})
		}
		made := etcdtest.Must(stores[i%2].Instances.Create(t.Context(), inst))(t)
		work.Wait()
		if err := stores[1-i%2].Instances.Discard(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(tenant.Amounts{"VCPU": 24, tenant.CountInstances: 24}, used(t, stores[0], "web")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	countsHold(t, stores[0])
}

func TestNothingIsStoredForWhatIsNotTheNameOfAProject(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	for _, name := range []croft.Project{"a\x00\x1b[2J/../\u202e", "a/b", croft.Project(strings.Repeat("x", 64))} {
		etcdtest.WantKind(t, s.Projects.Admit(t.Context(), name, tenant.Amounts{"VCPU": 1}), croft.Invalid)
		etcdtest.WantKind(t, s.SSHKeys.AddKey(t.Context(), schedule.Key{Project: name, Name: "k"}), croft.Invalid)
	}
	etcdtest.CheckDump(t, server.Endpoint())
}
