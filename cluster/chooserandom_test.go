package cluster

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// randomWorld makes a world in which anything may be missing, disabled, full or silent.
func randomWorld(random *rand.Rand) World {
	w := World{Types: SiteTypes[:1+random.IntN(len(SiteTypes))], Now: now, Rooms: map[Place]Room{},
		Contracts: map[ImplementationID]Contract{}}
	for s := range 1 + random.IntN(5) {
		site := Site{Name: fmt.Sprintf("s%d", s), Type: SiteTypes[random.IntN(len(SiteTypes))],
			Enabled: random.IntN(5) > 0, Priority: random.IntN(3), MaxClusters: random.IntN(3)}
		w.Sites = append(w.Sites, site)
		for c := range random.IntN(3) {
			w.Credentials = append(w.Credentials, Credential{ID: CredentialID(fmt.Sprintf("c%d-%d", s, c)),
				Name: fmt.Sprintf("n%d-%d", s, c), Site: site.Name,
				VerifiedAt: now.Add(-time.Duration(random.IntN(3)))})
		}
		for i := range random.IntN(4) {
			w.Implementations = append(w.Implementations, Implementation{Site: site.Name, Revision: i + 1,
				Appliance: "slurm",
				ID:        ImplementationID(fmt.Sprintf("i%d-%d", s, i)), Enabled: random.IntN(4) > 0})
		}
		for range random.IntN(4) {
			w.Troubles = append(w.Troubles, Trouble{Site: site.Name, Silent: random.IntN(2) > 0,
				At: now.Add(-time.Duration(random.IntN(15)) * time.Minute)})
		}
		for range random.IntN(2) {
			w.Clusters = append(w.Clusters, Cluster{Site: site.Name, State: States[random.IntN(len(States))]})
		}
	}
	for _, i := range w.Implementations {
		for _, c := range append(w.Credentials, Credential{}) {
			if random.IntN(3) > 0 {
				fits := random.IntN(2) > 0
				w.Rooms[Place{i.Site, c.ID, i.ID}] = Room{Known: true, Fits: fits, Why: "full", Free: random.Float64()}
			}
		}
		if random.IntN(3) == 0 {
			w.Contracts[i.ID] = Contract{Declared: map[string]Declared{"x": {Type: "string",
				Default: random.IntN(2) > 0}}}
		}
	}
	return w
}

func randomHints(random *rand.Rand, w World) Hints {
	var h Hints
	for _, s := range w.Sites {
		switch random.IntN(8) {
		case 0:
			h.Sites = append(h.Sites, s.Name)
		case 1:
			h.ExcludeSites = append(h.ExcludeSites, s.Name)
		case 2:
			h.PreferSites = append(h.PreferSites, s.Name)
		}
	}
	for _, c := range w.Credentials {
		if random.IntN(8) == 0 {
			h.Credentials = append(h.Credentials, []string{c.Name, string(c.ID)}[random.IntN(2)])
		}
	}
	for _, i := range w.Implementations {
		if random.IntN(12) == 0 {
			h.Implementations = append(h.Implementations, i.ID)
		}
	}
	return h
}

func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(4000) {
		random := seeded(seed)
		w := randomWorld(random)
		r := request()
		r.Hints = randomHints(random, w)
		candidates, dropped, err := Choose(r, w, seeded(seed))
		if err != nil {
			if len(w.Contracts) == 0 {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		checkOnce(t, seed, w, candidates, dropped)
		checkObeyed(t, seed, r.Hints, candidates)
		again, droppedAgain, _ := Choose(r, w, seeded(seed))
		if !reflect.DeepEqual(candidates, again) || !reflect.DeepEqual(dropped, droppedAgain) {
			t.Fatalf("seed %d: another choice with the same random source", seed)
		}
		other, _, _ := Choose(r, w, seeded(seed+1))
		checkEquals(t, seed, w, r.Hints, candidates, other)
		checkMoreRoom(t, seed, r, w, candidates)
	}
}

func checkOnce(t *testing.T, seed uint64, w World, candidates []Candidate, dropped []Dropped) {
	t.Helper()
	seen := map[ImplementationID]int{}
	for _, c := range candidates {
		seen[c.Implementation.ID]++
		if c.Why == "" || c.Implementation.Site != c.Site.Name || c.Credential.ID != "" &&
			c.Credential.Site != c.Site.Name {
			t.Fatalf("seed %d: candidate %+v", seed, c)
		}
	}
	for _, d := range dropped {
		if d.Reason == "" {
			t.Fatalf("seed %d: %+v has no reason", seed, d)
		}
		if d.Implementation != "" {
			seen[d.Implementation]++
		}
	}
	for _, i := range w.Implementations {
		if seen[i.ID] != 1 {
			t.Fatalf("seed %d: implementation %s was decided about %d times", seed, i.ID, seen[i.ID])
		}
	}
}

func checkObeyed(t *testing.T, seed uint64, h Hints, candidates []Candidate) {
	t.Helper()
	for _, c := range candidates {
		named := slices.Contains(h.Credentials, c.Credential.Name) ||
			slices.Contains(h.Credentials, string(c.Credential.ID))
		if len(h.Sites) > 0 && !slices.Contains(h.Sites, c.Site.Name) || slices.Contains(h.ExcludeSites, c.Site.Name) ||
			len(h.Credentials) > 0 && !named ||
			len(h.Implementations) > 0 && !slices.Contains(h.Implementations, c.Implementation.ID) {
			t.Fatalf("seed %d: %+v is not what the hints ask for: %+v", seed, c, h)
		}
	}
}

// checkEquals requires that two random sources give the same candidates, and that only equal candidates change places.
func checkEquals(t *testing.T, seed uint64, w World, h Hints, a, b []Candidate) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("seed %d: %d candidates, and %d with another random source", seed, len(a), len(b))
	}
	for i := range a {
		for _, c := range w.criteria(h) {
			if c.of(a[i]) != c.of(b[i]) {
				t.Fatalf("seed %d: %s and %s change places, and are not equal", seed, a[i].Site.Name, b[i].Site.Name)
			}
		}
	}
}

// checkMoreRoom requires that room added anywhere drops nothing.
func checkMoreRoom(t *testing.T, seed uint64, r Request, w World, before []Candidate) {
	t.Helper()
	more := w
	more.Rooms = map[Place]Room{}
	for place := range w.Rooms {
		more.Rooms[place] = Room{Known: true, Fits: true, Free: 1}
	}
	after, _, err := Choose(r, more, seeded(seed))
	if err != nil {
		t.Fatalf("seed %d: %v with more room", seed, err)
	}
	for _, c := range before {
		if !slices.ContainsFunc(after, func(x Candidate) bool { return x.Place() == c.Place() }) {
			t.Fatalf("seed %d: %s is dropped with more room", seed, c.Site.Name)
		}
	}
}
