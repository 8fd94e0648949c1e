package local_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/local"
	"croft/internal/testing/patient"
	"croft/internal/testing/sample"
	"croft/schedule"
)

// site is a driver of the shared cloud, and a cluster to build with it.
type site struct {
	*testing.T
	*local.Driver
	build cluster.Build
}

func newSite(t *testing.T, text string, slaves int) *site {
	t.Helper()
	theWorld.empty(t)
	var prefix atomic.Pointer[string]
	prefix.Store(new(string))
	return siteOf(t, theWorld.driver(t, theWorld.view(), &prefix), text, slaves)
}

func siteOf(t *testing.T, d *local.Driver, text string, slaves int) *site {
	id := croft.NewClusterID()
	s := &site{T: t, Driver: d, build: cluster.Build{Partition: theWorld.Store.Partition(), Cluster: id, Name: "web",
		Project: "physics", User: "ada", Implementation: cluster.Implementation{Template: text},
		Remote: cluster.Remote{Name: "croft-" + string(id)}, Timeout: patient.Longest}}
	for i := range slaves {
		s.build.Indexes = append(s.build.Indexes, i)
	}
	t.Cleanup(func() { _ = d.Destroy(context.WithoutCancel(t.Context()), here(), s.build) })
	return s
}

func (s *site) launch() {
	s.Helper()
	if _, err := s.Launch(s.Context(), here(), s.build); err != nil {
		s.Fatal(err)
	}
}

// until waits until the cluster is in a phase.
func (s *site) until(want cluster.Phase) (seen cluster.Seen) {
	s.Helper()
	patient.Until(s.T, "the cluster is "+string(want), func() bool {
		all, err := s.Observe(s.Context(), here(), []cluster.Build{s.build})
		seen = all[s.build.Cluster]
		return err == nil && seen.Phase == want
	})
	return seen
}

func (s *site) find(name string) croft.Status {
	s.Helper()
	st, err := theWorld.Store.Instances.Find(s.Context(), s.build.Project, name)
	if err != nil {
		s.Fatal(err)
	}
	return st
}

const (
	little = `{resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny}`
	plain  = "master: " + little + "\nslave: " + little + "\n"
)

func TestMembersAreInstancesOfTheCluster(t *testing.T) {
	s := newSite(t, `
parameters: {word: {default: hello}}
master: {resources: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image: tiny, user_data: "#!/bin/sh\necho ${word} ${cluster_size}"}
slave:
  resources: VCPU:1,MEMORY_MB:256,DISK_GB:1
  image: tiny
  keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJUjfV4cxbC5Eg6aqie4wC6OdHHbbHIivxzJq2gTh/hr jo@home"]
  user_data: |
    #!/bin/sh
    echo ${name} ${role} ${index} ${master_ip} ${allowed_ip} $${HOME} '${key}'
`, 2)
	s.build.Parameters = map[string]any{"word": "bye", "allowed_ip": "192.0.2.0/24"}
	s.launch()
	seen := s.until(cluster.Standing)
	slave := s.find("web-slave-1")
	want := fmt.Sprintf("#!/bin/sh\necho web-slave-1 slave 1 %s 192.0.2.0/24 ${HOME} 'ssh-ed25519 ", seen.MasterIP)
	if got := string(slave.Instance.Spec.UserData); !strings.HasPrefix(got, want) {
		t.Errorf("the user-data is %q, want %q", got, want)
	}
	master := s.find("web-master")
	if got := string(master.Instance.Spec.UserData); got != "#!/bin/sh\necho bye 2" {
		t.Errorf("the master's user-data is %q", got)
	}
	if master.Instance.Cluster != s.build.Cluster || master.Instance.Spec.Ephemeral ||
		string(master.Instance.ID) != string(cluster.IDOf(s.build.Cluster, cluster.Master, 0)) {
		t.Errorf("the master is %+v", master.Instance)
	}
	key := master.Instance.Spec.ClusterKey
	if !strings.HasPrefix(key, "-----BEGIN") || slave.Instance.Spec.ClusterKey != key {
		t.Error("the members do not share a key")
	}
}

