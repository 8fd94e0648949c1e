package clustertest

import (
	"slices"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/cluster"
	"croft/internal/testing/patient"
)

// checkSame checks that members with the same ID are unchanged.
func checkSame(s *stage, before, after cluster.Seen) {
	s.Helper()
	for _, was := range before.Members {
		i := slices.IndexFunc(after.Members, func(m cluster.Member) bool { return m.ID == was.ID })
		if i >= 0 && (after.Members[i].RemoteID != was.RemoteID || after.Members[i].Address != was.Address) {
			s.Errorf("member %s was %+v and is %+v", was.ID, was, after.Members[i])
		}
	}
	if before.MasterIP != after.MasterIP {
		s.Errorf("the master IP was %s and is %s", before.MasterIP, after.MasterIP)
	}
}

func testGrow(s *stage) {
	s.launch()
	before := s.standing(0)
	s.mustResize([]int{0, 1, 2})
	checkSame(s, before, s.standing(0, 1, 2))
}

func testShrinkLast(s *stage) {
	s.launch()
	before := s.standing(0, 1)
	s.mustResize([]int{0}, 1)
	checkSame(s, before, s.standing(0))
	s.mustResize(nil, 0)
	checkSame(s, before, s.standing())
}

func testShrinkNamed(s *stage) {
	contract, err := s.driver.Check(s.Context(), s.Implementation)
	if err != nil {
		s.Fatal(err)
	}
	s.need("remove a slave by name", !contract.RemoveNamed)
	s.launch()
	before := s.standing(0, 1, 2)
	s.mustResize([]int{0, 2}, 1)
	checkSame(s, before, s.standing(0, 2))
	s.mustResize([]int{0, 2, 3})
	checkSame(s, before, s.standing(0, 2, 3))
}

// testNotAsked looks at the cluster with a wanted size that was not requested yet, as a manager does.
func testNotAsked(s *stage) {
	s.launch()
	s.standing(0, 1)
	for _, wanted := range [][]int{{0, 1, 2}, {0}, {}} {
		b := s.build
		b.Indexes = wanted
		all, err := s.driver.Observe(s.Context(), s.At, []cluster.Build{b})
		if seen := all[b.Cluster]; err != nil || seen.Phase != cluster.Standing && seen.Phase != cluster.Unsized {
			s.Errorf("with slaves %v wanted, and not asked for, the site says %s, %v", wanted, seen.Phase, err)
		}
	}
	s.standing(0, 1)
}

func testResizeAgain(s *stage) {
	s.launch()
	before := s.standing(0)
	s.mustResize([]int{0})
	checkSame(s, before, s.standing(0))
	s.mustResize([]int{0, 1})
	if err := s.resize([]int{0, 1}); err != nil && croft.KindOf(err) != croft.Conflict {
		s.Errorf("resize once more: %v", err)
	}
	grown := s.standing(0, 1)
	s.mustResize([]int{0, 1})
	checkSame(s, grown, s.standing(0, 1))
}

func testUnsized(s *stage) {
	s.need("fail a resize", s.Fail == nil)
	s.launch()
	before := s.standing(0)
	s.Fail(true)
	s.mustResize([]int{0, 1})
	if seen := s.until(cluster.Unsized); seen.Failure == "" || len(seen.Failure) > cluster.MaxMessage {
		s.Errorf("the reason %q is empty or too long", seen.Failure)
	}
	s.Fail(false)
	s.mustResize([]int{0}, 1)
	checkSame(s, before, s.standing(0))
	s.mustResize([]int{0, 2})
	checkSame(s, before, s.standing(0, 2))
}

func testDestroyNothing(s *stage) {
	s.destroy()
	s.until(cluster.Absent)
}

// gone removes the cluster, and waits until nothing is left of it.
func (s *stage) gone() {
	s.Helper()
	s.destroy()
	if seen, ok := s.look(); ok && seen.Phase != cluster.Removing && seen.Phase != cluster.Absent &&
		seen.Phase != cluster.Stuck {
		s.Errorf("after a removal was taken the site says %s", seen.Phase)
	}
	patient.Until(s.T, "the cluster is absent", func() bool {
		seen, ok := s.look()
		if ok && seen.Phase == cluster.Stuck {
			s.destroy()
		}
		return ok && seen.Phase == cluster.Absent
	})
	checkListed(s, 0)
}

