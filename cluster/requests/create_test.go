package requests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/sim"
)

func TestANewClusterIsOnRecord(t *testing.T) {
	b := newBench(t)
	r := ask("one")
	r.KeepIdle, r.Expires = cluster.Seconds(time.Hour), cluster.Seconds(2*time.Hour)
	made, err := b.Create(t.Context(), r)
	b.fatal(err)
	c := made.Cluster
	if made.Reused || c.State != cluster.Scheduling || c.Site != "" || !slices.Equal(c.Indexes, []int{0, 1}) ||
		c.NextIndex != 2 || c.Generation != 1 || len(c.Uses) != 1 || c.Uses[0].Holder != "ada" ||
		c.KeepIdle != cluster.Seconds(time.Hour) ||
		c.Expires.Sub(c.Created) != 2*time.Hour {
		t.Errorf("got %+v", made)
	}
	for _, name := range []string{"one", string(c.ID)} {
		if found, err := b.Find(t.Context(), "physics", name); err != nil || found.ID != c.ID {
			t.Errorf("find %s: got %+v, %v", name, found, err)
		}
		_, err := b.Find(t.Context(), "chemistry", name)
		b.kind(err, croft.NotFound, "project chemistry has no cluster")
	}
	events, err := b.Events(t.Context(), "physics", "one")
	if err != nil || len(events) != 1 || events[0].Message != "ada asked for a cluster of slurm with 2 slaves" {
		t.Errorf("events: %v, %v", events, err)
	}
}

func TestReuse(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  func(*cluster.Request)
		state  cluster.State
		change func(*cluster.Request) // of the second request
		reused bool
	}{
		{"the same again", nil, cluster.Ready, nil, true},
		{"while it is built", nil, cluster.Building, nil, true},
		{"while it is resized", nil, cluster.Resizing, nil, true},
		{"while a site is chosen", nil, cluster.Scheduling, nil, true},
		{"one that failed is not used", nil, cluster.Failed, nil, false},
		{"nor is one with a slave missing", nil, cluster.Degraded, nil, false},
		{"nor one that is being removed", nil, cluster.Deleting, nil, false},
		{"another user", nil, cluster.Ready, func(r *cluster.Request) { r.User = "bob" }, false},
		{"another project", nil, cluster.Ready, func(r *cluster.Request) { r.Project = "chemistry" }, false},
		{"fewer slaves", nil, cluster.Ready, func(r *cluster.Request) { r.Slaves = 1 }, true},
		{"more slaves", nil, cluster.Ready, func(r *cluster.Request) { r.Slaves = 3 }, false},
		{"never", nil, cluster.Ready, func(r *cluster.Request) { r.Reuse = cluster.ReuseNever }, false},
		{"its site is asked for", nil, cluster.Ready, func(r *cluster.Request) { r.Hints.Sites = []string{"east"} },
			true},
		{"another site is asked for", nil, cluster.Ready,
			func(r *cluster.Request) { r.Hints.Sites = []string{"west"} }, false},
		{"its site is excluded", nil, cluster.Ready,
			func(r *cluster.Request) { r.Hints.ExcludeSites = []string{"east"} }, false},
		{"another site is preferred, which is a wish", nil, cluster.Ready,
			func(r *cluster.Request) { r.Hints.PreferSites = []string{"west"} }, true},
		{"a site is asked for, and it has none yet", nil, cluster.Scheduling,
			func(r *cluster.Request) { r.Hints.Sites = []string{"east"} }, false},
		{"both were asked for at that site, and it has none yet",
			func(r *cluster.Request) { r.Hints.Sites = []string{"east"} }, cluster.Scheduling,
			func(r *cluster.Request) { r.Hints.Sites = []string{"east"} }, true},
		{"other parameters", nil, cluster.Ready,
			func(r *cluster.Request) { r.Parameters = map[string]any{"flavor_name": "large"} }, false},
		{"the same parameters, of which one is sealed",
			func(r *cluster.Request) { r.Parameters = map[string]any{"pin": "1234", "flavor_name": "large"} },
			cluster.Ready,
			func(r *cluster.Request) { r.Parameters = map[string]any{"pin": "1234", "flavor_name": "large"} }, true},
		{"another value of the sealed one",
			func(r *cluster.Request) { r.Parameters = map[string]any{"pin": "1234"} }, cluster.Ready,
			func(r *cluster.Request) { r.Parameters = map[string]any{"pin": "4321"} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			first, second := ask("one"), ask("two")
			if c.first != nil {
				c.first(&first)
			}
			if c.change != nil {
				c.change(&second)
			}
			one := b.manage(b.create(first).ID, c.state)
			explained, err := b.Explain(t.Context(), second)
			b.fatal(err)
			if (explained.Reuse == "one") != c.reused {
				t.Errorf("the explanation says that it would join %q", explained.Reuse)
			}
			two, err := b.Create(t.Context(), second)
			b.fatal(err)
			if two.Reused != c.reused || (two.Cluster.ID == one.ID) != c.reused {
				t.Errorf("got %+v, want reuse: %v", two, c.reused)
			}
			if c.reused && (len(two.Cluster.Uses) != 2 || two.Cluster.Uses[0].ID == two.Cluster.Uses[1].ID) {
				t.Errorf("uses: %+v", two.Cluster.Uses)
			}
		})
	}
}

func TestReuseAsksNoSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.manage(b.create(ask("one")).ID, cluster.Ready)
		b.sites.Change("east", func(f *sim.Faults) { f.Hangs = true })
		b.sites.Change("west", func(f *sim.Faults) { f.Hangs = true })
		start := time.Now()
		made, err := b.another().Create(t.Context(), ask("two"))
		if err != nil || !made.Reused || time.Since(start) > 0 {
			t.Errorf("got %+v, %v after %s", made, err, time.Since(start))
		}
	})
}

func TestReuseKeepsAClusterLonger(t *testing.T) {
	b := newBench(t)
	r := ask("one")
	r.KeepIdle, r.Expires = cluster.Seconds(time.Minute), cluster.Seconds(time.Hour)
	c := b.manage(b.create(r).ID, cluster.Ready, func(c *cluster.Cluster) { c.Uses, c.IdleSince = nil, time.Now() })
	r.Name, r.KeepIdle, r.Expires = "two", cluster.Seconds(time.Hour), cluster.Seconds(5*time.Hour)
	made := b.create(r)
	if made.ID != c.ID || made.KeepIdle != cluster.Seconds(time.Hour) || time.Until(made.Expires) < 4*time.Hour ||
		!made.IdleSince.IsZero() {
		t.Errorf("got %+v", made)
	}
	r.KeepIdle, r.Expires = 0, 0
	if made := b.create(r); made.ID != c.ID || made.KeepIdle != 0 || !made.Expires.IsZero() {
		t.Errorf("a request without an end: got %+v", made)
	}
}

func TestAnIDIsUsedOnce(t *testing.T) {
	b := newBench(t)
	r := ask("one")
	r.ID, r.Parameters = croft.NewClusterID(), map[string]any{"pin": "1234", "flavor_name": "x"}
	b.create(r)
	b.manage(r.ID, cluster.Ready, func(c *cluster.Cluster) { c.Slaves, c.Name = 7, "renamed" })
	again, err := b.Create(t.Context(), r)
	if err != nil || again.Cluster.ID != r.ID || !again.Reused || len(again.Cluster.Uses) != 1 {
		t.Errorf("the same request: got %+v, %v", again, err)
	}
	for name, change := range map[string]func(*cluster.Request){
		"slaves":     func(r *cluster.Request) { r.Slaves = 3 },
		"name":       func(r *cluster.Request) { r.Name = "two" },
		"user":       func(r *cluster.Request) { r.User = "bob" },
		"project":    func(r *cluster.Request) { r.Project = "chemistry" },
		"hints":      func(r *cluster.Request) { r.Hints.Sites = []string{"east"} },
		"parameters": func(r *cluster.Request) { r.Parameters = map[string]any{"pin": "1", "flavor_name": "x"} },
	} {
		other := r
		change(&other)
		_, err := b.Create(t.Context(), other)
		if !errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), "was used for another request") {
			t.Errorf("another %s: got %v", name, err)
		}
	}
	if n := len(b.all()); n != 1 {
		t.Errorf("%d clusters", n)
	}
	b.manage(r.ID, cluster.Deleted, func(c *cluster.Cluster) { c.Sealed = nil })
	again, err = b.Create(t.Context(), r)
	if err != nil || again.Cluster.State != cluster.Deleted {
		t.Errorf("after its end: got %+v, %v", again, err)
	}
}

