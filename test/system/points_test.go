package system

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/internal/testing/sample"
	"croft/schedule"
)

// sampled is the number of crossings per tried crossing, unless CROFT_SOAK requests all.
const sampled = 5

// tellings is how often a story is repeated until a process dies: the crossings depend slightly on timing.
const tellings = 3

// byChance lists crossings that do not occur in every story: a request is discarded only if Placement, which is killed
// when the story starts, is not back at the first request; and which scheduler works in one step depends on how many
// there were before.
var byChance = []string{"scheduler Discard", "scheduler Place"}

// TestKilledAtEveryCrossing finds every crossing between two parts in a long story, then repeats the story once per
// crossing, with the first process there killed at it. A story takes seconds, so one run tries every fifth
// crossing, from a random one on, and make soak tries all.
func TestKilledAtEveryCrossing(t *testing.T) {
	var crossings []string
	t.Run("nobody is killed", func(t *testing.T) {
		for what := range tell(t, "").tally.counts() {
			if crossing, ok := strings.CutPrefix(what, "crossed "); ok {
				crossings = append(crossings, crossing)
			}
		}
	})
	slices.Sort(crossings)
	for _, part := range []string{"agent", "hypervisor", "scheduler", "operator", "placement"} {
		n := 0
		for _, c := range crossings {
			if strings.Contains(c, " "+part+" ") {
				n++
			}
		}
		t.Logf("%d crossings of the %s", n, part)
		if n < 10 {
			t.Errorf("the story has only %d crossings of the %s", n, part)
		}
	}
	crossings = sample.OneIn(t, sampled, crossings)
	var killing sync.WaitGroup
	free := make(chan struct{}, 8) // a story mostly waits
	for _, crossing := range crossings {
		free <- struct{}{}
		killing.Go(func() {
			defer func() { <-free }()
			t.Run(crossing, func(t *testing.T) {
				for range tellings {
					if tell(t, crossing).tally.counts()["died "+crossing] > 0 {
						return
					}
				}
				if _, point, _ := strings.Cut(crossing, " "); !slices.Contains(byChance, point) {
					t.Errorf("nobody died in %d stories", tellings)
				}
			})
		})
	}
	killing.Wait()
}

// tell plays a story in which every action of hosts, users and operators happens once. Processes that die are
// restarted, and failed requests are repeated.
func tell(t *testing.T, fatal string) *world {
	w := newWorld(t, 1, 3, 0)
	w.tally.kill(fatal)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // not a performance requirement
	s := &story{world: w, t: t}
	var reviving sync.WaitGroup
	reviving.Go(func() { s.revive(ctx) })
	defer reviving.Wait()
	defer cancel()
	s.hand.Lock()
	w.hosts[0].leave() // so the first steps of its next agent are in the story too
	w.hosts[0].boot(0)
	s.hand.Unlock()
	w.killPlacement()

	s.create(ctx)
	s.turn(ctx, "stop", schedule.Stopped, (*schedule.Scheduler).Stop)
	s.turn(ctx, "start", schedule.Running, (*schedule.Scheduler).Start)
	s.turn(ctx, "reboot", schedule.Running, (*schedule.Scheduler).Reboot)
	s.turn(ctx, "cut the power", schedule.Stopped, (*schedule.Scheduler).PowerOff)
	s.turn(ctx, "rebuild", schedule.Running, (*schedule.Scheduler).Rebuild)

	// A command that dies leaves a record, and an operator's mistake a name: agents remove both.
	_ = w.scheduler(2, func(sch *schedule.Scheduler) error {
		_, err := s.request(ctx, sch, "orphan")
		return err
	})
	if err := etcdtest.Put(ctx, w.etcd.Endpoint(), w.store.Partition(), "names/default/lost",
		string(croft.NewInstanceID())); err != nil {
		t.Fatal(err)
	}

	s.mendNames(ctx)
	s.operate(ctx, "move", func(o *operator) error {
		st, err := w.store.Instances.Find(ctx, croft.DefaultProject, "vm")
		if err != nil {
			return err
		}
		h, err := o.Drain(ctx, string(st.Instance.Host))
		if err != nil {
			return err
		}
		if _, err = o.MoveAll(ctx, h); err != nil {
			return err
		}
		_, err = o.Enable(ctx, string(h.ID))
		return err
	})
	s.forgetHost(ctx)
	s.destroyByForce(ctx)
	s.insist(ctx, "destroy", func(sch *schedule.Scheduler) error {
		d, err := sch.Destroy(ctx, croft.DefaultProject, "vm", false)
		if err != nil {
			return err
		}
		return sch.Wait(ctx, d.Instance, schedule.Gone, nil)
	})
	s.awaitSwept(ctx)
	cancel()
	reviving.Wait()
	w.settle()
	return w
}

// story is a world with the events of a story.
type story struct {
	*world
	t    *testing.T
	hand sync.Mutex // held while agents are started or ended
}

// request requests an instance and records what is known of it.
func (s *story) request(ctx context.Context, sch *schedule.Scheduler, name string) (croft.Instance, error) {
	r := schedule.Request{ID: croft.NewInstanceID(), Query: query, Image: simulated, Name: name,
		InstanceSettings: croft.InstanceSettings{Ephemeral: true,
			Affinities: []croft.Affinity{{Group: "group", Rule: croft.ApartSoft}}}}
	d, err := sch.Request(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[r.ID] = &fact{name: name, created: err == nil}
	s.doomed[r.ID] = true
	return d.Instance, err
}

// insist runs commands until one succeeds.
func (s *story) insist(ctx context.Context, what string, do func(*schedule.Scheduler) error) {
	s.again(ctx, what, func() error { return s.scheduler(0, do) })
}

func (s *story) operate(ctx context.Context, what string, do func(*operator) error) {
	s.again(ctx, what, func() error { return s.world.operate(0, do) })
}

func (s *story) again(ctx context.Context, what string, try func() error) {
	s.t.Helper()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			s.t.Fatalf("%s: %v", what, err)
		}
	}
}