func testDestroyStanding(s *stage) {
	s.launch()
	s.standing(0)
	s.destroy()
	s.gone()
	s.gone()
}

func testDestroyWorking(s *stage) {
	if s.Freeze != nil {
		s.Freeze(true)
	}
	s.launch()
	s.gone()
}

func testDestroyUpdating(s *stage) {
	s.launch()
	s.standing(0)
	if s.Freeze != nil {
		s.Freeze(true)
	}
	s.mustResize([]int{0, 1})
	s.gone()
}

func testDestroyBroken(s *stage) {
	s.need("fail builds", s.Fail == nil)
	s.Fail(true)
	s.launch()
	s.until(cluster.Broken)
	s.gone()
}

func testDestroyByName(s *stage) {
	s.launch()
	s.driver, s.build.Remote.ID = s.Driver(s.T), ""
	s.gone()
}

func testStuck(s *stage) {
	s.need("fail a removal", s.Stick == nil)
	s.launch()
	s.standing(0)
	s.Stick(true)
	s.destroy()
	if seen := s.until(cluster.Stuck); seen.Failure == "" {
		s.Error("a removal that failed says no reason")
	}
	s.Stick(false)
	s.gone()
}

// checkListed checks how often the site lists the cluster.
func checkListed(s *stage, want int) {
	s.Helper()
	if got := listed(s); got != want {
		s.Errorf("the site lists the cluster %d times, want %d", got, want)
	}
}

// listed counts how often the site lists the cluster.
func listed(s *stage) int {
	s.Helper()
	all, err := s.driver.List(s.Context(), s.At)
	if err != nil {
		s.Errorf("list: %v", err)
	}
	got := 0
	for _, f := range all {
		if f.Cluster == s.build.Cluster {
			got++
		}
	}
	return got
}

func testList(s *stage) {
	s.launch()
	checkListed(s, 1)
	if s.single {
		return
	}
	mine := s.build
	s.build = s.another(0)
	s.build.Partition = croft.NewPartitionID()
	s.launch()
	s.standing()
	other := s.build
	defer func() {
		if err := s.driver.Destroy(s.Context(), s.At, other); err != nil {
			s.Error(err)
		}
	}()
	s.build = mine
	all, err := s.driver.List(s.Context(), s.At)
	if err != nil {
		s.Fatal(err)
	}
	var got []croft.ClusterID
	for _, f := range all {
		if f.Cluster == mine.Cluster && f.Remote.Name != mine.Remote.Name {
			s.Errorf("it is listed as %+v, want the name %s", f.Remote, mine.Remote.Name)
		}
		got = append(got, f.Cluster)
	}
	if diff := cmp.Diff([]croft.ClusterID{mine.Cluster}, got); diff != "" {
		s.Errorf("clusters of this partition (-want +got), where %s is of another: %s", other.Cluster, diff)
	}
}

func testCheck(s *stage) {
	if _, err := s.driver.Check(s.Context(), s.Implementation); err != nil {
		s.Errorf("check of what the site can build: %v", err)
	}
	if s.Bad.Template == "" && s.Bad.Image == "" {
		return
	}
	if _, err := s.driver.Check(s.Context(), s.Bad); croft.KindOf(err) != croft.Invalid {
		s.Errorf("check of a bad template: got %v, want invalid", err)
	}
}

func testProbe(s *stage) {
	p, err := s.driver.Probe(s.Context(), s.At)
	if err != nil || !p.Builds {
		s.Errorf("got %+v, %v, want that the site can build", p, err)
	}
	if s.At.Credential.ID != "" && !p.Accepted {
		s.Errorf("the credential is not accepted: %+v", p)
	}
}

func testBring(s *stage) {
	s.need("take images", s.Image.Name == "")
	var placed cluster.Placed
	patient.Until(s.T, "the image is there", func() bool {
		var err error
		if placed, err = s.driver.Bring(s.Context(), s.At, s.Image); err != nil {
			s.Fatal(err)
		}
		if placed.State == cluster.ImageFailed || placed.Total > 0 && placed.Done > placed.Total {
			s.Fatalf("got %+v", placed)
		}
		return placed.State == cluster.ImageReady
	})
	again, err := s.Driver(s.T).Bring(s.Context(), s.At, s.Image)
	if err != nil || again.State != cluster.ImageReady || again.Ref == "" || again.Ref != placed.Ref {
		s.Errorf("brought again it is %+v, %v, before it was %+v", again, err, placed)
	}
}
