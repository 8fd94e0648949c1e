package pool_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/pool"
	"croft/tenant"
)

// limits are the quotas of a test, in which each project is below org.
type limits struct {
	mu sync.Mutex
	of map[croft.Project]tenant.Limits
}

func (l *limits) Limits(_ context.Context, p croft.Project) ([]tenant.Account, tenant.Limits, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return []tenant.Account{{Project: p, Limits: l.of[p]}, {Project: "org", Limits: l.of["org"]}}, nil, nil
}

func (l *limits) set(p croft.Project, m tenant.Measure, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[croft.Project]tenant.Limits{}
	}
	l.of[p] = tenant.Limits{m: n}
}

// withQuotas is like with, for a manager that knows quotas. again replaces the manager by the next one on the same
// store.
func withQuotas(t *testing.T, pools string, q *limits, test func(w *world, again func())) {
	t.Helper()
	with(t, "", func(w *world) {
		again := func() {
			w.stop()
			c := w.config("next")
			c.Quotas = q
			w.Manager, w.stop = w.serverOf(c)
			time.Sleep(20 * time.Second)
		}
		w.write(pools)
		again()
		test(w, again)
	})
}

const fourPools = `
mine:
  project: dev
  cmd_new: n
  cmd_delete: d
  tags: [a]
  max: 3
theirs:
  project: ops
  cmd_new: n
  cmd_delete: d
  tags: [a, secret]
all:
  shared: true
  cmd_new: n
  cmd_delete: d
  tags: [b]
nobodys:
  cmd_new: n
  cmd_delete: d
  tags: [a, c]
`

func TestTicketsOfAProjectGetWhatIsItsOwnOrShared(t *testing.T) {
	withQuotas(t, fourPools, &limits{}, func(w *world, _ func()) {
		for range 5 { // more than it has
			st := w.open(pool.Opening{Tags: []string{"a"}, Project: "dev"})
			if st.Has != nil && st.Has.Pool != "mine" || st.Never {
				w.Errorf("got %+v", st)
			}
			if strings.Contains(st.Waits, "theirs") || strings.Contains(st.Waits, "nobodys") {
				w.Errorf("says %q", st.Waits)
			}
		}
		if st := w.open(pool.Opening{Tags: []string{"b"}, Project: "dev"}); st.Has == nil || st.Has.Pool != "all" {
			w.Errorf("of what all share, got %+v", st)
		}
		for _, tag := range []string{"c", "secret"} {
			st := w.open(pool.Opening{Tags: []string{tag}, Project: "dev"})
			if !st.Never || !strings.HasPrefix(st.Waits, "no pool has the tag "+tag) {
				w.Errorf("of what is not there for it, got %+v", st)
			}
		}
		if st := w.open(pool.Opening{Tags: []string{"secret"}}); st.Has == nil || st.Has.Pool != "theirs" {
			w.Errorf("a client of the manager got %+v", st)
		}
	})
}

func TestSandboxesAndKeysBelongToTheProject(t *testing.T) {
	const reused = `
p:
  shared: true
  cmd_new: n
  cmd_delete: d
  tags: [a]
  max: 2
  reuse_opportunity_time: 600
`
	withQuotas(t, reused, &limits{}, func(w *world, _ func()) {
		open := func(p croft.Project, owner, key string) pool.TicketStatus {
			return w.open(pool.Opening{Tags: []string{"a"}, Sandbox: "s", Project: p, Owner: owner, Key: key})
		}
		first := open("dev", "ann", "k")
		if again := open("dev", "bob", "k"); again.ID != first.ID {
			w.Errorf("with the same key, got ticket %d", again.ID)
		}
		if err := w.Close(w.Context(), first.ID); err != nil {
			w.Fatal(err)
		}
		synctest.Wait()
		if other := open("ops", "ann", "k"); other.ID == first.ID || other.Resource == first.Resource {
			w.Errorf("another project got ticket %d and resource %d", other.ID, other.Resource)
		}
		if mine := open("dev", "bob", "l"); mine.Resource != first.Resource {
			w.Errorf("the project got resource %d, want its own %d", mine.Resource, first.Resource)
		}
	})
}