// revive restarts agents that die, until ctx ends.
func (s *story) revive(ctx context.Context) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for ctx.Err() == nil {
		s.hand.Lock()
		for _, m := range s.hosts {
			select {
			case <-m.gate.died:
				m.boot(0)
			default:
			}
		}
		s.hand.Unlock()
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

func (s *story) turn(ctx context.Context, what string, goal schedule.Goal,
	do func(*schedule.Scheduler, context.Context, croft.Project, string) (croft.Instance, error)) {
	s.insist(ctx, what, func(sch *schedule.Scheduler) error {
		inst, err := do(sch, ctx, croft.DefaultProject, "vm")
		if err != nil {
			return err
		}
		return sch.Wait(ctx, inst, goal, nil)
	})
}

// mendNames makes an operator repair mistakes: an instance without its name, and a name without an instance.
func (s *story) mendNames(ctx context.Context) {
	if err := etcdtest.Delete(ctx, s.etcd.Endpoint(), s.store.Partition(), "names/default/vm"); err != nil {
		s.t.Fatal(err)
	}
	s.operate(ctx, "mend names", func(o *operator) error {
		if err := etcdtest.Put(ctx, s.etcd.Endpoint(), s.store.Partition(), "names/default/stray",
			string(croft.NewInstanceID())); err != nil {
			return err
		}
		b, err := s.store.Records.Evidence(ctx)
		if err != nil {
			return err
		}
		for _, d := range audit.Compare(b) {
			if d.Kind != audit.MissingName && d.Kind != audit.LostName {
				continue
			}
			if err := o.Mend(ctx, d); err != nil && !errors.Is(err, croft.Conflict) { // agents repair the latter too
				return err
			}
		}
		_, err = s.store.Instances.Find(ctx, croft.DefaultProject, "vm")
		return err
	})
}

// destroyByForce makes a host silent, and brings it back to find its instance destroyed.
func (s *story) destroyByForce(ctx context.Context) {
	st, err := s.store.Instances.Find(ctx, croft.DefaultProject, "vm")
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(s.hosts, func(m *machine) bool { return m.id == st.Instance.Host })
	s.hand.Lock()
	silent := s.hosts[i]
	silent.leave()
	s.hosts = slices.Delete(slices.Clone(s.hosts), i, i+1)
	s.hand.Unlock()
	s.insist(ctx, "destroy by force", func(sch *schedule.Scheduler) error {
		d, err := sch.Destroy(ctx, croft.DefaultProject, "vm", true)
		if errors.Is(err, croft.NotFound) { // the command that died destroyed it
			return nil
		}
		if err == nil && !d.Gone {
			return croft.Errorf(croft.Unavailable, "its host is alive still")
		}
		return err
	})
	s.hand.Lock()
	s.hosts = append(s.hosts, silent)
	silent.boot(0)
	s.hand.Unlock()
	s.create(ctx)
}

// forgetHost makes a host die permanently with its instance, and return.
func (s *story) forgetHost(ctx context.Context) {
	st, err := s.store.Instances.Find(ctx, croft.DefaultProject, "vm")
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(s.hosts, func(m *machine) bool { return m.id == st.Instance.Host })
	s.hand.Lock()
	dead := s.hosts[i]
	dead.leave()
	s.hosts = slices.Delete(slices.Clone(s.hosts), i, i+1)
	s.hand.Unlock()
	s.operate(ctx, "forget", func(o *operator) error {
		_, err := o.Forget(ctx, string(dead.id), true)
		if croft.KindOf(err) == croft.NotFound { // the command that died forgot it
			return nil
		}
		return err
	})
	s.insist(ctx, "destroy what was lost", func(sch *schedule.Scheduler) error {
		d, err := sch.Destroy(ctx, croft.DefaultProject, "vm", false)
		if croft.KindOf(err) == croft.NotFound { // the command that died destroyed it
			return nil
		}
		if err == nil && !d.Gone {
			return croft.Errorf(croft.Unavailable, "a lost instance has no host that could still have it")
		}
		return err
	})
	s.hand.Lock()
	s.hosts = append(s.hosts, dead)
	dead.boot(0)
	s.hand.Unlock()
	s.create(ctx)
}

// create requests the instance and waits until it runs. An instance whose request was written before its command
// died is accepted too.
func (s *story) create(ctx context.Context) {
	s.insist(ctx, "create", func(sch *schedule.Scheduler) error {
		inst, err := s.request(ctx, sch, "vm")
		if errors.Is(err, croft.Conflict) {
			var st croft.Status
			if st, err = s.store.Instances.Find(ctx, croft.DefaultProject, "vm"); err == nil &&
				st.Instance.State != croft.StateScheduled {
				err = croft.Errorf(croft.Conflict, "vm is %s", st.Instance.State)
			}
			inst = st.Instance
		}
		if err != nil {
			return err
		}
		return sch.Wait(ctx, inst, schedule.Running, nil)
	})
}

// awaitSwept returns when the agents have removed the leftovers of others.
func (s *story) awaitSwept(ctx context.Context) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		b, err := s.store.Records.Evidence(ctx)
		if err == nil && len(b.Instances) == 0 && len(b.Names) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			s.t.Fatalf("not swept: %v", slices.Collect(maps.Keys(b.Instances)))
			return
		}
	}
}
