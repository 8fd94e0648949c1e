package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/manager"
	"croft/cluster/sim"
)

func TestAClusterIsBuiltAndDeleted(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		id := b.create(ask("one"))
		c := b.ready(id, 2)
		if c.Site != "east" || c.MasterIP == "" || len(c.Members) != 3 || c.Members[2].ID != cluster.IDOf(id,
			cluster.Slave, 1) {
			b.Errorf("got %+v", c)
		}
		if c.Outputs["port"] != 22.0 || c.Outputs["login_password"] != nil {
			b.Errorf("got outputs %v", c.Outputs)
		}
		secret, err := b.keys.Open(c.Sealed["login_password"], cluster.AboutValue(partition, id, "login_password"))
		if err != nil || secret.Reveal() != "swordfish" {
			b.Errorf("the secret output is %q, %v", secret.Reveal(), err)
		}
		if strings.Contains(strings.ReplaceAll(b.store.Dump(), "login_password: swordfish", "")+b.logs.String(),
			"swordfish") {
			b.Error("the secret output is stored or logged")
		}
		b.delete(id)
		b.untilState(id, cluster.Deleted)
		if b.has("east") != 0 {
			b.Error("the site still has it")
		}
		time.Sleep(cluster.Remembered + time.Minute)
		if _, err := b.store.Get(b.Context(), id); croft.KindOf(err) != croft.NotFound {
			b.Errorf("the tombstone is still there: %v", err)
		}
	})
}

// A user creates and deletes clusters in a loop. The remaining records must not grow without bound.
func TestAProjectsOldestDeletedClustersAreForgotten(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		var all []croft.ClusterID
		for i := range cluster.MaxRemembered + 3 {
			id := b.create(ask(fmt.Sprint("c", i)))
			b.delete(id)
			b.untilState(id, cluster.Deleted)
			all = append(all, id)
		}
		time.Sleep(time.Minute)
		for i, id := range all {
			_, err := b.store.Get(b.Context(), id)
			if gone := croft.KindOf(err) == croft.NotFound; gone != (i < 3) {
				b.Errorf("cluster %d of %d: %v", i, len(all), err)
			}
		}
	})
}

func TestAnotherSiteIsTried(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.at("east", func(f *sim.Faults) { f.Fails = "no valid host" })
		b.start()
		id := b.create(ask("one"))
		c := b.ready(id, 2)
		if c.Site != "west" || len(c.Attempts) != 1 || c.Attempts[0].Site != "east" || c.Error != nil {
			b.Errorf("got site %s, attempts %+v, error %+v", c.Site, c.Attempts, c.Error)
		}
		if b.has("east") != 0 {
			b.Error("east still has what failed")
		}
		all, err := b.store.Events(b.Context(), id)
		b.fatal(err)
		console := ""
		for _, e := range all {
			console += e.Console
		}
		if !strings.Contains(console, "Kernel panic") {
			b.Errorf("no event has the console of the member that failed: %+v", all)
		}
	})
}

func TestWhatFailedIsKeptForAWhile(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.at("east", func(f *sim.Faults) { f.Fails = "no valid host" })
		b.start()
		id := b.create(ask("one", "east"))
		c := b.untilState(id, cluster.Failed)
		if c.Error.Code != cluster.FailedBuild || !strings.Contains(c.Error.Message, "no valid host") {
			b.Errorf("got %+v", c.Error)
		}
		time.Sleep(cluster.KeepFailed - time.Minute)
		if b.has("east") != 1 {
			b.Error("it was not kept to be looked at")
		}
		b.until(id, 5*time.Minute, "removed", func(c cluster.Cluster) bool { return !c.Remote.Asked })
		if c := b.get(id); c.State != cluster.Failed || b.has("east") != 0 {
			b.Errorf("it is %s, and the site has %d", c.State, b.has("east"))
		}
	})
}

func TestASiteThatNeverEndsMeetsTheDeadline(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.at("east", func(f *sim.Faults) { f.Frozen = true })
		b.start()
		id := b.create(ask("one", "east"))
		begun := time.Now()
		c := b.until(id, 2*time.Hour, "failed", func(c cluster.Cluster) bool { return c.State == cluster.Failed })
		if took := time.Since(begun).Round(time.Minute); c.Error.Code != cluster.FailedDeadline || took != time.Hour {
			b.Errorf("got %+v after %s", c.Error, took)
		}
	})
}

