package clustertest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"testing"

	"croft"
	"croft/cluster"
	"croft/internal/testing/patient"
)

// Harness is one site and its driver for one test of the contract. A nil function means that the site cannot simulate
// that: the tests that need it are skipped.
type Harness struct {
	// Driver returns a driver without knowledge of earlier calls, as after a restart of the server.
	Driver func(t *testing.T) cluster.Driver
	// At is the access to the site.
	At cluster.SiteAccess
	// Partition is the only partition that the site builds for. Empty: it builds for any.
	Partition croft.PartitionID
	single    bool // Partition was given
	// Implementation is one that the site builds quickly, with up to 4 slaves.
	Implementation cluster.Implementation
	// Parameters returns the values of the template for a build, in addition to the indexes. Nil: none.
	Parameters func(b cluster.Build) map[string]any
	// Bad is an implementation that Check rejects. Zero: none exists.
	Bad cluster.Implementation
	// Image can be brought to the site. Zero: the site has no images.
	Image cluster.SiteImage

	// Freeze prevents builds and resizes in progress from ending, or lets them continue.
	Freeze func(frozen bool)
	// Fail makes builds and resizes that start from now on fail, or succeed again. A resize fails for the slaves that
	// it adds.
	Fail func(failing bool)
	// Fill removes all room from the site, or restores it.
	Fill func(full bool)
	// Cut makes the site stop answering, or answer again.
	Cut func(away bool)
	// Hang makes the site accept requests without answering until the context of the call ends, or answer again.
	Hang func(hanging bool)
	// Deny makes the site refuse the credential, or accept it again.
	Deny func(denied bool)
	// Stick makes removals that start from now on fail, or succeed again.
	Stick func(stuck bool)
	// Lose removes a member of a cluster without the driver's knowledge.
	Lose func(b cluster.Build, m cluster.Member)
	// Occupy gives the name that Launch would use for a cluster to an object that does not belong to this server. left
	// reports whether that still exists.
	Occupy func(b cluster.Build) (left func() bool)
}

// stage is one test of the contract, with one cluster.
type stage struct {
	Harness
	*testing.T
	driver cluster.Driver
	build  cluster.Build
}

func newStage(t *testing.T, h Harness, slaves int) *stage {
	h.single, h.Partition = h.Partition != "", cmp.Or(h.Partition, croft.NewPartitionID())
	h.At.Partition = h.Partition
	s := &stage{Harness: h, T: t, driver: h.Driver(t)}
	s.build = s.another(slaves)
	return s
}

// another returns another cluster at the same site, which is not launched yet, and removes it at the end of the test.
func (s *stage) another(slaves int) cluster.Build {
	id := croft.NewClusterID()
	b := cluster.Build{Partition: s.Partition, Cluster: id, Name: "c-" + string(id[:8]), Project: "physics",
		User:           "ada",
		Implementation: s.Implementation, Remote: cluster.Remote{Name: "croft-" + string(id)}, Timeout: patient.Longest}
	for i := range slaves {
		b.Indexes = append(b.Indexes, i)
	}
	b = s.withParameters(b)
	s.Cleanup(func() {
		for _, again := range []func(bool){s.Freeze, s.Fail, s.Fill, s.Cut, s.Hang, s.Deny, s.Stick} {
			if again != nil {
				again(false)
			}
		}
		_ = s.driver.Destroy(context.WithoutCancel(s.Context()), s.At, b)
	})
	return b
}

func (s *stage) withParameters(b cluster.Build) cluster.Build {
	if s.Parameters != nil {
		b.Parameters = s.Parameters(b)
	}
	return b
}

func (s *stage) need(knob any, isNil bool) {
	s.Helper()
	if isNil {
		s.Skipf("this site cannot be made to %v", knob)
	}
}

// launch builds the cluster, and stores the result in the build.
func (s *stage) launch() {
	s.Helper()
	remote, err := s.driver.Launch(s.Context(), s.At, s.build)
	if err != nil {
		s.Fatalf("launch: %v", err)
	}
	if remote.Name != s.build.Remote.Name || remote.ID == "" {
		s.Fatalf("launch returned %+v, want the name %s and an ID", remote, s.build.Remote.Name)
	}
	s.build.Remote = remote
}

// resize resizes the cluster to these slaves.
func (s *stage) resize(indexes []int, removed ...int) error {
	s.build.Indexes, s.build.Removed = indexes, append(s.build.Removed, removed...)
	s.build = s.withParameters(s.build)
	return s.driver.Resize(s.Context(), s.At, s.build)
}

func (s *stage) mustResize(indexes []int, removed ...int) {
	s.Helper()
	if err := s.resize(indexes, removed...); err != nil {
		s.Fatalf("resize to slaves %v: %v", indexes, err)
	}
}

func (s *stage) destroy() {
	s.Helper()
	if err := s.driver.Destroy(s.Context(), s.At, s.build); err != nil {
		s.Fatalf("destroy: %v", err)
	}
}

// look returns the observed state of the cluster, and whether it could be read.
func (s *stage) look() (cluster.Seen, bool) {
	s.Helper()
	all, err := s.driver.Observe(s.Context(), s.At, []cluster.Build{s.build})
	if err != nil && croft.KindOf(err) != croft.Unavailable {
		s.Fatalf("observe: %v", err)
	}
	seen, ok := all[s.build.Cluster]
	return seen, ok && err == nil
}

// until waits for a phase. Other phases fail the test, unless they end on their own (Working, Updating and Removing) or
// are in instead.
func (s *stage) until(want cluster.Phase, instead ...cluster.Phase) cluster.Seen {
	s.Helper()
	var seen cluster.Seen
	patient.Until(s.T, "the site says "+string(want), func() bool {
		now, ok := s.look()
		if !ok {
			return false
		}
		seen = now
		passing := []cluster.Phase{cluster.Working, cluster.Updating, cluster.Removing}
		if seen.Phase != want && !slices.Contains(append(passing, instead...), seen.Phase) {
			s.Fatalf("the site says %s (%s), want %s", seen.Phase, seen.Failure, want)
		}
		return seen.Phase == want
	})
	return seen
}

// standing waits until the cluster stands with its master and these slaves, and checks everything that a site reports
// then.
func (s *stage) standing(indexes ...int) cluster.Seen {
	s.Helper()
	seen := s.until(cluster.Standing)
	want := map[cluster.MemberID]string{cluster.IDOf(s.build.Cluster, cluster.Master, 0): "the master"}
	for _, i := range indexes {
		want[cluster.IDOf(s.build.Cluster, cluster.Slave, i)] = "slave " + strconv.Itoa(i)
	}
	for _, m := range seen.Members {
		if want[m.ID] == "" {
			s.Errorf("member %+v is not one of the cluster's, or is there twice", m)
		}
		if m.State != cluster.MemberReady || m.Address == "" {
			s.Errorf("member %+v of a cluster that stands is not READY with an address", m)
		}
		delete(want, m.ID)
	}
	for _, who := range want {
		s.Errorf("%s is missing in %+v", who, seen.Members)
	}
	checkOutputs(s, seen)
	return seen
}
