package registry_test

import (
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/cluster"
	"croft/cluster/registry"
)

// withSlurm returns a world with the site east and the appliance slurm of project dev.
func withSlurm(t *testing.T) world {
	w := withSite(t)
	must(w.Appliances().Create(t.Context(), cluster.Appliance{Name: "slurm", Owner: "ann", Project: "dev"}))(t)
	return w
}

func TestAppliancesAreChecked(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		appliance cluster.Appliance
		says      string
	}{
		"a bad name":    {cluster.Appliance{Name: "A", Owner: "ann"}, "not a name"},
		"a bad project": {cluster.Appliance{Name: "a", Owner: "ann", Project: "a/b"}, "project"},
		"no owner":      {cluster.Appliance{Name: "a"}, "owner"},
		"a long description": {cluster.Appliance{Name: "a", Owner: "ann",
			Description: strings.Repeat("x", 2000)}, "bytes"},
		"too many slaves": {cluster.Appliance{Name: "a", Owner: "ann", MinSlaves: 1001}, "1000"},
		"no port":         {cluster.Appliance{Name: "a", Owner: "ann", Agent: &cluster.Agent{Port: 70000}}, "port"},
		"a path elsewhere": {cluster.Appliance{Name: "a", Owner: "ann", Agent: &cluster.Agent{Path: "//x?y"}},
			"path"},
		"a path of a host": {cluster.Appliance{Name: "a", Owner: "ann", Agent: &cluster.Agent{Path: "@x/y"}}, "path"},
	} {
		_, err := w.Appliances().Create(t.Context(), c.appliance)
		want(t, name, err, croft.Invalid, c.says)
	}
}

func TestAppliancesAreForProjects(t *testing.T) {
	w, ctx := withSlurm(t), t.Context()
	a := must(w.Appliances().Create(ctx, cluster.Appliance{Name: "hadoop", Owner: "op", Public: true,
		Agent: &cluster.Agent{}}))(t)
	if *a.Agent != (cluster.Agent{Port: 80, Path: "/new_account/"}) {
		t.Errorf("its agent is %+v", a.Agent)
	}
	for project, names := range map[croft.Project]string{"dev": "hadoop slurm", "lab": "hadoop", "": "hadoop slurm"} {
		var got []string
		for _, a := range must(w.Appliances().List(ctx, project))(t) {
			got = append(got, a.Name)
		}
		if strings.Join(got, " ") != names {
			t.Errorf("project %q has %v, want %s", project, got, names)
		}
	}
	_, err := w.Appliances().Create(ctx, cluster.Appliance{Name: "slurm", Owner: "bob", Project: "dev"})
	want(t, "another of its name", err, croft.Conflict, "already")
	_, err = w.Appliances().Find(ctx, "hadop")
	want(t, "mistyped", err, croft.NotFound, "hadoop")
	_, err = w.Appliances().Find(ctx, "slurn")
	want(t, "a private one mistyped", err, croft.NotFound, "")
	if err != nil && strings.Contains(err.Error(), "slurm") {
		t.Errorf("it is hinted at: %v", err)
	}
	public := true
	changed := must(w.Appliances().Change(ctx, "slurm", cluster.ApplianceChange{Public: &public}, nil))(t)
	_, err = w.Appliances().Change(ctx, "slurm", cluster.ApplianceChange{Public: &public}, &a.Generation)
	want(t, "of another generation", err, croft.Conflict, "generation")
	i := must(w.Appliances().AddImplementation(ctx, cluster.Implementation{Appliance: "slurm", Site: "east",
		Template: "ok"}))(t)
	want(t, "with implementations", w.Appliances().Remove(ctx, "slurm"), croft.Conflict, "1 implementations")
	if err := w.Appliances().RemoveImplementation(ctx, "slurm", i.ID); err != nil {
		t.Error(err)
	}
	if err := w.Appliances().Remove(ctx, "slurm"); err != nil || !changed.Public {
		t.Error(err)
	}
	want(t, "once more", w.Appliances().Remove(ctx, "slurm"), croft.NotFound, "no appliance")
}