func TestAClusterIsResized(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		id := b.create(ask("one"))
		before := b.ready(id, 2)
		for range 2 { // two waiting changes become one resize
			_, err := b.AddHost(b.Context(), "physics", "one")
			b.fatal(err)
		}
		grown := b.ready(id, 4)
		_, err := b.RemoveHost(b.Context(), "physics", "one", string(cluster.IDOf(id, cluster.Slave, 0)))
		b.fatal(err)
		shrunk := b.ready(id, 3)
		if shrunk.MasterIP != before.MasterIP || shrunk.Members[1].RemoteID != grown.Members[2].RemoteID {
			b.Errorf("what stays has changed: %+v, before %+v", shrunk.Members, grown.Members)
		}
		b.at("east", func(f *sim.Faults) { f.Fails = "no valid host" })
		_, err = b.AddHost(b.Context(), "physics", "one")
		b.fatal(err)
		c := b.until(id, time.Minute, "taken back", func(c cluster.Cluster) bool {
			return c.State == cluster.Ready && c.Error != nil
		})
		if c.Error.Code != cluster.FailedResize || c.Slaves != 3 || len(c.Members) != 4 {
			b.Errorf("got %+v with %d slaves, %+v", c.Error, c.Slaves, c.Members)
		}
		b.at("east", func(f *sim.Faults) { f.Fails = "" })
		_, err = b.AddHost(b.Context(), "physics", "one")
		b.fatal(err)
		if c := b.ready(id, 4); c.Error != nil || c.Members[4].Index != 5 {
			b.Errorf("got %+v, %+v", c.Error, c.Members)
		}
	})
}

func TestMembersAreMissed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		id := b.create(ask("one"))
		c := b.ready(id, 2)
		build := cluster.Build{Partition: partition, Cluster: id, Remote: c.Remote}
		b.sites.Lose("east", build, c.Members[1])
		b.untilState(id, cluster.Degraded)
		b.mustHear(id, "slave 0 not there")
		c = b.ready(id, 2)
		b.mustHear(id, "site east is asked to make slave 0 again")
		b.sites.Lose("east", build, c.Members[0])
		if c := b.untilState(id, cluster.Failed); c.Error.Code != cluster.FailedMaster {
			b.Errorf("got %+v", c.Error)
		}
	})
}

func TestASiteThatIsAwayChangesNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		m, _ := b.start()
		id := b.create(ask("one"))
		b.ready(id, 2)
		b.at("east", func(f *sim.Faults) { f.Away = true })
		c := b.until(id, 5*time.Minute, "unreachable", func(c cluster.Cluster) bool {
			return strings.Contains(c.Step, "site east unreachable since")
		})
		if c.State != cluster.Ready || m.Health("east").OK || m.Health("east").Error == "" {
			b.Errorf("it is %s, and the site is %+v", c.State, m.Health("east"))
		}
		b.delete(id)
		time.Sleep(3 * time.Hour)
		if c := b.get(id); c.State != cluster.Deleting {
			b.Errorf("it is %s", c.State)
		}
		b.at("east", func(f *sim.Faults) { f.Away = false })
		b.until(id, 15*time.Minute, "deleted", func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
		if b.has("east") != 0 || !m.Health("east").OK {
			b.Errorf("the site has %d clusters, and is %+v", b.has("east"), m.Health("east"))
		}
	})
}

func TestASiteThatIsAwayGetsNoNewClusters(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		id := b.create(ask("one"))
		b.ready(id, 2)
		b.at("east", func(f *sim.Faults) { f.Away = true })
		time.Sleep(10 * time.Minute)
		c := b.ready(b.create(ask("two")), 2)
		if c.Site != "west" || len(c.Attempts) > 0 {
			b.Errorf("it was built at %s after %+v", c.Site, c.Attempts)
		}
	})
}