func TestALostAnswerMakesNoSecondCluster(t *testing.T) {
	for _, op := range []string{"Create", "Update"} {
		for _, landed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, it took effect: %v", op, landed), func(t *testing.T) {
				b := newBench(t)
				if op == "Update" {
					b.create(ask("zero"))
				}
				times := 0
				lose := func(did string) error {
					if did != op {
						return nil
					}
					if times++; times <= 2 {
						return croft.Errorf(croft.Unavailable, "the answer was lost")
					}
					return nil
				}
				if landed {
					b.store.After = lose
				} else {
					b.store.Before = lose
				}
				r := ask("one")
				r.ID = croft.NewClusterID()
				made, err := b.Create(t.Context(), r)
				b.fatal(err)
				b.store.Before, b.store.After = nil, nil
				if times < 1 {
					t.Errorf("%s was never called: no answer was lost", op)
				}
				again, err := b.Create(t.Context(), r)
				if err != nil || again.Cluster.ID != made.Cluster.ID || len(b.all()) != 1 {
					t.Errorf("again: got %+v, %v, %d clusters", again, err, len(b.all()))
				}
				want := map[string]int{"Create": 1, "Update": 2}[op]
				if n := len(again.Cluster.Uses); n != want {
					t.Errorf("%d uses, want %d", n, want)
				}
			})
		}
	}
}

func TestRefusedRequestsLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(*bench)
		change func(*cluster.Request)
		kind   croft.Kind
		text   string
	}{
		{"a bad name", nil, func(r *cluster.Request) { r.Name = "One" }, croft.Invalid, "is not a name for a cluster"},
		{"an unknown appliance", nil, func(r *cluster.Request) { r.Appliance = "slrum" }, croft.NotFound,
			`did you mean "slurm"?`},
		{"an appliance of another project", func(b *bench) {
			b.appliance(cluster.Appliance{Name: "private", Project: "chemistry"})
		}, func(r *cluster.Request) { r.Appliance = "private" }, croft.NotFound, `there is no appliance "private"`},
		{"too few slaves", nil, func(r *cluster.Request) { r.Slaves = 0 }, croft.Invalid, "needs at least 1"},
		{"an unknown site", nil, func(r *cluster.Request) { r.Hints.ExcludeSites = []string{"esat"} }, croft.Invalid,
			`did you mean "east"?`},
		{"an unknown parameter", nil, func(r *cluster.Request) { r.Parameters = map[string]any{"flavour_name": "x"} },
			croft.Invalid, `did you mean "flavor_name"?`},
		{"a parameter of another type", nil, func(r *cluster.Request) {
			r.Parameters = map[string]any{"flavor_name": []any{}}
		}, croft.Invalid, "parameter flavor_name of the template is a string"},
		{"no room anywhere", func(b *bench) {
			b.sites.Change("east", func(f *sim.Faults) { f.Room = 2 })
			b.sites.Change("west", func(f *sim.Faults) { f.Denied = true })
		}, nil, croft.NoCapacity, "west: the site refuses credential"},
		{"its project may have no more", func(b *bench) { b.store.Limit("physics", 0) }, nil, croft.OverQuota,
			"has 0 clusters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.before != nil {
				c.before(b)
			}
			r := ask("one")
			if c.change != nil {
				c.change(&r)
			}
			_, err := b.Create(t.Context(), r)
			if err == nil {
				t.Fatal("it was taken")
			}
			b.kind(err, c.kind, c.text)
			if n := len(b.all()); n != 0 {
				t.Errorf("%d clusters are on record", n)
			}
		})
	}
}

func TestANameIsTaken(t *testing.T) {
	b := newBench(t)
	b.create(ask("one"))
	r := ask("one")
	r.Reuse = cluster.ReuseNever
	_, err := b.Create(t.Context(), r)
	b.kind(err, croft.Conflict, "the name one is taken")
	r.User = "bob"
	_, err = b.Create(t.Context(), r)
	b.kind(err, croft.Conflict, "the name one is taken")
}

func TestEveryReasonIsTold(t *testing.T) {
	b := newBench(t)
	b.sites.Change("east", func(f *sim.Faults) { f.Room = 2 })
	r := ask("one")
	r.Hints.ExcludeSites = []string{"west"}
	_, err := b.Create(t.Context(), r)
	choice, is := errors.AsType[*cluster.ChoiceError](err)
	if !is || len(choice.Dropped) != 2 {
		t.Fatalf("got %v", err)
	}
	explained, err := b.Explain(t.Context(), r)
	b.fatal(err)
	if len(explained.Candidates) != 0 || !slices.Equal(explained.Dropped, choice.Dropped) {
		t.Errorf("explained: %+v", explained)
	}
	for _, d := range choice.Dropped {
		if d.Reason == "" {
			t.Errorf("%+v has no reason", d)
		}
	}
}

func TestRequestsAtOnceShareACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.Before = slowly
		servers := []interface {
			Create(context.Context, cluster.Request) (cluster.Created, error)
		}{b.Service, b.another()}
		var mu sync.Mutex
		ids := map[string]map[croft.ClusterID]int{"ada": {}, "bob": {}}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				r := ask(fmt.Sprintf("c%d", i))
				r.User = []string{"ada", "bob"}[i/2%2]
				made, err := servers[i%2].Create(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[r.User][made.Cluster.ID]++
			})
		}
		all.Wait()
		if len(ids["ada"]) != 1 || len(ids["bob"]) != 1 || len(b.all()) != 2 {
			t.Errorf("clusters by user: %v", ids)
		}
		for _, c := range b.all() {
			if len(c.Uses) != 10 {
				t.Errorf("%s of %s has %d uses, want 10", c.Name, c.User, len(c.Uses))
			}
		}
	})
}

func TestNothingSecretIsStoredOpenly(t *testing.T) {
	b := newBench(t)
	r := ask("one")
	r.Parameters = map[string]any{"pin": "hunter2", "db_password": "swordfish", "flavor_name": "large"}
	c := b.create(r)
	text := b.store.Dump() + fmt.Sprintf("%+v", c) + b.logs.String()
	for _, secret := range []string{"hunter2", "swordfish"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is stored, answered or logged", secret)
		}
	}
	if c.Parameters["flavor_name"] != "large" || len(c.Parameters) != 1 {
		t.Errorf("parameters: %v", c.Parameters)
	}
}

func TestASilentSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.sites.Change("east", func(f *sim.Faults) { f.Hangs = true })
		r := ask("one")
		for try := range 3 {
			start := time.Now()
			e, err := b.Explain(t.Context(), r)
			b.fatal(err)
			if len(e.Candidates) != 2 || e.Candidates[0].Site != "west" ||
				e.Candidates[0].Why != "it is known to have room" {
				t.Errorf("try %d: %+v", try, e.Candidates)
			}
			if took := time.Since(start); took != 5*time.Second {
				t.Errorf("try %d took %s, want 5 s", try, took)
			}
			time.Sleep(6 * time.Second) // until it may be asked again
		}
		start := time.Now()
		e, err := b.Explain(t.Context(), r)
		b.fatal(err)
		at := slices.IndexFunc(e.Dropped, func(d cluster.Dropped) bool { return d.Site == "east" })
		if at < 0 || !strings.HasPrefix(e.Dropped[at].Reason,
			"the site did not answer 3 times, and is asked again in 16s") ||
			time.Since(start) != 0 {
			t.Errorf("after three times: %+v, %s", e, time.Since(start))
		}
		b.sites.Change("east", func(f *sim.Faults) { f.Hangs = false })
		time.Sleep(17 * time.Second)
		if e, err := b.Explain(t.Context(), r); err != nil || len(e.Candidates) != 2 {
			t.Errorf("after as long as it was silent: %+v, %v", e, err)
		}
	})
}

func TestWhatASiteSaysIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := ask("one")
		_, err := b.Explain(t.Context(), r)
		b.fatal(err)
		b.sites.Change("east", func(f *sim.Faults) { f.Room = 1 })
		if e, err := b.Explain(t.Context(), r); err != nil || len(e.Candidates) != 2 {
			t.Errorf("at once: %+v, %v", e, err)
		}
		other := r
		other.Parameters = map[string]any{"flavor_name": "large"}
		if e, err := b.Explain(t.Context(), other); err != nil || len(e.Candidates) != 1 {
			t.Errorf("another flavor: %+v, %v", e, err)
		}
		time.Sleep(31 * time.Second)
		if e, err := b.Explain(t.Context(), r); err != nil || len(e.Candidates) != 1 {
			t.Errorf("after half a minute: %+v, %v", e, err)
		}
	})
}

// Another user who sends exactly the same request, including the UUID, must not get the cluster in the answer.
func TestAnIDBelongsToTheUserWhoseRequestItWas(t *testing.T) {
	b := newBench(t)
	r := ask("one")
	r.ID = croft.NewClusterID()
	_, err := b.Create(t.Context(), r)
	b.fatal(err)
	r.User = "another"
	_, err = b.Create(t.Context(), r)
	if taken, ok := errors.AsType[*croft.TakenError](err); !ok || taken.What != "id" {
		t.Errorf("got %v", err)
	}
}
