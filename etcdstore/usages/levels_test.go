package usages_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
	"croft/tenant/usage"
)

func asked(project croft.Project, name string, vcpus int64) croft.Instance {
	inst := etcdtest.NewInstance(name)
	inst.Project, inst.Spec.Resources = project, croft.Resources{croft.VCPU: vcpus}
	return inst
}

func newProject(t *testing.T, s *etcdstore.Store, name, parent croft.Project) {
	t.Helper()
	etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: name, Parent: parent}))(t)
}

// The reported usage equals the usage of projects at each revision, while instances are created and removed in nested
// projects, projects are removed and created again, and counters are counted again.
func TestWhatIsHeardIsWhatIsUsedAtEachRevision(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	newProject(t, s, "org", "")
	newProject(t, s, "dev", "org")
	begun, err := s.Usage.Take(t.Context(), usage.Head{}, "one")
	if err != nil {
		t.Fatal(err)
	}
	projects := []croft.Project{"org", "dev", "free", "late"}
	var there []croft.Instance
	for n := range 60 {
		switch k := random.IntN(10); {
		case k < 5:
			wanted := asked(projects[random.IntN(4)], fmt.Sprint("vm", n), 1+int64(k))
			inst, err := s.Instances.Create(t.Context(), wanted)
			if err != nil {
				t.Fatal(err)
			}
			there = append(there, inst)
		case k < 8 && len(there) > 0:
			i := random.IntN(len(there))
			if err := s.Instances.Discard(t.Context(), there[i]); err != nil {
				t.Fatal(err)
			}
			there = append(there[:i], there[i+1:]...)
		case k == 8:
			if err := s.Projects.Recount(t.Context(), projects[random.IntN(4)]); err != nil {
				t.Fatal(err)
			}
		default: // it may exist, or be in use
			if _, err := s.Projects.Create(t.Context(), tenant.Tenant{Name: "late", Parent: "dev"}); err != nil {
				_ = s.Projects.Remove(t.Context(), "late")
			}
		}
	}
	last, err := s.Usage.Write(t.Context(), usage.Step{Was: begun.Head, Next: begun.Head})
	if err != nil {
		t.Fatal(err)
	}
	known := map[usage.ID]tenant.Amounts{}
	for _, l := range begun.Levels {
		known[l.ID] = l.Used
	}
	heard := 0
	err = begun.Follow(t.Context(), func(seen usage.Seen) error {
		for _, id := range seen.Gone {
			delete(known, id)
		}
		for _, l := range seen.Levels {
			known[l.ID] = l.Used
			if l.Changed != seen.Revision {
				t.Errorf("%+v changed at %d", l, seen.Revision)
			}
		}
		levels, err := s.Projects.LevelsAt(t.Context(), seen.Revision)
		if err != nil {
			return err
		}
		want := map[usage.ID]tenant.Amounts{}
		for _, l := range levels.All() {
			want[l.ID] = l.Used
		}
		if diff := cmp.Diff(want, known); diff != "" {
			return fmt.Errorf("at revision %d (-want +got):\n%s", seen.Revision, diff)
		}
		heard++
		if seen.Revision >= last.Generation {
			return context.Canceled
		}
		return nil
	})
	if err != context.Canceled || heard < 40 {
		t.Errorf("%d revisions were heard, then %v", heard, err)
	}
	// The reported usage also equals the sums over the records.
	if found := etcdtest.Must(s.Projects.Check(t.Context()))(t); len(found) > 0 {
		t.Errorf("counters and records differ: %+v", found)
	}
	for _, name := range projects {
		accounts := etcdtest.Must(s.Projects.Accounts(t.Context(), name))(t)
		sum := tenant.Amounts{}
		for id, used := range known {
			if id.Project == name {
				sum = sum.Plus(used)
			}
		}
		if diff := cmp.Diff(accounts[0].Used, sum); diff != "" {
			t.Errorf("project %s (-quota +usage):\n%s", name, diff)
		}
	}
}
