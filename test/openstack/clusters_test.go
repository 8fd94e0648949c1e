package openstack_test

import (
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/heat/heattest"
	"croft/internal/testing/patient"
)

// small is a cluster of resources built into Heat, which needs no Nova.
//
//go:embed testdata/small.yaml
var small string

// eachEngine runs a test with a site of each engine of Heat.
func eachEngine(t *testing.T, test func(t *testing.T, w *world)) {
	for name, variable := range map[string]string{"convergence": heattest.Convergence, "older": heattest.Older} {
		t.Run(name, func(t *testing.T) { test(t, newWorld(t, variable)) })
	}
}

// hosts waits until a cluster is ready with its master and these slaves, each with an address. The manager is killed
// meanwhile.
func (w *world) hosts(c cluster.Cluster, slaves ...int) cluster.Cluster {
	w.Helper()
	want := []cluster.MemberID{cluster.IDOf(c.ID, cluster.Master, 0)}
	for _, i := range slaves {
		want = append(want, cluster.IDOf(c.ID, cluster.Slave, i))
	}
	return w.untilIt(c, fmt.Sprintf("it is ready with the slaves %v", slaves), true, func(c cluster.Cluster) bool {
		var got []cluster.MemberID
		for _, m := range c.Members {
			if m.State == cluster.MemberReady && m.Address != "" {
				got = append(got, m.ID)
			}
		}
		return c.State == cluster.Ready && len(got) == len(c.Members) && slices.Equal(got, want)
	})
}

// TestTheLifeOfAClusterWithOpenStack kills the manager at every step.
func TestTheLifeOfAClusterWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		asked := must(w.ask("physics", "ada", "first", 3))(t)
		c := w.hosts(asked.Cluster, 0, 1, 2)
		if c.MasterIP == "" || c.Remote.ID == "" || c.Site != "east" || asked.Reused {
			t.Errorf("it is %+v", c)
		}
		again := must(w.ask("physics", "ada", "second", 2))(t)
		if !again.Reused || again.Cluster.ID != c.ID {
			t.Errorf("the same user got %+v", again)
		}
		other := must(w.ask("chemistry", "bob", "first", 1))(t)
		if other.Reused || other.Cluster.ID == c.ID {
			t.Errorf("another user got %+v", other)
		}
		w.until(other.Cluster, cluster.Ready, false)

		must(w.asks.AddHost(t.Context(), "physics", "first"))(t)
		w.hosts(c, 0, 1, 2, 3)
		must(w.asks.RemoveHost(t.Context(), "physics", "first", string(cluster.IDOf(c.ID, cluster.Slave, 1))))(t)
		w.hosts(c, 0, 2, 3)
		must(w.asks.RemoveHost(t.Context(), "physics", "first", "last"))(t)
		before := w.hosts(c, 0, 2)

		w.fronts["east"].Change(func(f *heattest.Faults) { f.Body = noGrowth })
		must(w.asks.AddHost(t.Context(), "physics", "first"))(t)
		w.untilIt(c, "the resize failed", true, func(c cluster.Cluster) bool {
			return c.State == cluster.Ready && c.Error != nil
		})
		c = w.hosts(c, 0, 2)
		if c.Error.Code != cluster.FailedResize || c.Slaves != 2 || c.MasterIP != before.MasterIP {
			t.Errorf("after a resize that failed it is %+v with %d slaves", c.Error, c.Slaves)
		}
		must(w.asks.AddHost(t.Context(), "physics", "first"))(t)
		w.fronts["east"].Change(func(f *heattest.Faults) { f.Body = nil })
		next := w.find(c).Indexes
		w.remove(w.hosts(c, next...), true)
	})
}

// noGrowth makes every update fail whose cluster_size is not 2.
func noGrowth(r *http.Request, body map[string]any) {
	parameters, ok := body["parameters"].(map[string]any)
	if !ok || r.Method != http.MethodPatch {
		return
	}
	if parameters["slave_fail"] = "false"; parameters["cluster_size"] != 2.0 {
		parameters["slave_fail"] = "%index%" // not a boolean
	}
}

// spoil sets a parameter of a stack.
func spoil(body map[string]any, name string, value any) {
	if parameters, ok := body["parameters"].(map[string]any); ok {
		parameters[name] = value
	}
}

// remove deletes a cluster, and waits for its end.
func (w *world) remove(c cluster.Cluster, deaths bool) {
	w.Helper()
	must(w.asks.Delete(w.Context(), c.Project, string(c.ID), cluster.Removal{User: c.User, Force: true}))(w.T)
	w.until(c, cluster.Deleted, deaths)
}

func TestADeletionInEveryStateWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		front := w.fronts["east"]
		slow := func(value any) {
			front.Change(func(f *heattest.Faults) {
				f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "secs", value) }
			})
		}
		t.Run("at once", func(*testing.T) { w.remove(w.mustAsk("at-once", 0), true) })
		t.Run("while it is built", func(*testing.T) {
			slow(20)
			c := w.mustAsk("building", 1)
			w.untilIt(c, "the site builds it", false, func(c cluster.Cluster) bool { return c.Remote.ID != "" })
			w.remove(c, true)
			slow(0)
		})
		t.Run("while it is resized", func(*testing.T) {
			c := w.until(w.mustAsk("resizing", 1), cluster.Ready, false)
			slow(20)
			must(w.asks.AddHost(t.Context(), "physics", c.Name))(t)
			w.untilIt(c, "the site resizes it", false, func(c cluster.Cluster) bool {
				return strings.Contains(c.Remote.Status, "UPDATE")
			})
			w.remove(c, true)
			slow(0)
		})
		t.Run("after it failed", func(*testing.T) {
			front.Change(func(f *heattest.Faults) {
				f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "master_fail", true) }
			})
			c := w.until(w.mustAsk("failed", 0), cluster.Failed, true)
			if c.Error == nil || c.Error.Code != cluster.FailedBuild || !strings.Contains(c.Error.Message,
				"Test Resource") {
				t.Errorf("the error is %+v", c.Error)
			}
			front.Change(func(f *heattest.Faults) { f.Body = nil })
			w.remove(c, true)
		})
		t.Run("while the site is away", func(*testing.T) {
			c := w.until(w.mustAsk("away", 0), cluster.Ready, false)
			front.Change(func(f *heattest.Faults) { f.Away = true })
			must(w.asks.Delete(t.Context(), "physics", c.Name, cluster.Removal{User: "ada"}))(t)
			c = w.untilIt(c, "the silence is told", true, func(c cluster.Cluster) bool {
				return c.State == cluster.Deleting && strings.Contains(c.Step, "east")
			})
			front.Change(func(f *heattest.Faults) { f.Away = false })
			w.until(c, cluster.Deleted, true)
		})
		t.Run("while the answer to the launch is lost", func(*testing.T) {
			front.Change(func(f *heattest.Faults) {
				f.Lose = func(r *http.Request) bool {
					return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/stacks")
				}
			})
			c := w.mustAsk("lost", 0)
			w.untilIt(c, "the site was asked", false, func(c cluster.Cluster) bool { return c.Remote.Asked })
			front.Change(func(f *heattest.Faults) { f.Lose = nil })
			w.remove(c, true)
		})
	})
}

func TestTwoRequestsAtOnceAreOneClusterWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		var work sync.WaitGroup
		all := make([]cluster.Created, 4)
		errs := make([]error, 4)
		for i := range all {
			work.Go(func() {
				all[i], errs[i] = w.asks.Create(t.Context(), cluster.Request{Project: "physics", User: "ada",
					Spec: cluster.Spec{Name: "n" + string(rune('a'+i)), Appliance: "small", Slaves: 1}})
			})
		}
		work.Wait()
		made := 0
		for i, one := range all {
			if errs[i] != nil || one.Cluster.ID != all[0].Cluster.ID {
				t.Errorf("got %s, %v, want %s", one.Cluster.ID, errs[i], all[0].Cluster.ID)
			}
			if !one.Reused {
				made++
			}
		}
		if made != 1 {
			t.Errorf("%d clusters were made", made)
		}
		c := w.until(all[0].Cluster, cluster.Ready, true)
		at := w.clouds["east"]["demo"].Access("east", w.fronts["east"].AuthURL())
		at.Partition = w.store.Partition()
		if found := must(w.driver.List(t.Context(), at))(t); len(found) != 1 || found[0].Cluster != c.ID {
			t.Errorf("the site has %+v", found)
		}
	})
}

func TestHintsAndReasonsWithOpenStack(t *testing.T) {
	w := newWorld(t, heattest.Convergence, heattest.Older)
	hint := func(h cluster.Hints) func(*cluster.Request) {
		return func(r *cluster.Request) { r.Hints, r.Reuse = h, cluster.ReuseNever }
	}
	if _, err := w.ask("physics", "ada", "a", 0, hint(cluster.Hints{Sites: []string{"eats"}})); croft.KindOf(err) !=
		croft.Invalid || !strings.Contains(err.Error(), "east") {
		t.Errorf("an unknown site: %v", err)
	}
	_, err := w.ask("physics", "ada", "b", 0, hint(cluster.Hints{ExcludeSites: []string{"east", "west"}}))
	var none *cluster.ChoiceError
	if !errors.As(err, &none) || len(none.Dropped) != 2 {
		t.Errorf("no candidate: %v", err)
	}
	_, err = w.ask("physics", "eve", "c", 0)
	if none = nil; !errors.As(err, &none) || !strings.Contains(err.Error(), "credential") {
		t.Errorf("a user without a credential: %v", err)
	}
	c := must(w.ask("physics", "ada", "d", 0, hint(cluster.Hints{Sites: []string{"west"}})))(t).Cluster
	if c = w.until(c, cluster.Ready, true); c.Site != "west" {
		t.Errorf("it was built at %s", c.Site)
	}
}

func TestAnotherSiteBuildsWhatOneCannotWithOpenStack(t *testing.T) {
	w := newWorld(t, heattest.Convergence, heattest.Older)
	w.fronts["east"].Change(func(f *heattest.Faults) {
		f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "master_fail", true) }
	})
	c := w.hosts(w.mustAsk("elsewhere", 2), 0, 1)
	if c.Site != "west" || len(c.Attempts) != 1 || c.Attempts[0].Site != "east" {
		t.Errorf("it is at %s after %+v", c.Site, c.Attempts)
	}
	w.wantNoStacks(t.Context(), "east")
}

func TestASiteThatIsAwayWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		front := w.fronts["east"]
		standing := w.until(w.mustAsk("standing", 1), cluster.Ready, false)
		front.Change(func(f *heattest.Faults) {
			f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "secs", 5) }
		})
		building := w.mustAsk("building", 0)
		w.untilIt(building, "the site builds it", false, func(c cluster.Cluster) bool { return c.Remote.ID != "" })
		front.Change(func(f *heattest.Faults) { f.Away, f.Body = true, nil })
		w.untilIt(building, "the silence is told", true, func(c cluster.Cluster) bool {
			return c.State == cluster.Building && strings.Contains(c.Step, "east")
		})
		if c := w.find(standing); c.State != cluster.Ready {
			t.Errorf("what stood is %s (%s) while its site is away", c.State, c.Step)
		}
		front.Change(func(f *heattest.Faults) { f.Away = false })
		w.until(building, cluster.Ready, true)
	})
}

func TestAPasswordThatIsMendedWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		credentials, mended := w.registry.Credentials(), w.clouds["east"]["demo"].Auth.Password
		c := w.until(w.mustAsk("kept", 1), cluster.Ready, false)
		w.fronts["east"].Change(func(f *heattest.Faults) {
			f.Body = func(_ *http.Request, body map[string]any) { spoil(body, "secs", 5) }
		})
		building := w.mustAsk("building", 0)
		w.untilIt(building, "the site builds it", false, func(c cluster.Cluster) bool { return c.Remote.ID != "" })
		wrong := cluster.NewSecret("wr0ng-horse-battery")
		_, err := credentials.Change(t.Context(), "physics", "ada", "mine-east",
			cluster.CredentialChange{Plain: &wrong}, nil)
		if w.tell(err); err == nil {
			t.Error("a wrong password was accepted")
		}
		must(credentials.Change(t.Context(), "physics", "ada", "mine-east", cluster.CredentialChange{Plain: &wrong,
			Unverified: true}, nil))(t)
		if _, err := w.asks.AddHost(t.Context(), "physics", "kept"); croft.KindOf(err) != croft.Denied {
			t.Errorf("growth with a wrong password: %v", err)
		}
		w.untilIt(building, "the refusal is told", true, func(c cluster.Cluster) bool {
			return c.State == cluster.Building && strings.Contains(c.Step, "credential")
		})
		right := cluster.NewSecret(mended)
		must(credentials.Change(t.Context(), "physics", "ada", "mine-east", cluster.CredentialChange{Plain: &right},
			nil))(t)
		w.hosts(building)
		must(w.asks.AddHost(t.Context(), "physics", "kept"))(t)
		w.hosts(c, 0, 1)
		if strings.Contains(w.logs.String()+strings.Join(w.told, ""), "wr0ng") {
			t.Error("the wrong password was told")
		}
	})
}

// forms returns the encodings in which a secret may be written.
func forms(secret string) []string {
	var all []string
	for cut := range 3 { // its base64, at each alignment
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", cut) + secret))
		all = append(all, text[4:len(text)-4])
	}
	return append(all, secret)
}

func TestNoSecretIsToldWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		c := w.until(w.mustAsk("quiet", 0), cluster.Ready, false)
		bad := strings.Replace(small, "value: 10.0.0.1", "value: {get_file: \"file:///etc/passwd\"}", 1)
		_, err := w.registry.Appliances().AddImplementation(t.Context(), cluster.Implementation{Appliance: "small",
			Site: "east", Template: bad, Enabled: true})
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "get_file") ||
			!strings.Contains(err.Error(), "line ") {
			t.Errorf("a template with a file: %v", err)
		}
		w.stop(syscall.SIGQUIT) // it prints the stacks of all goroutines
		w.start()
		if !strings.Contains(w.logs.String(), "goroutine ") {
			t.Error("the manager printed nothing when it was ended")
		}
		w.remove(c, false)
	})
}

func TestThirtyClustersAtOnceWithOpenStack(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *world) {
		const many = 30
		began := time.Now()
		var all []cluster.Cluster
		for i := range many {
			all = append(all, w.mustAsk("c"+string(rune('a'+i/10))+string(rune('a'+i%10)), 1))
		}
		w.kill()
		patient.Until(t, "all are ready", func() bool {
			for _, c := range all {
				if w.find(c).State != cluster.Ready {
					return false
				}
			}
			return true
		})
		t.Logf("%d clusters of 2 hosts are ready after %s", many, time.Since(began).Round(time.Second))
		began = time.Now()
		for _, c := range all {
			must(w.asks.Delete(t.Context(), c.Project, c.Name, cluster.Removal{User: c.User}))(t)
		}
		w.kill()
		for _, c := range all {
			w.until(c, cluster.Deleted, false)
		}
		t.Logf("and gone %s after that was asked for", time.Since(began).Round(time.Second))
	})
}