func TestTheFaultsOfOneTenantCloseNoSite(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		ada := ask("one", "east")
		b.at("east", func(f *sim.Faults) { f.Errs = "CircularDependencyException" })
		id := b.create(ada)
		time.Sleep(4 * time.Minute)
		if c := b.get(id); c.State != cluster.Building || !strings.Contains(c.Step, "fails since") {
			b.Errorf("it is %s: %s", c.State, c.Step)
		}
		e, err := b.Explain(b.Context(), ask("two"))
		b.fatal(err)
		if len(e.Candidates) != 2 {
			b.Errorf("another request may be built at %+v; dropped: %+v", e.Candidates, e.Dropped)
		}
		c := b.until(id, 3*time.Minute, "failed", func(c cluster.Cluster) bool { return c.State == cluster.Failed })
		if c.Error.Code != cluster.FailedBuild || !strings.Contains(c.Error.Message, "CircularDependencyException") {
			b.Errorf("got %+v", c.Error)
		}
	})
}

func TestARestartOfSecondsClosesASiteForSeconds(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		b.ready(b.create(ask("one", "east")), 2)
		b.at("east", func(f *sim.Faults) { f.Away = true })
		time.Sleep(time.Minute) // the cached room has expired
		for range 5 {
			_, err := b.Explain(b.Context(), ask("two"))
			b.fatal(err)
			time.Sleep(6 * time.Second)
		}
		e, err := b.Explain(b.Context(), ask("two"))
		b.fatal(err)
		if len(e.Candidates) != 1 {
			b.Errorf("a silent site is among %+v", e.Candidates)
		}
		b.at("east", func(f *sim.Faults) { f.Away = false })
		time.Sleep(20 * time.Second)
		if e, err = b.Explain(b.Context(), ask("two")); err != nil || len(e.Candidates) != 2 {
			b.Errorf("half a minute later it may be built at %+v; dropped: %+v, %v", e.Candidates, e.Dropped, err)
		}
	})
}

func TestOfManyAtOnceASiteGetsAsManyAsItMay(t *testing.T) {
	inBubble(t, func(b *bench) {
		sites, err := b.store.Sites(t.Context())
		b.fatal(err)
		for _, site := range sites {
			if site.Name == "east" {
				site.MaxClusters = 3
				b.site(site)
			}
		}
		b.start()
		b.start()
		var all []croft.ClusterID
		for i := range 20 {
			all = append(all, b.create(ask(fmt.Sprint("c", i))))
		}
		count := map[string]int{}
		for _, id := range all {
			c := b.ready(id, 2)
			if count[c.Site]++; len(c.Attempts) > 0 {
				b.Errorf("it was built at %s after %+v", c.Site, c.Attempts)
			}
		}
		if count["east"] != 3 || count["west"] != 17 {
			b.Errorf("the sites have %v", count)
		}
	})
}

func TestASiteThatHangsHoldsUpNoOther(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start(func(c *manager.Config) { c.PerSite = 1 })
		var hanging []croft.ClusterID
		for _, name := range []string{"a", "b", "c", "d"} {
			hanging = append(hanging, b.create(ask(name, "east")))
		}
		for _, id := range hanging {
			b.ready(id, 2)
		}
		b.at("east", func(f *sim.Faults) { f.Hangs = true })
		for _, id := range hanging {
			b.delete(id)
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		b.ready(b.create(ask("two", "west")), 2)
		if took := time.Since(begun); took > 15*time.Second {
			b.Errorf("a build at the other site took %s", took)
		}
		b.at("east", func(f *sim.Faults) { f.Hangs = false })
		for _, id := range hanging {
			b.until(id, time.Hour, "deleted", func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
		}
	})
}

