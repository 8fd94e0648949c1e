package clustertest

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/testing/patient"
)

// RunDriver is the contract test of drivers. open returns a working site for one test.
func RunDriver(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range []struct {
		name   string
		slaves int
		test   func(s *stage)
	}{
		{"a cluster that nobody launched is absent", 1, testUnknown},
		{"a cluster is built, with its master and all slaves", 2, testLaunch},
		{"a cluster without slaves is built", 0, func(s *stage) { s.launch(); s.standing() }},
		{"a launch that is repeated adopts what there is", 1, testLaunchAgain},
		{"of two launches at once one builds, and both return it", 1, testLaunchAtOnce},
		{"a cluster is found by its name alone", 1, testByName},
		{"several clusters are observed at once", 1, testObserveMany},
		{"what a stranger has under the name is a conflict, and stays", 1, testStranger},
		{"a build that fails says why", 1, testBroken},
		{"a site without room says so", 1, testNoRoom},
		{"room is told, and asking changes nothing", 1, testRoom},
		{"a cluster grows, and what was there stays as it is", 1, testGrow},
		{"a cluster shrinks at its end", 2, testShrinkLast},
		{"a cluster shrinks by a slave that is named", 3, testShrinkNamed},
		{"a size that was not asked for yet changes nothing", 2, testNotAsked},
		{"a resize that is repeated changes nothing", 1, testResizeAgain},
		{"growth that fails says so, and can be taken back", 1, testUnsized},
		{"a slave that was lost is not ready any more", 2, testLost},
		{"what was never launched can be removed", 1, testDestroyNothing},
		{"a cluster that stands is removed, also twice", 1, testDestroyStanding},
		{"a cluster is removed while it is being built", 1, testDestroyWorking},
		{"a cluster is removed while it is being resized", 1, testDestroyUpdating},
		{"a cluster whose build failed is removed", 1, testDestroyBroken},
		{"a cluster is removed by its name alone", 1, testDestroyByName},
		{"a removal that fails is told, and is asked for again", 1, testStuck},
		{"nothing is known while the site does not answer", 1, testCut},
		{"a call to a site that hangs ends with its context", 1, testHang},
		{"a refused credential is denied", 1, testDenied},
		{"a list has the clusters of this partition alone", 1, testList},
		{"a template is read before it is stored", 1, testCheck},
		{"a site is asked how it is", 1, testProbe},
		{"an image is brought", 1, testBring},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(newStage(t, open(t), c.slaves)) })
	}
}

func testUnknown(s *stage) {
	if seen, ok := s.look(); !ok || seen.Phase != cluster.Absent {
		s.Errorf("got %+v, %v, want that it is absent", seen, ok)
	}
}

func testLaunch(s *stage) {
	s.launch()
	seen := s.standing(0, 1)
	if seen.Remote.ID != s.build.Remote.ID || seen.Remote.Name != s.build.Remote.Name {
		s.Errorf("observe names it %+v, launch %+v", seen.Remote, s.build.Remote)
	}
}

// checkOutputs checks the outputs that every site must have.
func checkOutputs(s *stage, seen cluster.Seen) {
	s.Helper()
	if _, err := netip.ParseAddr(seen.MasterIP); err != nil {
		s.Errorf("master IP %q is none", seen.MasterIP)
	}
	if got := seen.Outputs["master_ip"]; got != seen.MasterIP {
		s.Errorf("output master_ip is %v, and the master IP %s", got, seen.MasterIP)
	}
	if seen.Failure != "" {
		s.Errorf("a cluster that stands has the failure %q", seen.Failure)
	}
}

func testLaunchAgain(s *stage) {
	s.launch()
	first := s.build.Remote.ID
	for _, d := range []cluster.Driver{s.driver, s.Driver(s.T)} {
		s.driver = d
		s.build.Remote.ID = ""
		if s.launch(); s.build.Remote.ID != first {
			s.Fatalf("another launch returned %s, want %s", s.build.Remote.ID, first)
		}
	}
	s.standing(0)
	if s.launch(); s.build.Remote.ID != first {
		s.Errorf("a launch of what stands returned %s, want %s", s.build.Remote.ID, first)
	}
	s.standing(0)
	checkListed(s, 1)
}