func TestAQuotaOfTickets(t *testing.T) {
	q := &limits{}
	q.set("org", tenant.CountTickets, 3)
	withQuotas(t, fourPools, q, func(w *world, again func()) {
		var ids []pool.TicketID
		for _, p := range []croft.Project{"dev", "ops", "dev"} {
			ids = append(ids, w.open(pool.Opening{Tags: []string{"a"}, Project: p, Key: string(p)}).ID)
		}
		ids = append(ids, w.open(pool.Opening{Tags: []string{"a"}, Project: "ops", Key: "x"}).ID)
		if ids[0] != ids[2] {
			w.Errorf("the tickets %v: the third is the first, by its key", ids)
		}
		refused := func() {
			w.Helper()
			_, err := w.Open(w.Context(), pool.Opening{Tags: []string{"a"}, Project: "dev"})
			refusal, _ := errors.AsType[*tenant.Refusal](err)
			want := &tenant.Refusal{Measure: tenant.CountTickets, Limit: 3, Used: 3, Requested: 1, Project: "org",
				Of: "dev"}
			if diff := cmp.Diff(want, refusal); diff != "" || croft.KindOf(err) != croft.OverQuota {
				w.Errorf("%v (-want +got):\n%s", err, diff)
			}
		}
		refused()
		w.open(pool.Opening{Tags: []string{"a"}}) // for no project
		again()                                   // the next server gives the same result
		refused()
		if err := w.Close(w.Context(), ids[1]); err != nil {
			w.Fatal(err)
		}
		st := w.open(pool.Opening{Tags: []string{"a"}, Project: "dev"})
		if st.ID != ids[3]+2 {
			w.Errorf("ticket %d after %v: what is refused takes no number", st.ID, ids)
		}
	})
}

func TestAQuotaOfPools(t *testing.T) {
	q := &limits{}
	q.set("org", tenant.CountPools, 1)
	const first = "mine:\n  project: dev\n  cmd_new: n\n  cmd_delete: d\n"
	withQuotas(t, first, q, func(w *world, again func()) {
		names := func() (all []string) {
			pools, err := w.Pools()
			if err != nil {
				w.Fatal(err)
			}
			for _, p := range pools {
				all = append(all, string(p.Name()))
			}
			return all
		}
		w.write(fourPools)
		time.Sleep(3 * time.Second)
		wantKind(w.T, w.Fault(), croft.OverQuota, "pool theirs: the quota of project org is pools:1, of which 1 is used")
		again() // the next server finds the same
		if diff := cmp.Diff([]string{"mine"}, names()); diff != "" {
			w.Errorf("in spite of the quota (-want +got):\n%s", diff)
		}
		q.set("org", tenant.CountPools, 2)
		time.Sleep(10 * time.Second) // the file is unchanged meanwhile
		if diff := cmp.Diff([]string{"mine", "theirs", "all", "nobodys"}, names()); diff != "" || w.Fault() != nil {
			w.Errorf("%v (-want +got):\n%s", w.Fault(), diff)
		}
	})
}

func TestThePoolOfAProject(t *testing.T) {
	const instance = "  instance: {resources: 'VCPU:1', project: lab}\n"
	for _, c := range []struct {
		name, text, says string
		project          croft.Project
		shared           bool
	}{
		{"a pool of commands", required + "  project: lab\n", "", "lab", false},
		{"a pool for all", required + "  shared: true\n", "", "", true},
		{"a pool of instances is that of their project", instance, "", "lab", false},
		{"the project of a pool is that of its instances", "  project: lab\n  instance: {resources: 'VCPU:1'}\n", "",
			"lab", false},
		{"two projects", "  project: dev\n" + instance, "project is dev and its instances are lab's", "", false},
		{"no name of a project", required + "  project: a/b\n", "pools.yaml:4: pool p: project", "", false},
		{"a list of projects", required + "  project: [lab]\n", "want the name of a project", "", false},
		{"shared perhaps", required + "  shared: perhaps\n", "want true or false", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := pool.Parse("pools.yaml", []byte("p:\n"+c.text), func(pool.Instance) error { return nil }, nil)
			if c.says != "" {
				wantKind(t, err, croft.Invalid, c.says)
				return
			}
			if err != nil || all[0].Project != c.project || all[0].Shared != c.shared ||
				all[0].Instance != nil && all[0].Instance.Project != string(c.project) {
				t.Errorf("got %+v, %v", all, err)
			}
		})
	}
}