func TestImplementationsAreChecked(t *testing.T) {
	w := withSlurm(t)
	good := cluster.Implementation{Appliance: "slurm", Site: "east", Template: "ok"}
	for name, c := range map[string]struct {
		change func(*cluster.Implementation)
		kind   croft.Kind
		says   string
	}{
		"an unknown appliance":   {func(i *cluster.Implementation) { i.Appliance = "x" }, croft.NotFound, "appliance"},
		"an unknown site":        {func(i *cluster.Implementation) { i.Site = "eest" }, croft.NotFound, "east"},
		"neither":                {func(i *cluster.Implementation) { i.Template = "" }, croft.Invalid, "either"},
		"both":                   {func(i *cluster.Implementation) { i.Image = "debian-12" }, croft.Invalid, "either"},
		"a template that is bad": {func(i *cluster.Implementation) { i.Template = "bad" }, croft.Invalid, "line 1"},
		"a long template": {func(i *cluster.Implementation) { i.Template = strings.Repeat("x", 1<<20) }, croft.Invalid,
			"bytes"},
		"bytes that are no text": {func(i *cluster.Implementation) { i.Template = "\xff" }, croft.Invalid, "UTF-8"},
		"an unknown role": {func(i *cluster.Implementation) {
			i.Resources = map[cluster.Role]croft.Resources{"king": {croft.VCPU: 1}}
		}, croft.Invalid, "master"},
		"nothing of something": {func(i *cluster.Implementation) {
			i.Resources = map[cluster.Role]croft.Resources{cluster.Slave: {croft.VCPU: 0}}
		}, croft.Invalid, "leave out"},
		"an undeclared parameter": {func(i *cluster.Implementation) {
			i.Parameters = map[string]any{"flavour_name": "m1"}
		}, croft.Invalid, "flavor_name"},
		"a secret parameter": {func(i *cluster.Implementation) {
			i.Parameters = map[string]any{"db_password": "m1"}
		}, croft.Invalid, "secret"},
		"an unknown image": {func(i *cluster.Implementation) { i.Template, i.Image = "", "debian-99" }, croft.Invalid,
			"no image"},
		"an ID that is none": {func(i *cluster.Implementation) { i.ID = "x" }, croft.Invalid, "UUID"},
	} {
		i := good
		c.change(&i)
		_, err := w.Appliances().AddImplementation(t.Context(), i)
		want(t, name, err, c.kind, c.says)
	}
	if all := must(w.store.Implementations(t.Context(), ""))(t); len(all) != 0 {
		t.Errorf("stored %+v", all)
	}
}

func TestImplementationsHaveRevisions(t *testing.T) {
	w, ctx := withSlurm(t), t.Context()
	first := must(w.Appliances().AddImplementation(ctx, cluster.Implementation{Appliance: "slurm", Site: "east",
		Template: "ok", Parameters: map[string]any{"flavor_name": "m1"}}))(t)
	second := must(w.Appliances().AddImplementation(ctx, cluster.Implementation{Appliance: "slurm", Site: "east",
		Image: "debian-12"}))(t)
	if first.Revision != 1 || second.Revision != 2 || !first.Enabled {
		t.Errorf("got %+v and %+v", first, second)
	}
	off := must(w.Appliances().EnableImplementation(ctx, "slurm", second.ID, false))(t)
	if all := must(w.Appliances().Implementations(ctx, "slurm"))(t); off.Enabled || len(all) != 2 || all[1].Enabled {
		t.Errorf("got %+v", all)
	}
	_, err := w.Appliances().EnableImplementation(ctx, "hadoop", second.ID, true)
	want(t, "of another appliance", err, croft.NotFound, "hadoop")
	want(t, "removed there", w.Appliances().RemoveImplementation(ctx, "hadoop", second.ID), croft.NotFound, "hadoop")
	_, err = w.Appliances().Implementations(ctx, "hadoop")
	want(t, "of none", err, croft.NotFound, "hadoop")
}

func TestBuiltInAppliancesAreThere(t *testing.T) {
	w, ctx := withSlurm(t), t.Context()
	// As earlier versions stored an appliance of a project.
	must(w.store.PutAppliance(ctx, cluster.Appliance{Name: "nfs", Owner: "ann", Project: "dev"}))(t)
	shipped := func(text string) []registry.BuiltIn {
		implementations := []cluster.Implementation{{Site: "east", Template: text}, {Site: "none", Template: text}}
		return []registry.BuiltIn{
			{Appliance: cluster.Appliance{Name: "slurm", Public: true}, Implementations: implementations},
			{Appliance: cluster.Appliance{Name: "hadoop", Public: true}, Implementations: implementations},
			{Appliance: cluster.Appliance{Name: "nfs", Public: true}, Implementations: implementations},
		}
	}
	revisions := func() (all []bool) { // whether each is enabled
		for _, i := range must(w.Appliances().Implementations(ctx, "hadoop"))(t) {
			all = append(all, i.Enabled)
		}
		return all
	}
	ensure := func(text string, want ...bool) {
		t.Helper()
		for range 2 {
			if err := w.EnsureBuiltIn(ctx, shipped(text)); err != nil {
				t.Fatal(err)
			}
		}
		if got := revisions(); !slices.Equal(want, got) {
			t.Errorf("after %q: revisions that are enabled: %v, want %v", text, got, want)
		}
	}
	ensure("one", true)
	ensure("two", true, true)
	all := must(w.Appliances().Implementations(ctx, "hadoop"))(t)
	must(w.Appliances().EnableImplementation(ctx, "hadoop", all[1].ID, false))(t)
	ensure("two", true, false)
	ensure("three", true, false, true)
	for _, i := range must(w.Appliances().Implementations(ctx, "hadoop"))(t) {
		must(w.Appliances().EnableImplementation(ctx, "hadoop", i.ID, false))(t)
	}
	ensure("four", false, false, false, false)
	ensure("one", false, false, false, false)
	for _, name := range []string{"@dev:slurm", "@dev:nfs"} {
		if all := must(w.Appliances().Implementations(ctx, name))(t); len(all) != 0 ||
			!strings.Contains(w.log.String(), "nfs") {
			t.Errorf("appliance %s of somebody else got %+v", name, all)
		}
	}
	if all := must(w.Appliances().Implementations(ctx, "@lab:slurm"))(t); len(all) != 4 {
		t.Errorf("a project's appliance keeps the shipped one of the name from others, who have %+v", all)
	}
	if a := must(w.Appliances().Find(ctx, "hadoop"))(t); a.Owner != registry.BuiltInOwner || !a.Public {
		t.Errorf("got %+v", a)
	}
	err := w.EnsureBuiltIn(ctx, shipped("bad"))
	want(t, "a template that is bad", err, croft.Invalid, "hadoop")
}

