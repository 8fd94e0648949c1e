package cluster

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// world returns a World with two OpenStack sites and the local site; the user has credentials for both OpenStack sites.
func world() World {
	return World{
		Types: SiteTypes,
		Sites: []Site{{Name: "east", Type: OpenStack, Enabled: true}, {Name: "local", Type: Local, Enabled: true},
			{Name: "west", Type: OpenStack, Enabled: true}},
		Implementations: []Implementation{
			{ID: "e1", Appliance: "slurm", Site: "east", Revision: 1, Enabled: true},
			{ID: "l1", Appliance: "slurm", Site: "local", Revision: 1, Enabled: true},
			{ID: "w1", Appliance: "slurm", Site: "west", Revision: 1, Enabled: true},
			{ID: "w2", Appliance: "slurm", Site: "west", Revision: 2, Enabled: true},
		},
		Credentials: []Credential{{ID: "c-east", Name: "mine", Site: "east"}, {ID: "c-west", Name: "work",
			Site: "west"}},
		Now: now,
	}
}

func request() Request {
	return Request{Project: "p", User: "ann", Spec: Spec{Name: "c", Appliance: "slurm", Slaves: 2}}
}

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

// reasonOf returns why an implementation, or a site without one, was dropped.
func reasonOf(all []Dropped, what string) string {
	for _, d := range all {
		if string(d.Implementation) == what || d.Implementation == "" && d.Site == what {
			return d.Reason
		}
	}
	return ""
}