func testLaunchAtOnce(s *stage) {
	var work sync.WaitGroup
	ids := make([]string, 3)
	for i := range ids {
		d := s.Driver(s.T)
		work.Go(func() { ids[i] = launchUntil(s, d) })
	}
	work.Wait()
	if slices.Sort(ids); ids[0] == "" || ids[0] != ids[2] {
		s.Errorf("got the IDs %q, want the same one three times", ids)
	}
	// others take time to disappear
	patient.Until(s.T, "the site lists one of them", func() bool { return listed(s) == 1 })
	s.standing(0)
}

// launchUntil repeats a launch while another one is in progress, and returns the ID.
func launchUntil(s *stage, d cluster.Driver) string {
	for end := patient.Deadline(s.T); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		remote, err := d.Launch(s.Context(), s.At, s.build)
		if kind := croft.KindOf(err); err == nil || kind != croft.Unavailable {
			if err != nil {
				s.Errorf("launch: %v", err)
			}
			return remote.ID
		}
	}
	return ""
}

func testByName(s *stage) {
	s.launch()
	id := s.build.Remote.ID
	s.driver, s.build.Remote.ID = s.Driver(s.T), ""
	if seen := s.standing(0); seen.Remote.ID != id {
		s.Errorf("got ID %q, want %q", seen.Remote.ID, id)
	}
}

func testObserveMany(s *stage) {
	s.launch()
	second, absent := s.another(0), s.another(1)
	var err error
	if second.Remote, err = s.driver.Launch(s.Context(), s.At, second); err != nil {
		s.Fatal(err)
	}
	var all map[croft.ClusterID]cluster.Seen
	patient.Until(s.T, "both stand", func() bool {
		all, err = s.driver.Observe(s.Context(), s.At, []cluster.Build{absent, s.build, second})
		return err == nil && all[s.build.Cluster].Phase == cluster.Standing &&
			all[second.Cluster].Phase == cluster.Standing
	})
	for b, members := range map[croft.ClusterID]int{s.build.Cluster: 2, second.Cluster: 1, absent.Cluster: 0} {
		if got := len(all[b].Members); got != members {
			s.Errorf("cluster %s has %d members, want %d", b, got, members)
		}
	}
	if all[absent.Cluster].Phase != cluster.Absent {
		s.Errorf("got %+v of a cluster that nobody launched", all[absent.Cluster])
	}
}

func testStranger(s *stage) {
	s.need("give a name to a stranger", s.Occupy == nil)
	left := s.Occupy(s.build)
	if _, err := s.driver.Launch(s.Context(), s.At, s.build); croft.KindOf(err) != croft.Conflict {
		s.Errorf("launch: got %v, want a conflict", err)
	}
	if err := s.driver.Destroy(s.Context(), s.At, s.build); err != nil && croft.KindOf(err) != croft.Conflict {
		s.Errorf("destroy: %v", err)
	}
	if seen, ok := s.look(); !ok || seen.Phase != cluster.Absent {
		s.Errorf("got %+v, %v, want that ours is absent", seen, ok)
	}
	if !left() {
		s.Error("the stranger's is gone")
	}
}

func testBroken(s *stage) {
	s.need("fail builds", s.Fail == nil)
	s.Fail(true)
	s.launch()
	if seen := s.until(cluster.Broken); seen.Failure == "" || len(seen.Failure) > cluster.MaxMessage {
		s.Errorf("the reason %q is empty or too long", seen.Failure)
	}
}

func testNoRoom(s *stage) {
	s.need("be full", s.Fill == nil)
	s.Fill(true)
	if room, err := s.driver.Room(s.Context(), s.At, s.build); err != nil || room.Known && (room.Fits ||
		room.Why == "") {
		s.Errorf("room: got %+v, %v, want that it is not known or that it does not fit, and why", room, err)
	}
	remote, err := s.driver.Launch(s.Context(), s.At, s.build)
	if err == nil { // some sites accept the request, and fail later
		s.build.Remote = remote
		if seen := s.until(cluster.Broken); !seen.NoRoom || seen.Failure == "" {
			s.Errorf("got %+v, want NoRoom and why", seen)
		}
	} else if croft.KindOf(err) != croft.NoCapacity {
		s.Errorf("launch: got %v, want no capacity", err)
	}
	s.Fill(false)
	s.destroy()
	s.until(cluster.Absent, cluster.Broken)
}