func TestARefusedCredentialIsToldAndMended(t *testing.T) {
	inBubble(t, func(b *bench) {
		credential := b.credential("east")
		b.start()
		id := b.create(ask("one"))
		if c := b.ready(id, 2); c.Credential != credential.ID {
			b.Errorf("built with credential %q", c.Credential)
		}
		b.at("east", func(f *sim.Faults) { f.Denied = true })
		c := b.until(id, 5*time.Minute, "told", func(c cluster.Cluster) bool { return c.Error != nil })
		now, err := b.store.Credential(b.Context(), credential.ID)
		b.fatal(err)
		if c.State != cluster.Ready || c.Error.Code != cluster.FailedCredential || now.LastError == "" {
			b.Errorf("it is %s with %+v, and the credential says %q", c.State, c.Error, now.LastError)
		}
		b.delete(id)
		time.Sleep(time.Hour)
		if c := b.get(id); c.State != cluster.Deleting || c.Error == nil {
			b.Errorf("it is %s with %+v", c.State, c.Error)
		}
		b.at("east", func(f *sim.Faults) { f.Denied = false })
		b.until(id, 15*time.Minute, "deleted", func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
		if now, err = b.store.Credential(b.Context(), credential.ID); err != nil || now.LastError != "" {
			b.Errorf("the credential still says %q, %v", now.LastError, err)
		}
		if strings.Contains(b.store.Dump()+b.logs.String(), "hunter2") {
			b.Error("the credential's secret is stored or logged")
		}
	})
}

func TestACredentialOfAnotherProjectDestroysNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.credential("east")
		b.start()
		id := b.create(ask("one"))
		b.ready(id, 2)
		b.at("east", func(f *sim.Faults) { f.Hidden = true })
		if c := b.untilState(id, cluster.Failed); c.Error.Code != cluster.FailedCredential {
			b.Errorf("got %+v", c.Error)
		}
		b.at("east", func(f *sim.Faults) { f.Hidden = false })
		b.ready(id, 2)
		b.at("east", func(f *sim.Faults) { f.Hidden = true })
		b.delete(id)
		time.Sleep(time.Hour)
		if c := b.get(id); c.State != cluster.Deleting || b.has("east") != 1 {
			b.Errorf("it is %s, and the site has %d", c.State, b.has("east"))
		}
		_, err := b.Delete(b.Context(), "physics", string(id), cluster.Removal{User: "ada", Abandon: true})
		b.fatal(err)
		b.untilState(id, cluster.Deleted)
		b.at("east", func(f *sim.Faults) { f.Hidden = false })
		time.Sleep(time.Hour)
		if b.has("east") != 1 {
			b.Error("what was given up was removed")
		}
	})
}

func TestIdleAndExpiredClustersEndAfterAWarning(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		r := ask("idle")
		r.KeepIdle = cluster.Seconds(time.Hour)
		idle := b.create(r)
		r = ask("short")
		r.Expires = cluster.Seconds(2 * time.Hour)
		short := b.create(r)
		c := b.ready(idle, 2)
		time.Sleep(90 * time.Minute)
		if c := b.get(idle); c.State != cluster.Ready || b.heard(idle, "destroyed") {
			b.Errorf("a cluster that is used is %s", c.State)
		}
		_, err := b.EndUse(b.Context(), "physics", "idle", c.Uses[0].ID)
		b.fatal(err)
		time.Sleep(55 * time.Minute)
		if c := b.get(idle); c.State != cluster.Ready {
			b.Errorf("it is %s before its time", c.State)
		}
		b.mustHear(idle, "nobody uses it")
		b.mustHear(short, "it expires")
		b.until(idle, 7*time.Minute, "deleted", func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
		b.untilState(short, cluster.Deleted)
	})
}

func TestAnImageIsBroughtFirst(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, err := b.store.PutImage(b.Context(), cluster.SiteImage{Name: "debian-12",
			URL: "https://images.example/debian"})
		b.fatal(err)
		b.implementation(cluster.Implementation{Site: "east", Image: "debian-12"})
		b.at("east", func(f *sim.Faults) { f.Delay = time.Minute })
		b.start()
		id := b.create(ask("one", "east"))
		b.until(id, 2*time.Minute, "brought", func(c cluster.Cluster) bool {
			return c.State == cluster.Scheduling && strings.HasPrefix(c.Step, "image debian-12: 4") &&
				strings.HasSuffix(c.Step, " %")
		})
		b.ready(id, 2)
	})
}

func TestObservationsAreShared(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.at("east", func(f *sim.Faults) { f.Delay = 5 * time.Minute })
		b.start()
		begun := time.Now()
		for i := range 30 {
			b.create(ask("c"+string(rune('a'+i/10))+string(rune('0'+i%10)), "east"))
		}
		time.Sleep(time.Minute)
		if n := b.observed("east", begun); n < 20 || n > 32 {
			b.Errorf("30 clusters were observed %d times in the first minute, want about 30 times", n)
		}
		begun = time.Now()
		time.Sleep(3 * time.Minute)
		if n := b.observed("east", begun); n < 12 || n > 40 {
			b.Errorf("30 clusters were observed %d times in 3 minutes, want 12 to 36 times", n)
		}
		time.Sleep(5 * time.Minute)
		begun = time.Now()
		time.Sleep(10 * time.Minute)
		if n := b.observed("east", begun); n < 8 || n > 100 {
			b.Errorf("30 clusters that are ready were observed %d times in 10 minutes", n)
		}
	})
}

