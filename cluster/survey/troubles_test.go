package survey_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
)

// TestWhoseFaultItIs checks when a site counts as silent, and whose failed requests make it so.
func TestWhoseFaultItIs(t *testing.T) {
	silence := cluster.Silent(croft.Errorf(croft.Unavailable, "refuses connections"))
	fault := cluster.Faulty(croft.Errorf(croft.Unavailable, "500 CircularDependencyException"))
	unasked := croft.Errorf(croft.Unavailable, "the store does not answer")
	full := croft.Errorf(croft.NoCapacity, "full")
	denied := croft.Errorf(croft.Denied, "401")
	type response struct {
		project croft.Project
		err     error
	}
	for _, c := range []struct {
		name   string
		said   []response
		silent bool // expected after the last response
	}{
		{"no response arrived", []response{{"a", silence}}, true},
		{"the faults of one project are its own", []response{{"a", fault}, {"a", fault}, {"a", fault}, {"a", fault}},
			false},
		{"faults of several projects are the site's", []response{{"a", fault}, {"b", fault}}, true},
		{"unless one is served", []response{{"a", fault}, {"c", nil}, {"b", fault}}, false},
		{"a refusal is a response", []response{{"a", fault}, {"c", full}, {"b", fault}}, false},
		{"a refused credential says nothing of Heat", []response{{"a", fault}, {"c", denied}, {"b", fault}}, true},
		{"a refused credential is no silence", []response{{"a", denied}, {"b", denied}}, false},
		{"what did not reach the site is no silence", []response{{"a", unasked}, {"b", unasked}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := survey.New(newBench(t).config)
				if err != nil {
					t.Fatal(err)
				}
				silent := false
				for _, said := range c.said {
					silent = s.Note(cluster.SiteAccess{Site: cluster.Site{Name: "east"},
						Credential: cluster.Credential{Project: said.project}}, said.err)
					time.Sleep(7 * time.Second)
				}
				if silent != c.silent {
					t.Errorf("silent is %t", silent)
				}
			})
		})
	}
}

// TestTheFirstResponseEndsASilence checks that a restarted site is used as soon as it answers any request.
func TestTheFirstResponseEndsASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.config.Images = func(name string) (cluster.SiteImage, error) {
			there := cluster.Placed{Ref: "x", State: cluster.ImageReady}
			return cluster.SiteImage{Name: name, On: map[string]cluster.Placed{"east": there}}, nil
		}
		s, err := survey.New(b.config)
		if err != nil {
			t.Fatal(err)
		}
		at := cluster.SiteAccess{Site: cluster.Site{Name: "west"}, Credential: cluster.Credential{Project: "a"}}
		for range 20 {
			s.Note(at, cluster.Silent(croft.Errorf(croft.Unavailable, "refuses connections")))
			time.Sleep(10 * time.Second)
		}
		if why := closed(t, s); why == "" {
			t.Error("it is not closed after three minutes of silence")
		}
		s.Note(at, nil)
		if why := closed(t, s); why != "" {
			t.Errorf("after a response: %s", why)
		}
	})
}

// closed returns why the site is not chosen; empty: it is chosen.
func closed(t *testing.T, s *survey.Survey) string {
	t.Helper()
	found, err := s.Look(t.Context(), cluster.Request{Project: "b", User: "bob",
		Spec: cluster.Spec{ID: croft.NewClusterID(), Name: "c", Appliance: "slurm"}}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(found.Dropped, func(d cluster.Dropped) bool { return d.Site == "west" })
	if i < 0 {
		return ""
	}
	return found.Dropped[i].Reason
}