func testRoom(s *stage) {
	room, err := s.driver.Room(s.Context(), s.At, s.build)
	if err != nil || room.Known && !room.Fits || room.Free < 0 || room.Free > 1 {
		s.Errorf("got %+v, %v, want that it fits or is not known", room, err)
	}
	if seen, ok := s.look(); !ok || seen.Phase != cluster.Absent {
		s.Errorf("after the question the site has %+v, %v", seen, ok)
	}
}

func testLost(s *stage) {
	s.need("lose a member", s.Lose == nil)
	s.launch()
	members := s.standing(0, 1).Members
	for _, id := range []cluster.MemberID{
		cluster.IDOf(s.build.Cluster, cluster.Slave, 0), cluster.IDOf(s.build.Cluster, cluster.Master, 0),
	} {
		s.Lose(s.build, members[slices.IndexFunc(members, func(m cluster.Member) bool { return m.ID == id })])
		patient.Until(s.T, "the lost member is not ready", func() bool {
			seen, ok := s.look()
			return ok && seen.Phase == cluster.Standing && !slices.ContainsFunc(seen.Members,
				func(m cluster.Member) bool { return m.ID == id && m.State == cluster.MemberReady })
		})
	}
}

func testCut(s *stage) {
	s.need("be cut off", s.Cut == nil)
	s.launch()
	s.standing(0)
	s.Cut(true)
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	checkKinds(ctx, s, croft.Unavailable)
	if seen, ok := s.look(); ok {
		s.Errorf("observe: got %+v, want nothing", seen)
	}
	s.Cut(false)
	s.standing(0)
}

// checkKinds checks that every call fails with an error of a kind.
func checkKinds(ctx context.Context, s *stage, want croft.Kind) {
	s.Helper()
	_, errLaunch := s.driver.Launch(ctx, s.At, s.another(0))
	_, errRoom := s.driver.Room(ctx, s.At, s.build)
	_, errList := s.driver.List(ctx, s.At)
	for what, err := range map[string]error{"launch": errLaunch, "room": errRoom, "list": errList,
		"resize":  s.driver.Resize(ctx, s.At, s.build),
		"destroy": s.driver.Destroy(ctx, s.At, s.build)} {
		if croft.KindOf(err) != want {
			s.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
}

func testHang(s *stage) {
	s.need("hang", s.Hang == nil)
	s.launch()
	s.standing(0)
	s.Hang(true)
	for what, call := range map[string]func(ctx context.Context) error{
		"observe": func(ctx context.Context) error {
			all, err := s.driver.Observe(ctx, s.At, []cluster.Build{s.build})
			if _, learned := all[s.build.Cluster]; learned {
				s.Error("something was learned from a site that hangs")
			}
			return err
		},
		"launch": func(ctx context.Context) error {
			_, err := s.driver.Launch(ctx, s.At, s.build)
			return err
		},
		"destroy": func(ctx context.Context) error { return s.driver.Destroy(ctx, s.At, s.build) },
	} {
		ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if err == nil {
				s.Errorf("%s: a site that hangs answered", what)
			}
		case <-time.After(time.Minute):
			s.Fatalf("%s goes on without end after its context", what)
		}
		cancel()
	}
}

func testDenied(s *stage) {
	s.need("refuse a credential", s.Deny == nil)
	s.launch()
	s.standing(0)
	s.Deny(true)
	checkKinds(s.Context(), s, croft.Denied)
	if _, err := s.driver.Observe(s.Context(), s.At, []cluster.Build{s.build}); croft.KindOf(err) != croft.Denied {
		s.Errorf("observe: got %v, want denied", err)
	}
	if p, err := s.driver.Probe(s.Context(), s.At); err != nil && croft.KindOf(err) != croft.Denied || p.Accepted {
		s.Errorf("probe: got %+v, %v, want that the credential is refused", p, err)
	}
	s.Deny(false)
	s.standing(0)
}