func TestWhatIsLaunchedLateIsSweptAway(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.credential("east")
		b.credential("west")
		b.start()
		id := b.create(ask("one"))
		c := b.ready(id, 2)
		b.delete(id)
		b.untilState(id, cluster.Deleted)
		late := cluster.Build{Partition: partition, Cluster: id, Remote: cluster.Remote{Name: c.Remote.Name}}
		stranger := croft.NewClusterID()
		for _, build := range []cluster.Build{late, {Partition: partition, Cluster: stranger,
			Remote: cluster.Remote{Name: "croft-" + string(stranger)}}} {
			_, err := b.sites.Launch(b.Context(), cluster.SiteAccess{Site: cluster.Site{Name: "east"}}, build)
			b.fatal(err)
		}
		time.Sleep(12 * time.Minute)
		if b.has("east") != 1 {
			b.Errorf("the site has %d clusters, want the one without a record", b.has("east"))
		}
		if !strings.Contains(b.logs.String(), "without a record") {
			b.Error("the one without a record is not reported")
		}
	})
}

func TestTwoManagersBuildOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start()
		b.start()
		var all []croft.ClusterID
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, b.create(ask(name)))
		}
		for _, id := range all {
			b.ready(id, 2)
		}
		stop()
		for _, id := range all { // the other one continues
			b.delete(id)
			b.untilState(id, cluster.Deleted)
		}
		if b.has("east")+b.has("west") != 0 {
			b.Error("something is left")
		}
	})
}

func TestTwoHundredClustersAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		var all []croft.ClusterID
		begun := time.Now()
		clusters := 200
		if raceEnabled { // with it, the store in memory takes a minute
			clusters = 60
		}
		for i := range clusters {
			all = append(all, b.create(ask("c-"+strings.Repeat("x", i%20)+string(rune('a'+i/20)))))
		}
		for _, id := range all {
			b.ready(id, 2)
		}
		built := time.Since(begun)
		for some := range slices.Chunk(all, 100) { // a project keeps the records of its last 100 deleted clusters
			for _, id := range some {
				b.delete(id)
			}
			for _, id := range some {
				b.untilState(id, cluster.Deleted)
			}
		}
		b.Logf("%d clusters were built within %s, and gone after %s", clusters, built, time.Since(begun))
		if n := b.has("east") + b.has("west"); n != 0 || built > time.Minute {
			b.Errorf("%d are left; the builds took %s", n, built)
		}
	})
}

// TestNoClusterEndsByOneClockAlone checks that a manager whose clock differs from a host's destroys and forgets
// nothing.
func TestNoClusterEndsByOneClockAlone(t *testing.T) {
	inBubble(t, func(b *bench) {
		differ := true
		b.start(func(c *manager.Config) {
			c.Clocks = func(context.Context) error {
				if differ {
					return croft.Errorf(croft.Unavailable, "the clock of host alpha differs by 1h")
				}
				return nil
			}
		})
		r := ask("short")
		r.Expires = cluster.Seconds(2 * time.Hour)
		short := b.create(r)
		ended := b.create(ask("ended"))
		b.ready(short, 2)
		b.ready(ended, 2)
		b.delete(ended)
		b.untilState(ended, cluster.Deleted)
		time.Sleep(cluster.Remembered + time.Hour)
		if c := b.get(short); c.State != cluster.Ready {
			b.Errorf("by one clock alone a cluster is %s", c.State)
		}
		if c := b.get(ended); c.State != cluster.Deleted {
			b.Errorf("the tombstone is %s", c.State)
		}
		if !strings.Contains(b.logs.String(), "host alpha differs by 1h") {
			b.Error("nothing is logged")
		}
		differ = false
		b.untilState(short, cluster.Deleted)
		time.Sleep(5 * time.Minute)
		if _, err := b.store.Get(b.Context(), ended); croft.KindOf(err) != croft.NotFound {
			b.Errorf("with clocks that agree, the tombstone: %v", err)
		}
	})
}
