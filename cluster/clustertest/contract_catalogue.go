package clustertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/cluster"
)

// RunCatalogue is the contract test of cluster.ApplianceStore. open returns an empty store.
func RunCatalogue(t *testing.T, open func(t *testing.T) Stores) {
	for name, test := range map[string]func(*testing.T, Stores){
		"sites are kept":                            testSites,
		"credentials are kept":                      testCredentials,
		"appliances are kept":                       testAppliances,
		"appliances of projects never collide":      testAppliancesOfProjects,
		"revisions of implementations count up":     testRevisions,
		"implementations change but for one thing":  testImplementations,
		"images are kept":                           testImages,
		"nothing is removed while something is new": testRaces,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// wantCount checks that a removal is refused with the number of uses.
func wantCount(t testing.TB, err error, counts string) {
	t.Helper()
	if want(t, err, croft.Conflict); err != nil && !strings.Contains(err.Error(), counts) {
		t.Errorf("it says %q, want %q in it", err, counts)
	}
}

func testSites(t *testing.T, s Stores) {
	ctx := t.Context()
	site := cluster.Site{Name: "one", Type: cluster.OpenStack, AuthURL: "https://keystone.example/v3", Priority: 3,
		Enabled: true, Defaults: map[string]any{"key_name": "k"}, Health: cluster.Health{OK: true}}
	first, err := s.PutSite(ctx, site)
	if err != nil || first.Generation == 0 {
		t.Fatalf("got %+v, %v", first, err)
	}
	_, err = s.PutSite(ctx, site)
	want(t, err, croft.Conflict)
	all, err := s.Sites(ctx)
	if err != nil || len(all) != 1 || all[0].Health != (cluster.Health{}) {
		t.Fatalf("got %+v, %v", all, err)
	}
	all[0].Health = first.Health
	wantSame(t, first, all[0])
	next := first
	next.Priority = 4
	second, err := s.PutSite(ctx, next)
	if err != nil || second.Generation <= first.Generation {
		t.Errorf("got %+v, %v", second, err)
	}
	_, err = s.PutSite(ctx, next)
	want(t, err, croft.Conflict)
	_, err = s.PutImage(ctx, cluster.SiteImage{Name: "debian-13", On: map[string]cluster.Placed{"one": {Ref: "former"},
		"one/credential": {Ref: "former"}, "one-more": {Ref: "other"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveSite(ctx, "one"); err != nil {
		t.Error(err)
	}
	images, err := s.Images(ctx)
	if err != nil || len(images) != 1 || len(images[0].On) != 1 || images[0].On["one-more"].Ref != "other" {
		t.Errorf("after the site was removed the image is %+v, %v: a later site of the name has other images", images, err)
	}
	if err := s.RemoveImage(ctx, "debian-13"); err != nil {
		t.Error(err)
	}
	want(t, s.RemoveSite(ctx, "one"), croft.NotFound)
	_, err = s.PutSite(ctx, second)
	want(t, err, croft.NotFound)
	Furnish(t, s)
	wantCount(t, s.RemoveSite(ctx, "sim"), "1 implementations, 1 credentials and 0 clusters")
}

func testCredentials(t *testing.T, s Stores) {
	ctx := t.Context()
	_, first := Furnish(t, s)
	got, err := s.Credential(ctx, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, first, got)
	_, err = s.Credential(ctx, cluster.NewCredentialID())
	want(t, err, croft.NotFound)
	twin := first
	twin.ID, twin.Generation = cluster.NewCredentialID(), 0
	_, err = s.PutCredential(ctx, twin)
	want(t, err, croft.Conflict) // of its name
	for _, user := range []string{"bob", "ann/mine", "ann\x00", "..", ""} {
		twin.User = user
		if _, err := s.PutCredential(ctx, twin); err != nil {
			t.Errorf("of user %q: %v", user, err)
		}
		twin.ID = cluster.NewCredentialID()
	}
	for c, n := range map[[2]string]int{{"dev", "ann"}: 1, {"dev", "ann/mine"}: 1, {"lab", "ann"}: 0, {"", ""}: 6,
		{"dev", cluster.AnyUser}: 6, {"lab", cluster.AnyUser}: 0} {
		if all, err := s.Credentials(ctx, croft.Project(c[0]), c[1]); err != nil || len(all) != n {
			t.Errorf("of %q there are %d, %v; want %d", c, len(all), err, n)
		}
	}
	renamed := first
	renamed.Name, renamed.LastError = "other", "refused"
	renamed, err = s.PutCredential(ctx, renamed)
	if err != nil {
		t.Fatal(err)
	}
	twin.User = "ann" // the name is free
	if _, err := s.PutCredential(ctx, twin); err != nil {
		t.Error(err)
	}
	_, err = s.PutCredential(ctx, first) // with an old generation
	want(t, err, croft.Conflict)
	renamed.User = "bob"
	_, err = s.PutCredential(ctx, renamed)
	want(t, err, croft.Invalid)
	twin.ID, twin.Site, twin.Name = cluster.NewCredentialID(), "none", "third"
	_, err = s.PutCredential(ctx, twin)
	want(t, err, croft.NotFound)
	twin.Site, twin.Name = "next", "fourth"
	old, err := s.PutSite(ctx, cluster.Site{Name: "next", Type: cluster.OpenStack})
	if err != nil || old.CreateRevision == 0 {
		t.Fatalf("the site %+v, %v", old, err)
	}
	if err := s.RemoveSite(ctx, "next"); err != nil {
		t.Fatal(err)
	}
	next, err := s.PutSite(ctx, cluster.Site{Name: "next", Type: cluster.OpenStack})
	if err != nil {
		t.Fatal(err)
	}
	twin.SiteCreated = old.CreateRevision
	_, err = s.PutCredential(ctx, twin) // accepted by a former site of the same name
	want(t, err, croft.Conflict)
	twin.SiteCreated = next.CreateRevision
	if _, err := s.PutCredential(ctx, twin); err != nil {
		t.Error(err)
	}
	c := NewCluster("one")
	c.Site, c.Credential = "sim", first.ID
	create(t, s, c)
	wantCount(t, s.RemoveCredential(ctx, first.ID), "1 cluster")
	want(t, s.RemoveCredential(ctx, cluster.NewCredentialID()), croft.NotFound)
}

func testAppliances(t *testing.T, s Stores) {
	ctx := t.Context()
	i, _ := Furnish(t, s)
	all, err := s.Appliances(ctx, "")
	if err != nil || len(all) != 1 || all[0].Name != "slurm" {
		t.Fatalf("got %+v, %v", all, err)
	}
	_, err = s.PutAppliance(ctx, cluster.Appliance{Name: "slurm"})
	want(t, err, croft.Conflict)
	all[0].Description = "batch"
	if _, err := s.PutAppliance(ctx, all[0]); err != nil {
		t.Error(err)
	}
	wantCount(t, s.RemoveAppliance(ctx, "slurm"), "1 implementations")
	if err := s.RemoveImplementation(ctx, i.ID); err != nil {
		t.Error(err)
	}
	if err := s.RemoveAppliance(ctx, "slurm"); err != nil {
		t.Error(err)
	}
	want(t, s.RemoveAppliance(ctx, "slurm"), croft.NotFound)
	_, err = s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm",
		Site: "sim"})
	want(t, err, croft.NotFound)
}

// testAppliancesOfProjects stores appliances of one name for projects, for the operators, and in the way of earlier
// versions.
func testAppliancesOfProjects(t *testing.T, s Stores) {
	ctx := t.Context()
	if _, err := s.PutSite(ctx, cluster.Site{Name: "sim", Type: cluster.Sim, Enabled: true}); err != nil {
		t.Fatal(err)
	}
	put := func(project croft.Project, name string, public bool) (cluster.Appliance, error) {
		return s.PutAppliance(ctx, cluster.Appliance{Name: name, Project: project, Owner: "ann", Public: public})
	}
	must := func(a cluster.Appliance, err error) cluster.Appliance {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	sees := func(unique, want string) {
		t.Helper()
		if a, err := s.Appliance(ctx, unique); want == "" && croft.KindOf(err) != croft.NotFound ||
			want != "" && (err != nil || a.Name != want) {
			t.Errorf("%s is %q, %v; want %q", unique, a.Name, err, want)
		}
	}
	shop, lab := must(put("shop", "@shop:slurm", false)), must(put("lab", "@lab:slurm", false))
	sees("slurm", "")
	sees("@dev:slurm", "")
	_, err := put("shop", "@lab:other", false)
	want(t, err, croft.Invalid)
	_, err = put("shop", "@shop:slurm", false)
	want(t, err, croft.Conflict)
	operators := must(put("", "slurm", true))
	sees("@shop:slurm", "@shop:slurm")
	sees("@lab:slurm", "@lab:slurm")
	sees("@dev:slurm", "slurm")
	_, err = put("dev", "@dev:slurm", false)
	want(t, err, croft.Conflict)
	for _, a := range []cluster.Appliance{shop, lab, operators} {
		i, err := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: a.Name,
			Site: "sim", Template: a.Name})
		if err != nil || i.Revision != 1 || i.Appliance != a.Name {
			t.Errorf("of %s: %+v, %v", a.Name, i, err)
		}
		if all, err := s.Implementations(ctx, a.Name); err != nil || len(all) != 1 || all[0].ID != i.ID {
			t.Errorf("%s has %+v, %v", a.Name, all, err)
		}
	}
	for project, n := range map[croft.Project]int{"shop": 2, "lab": 2, "dev": 1, "": 3} {
		if all, err := s.Appliances(ctx, project); err != nil || len(all) != n {
			t.Errorf("project %q has %+v, %v; want %d", project, all, err, n)
		}
	}
	shop.Public = true
	_, err = s.PutAppliance(ctx, shop) // the operators have one of that name
	want(t, err, croft.Conflict)

	old := must(put("shop", "old", false)) // as earlier versions stored it
	sees("@shop:old", "old")
	sees("@dev:old", "")
	_, err = put("shop", "@shop:old", false)
	want(t, err, croft.Conflict)
	must(put("dev", "@dev:old", false))
	if err := s.RemoveAppliance(ctx, old.Name); err != nil {
		t.Error(err)
	}

	web := must(put("shop", "@shop:web", false))
	web.Public = true
	web = must(s.PutAppliance(ctx, web))
	sees("@dev:web", "@shop:web")
	sees("web", "@shop:web")
	web.Description = "for all"
	web = must(s.PutAppliance(ctx, web))
	if a, err := s.Appliance(ctx, "@dev:web"); err != nil || a.Description != "for all" ||
		a.Generation != web.Generation {
		t.Errorf("others see %+v, %v", a, err)
	}
	_, err = put("dev", "@dev:web", false)
	want(t, err, croft.Conflict)
	if all, err := s.Appliances(ctx, "shop"); err != nil || len(all) != 3 {
		t.Errorf("shop has %+v, %v", all, err)
	}
	web.Public = false
	web = must(s.PutAppliance(ctx, web))
	sees("@dev:web", "")
	web.Public = true
	must(s.PutAppliance(ctx, web))
	if err := s.RemoveAppliance(ctx, "@shop:web"); err != nil {
		t.Error(err)
	}
	sees("@shop:web", "")
	sees("@dev:web", "")
}

func testRevisions(t *testing.T, s Stores) {
	ctx := t.Context()
	first, _ := Furnish(t, s)
	if first.Revision != 1 {
		t.Errorf("the first has revision %d", first.Revision)
	}
	var work sync.WaitGroup
	revisions := make([]int, 5)
	for n := range revisions {
		work.Go(func() {
			i, err := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(),
				Appliance: "slurm", Site: "sim", Template: fmt.Sprint(n)})
			if revisions[n] = i.Revision; err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	seen := map[int]bool{1: true}
	for _, r := range revisions {
		if seen[r] || r > 6 {
			t.Errorf("revisions are %v", revisions)
		}
		seen[r] = true
	}
	all, err := s.Implementations(ctx, "slurm")
	if err != nil || len(all) != 6 || all[5].Revision != 6 {
		t.Fatalf("got %+v, %v", all, err)
	}
	if err := s.RemoveImplementation(ctx, all[5].ID); err != nil {
		t.Error(err)
	}
	next, err := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm",
		Site: "sim"})
	if err != nil || next.Revision != 7 {
		t.Errorf("after one that was removed: %d, %v", next.Revision, err)
	}
}

func testImplementations(t *testing.T, s Stores) {
	ctx := t.Context()
	i, _ := Furnish(t, s)
	_, err := s.AddImplementation(ctx, i)
	want(t, err, croft.Conflict)
	off, err := s.EnableImplementation(ctx, i.ID, false)
	if err != nil || off.Enabled || off.Template != i.Template {
		t.Errorf("got %+v, %v", off, err)
	}
	got, err := s.Implementation(ctx, i.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, off, got)
	_, err = s.EnableImplementation(ctx, cluster.NewImplementationID(), true)
	want(t, err, croft.NotFound)
	if all, err := s.Implementations(ctx, "hadoop"); err != nil || len(all) != 0 {
		t.Errorf("of another appliance: %v, %v", all, err)
	}
	c := NewCluster("one")
	c.Site, c.Implementation = "sim", i.ID
	create(t, s, c)
	wantCount(t, s.RemoveImplementation(ctx, i.ID), "1 cluster")
	wantCount(t, s.RemoveSite(ctx, "sim"), "1 implementations, 1 credentials and 1 clusters")
	want(t, s.RemoveImplementation(ctx, cluster.NewImplementationID()), croft.NotFound)
	other := cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm", Site: "none"}
	_, err = s.AddImplementation(ctx, other)
	want(t, err, croft.NotFound)
}

func testImages(t *testing.T, s Stores) {
	ctx := t.Context()
	Furnish(t, s)
	first, err := s.PutImage(ctx, cluster.SiteImage{Name: "debian-12", URL: "https://images.example/debian.qcow2",
		On: map[string]cluster.Placed{"sim": {State: cluster.ImageReady, Ref: "r"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.PutImage(ctx, cluster.SiteImage{Name: "debian-12"})
	want(t, err, croft.Conflict)
	all, err := s.Images(ctx)
	if err != nil || len(all) != 1 {
		t.Fatalf("got %+v, %v", all, err)
	}
	wantSame(t, first, all[0])
	i, err := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(), Appliance: "slurm",
		Site: "sim", Image: "debian-12"})
	if err != nil {
		t.Fatal(err)
	}
	wantCount(t, s.RemoveImage(ctx, "debian-12"), "1 implementations")
	if err := s.RemoveImplementation(ctx, i.ID); err != nil {
		t.Error(err)
	}
	if err := s.RemoveImage(ctx, "debian-12"); err != nil {
		t.Error(err)
	}
	want(t, s.RemoveImage(ctx, "debian-12"), croft.NotFound)
}

// testRaces removes records while others start to use them: a user of a record never outlives the record.
func testRaces(t *testing.T, s Stores) {
	ctx := t.Context()
	Furnish(t, s)
	errIdle := errors.New("it was not tried")
	add := func(site string) error {
		_, err := s.AddImplementation(ctx, cluster.Implementation{ID: cluster.NewImplementationID(),
			Appliance: "slurm", Site: site})
		return err
	}
	for n := range 12 {
		name := fmt.Sprint("site-", n)
		if _, err := s.PutSite(ctx, cluster.Site{Name: name, Type: cluster.Sim}); err != nil {
			t.Fatal(err)
		}
		c := create(t, s, NewCluster(fmt.Sprint("c", n)))
		var work sync.WaitGroup
		added, chosen, removed := errIdle, errIdle, error(nil)
		if n%3 != 0 { // in turns, so that each is also raced alone
			work.Go(func() { added = add(name) })
		}
		if n%3 != 1 {
			work.Go(func() {
				c.Site = name
				_, chosen = s.Update(ctx, c, nil)
			})
		}
		work.Go(func() { removed = s.RemoveSite(ctx, name) })
		work.Wait()
		if removed == nil && (added == nil || chosen == nil) {
			t.Fatalf("a site was removed that was used: %v, %v", added, chosen)
		}
		if removed != nil && added != nil && chosen != nil {
			t.Fatalf("nothing was done: %v, %v, %v", removed, added, chosen)
		}
	}
}

// RunAccounts is the contract test of cluster.Accounts. open returns an empty store.
func RunAccounts(t *testing.T, open func(t *testing.T) Stores) {
	t.Run("accounts are kept while their cluster is there", func(t *testing.T) {
		s, ctx := open(t), t.Context()
		c := create(t, s, NewCluster("one"))
		a := cluster.Account{Cluster: c.ID, User: "bob", Username: "u1", Password: cluster.Sealed(`{"v":"eA"}`),
			Created: c.Created}
		_, err := s.Account(ctx, c.ID, "bob")
		want(t, err, croft.NotFound)
		if err := s.AddAccount(ctx, a); err != nil {
			t.Fatal(err)
		}
		want(t, s.AddAccount(ctx, a), croft.Conflict)
		got, err := s.Account(ctx, c.ID, "bob")
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, a, got)
		for _, user := range []string{"bob/x", "..", ""} {
			other := a
			other.User = user
			if err := s.AddAccount(ctx, other); err != nil {
				t.Errorf("of user %q: %v", user, err)
			}
		}
		if all, err := s.AllAccounts(ctx); err != nil || len(all) != 4 {
			t.Errorf("there are %d accounts, %v", len(all), err)
		}
		next := cluster.Sealed(`{"v":"eQ"}`)
		if err := s.SealAccount(ctx, a, next); err != nil {
			t.Error(err)
		}
		if got, err := s.Account(ctx, c.ID, "bob"); err != nil || string(got.Password) != string(next) ||
			got.Username != "u1" {
			t.Errorf("sealed again: %+v, %v", got, err)
		}
		want(t, s.SealAccount(ctx, a, next), croft.NotFound) // with the previous record
		if err := s.RemoveAccount(ctx, c.ID, "bob"); err != nil {
			t.Error(err)
		}
		want(t, s.SealAccount(ctx, a, next), croft.NotFound)
		want(t, s.RemoveAccount(ctx, c.ID, "bob"), croft.NotFound)
		c.State = cluster.Deleting
		update(t, s, c, nil)
		want(t, s.AddAccount(ctx, a), croft.Conflict)
		a.Cluster = croft.NewClusterID()
		want(t, s.AddAccount(ctx, a), croft.NotFound)
	})
}