func TestDropped(t *testing.T) {
	fits := Room{Known: true, Fits: true, Free: 0.5}
	silent := func(site string, ago ...time.Duration) (all []Trouble) {
		for _, d := range ago {
			all = append(all, Trouble{Site: site, At: now.Add(-d), Silent: true})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		change func(*Request, *World)
		what   string // implementation
		want   string // reason; "": it is a candidate
	}{
		{"nothing is against it", func(*Request, *World) {}, "w2", ""},
		{"an older revision", func(*Request, *World) {}, "w1", "revision 2 is newer"},
		{"the newest revision is disabled", func(_ *Request, w *World) { w.Implementations[3].Enabled = false }, "w2",
			"revision 2 is disabled"},
		{"then the one before it is built", func(_ *Request, w *World) { w.Implementations[3].Enabled = false }, "w1",
			""},
		{"an older revision that the request names",
			func(r *Request, _ *World) { r.Hints.Implementations = []ImplementationID{"w1"} }, "w1", ""},
		{"one that the request does not name",
			func(r *Request, _ *World) { r.Hints.Implementations = []ImplementationID{"w1"} }, "w2",
			"the request asks for other implementations"},
		{"a disabled site", func(_ *Request, w *World) { w.Sites[0].Enabled = false }, "e1", "the site is disabled"},
		{"a site that the request does not name", func(r *Request, _ *World) { r.Hints.Sites = []string{"west"} }, "e1",
			"the request asks for other sites"},
		{"a site that it excludes", func(r *Request, _ *World) { r.Hints.ExcludeSites = []string{"east"} }, "e1",
			"the request excludes this site"},
		{"a site of a type without a driver", func(_ *Request, w *World) { w.Types = []SiteType{Local} }, "e1",
			"this server cannot reach sites of type openstack"},
		{"a site that was removed", func(_ *Request, w *World) { w.Sites = w.Sites[1:] }, "e1",
			"there is no such site any more"},
		{"no credential", func(_ *Request, w *World) { w.Credentials = w.Credentials[1:] }, "e1",
			"you have no credential for this site"},
		{"the local site needs none", func(_ *Request, w *World) { w.Credentials = nil }, "l1", ""},
		{"another credential is asked for", func(r *Request, _ *World) { r.Hints.Credentials = []string{"work"} }, "e1",
			"none of the credentials that the request asks for is for this site"},
		{"a credential is asked for, and the site takes none",
			func(r *Request, _ *World) { r.Hints.Credentials = []string{"work"} }, "l1",
			"none of the credentials that the request asks for is for this site"},
		{"no room", func(_ *Request, w *World) {
			w.Rooms = map[Place]Room{{"east", "c-east", "e1"}: {Known: true, Why: "needs 12 VCPU, 8 are left"}}
		}, "e1", "needs 12 VCPU, 8 are left"},
		{"room", func(_ *Request, w *World) { w.Rooms = map[Place]Room{{"east", "c-east", "e1"}: fits} }, "e1", ""},
		{"as many clusters as it may have", func(_ *Request, w *World) {
			w.Sites[0].MaxClusters, w.Clusters = 1, []Cluster{{ID: "x", Site: "east", State: Failed}}
		}, "e1", "site east has 1 cluster, and may have 1"},
		{"deleted clusters do not count", func(_ *Request, w *World) {
			w.Sites[0].MaxClusters, w.Clusters = 1, []Cluster{{ID: "x", Site: "east", State: Deleted}}
		}, "e1", ""},
		{"nor does the cluster itself", func(_ *Request, w *World) {
			w.Sites[0].MaxClusters, w.Clusters = 1, []Cluster{{ID: "x", Site: "east", State: Building}}
			w.Filling.Cluster = "x"
		}, "e1", ""},
		{"silent three times", func(_ *Request, w *World) {
			w.Troubles = silent("east", 9*time.Minute, 5*time.Minute,
				time.Minute)
		}, "e1", "the site did not answer 3 times, and is asked again in 4m"},
		{"a silence of seconds closes a site for seconds", func(_ *Request, w *World) {
			w.Troubles = silent("east", 22*time.Second, 15*time.Second, 2*time.Second)
		}, "e1", "the site did not answer 3 times, and is asked again in 18s"},
		{"a silence of half a minute that ended half a minute ago does not close a site",
			func(_ *Request, w *World) {
				w.Troubles = silent("east", 61*time.Second, 45*time.Second, 31*time.Second)
			}, "e1", ""},
		{"silent twice", func(_ *Request, w *World) { w.Troubles = silent("east", 2*time.Minute, time.Minute) }, "e1",
			""},
		{"silent three times, in more than ten minutes",
			func(_ *Request, w *World) { w.Troubles = silent("east", 12*time.Minute, 5*time.Minute, time.Minute) },
			"e1", ""},
		{"silent three times, more than five minutes ago",
			func(_ *Request, w *World) { w.Troubles = silent("east", 8*time.Minute, 7*time.Minute, 6*time.Minute) },
			"e1",
			""},
		{"failed builds do not close a site", func(_ *Request, w *World) {
			w.Troubles = []Trouble{{Site: "east", At: now}, {Site: "east", At: now}, {Site: "east", At: now}}
		}, "e1", ""},
		{"it was tried there", func(_ *Request, w *World) {
			w.Attempts = []Tried{{Site: "east", Error: "No valid host"}}
		}, "e1", "it was tried there: No valid host"},
		{"a site without an implementation", func(_ *Request, w *World) { w.Implementations = w.Implementations[1:] },
			"east",
			"slurm has no implementation for this site"},
		{"a parameter that cannot be filled", func(_ *Request, w *World) {
			w.Contracts = map[ImplementationID]Contract{"e1": {Declared: map[string]Declared{"size": {Type: "number"}}}}
		}, "e1", "parameter size of the template is required, and nothing sets it"},
		{"an image that is not at the site yet", func(_ *Request, w *World) {
			w.Implementations[0].Image = "debian"
			w.Contracts = map[ImplementationID]Contract{"e1": declare("image:string")}
		}, "e1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := request(), world()
			c.change(&r, &w)
			candidates, dropped, err := Choose(r, w, seeded(1))
			if err != nil {
				t.Fatal(err)
			}
			if got := reasonOf(dropped, c.what); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			there := slices.ContainsFunc(candidates,
				func(x Candidate) bool { return string(x.Implementation.ID) == c.what })
			if there != (c.want == "") {
				t.Errorf("it is a candidate: %v", there)
			}
		})
	}
}

func TestHintsOfWhatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		hints Hints
		want  string
	}{
		{"a site", Hints{Sites: []string{"esat"}}, `hint sites: there is no site "esat"; did you mean "east"?`},
		{"a site to exclude", Hints{ExcludeSites: []string{"moon"}}, `hint exclude_sites: there is no site "moon"`},
		{"a site to prefer", Hints{PreferSites: []string{"wets"}},
			`hint prefer_sites: there is no site "wets"; did you ` +
				`mean "west"?`},
		{"a credential", Hints{Credentials: []string{"wrok"}},
			`hint credentials: there is no credential of yours "wrok"; ` +
				`did you mean "work"?`},
		{"an implementation", Hints{Implementations: []ImplementationID{"x9"}}, `hint implementations: there is no ` +
			`implementation of this appliance "x9"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request()
			r.Hints = c.hints
			_, _, err := Choose(r, world(), seeded(1))
			if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestParametersAloneAreInvalid(t *testing.T) {
	w := world()
	w.Filling.Given = map[string]any{"nodes": 1}
	w.Contracts = map[ImplementationID]Contract{"e1": {}, "l1": {}, "w2": {}}
	if _, _, err := Choose(request(), w, seeded(1)); !errors.Is(err, croft.Invalid) {
		t.Errorf("got %v, want Invalid: no site knows the parameter", err)
	}
	w.Contracts["w2"] = Contract{Declared: map[string]Declared{"nodes": {Type: "number"}}}
	if got, _, err := Choose(request(), w, seeded(1)); err != nil || len(got) != 1 || got[0].Site.Name != "west" {
		t.Errorf("got %v, %v: want west, which knows it", got, err)
	}
	w.Rooms = map[Place]Room{{"west", "c-west", "w2"}: {Known: true, Why: "full"}}
	if got, dropped, err := Choose(request(), w, seeded(1)); err != nil || len(got) != 0 || len(dropped) != 4 {
		t.Errorf("got %v, %v, %v: want nothing without an error, since west may have room later", got, dropped, err)
	}
}

func TestCredentialOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		hints []string
		all   []Credential
		want  CredentialID
	}{
		{"the hinted order", []string{"b", "a"}, []Credential{{ID: "1", Name: "a"}, {ID: "2", Name: "b"}}, "2"},
		{"hints may be IDs", []string{"2"}, []Credential{{ID: "1", Name: "a"}, {ID: "2", Name: "b"}}, "2"},
		{"the one that was verified last", nil,
			[]Credential{{ID: "1", VerifiedAt: now.Add(-time.Hour)}, {ID: "2", VerifiedAt: now}}, "2"},
		{"the oldest", nil, []Credential{{ID: "1", Created: now}, {ID: "2", Created: now.Add(-time.Hour)}}, "2"},
		{"one that is refused comes last", nil,
			[]Credential{{ID: "1", VerifiedAt: now, LastError: "401"}, {ID: "2", Created: now}}, "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := request(), world()
			r.Hints.Credentials = c.hints
			for i := range c.all {
				c.all[i].Site = "east"
			}
			w.Credentials = c.all
			candidates, _, err := Choose(r, w, seeded(1))
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Site.Name == "east" })
			if at < 0 || candidates[at].Credential.ID != c.want {
				t.Errorf("got %+v, want credential %s", candidates, c.want)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	east, west := Place{"east", "c-east", "e1"}, Place{"west", "c-west", "w2"}
	room := func(e, w float64) map[Place]Room {
		return map[Place]Room{east: {Known: true, Fits: true, Free: e}, west: {Known: true, Fits: true, Free: w}}
	}
	for _, c := range []struct {
		name   string
		change func(*Request, *World)
		why    string // why west is the first candidate
	}{
		{"a cluster to reuse comes before known room", func(_ *Request, w *World) {
			w.Reuse, w.Rooms = "west", map[Place]Room{east: {Known: true, Fits: true}}
		}, "it has a cluster that can be reused"},
		{"known room comes before a wish", func(r *Request, w *World) {
			r.Hints.PreferSites, w.Rooms = []string{"east"}, map[Place]Room{west: {Known: true, Fits: true}}
		}, "it is known to have room"},
		{"a wish comes before priority", func(r *Request, w *World) {
			r.Hints.PreferSites, w.Sites[0].Priority = []string{"west", "east"}, 9
		}, "the request prefers it"},
		{"priority comes before the free fraction", func(_ *Request, w *World) {
			w.Sites[2].Priority, w.Rooms = 1, room(0.9, 0.1)
		}, "its priority is 1, the next site's is 0"},
		{"the free fraction comes before failures", func(_ *Request, w *World) {
			w.Rooms, w.Troubles = room(0.1, 0.9), []Trouble{{Site: "west", At: now}}
		}, "it leaves 90.0 % of its scarcest resource free, the next site 10.0 %"},
		{"failures of the last hour", func(_ *Request, w *World) {
			w.Troubles = []Trouble{{Site: "east", At: now}, {Site: "west", At: now.Add(-2 * time.Hour)}}
		}, "0 failures in the last hour, at the next 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := request(), world()
			r.Hints.ExcludeSites = []string{"local"}
			c.change(&r, &w)
			for seed := range uint64(8) {
				got, _, err := Choose(r, w, seeded(seed))
				if err != nil || len(got) != 2 || got[0].Site.Name != "west" || got[0].Why != c.why {
					t.Fatalf("got %+v, %v, want west because %s", Choices(got), err, c.why)
				}
				if got[1].Why != "it is the last" {
					t.Errorf("why of the last: %q", got[1].Why)
				}
			}
		})
	}
}

func TestEqualsAreInRandomOrder(t *testing.T) {
	first := map[string]int{}
	for seed := range uint64(60) {
		got, _, err := Choose(request(), world(), seeded(seed))
		if err != nil {
			t.Fatal(err)
		}
		first[got[0].Site.Name]++
	}
	if len(first) != 3 {
		t.Errorf("the first of three equal sites, in 60 draws: %v", first)
	}
}