// TestMembersThatWereDestroyedAreGone checks that members without a record are reported as gone, since nothing creates
// them again.
func TestMembersThatWereDestroyedAreGone(t *testing.T) {
	s := newSite(t, plain, 2)
	s.launch()
	s.until(cluster.Standing)
	for _, name := range []string{"web-slave-0", "web-master"} {
		st := s.find(name)
		_, err := s.Scheduler.ForCluster(s.build.Cluster).Destroy(t.Context(), "physics", string(st.Instance.ID), false)
		if err != nil {
			t.Fatal(err)
		}
		state := func() cluster.MemberState {
			all, err := s.Observe(t.Context(), here(), []cluster.Build{s.build})
			if err != nil {
				return ""
			}
			seen := all[s.build.Cluster]
			i := slices.IndexFunc(seen.Members, func(m cluster.Member) bool {
				return string(m.ID) == string(st.Instance.ID)
			})
			if i < 0 || seen.Phase != cluster.Standing {
				return ""
			}
			return seen.Members[i].State
		}
		patient.Until(t, name+" is gone", func() bool { return state() == cluster.MemberGone })
		patient.Until(t, name+" has no record", func() bool {
			_, err := theWorld.Store.Instances.Find(t.Context(), "physics", name)
			return croft.KindOf(err) == croft.NotFound
		})
		if got := state(); got != cluster.MemberGone {
			t.Errorf("without a record %s is %q", name, got)
		}
	}
}

// TestSlavesThatAreNotWantedAreTold checks slaves that a late resize left; the next resize destroys them.
func TestSlavesThatAreNotWantedAreTold(t *testing.T) {
	s := newSite(t, plain, 2)
	s.launch()
	s.until(cluster.Standing)
	s.build.Indexes = []int{0}
	seen := s.until(cluster.Standing)
	if len(seen.Members) != 3 || seen.Members[2].Index != 1 {
		t.Errorf("the site tells of %+v", seen.Members)
	}
	if err := s.Resize(t.Context(), here(), s.build); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "the slave that nobody wants is gone", func() bool {
		_, err := theWorld.Store.Instances.Find(t.Context(), "physics", "web-slave-1")
		return croft.KindOf(err) == croft.NotFound
	})
}

func TestMembersAreToldOfEachOther(t *testing.T) {
	s := newSite(t, plain, 2)
	s.launch()
	s.until(cluster.Standing)
	names := func(name string) (all []string) {
		for _, p := range s.find(name).Order.Spec.Peers {
			if p.Address == "" || !strings.HasPrefix(p.HostKey, "ssh-ed25519 ") {
				t.Errorf("%s is told %+v", name, p)
			}
			all = append(all, p.Name+" "+p.Role)
		}
		return all
	}
	check := func(name string, want ...string) {
		t.Helper()
		patient.Until(t, name+" knows the others", func() bool {
			s.until(cluster.Standing)
			return slices.Equal(names(name), want)
		})
	}
	for _, name := range []string{"web-master", "web-slave-0", "web-slave-1"} {
		check(name, "web-master master", "web-slave-0 slave", "web-slave-1 slave")
	}
	generation := s.find("web-master").Instance.Generation
	s.until(cluster.Standing)
	if now := s.find("web-master").Instance.Generation; now != generation {
		t.Errorf("the master was told again of what it knows: generation %d, then %d", generation, now)
	}
	s.build.Indexes = []int{1, 2}
	if err := s.Resize(t.Context(), here(), s.build); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web-master", "web-slave-1", "web-slave-2"} {
		check(name, "web-master master", "web-slave-1 slave", "web-slave-2 slave")
	}
}

