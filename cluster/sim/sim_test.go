package sim_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/cluster/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const site = "sim"

func TestTheContract(t *testing.T) {
	clustertest.RunDriver(t, func(*testing.T) clustertest.Harness {
		s := sim.New()
		change := func(set func(f *sim.Faults, on bool)) func(bool) {
			return func(on bool) { s.Change(site, func(f *sim.Faults) { set(f, on) }) }
		}
		change(func(f *sim.Faults, _ bool) { f.Delay = 20 * time.Millisecond })(true)
		return clustertest.Harness{
			Driver: func(*testing.T) cluster.Driver { return s }, // a restart would lose the site itself
			At: cluster.SiteAccess{
				Site:       cluster.Site{Name: site, Type: cluster.Sim, Enabled: true},
				Credential: cluster.Credential{ID: cluster.NewCredentialID(), Site: site},
			},
			Implementation: cluster.Implementation{Site: site, Template: "outputs: {port: 22}"},
			Bad:            cluster.Implementation{Site: site, Template: "outputs: {}\nresources: {}"},
			Image:          cluster.SiteImage{Name: "debian-12"},

			Freeze: change(func(f *sim.Faults, on bool) { f.Frozen = on }),
			Fail:   change(func(f *sim.Faults, on bool) { f.Fails = reason(on) }),
			Fill: change(func(f *sim.Faults, on bool) {
				if f.Room = 0; on {
					f.Room = 1
				}
			}),
			Cut:   change(func(f *sim.Faults, on bool) { f.Away = on }),
			Hang:  change(func(f *sim.Faults, on bool) { f.Hangs = on }),
			Deny:  change(func(f *sim.Faults, on bool) { f.Denied = on }),
			Stick: change(func(f *sim.Faults, on bool) { f.Sticks = reason(on) }),
			Lose:  func(b cluster.Build, m cluster.Member) { s.Lose(site, b, m) },
			Occupy: func(b cluster.Build) func() bool {
				s.Occupy(site, b.Remote.Name)
				return func() bool { return s.Occupied(site, b.Remote.Name) }
			},
		}
	})
}

func reason(on bool) string {
	if on {
		return "it is told to"
	}
	return ""
}

func TestPlacesAreApart(t *testing.T) {
	s := sim.New()
	b := cluster.Build{Cluster: croft.NewClusterID(), Remote: cluster.Remote{Name: "croft-x"}}
	here := cluster.SiteAccess{Site: cluster.Site{Name: "here"}}
	there := cluster.SiteAccess{Site: cluster.Site{Name: "there"}}
	if _, err := s.Launch(t.Context(), here, b); err != nil {
		t.Fatal(err)
	}
	all, err := s.Observe(t.Context(), there, []cluster.Build{b})
	if err != nil || all[b.Cluster].Phase != cluster.Absent {
		t.Errorf("there it is %+v, %v, want absent", all[b.Cluster], err)
	}
}

func TestACallThatWasGivenUpTakesEffectLater(t *testing.T) {
	s := sim.New()
	b := cluster.Build{Cluster: croft.NewClusterID(), Remote: cluster.Remote{Name: "croft-x"}}
	at := cluster.SiteAccess{Site: cluster.Site{Name: site}}
	s.Change(site, func(f *sim.Faults) { f.Late, f.Most = 100, 1 })
	if _, err := s.Launch(t.Context(), at, b); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("got %v, want that it is unavailable", err)
	}
	s.Change(site, func(f *sim.Faults) { f.Late = 0 })
	time.Sleep(time.Nanosecond)
	if all, err := s.List(t.Context(), at); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v, want the cluster that was launched", all, err)
	}
}