func TestImagesAreChecked(t *testing.T) {
	w, sum := newWorld(t), strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		image cluster.SiteImage
		says  string
	}{
		"a bad name":       {cluster.SiteImage{Name: "A"}, "not a name"},
		"a bad format":     {cluster.SiteImage{Name: "a", Format: "vmdk"}, "qcow2"},
		"no sum":           {cluster.SiteImage{Name: "a", URL: "https://images.example/x"}, "SHA-256"},
		"no URL":           {cluster.SiteImage{Name: "a", SHA256: sum}, "URL"},
		"a short sum":      {cluster.SiteImage{Name: "a", URL: "https://images.example/x", SHA256: "abc"}, "64"},
		"a file":           {cluster.SiteImage{Name: "a", URL: "file:///x", SHA256: sum}, "http://"},
		"metadata":         {cluster.SiteImage{Name: "a", URL: "http://169.254.169.254/", SHA256: sum}, "metadata"},
		"a negative disk":  {cluster.SiteImage{Name: "a", MinDiskGB: -1}, "less"},
		"negative memory":  {cluster.SiteImage{Name: "a", MinRAMMB: -1}, "less"},
		"a form of an ID ": {cluster.SiteImage{Name: "a3bb189e-8bf9-3888-9912-ace4e6543002"}, "ID"},
	} {
		_, err := w.SiteImages().Create(t.Context(), c.image)
		want(t, name, err, croft.Invalid, c.says)
	}
}

func TestImagesAreBrought(t *testing.T) {
	w, ctx := withSlurm(t), t.Context()
	must(w.SiteImages().Create(ctx, cluster.SiteImage{Name: "own", On: map[string]cluster.Placed{"x": {}}}))(t)
	_, err := w.SiteImages().Bring(ctx, "own", "east", "", "dev", "ann")
	want(t, "without a source", err, croft.Invalid, "no URL")
	i := must(w.SiteImages().Bring(ctx, "own", "east", "3f2a", "dev", "ann"))(t)
	if len(i.On) != 1 || i.On["east"] != (cluster.Placed{Ref: "3f2a", State: cluster.ImageReady}) {
		t.Errorf("noted as %+v", i.On)
	}
	_, err = w.SiteImages().Bring(ctx, "debian-12", "east", "", "dev", "ann")
	want(t, "without a credential", err, croft.Invalid, "credential")
	c := must(w.Credentials().Create(ctx, mine("one", "hunter2hunter2")))(t)
	for _, p := range []cluster.Placed{{State: cluster.ImageUploading, Done: 5, Total: 10},
		{State: cluster.ImageReady, Ref: "9"}} {
		w.driver.answer = p
		i = must(w.SiteImages().Bring(ctx, "debian-12", "east", "", "dev", "ann"))(t)
		if i.On["east/"+string(c.ID)] != p || w.driver.seen.Secret.Reveal() != "hunter2hunter2" {
			t.Errorf("noted as %+v", i.On)
		}
	}
	must(w.Appliances().AddImplementation(ctx, cluster.Implementation{Appliance: "slurm", Site: "east",
		Image: "debian-12"}))(t)
	want(t, "while it is used", w.SiteImages().Remove(ctx, "debian-12"), croft.Conflict, "1 implementations")
	if err := w.SiteImages().Remove(ctx, "own"); err != nil {
		t.Error(err)
	}
	want(t, "once more", w.SiteImages().Remove(ctx, "own"), croft.NotFound, "no image")
	_, err = w.SiteImages().Bring(ctx, "nothing", "east", "x", "dev", "ann")
	want(t, "of no image", err, croft.NotFound, "no image")
	_, err = w.SiteImages().Bring(ctx, "debian-12", "west", "x", "dev", "ann")
	want(t, "to no site", err, croft.NotFound, "no site")
}