func TestWhatDoesNotFitAsAWholeIsGivenBack(t *testing.T) {
	s := newSite(t, plain, 3*places)
	room, err := s.Room(t.Context(), here(), s.build)
	if err != nil || !room.Known || room.Fits || !strings.Contains(room.Why, "needs 19 VCPU, 18 are left") {
		t.Errorf("got %+v, %v", room, err)
	}
	_, err = s.Launch(t.Context(), here(), s.build)
	if croft.KindOf(err) != croft.NoCapacity {
		t.Fatalf("got %v, want no capacity", err)
	}
	if left, err := theWorld.Left(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
	s.build.Indexes = s.build.Indexes[1:]
	if room, err = s.Room(t.Context(), here(), s.build); err != nil || !room.Fits || room.Free != 0 {
		t.Errorf("of one less: got %+v, %v", room, err)
	}
	s.launch()
	s.until(cluster.Standing)
	s.build.Indexes, s.build.Growth = []int{30}, true
	if room, err = s.Room(t.Context(), here(), s.build); err != nil || room.Fits {
		t.Errorf("of growth in a full cloud: got %+v, %v", room, err)
	}
}

func TestMembersAreKeptApart(t *testing.T) {
	s := newSite(t, plain+"apart_by: host\n", 3)
	room, err := s.Room(t.Context(), here(), s.build)
	if err != nil || room.Fits || !strings.Contains(room.Why, "3 of 4 members now, since they are kept apart") {
		t.Errorf("got %+v, %v", room, err)
	}
	if _, err := s.Launch(t.Context(), here(), s.build); croft.KindOf(err) != croft.NoCapacity {
		t.Fatalf("got %v, want no capacity", err)
	}
	theWorld.empty(t)
	s.build.Indexes = []int{0, 1}
	s.launch()
	s.until(cluster.Standing)
	on := map[croft.HostID]bool{}
	for _, name := range []string{"web-master", "web-slave-0", "web-slave-1"} {
		on[s.find(name).Instance.Host] = true
	}
	if len(on) != 3 {
		t.Errorf("three members are on %d hosts", len(on))
	}
}

func TestAFailedGrowthIsGivenBack(t *testing.T) {
	s := newSite(t, plain, 1)
	s.launch()
	s.until(cluster.Standing)
	for i := range 3 * places {
		s.build.Indexes = append(s.build.Indexes, 1+i)
	}
	if err := s.Resize(t.Context(), here(), s.build); croft.KindOf(err) != croft.NoCapacity {
		t.Fatalf("got %v, want no capacity", err)
	}
	s.build.Indexes = []int{0}
	if seen := s.until(cluster.Standing); len(seen.Members) != 2 {
		t.Errorf("the cluster is %+v", seen)
	}
	if all, err := theWorld.Store.Instances.List(t.Context(), "physics"); err != nil || len(all) != 2 {
		t.Errorf("there are %d instances, %v", len(all), err)
	}
}

func TestAMemberThatFailedShowsItsConsole(t *testing.T) {
	s := newSite(t, strings.Replace(plain, "image: tiny}\ns", "image: dies}\ns", 1), 0)
	s.launch()
	seen := s.until(cluster.Broken)
	id := cluster.IDOf(s.build.Cluster, cluster.Master, 0)
	if seen.Consoles[id] != "the console of web-master" || !strings.Contains(seen.Failure, "web-master: ") {
		t.Errorf("got %q and the failure %q", seen.Consoles, seen.Failure)
	}
}

func TestAMemberIsReadyOnceItsGuestHasReported(t *testing.T) {
	s := newSite(t, plain+"ready: phone-home\n", 0)
	s.build.Project = croft.DefaultProject // the project that Report uses
	s.launch()
	patient.Until(t, "the master runs", func() bool {
		seen := s.until(cluster.Working)
		return len(seen.Members) == 1 && seen.Members[0].Step == "set-up"
	})
	if err := theWorld.Report(t.Context(), "web-master", croft.CloudInit{State: croft.CloudInitDone}); err != nil {
		t.Fatal(err)
	}
	s.until(cluster.Standing)
}

func TestAFailedSetUpIsAFailedBuild(t *testing.T) {
	s := newSite(t, plain+"checks: [\"false\"]\n", 0)
	s.build.Project = croft.DefaultProject
	s.launch()
	told := croft.CloudInit{State: croft.CloudInitFailed, Error: "the check failed: false"}
	if err := theWorld.Report(t.Context(), "web-master", told); err != nil {
		t.Fatal(err)
	}
	if seen := s.until(cluster.Broken); !strings.Contains(seen.Failure, "the check failed: false") {
		t.Errorf("the failure is %q", seen.Failure)
	}
}

// TestAClaimUnderWayCountsFromWhenItIsSeen: the clock of the server that makes a claim may differ from ours.
func TestAClaimUnderWayCountsFromWhenItIsSeen(t *testing.T) {
	for name, made := range map[string]time.Duration{"a clock that is behind": -time.Hour,
		"a clock that is ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, plain, 1)
			id := croft.InstanceID(cluster.IDOf(s.build.Cluster, cluster.Master, 0))
			other, err := theWorld.Store.Instances.Create(t.Context(), croft.Instance{ID: id, Project: s.build.Project,
				Name: "web-master", State: croft.StateScheduling, Cluster: s.build.Cluster,
				Created: time.Now().Add(made).UTC(), Spec: croft.Spec{Image: "file:///tiny", Resources: croft.Resources{
					croft.VCPU: 1, croft.MemoryMB: 256, croft.DiskGB: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Launch(t.Context(), here(), s.build)
			if croft.KindOf(err) != croft.Unavailable {
				t.Errorf("the first launch beside another one: %v", err)
			}
			if now := s.find("web-master").Instance; now.CreateRevision != other.CreateRevision {
				t.Error("the claim of another launch was given back by the clock of one machine")
			}
			patient.Until(t, "the claim is given back, and the launch taken", func() bool {
				_, err := s.Launch(t.Context(), here(), s.build)
				return err == nil
			})
			s.until(cluster.Standing)
			if now := s.find("web-master").Instance; now.CreateRevision == other.CreateRevision {
				t.Error("the claim that was left behind is used")
			}
		})
	}
}

// TestABuildThatIsInterruptedGoesOn ends a process after each of its calls to the cloud, and lets another process
// continue.
func TestABuildThatIsInterruptedGoesOn(t *testing.T) {
	var all []int
	for i := range 36 {
		all = append(all, i)
	}
	for _, calls := range sample.OneIn(t, 6, all) {
		s := newSite(t, text, 2)
		v := theWorld.view()
		v.Left = new(atomic.Int64)
		v.Left.Store(int64(calls))
		var prefix atomic.Pointer[string]
		prefix.Store(new(string))
		first := *s
		first.Driver = theWorld.driver(t, v, &prefix)
		_, err := first.Launch(t.Context(), here(), s.build)
		if err == nil {
			_, _ = first.Observe(t.Context(), here(), []cluster.Build{s.build})
		} else if croft.KindOf(err) != croft.Unavailable {
			t.Errorf("after %d calls: %v", calls, err)
		}
		patient.Until(t, "the launch is taken", func() bool {
			_, err := s.Launch(t.Context(), here(), s.build)
			if kind := croft.KindOf(err); err != nil && kind != croft.Unavailable {
				t.Fatalf("after %d calls, again: %v", calls, err)
			}
			return err == nil
		})
		if seen := s.until(cluster.Standing); len(seen.Members) != 3 {
			t.Errorf("after %d calls: %+v", calls, seen)
		}
		if err := s.Destroy(t.Context(), here(), s.build); err != nil {
			t.Fatal(err)
		}
		s.until(cluster.Absent)
	}
	theWorld.empty(t)
}

func TestALongNameIsCut(t *testing.T) {
	s := newSite(t, plain, 1)
	s.build.Name = "a-cluster-whose-name-is-as-long-as-names-of-clusters-can-ever-be"[:63]
	s.launch()
	seen := s.until(cluster.Standing)
	for _, m := range seen.Members {
		if schedule.CheckName(m.Name) != nil || !strings.Contains(m.Name, string(s.build.Cluster[:8])) {
			t.Errorf("a member is called %s", m.Name)
		}
	}
}

func TestAKeyIsNoFileOfTheServer(t *testing.T) {
	s := newSite(t, plain, 0)
	for _, name := range []string{"/etc/passwd", "nobody", "~/.ssh/*.pub"} {
		s.build.Parameters = map[string]any{"key_name": name}
		if _, err := s.Launch(t.Context(), here(), s.build); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
}

func TestWhoAskedMayLogIn(t *testing.T) {
	s := newSite(t, plain, 1)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB ann@desk"
	s.build.Parameters = map[string]any{cluster.ParamKeys: []any{key}}
	s.launch()
	s.until(cluster.Standing)
	for _, name := range []string{"-master", "-slave-0"} {
		st := s.find(s.build.Name + name)
		if !slices.Contains(st.Instance.Spec.Keys, key) {
			t.Errorf("%s has the keys %q", name, st.Instance.Spec.Keys)
		}
	}
	s.build.Parameters = map[string]any{cluster.ParamKeys: []any{"no key at all"}}
	if _, err := s.Launch(t.Context(), here(), s.build); croft.KindOf(err) != croft.Invalid {
		t.Errorf("what is no key: got %v, want invalid", err)
	}
}

// put stores an instance that has the ID of a member of the site's cluster, and removes its record after the test.
func (s *site) put(role cluster.Role, index int, change func(*croft.Instance)) {
	s.Helper()
	inst := croft.Instance{ID: croft.InstanceID(cluster.IDOf(s.build.Cluster, role, index)), Project: s.build.Project,
		Name: "other", State: croft.StateScheduling, Cluster: s.build.Cluster, Created: time.Now().UTC(),
		Spec: croft.Spec{Image: "file:///tiny", Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256,
			croft.DiskGB: 1}}}
	change(&inst)
	made, err := theWorld.Store.Instances.Create(s.Context(), inst)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := theWorld.Store.Instances.Discard(context.WithoutCancel(s.Context()), made); err != nil {
			s.Error(err)
		}
	})
}

func TestAMemberWhoseIDIsTakenIsAConflictAndTheOthersAreGivenBack(t *testing.T) {
	s := newSite(t, plain, 1)
	s.put(cluster.Slave, 0, func(i *croft.Instance) { i.Cluster = croft.NewClusterID() })
	_, err := s.Launch(t.Context(), here(), s.build)
	if croft.KindOf(err) != croft.Conflict ||
		!strings.Contains(err.Error(), "belongs to an instance of something else") {
		t.Errorf("the launch: %v", err)
	}
	if all, err := theWorld.Store.Instances.List(t.Context(), s.build.Project); err != nil || len(all) != 1 {
		t.Errorf("there are %d instances, %v; want the other one alone", len(all), err)
	}
}
