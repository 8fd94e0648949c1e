package schedule_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/schedule"
	"croft/schedule/crushmap"
	"croft/schedule/scheduletest"
)

// newCrush creates hosts in racks of two, with the given numbers of places, and the policy p.
func newCrush(t *testing.T, text string, places ...int64) *cloud {
	t.Helper()
	locations := make([]string, len(places))
	for i := range places {
		locations[i] = fmt.Sprintf("site%d/row1/rack%d", i%2+1, i/4+1)
	}
	c := newCloud(t, places...)
	hosts, err := c.store.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range c.hosts {
		h := hosts[id]
		h.Location = locations[i]
		if err := c.store.PutHost(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if err := (scheduletest.Crush{Memory: c.store}).Put(t.Context(), "p", text); err != nil {
		t.Fatal(err)
	}
	return c
}

// by returns a request for an instance whose UUID is the same in every run.
func by(t *testing.T, policy string, n int) schedule.Request {
	t.Helper()
	r := request(t, fmt.Sprint("vm", n))
	r.ID = croft.InstanceID(uuid.NewSHA1(uuid.Nil, []byte(fmt.Sprint("vm", n))).String())
	p, err := schedule.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	r.Policy = p
	return r
}

// line computes the order of the hosts for an instance from public data.
func (c *cloud) line(t *testing.T, id croft.InstanceID) (line []croft.HostID) {
	t.Helper()
	crush := scheduletest.Crush{Memory: c.store}
	stored, err := crush.Find(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.CrushMap(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Compile(stored)
	if err != nil {
		t.Fatal(err)
	}
	p.Order(id, func(c crushmap.Choice) bool {
		line = append(line, c.Host)
		return false
	})
	return line
}

const anyRack = "select 1 rack; take 1"

func TestAPolicyOfCrushChoosesTheHost(t *testing.T) {
	for _, inOneStep := range []bool{false, true} {
		t.Run(fmt.Sprint("in one step ", inOneStep), func(t *testing.T) {
			c := newCrush(t, anyRack, 100, 100, 100, 100, 100, 100)
			if inOneStep {
				c.inOneStep(nil)
			}
			seen := map[croft.HostID]bool{}
			for n := range 40 {
				r := by(t, "crush:p", n)
				d, err := c.Request(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				if want := c.line(t, r.ID)[0]; d.Host.ID != want {
					t.Errorf("instance %d is on %s, want %s", n, d.Host.ID, want)
				}
				seen[d.Host.ID] = true
				p := d.Instance.Spec.Policy
				if p == nil || p.Name != "p" || p.Text != anyRack || p.Generation == 0 || len(d.Instance.Refused) > 0 {
					t.Errorf("the record has policy %+v and %+v", p, d.Instance.Refused)
				}
				if !r.Wants(d.Instance) {
					t.Error("the same request is not recognized")
				}
			}
			if len(seen) < 5 {
				t.Errorf("40 instances are on %d of 6 hosts", len(seen))
			}
		})
	}
}

func TestHostsThatCannotTakeAnInstanceArePassedOver(t *testing.T) {
	for _, inOneStep := range []bool{false, true} {
		t.Run(fmt.Sprint("in one step ", inOneStep), func(t *testing.T) {
			c := newCrush(t, anyRack, 1, 1, 1, 1, 1, 1, 1, 1)
			if inOneStep {
				c.inOneStep(nil)
			}
			taken := map[croft.HostID]bool{}
			for n := range 8 { // up to the last place, far behind the hosts that are queried first
				r := by(t, "crush:p", n)
				line := c.line(t, r.ID)
				d, err := c.Request(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(line, func(id croft.HostID) bool { return !taken[id] })
				if d.Host.ID != line[i] || len(d.Instance.Refused) != i {
					t.Fatalf("instance %d is on %s after %+v; want %s, the first of %q with room", n, d.Host.ID,
						d.Instance.Refused, line[i], line)
				}
				for at, r := range d.Instance.Refused {
					if r.Host != line[at] || r.Why != "it has no room" {
						t.Errorf("refused %+v, want %s", r, line[at])
					}
				}
				taken[d.Host.ID] = true
			}
			_, err := c.Request(t.Context(), by(t, "crush:p", 9))
			wantKind(t, err, croft.NoCapacity)
		})
	}
}

func TestWhatBarsAHostBarsItForCrush(t *testing.T) {
	c := newCrush(t, anyRack, 9, 9, 9, 9, 9, 9, 9, 9)
	r := by(t, "crush:p", 1)
	line := c.line(t, r.ID)
	hosts, err := c.store.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drained := hosts[line[0]]
	drained.Drained = true
	if err := c.store.PutHost(t.Context(), drained); err != nil {
		t.Fatal(err)
	}
	c.store.SetAlive(line[1], -1)
	r.Query.In = []croft.Bound{croft.Bound("!" + hosts[line[2]].Location)}
	var want croft.HostID
	for _, id := range line[2:] {
		if hosts[id].Location != hosts[line[2]].Location {
			want = id
			break
		}
	}
	why, err := c.Explain(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if why.Policy == nil || len(why.Trace) != 8 || why.Trace[0].Why != "it is drained" ||
		why.Trace[1].Why != "its agent is not running" || !strings.Contains(why.Trace[2].Why, "is not to be") ||
		why.Fits[0].ID != want {
		t.Errorf("explained as %+v", why)
	}
	d, err := c.Request(t.Context(), r)
	if err != nil || d.Host.ID != want {
		t.Errorf("it is on %s, %v; want %s of %q", d.Host.ID, err, want, line)
	}
	if len(d.Instance.Refused) < 3 || d.Instance.Refused[0].Why != "it is drained" {
		t.Errorf("refused %+v", d.Instance.Refused)
	}
}

func TestWhereNothingIsLeftEachHostOfThePolicySaysWhy(t *testing.T) {
	c := newCrush(t, anyRack, 1, 1, 1, 1)
	r := by(t, "crush:p", 0)
	line := c.line(t, r.ID)
	hosts, err := c.store.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drained := hosts[line[1]]
	drained.Drained = true
	if err := c.store.PutHost(t.Context(), drained); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, err := c.Request(t.Context(), by(t, "crush:p", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.Request(t.Context(), r)
	why, explained := errors.AsType[*schedule.Explanation](err)
	if !explained || why.Policy == nil || why.Policy.Name != "p" || len(why.Trace) != 4 {
		t.Fatalf("%v: explained as %+v", err, why)
	}
	for i, step := range why.Trace {
		want := "it has no room"
		if i == 1 {
			want = "it is drained"
		}
		if step.ID != line[i] || step.Why != want {
			t.Errorf("step %d is %+v; want host %s: %s", i, step, line[i], want)
		}
	}
}

func TestGroupsDecideBeforeAPolicy(t *testing.T) {
	c := newCrush(t, "take 1", 9, 9, 9, 9)
	used := map[croft.HostID]bool{}
	for n := range 4 {
		r := by(t, "crush:p", n)
		r.Affinities = []croft.Affinity{{Group: "web", Rule: croft.Apart}}
		d, err := c.Request(t.Context(), r)
		if err != nil || used[d.Host.ID] {
			t.Fatalf("member %d is on %s, %v", n, d.Host.ID, err)
		}
		used[d.Host.ID] = true
	}
	r := by(t, "crush:p", 5)
	r.Affinities = []croft.Affinity{{Group: "web", Rule: croft.Apart}}
	_, err := c.Request(t.Context(), r)
	wantKind(t, err, croft.NoCapacity)
	r.Affinities[0].Rule = croft.AffinityRule("affinity-soft")
	r.Affinities[0].Group = "db"
	first, err := c.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for n := 6; n < 9; n++ {
		r := by(t, "crush:p", n)
		r.Affinities = []croft.Affinity{{Group: "db", Rule: "affinity-soft"}}
		if d, err := c.Request(t.Context(), r); err != nil || d.Host.ID != first.Host.ID {
			t.Errorf("a wish to be together: %s, %v; want %s", d.Host.ID, err, first.Host.ID)
		}
	}
}

func TestAPolicyLeavesOutTheHostsThatItDoesNotUse(t *testing.T) {
	c := newCrush(t, "use site1; take 1", 1, 1, 1, 1)
	for n := range 2 {
		if d, err := c.Request(t.Context(), by(t, "crush:p", n)); err != nil || d.Host.Location[:5] != "site1" {
			t.Fatalf("got %+v, %v", d.Host, err)
		}
	}
	_, err := c.Request(t.Context(), by(t, "crush:p", 3))
	wantKind(t, err, croft.NoCapacity)
	why, explained := errors.AsType[*schedule.Explanation](err)
	if !explained {
		t.Fatal(err)
	}
	others := slices.ContainsFunc(why.Requirements, func(r schedule.Requirement) bool {
		return r.Requirement == "crush:p" && r.Dropped == 2
	})
	if !others {
		t.Errorf("two hosts are not dropped for the policy: %+v", why.Requirements)
	}
}

func TestUnknownPoliciesAreRefusedBeforeAnythingIsWritten(t *testing.T) {
	c := newCrush(t, "use site1; take 1", 1)
	_, err := c.Request(t.Context(), by(t, "crush:q", 1))
	wantKind(t, err, croft.NotFound)
	if _, err := schedule.PolicyNamed("crush:A_b"); !errors.Is(err, croft.Invalid) {
		t.Errorf("a name that is none: %v", err)
	}
	hosts, _ := c.store.Hosts(t.Context())
	h := hosts[c.hosts[0]]
	h.Location = "site7"
	if err := c.store.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	_, err = c.Request(t.Context(), by(t, "crush:p", 1))
	wantKind(t, err, croft.NotFound)
	if !strings.Contains(err.Error(), "uses a location that no host is in any more") {
		t.Error(err)
	}
	if left := c.instances(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestManyAtOnce requests more instances than the first hosts of each order have room for.
func TestManyAtOnce(t *testing.T) {
	c := newCrush(t, anyRack, 5, 5, 5, 5, 5, 5, 5, 5)
	c.inOneStep(nil)
	var work sync.WaitGroup
	failed := make(chan error, 40)
	for n := range 40 {
		r := by(t, "crush:p", n)
		work.Go(func() {
			_, err := c.Request(t.Context(), r)
			failed <- err
		})
	}
	work.Wait()
	for range 40 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if n := len(c.placement.Claimed()); n != 40 {
		t.Errorf("%d claims", n)
	}
}

// TestAMapServesForAWhile: a host that joins gets its share within a second, or immediately if it is the only one with
// room.
func TestAMapServesForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrush(t, anyRack, 1)
		m, err := c.CrushMap(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := c.CrushMap(t.Context(), time.Time{}); again != m {
			t.Error("it was read again")
		}
		if _, err := c.Request(t.Context(), by(t, "crush:p", 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if again, _ := c.CrushMap(t.Context(), time.Time{}); again == m {
			t.Error("it was not read again")
		}
		again, _ := c.CrushMap(t.Context(), time.Time{})
		time.Sleep(time.Millisecond)
		if fresh, _ := c.CrushMap(t.Context(), time.Now()); fresh == again {
			t.Error("one that is older than asked for")
		}
	})
}

func TestStandingSaysWhy(t *testing.T) {
	c := newCrush(t, anyRack, 2, 2, 2, 2, 2, 2)
	crush := scheduletest.Crush{Memory: c.store}
	r := by(t, "crush:p", 1)
	line := c.line(t, r.ID)
	hosts, err := c.store.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drain := func(id croft.HostID, drained bool) {
		t.Helper()
		h := hosts[id]
		h.Drained = drained
		if err := c.store.PutHost(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	drain(line[0], true)
	d, err := c.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	standing := func() *schedule.Standing {
		t.Helper()
		found, err := c.Standing(t.Context(), croft.DefaultProject, d.Instance.Name)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	s := standing()
	if !s.Stands || s.HostID != line[1] || s.Input != crushmap.Input(r.ID) || len(s.Trace) != 2 ||
		len(s.Refused) != 1 || s.Refused[0].ID != line[0] || s.Why != "it stands where its policy puts it" ||
		s.Now.Generation != s.Used.Generation {
		t.Errorf("while the first host is drained: %+v", s)
	}
	drain(line[0], false)
	s = standing()
	if want := "would be taken now; it was refused when it was requested: it is drained"; s.Stands ||
		!strings.HasSuffix(s.Why, want) {
		t.Errorf("after that: %+v", s)
	}
	elsewhere := slices.IndexFunc(line, func(id croft.HostID) bool { return hosts[id].Location != d.Host.Location })
	if err := crush.Put(t.Context(), "p", "use "+hosts[line[elsewhere]].Location+"; take 1"); err != nil {
		t.Fatal(err)
	}
	if s = standing(); s.Stands || s.Now.Generation == s.Used.Generation ||
		!strings.HasPrefix(s.Why, "its policy does not choose "+d.Host.Name+" now") {
		t.Errorf("by another policy: %+v", s)
	}
	if err := crush.Put(t.Context(), "p", ""); err != nil {
		t.Fatal(err)
	}
	if s = standing(); s.Now != nil || s.Used.Text != anyRack {
		t.Errorf("without the policy: %+v", s)
	}
	plain, err := c.Request(t.Context(), request(t, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Standing(t.Context(), croft.DefaultProject, plain.Instance.Name)
	wantKind(t, err, croft.Invalid)
	_, err = c.Standing(t.Context(), croft.DefaultProject, "nobody")
	wantKind(t, err, croft.NotFound)
}

// TestPlacementIsAskedForFewHosts counts the queries that a request sends to Placement if there are many hosts.
func TestPlacementIsAskedForFewHosts(t *testing.T) {
	places := make([]int64, 300)
	for i := range places {
		places[i] = 3
	}
	c := newCrush(t, anyRack, places...)
	if _, err := c.Request(t.Context(), by(t, "crush:p", 0)); err != nil {
		t.Fatal(err)
	}
	asked := 0
	count := make([]func() error, 100)
	var mu sync.Mutex
	for i := range count {
		count[i] = func() error {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return nil
		}
	}
	c.placement.Fail("Candidates", count...)
	for n := 1; n < 11; n++ {
		if _, err := c.Request(t.Context(), by(t, "crush:p", n)); err != nil {
			t.Fatal(err)
		}
	}
	if asked > 40 {
		t.Errorf("ten requests asked Placement %d times", asked)
	}
}
