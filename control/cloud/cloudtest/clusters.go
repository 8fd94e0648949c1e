package cloudtest

import (
	"croft"
	"croft/cluster"
)

// clustersAreAskedFor checks records only: the cloud's manager decides whether anything is built.
func clustersAreAskedFor(s *suite) {
	sites, how := s.Cloud.Sites, s.Cloud.Appliances
	site, err := sites.Create(s.ctx, cluster.Site{Name: "pretend", Type: cluster.Sim, Enabled: true, Priority: 3,
		BuildTimeout: 90e9, Defaults: map[string]any{"color": "blue"}})
	s.must(err)
	if found, err := sites.Find(s.ctx, "pretend"); err != nil || found.BuildTimeout != site.BuildTimeout ||
		found.Priority != 3 || found.Defaults["color"] != "blue" {
		s.Errorf("found %+v, %v; want %+v", found, err, site)
	}
	_, err = sites.Create(s.ctx, site)
	s.is(err, croft.Conflict, "a site that is there")
	stale, priority := site.Generation-1, 4
	_, err = sites.Change(s.ctx, "pretend", cluster.SiteChange{Priority: &priority}, &stale)
	s.is(err, croft.Conflict, "a change of another generation")
	changed, err := sites.Change(s.ctx, "pretend", cluster.SiteChange{Priority: &priority}, &site.Generation)
	if err != nil || changed.Priority != 4 || changed.BuildTimeout != site.BuildTimeout {
		s.Errorf("changed to %+v, %v", changed, err)
	}
	_, err = sites.Find(s.ctx, "nowhere")
	s.is(err, croft.NotFound, "a site that there is not")
	_, err = sites.Find(s.ctx, "No name")
	s.isOneOf(err, "what is no name", croft.Invalid, croft.NotFound)
	if h, err := sites.Health(s.ctx, "pretend", croft.DefaultProject, s.User); err != nil || !h.Reachable {
		s.Errorf("its health is %+v, %v", h, err)
	}

	_, err = how.Create(s.ctx, cluster.Appliance{Name: "demo", Owner: s.User, Public: true})
	s.must(err)
	_, err = how.AddImplementation(s.ctx, cluster.Implementation{Appliance: "demo", Site: "pretend", Template: "a: ["})
	s.is(err, croft.Invalid, "a template that is none")
	first, err := how.AddImplementation(s.ctx, cluster.Implementation{Appliance: "demo", Site: "pretend",
		Template: "{}", Enabled: true})
	s.must(err)
	if all, err := how.Implementations(s.ctx, "demo"); err != nil || len(all) != 1 || all[0].ID != first.ID ||
		all[0].Template != "{}" || first.Revision != 1 {
		s.Errorf("the implementations are %+v, %v", all, err)
	}
	s.is(how.Remove(s.ctx, "demo"), croft.Conflict, "an appliance with implementations")
	s.is(sites.Remove(s.ctx, "pretend"), croft.Conflict, "a site that is used")
	clusterIsAskedFor(s, first)
}

// clusterIsAskedFor requests a cluster, joins it, and releases it.
func clusterIsAskedFor(s *suite, how cluster.Implementation) {
	all := s.Cloud.Clusters
	r := cluster.Request{Name: "web", Project: croft.DefaultProject, User: s.User, Appliance: "demo", Slaves: 2,
		KeepIdle: 3600e9}
	why, err := all.Explain(s.ctx, r)
	if err != nil || len(why.Candidates) != 1 || why.Candidates[0].Site != "pretend" {
		s.Errorf("explained as %+v, %v", why, err)
	}
	made, err := all.Create(s.ctx, r)
	s.must(err)
	id := string(made.Cluster.ID)
	if made.Reused || made.Cluster.KeepIdle != r.KeepIdle || made.Cluster.User != s.User || made.Cluster.Slaves != 2 {
		s.Errorf("created %+v", made)
	}
	joined, err := all.Create(s.ctx, cluster.Request{Name: "other", Project: croft.DefaultProject, User: s.User,
		Appliance: "demo"})
	if err != nil || !joined.Reused || string(joined.Cluster.ID) != id || len(joined.Cluster.Uses) != 2 {
		s.Errorf("asked again: %+v, %v", joined, err)
	}
	r.Appliance = "none"
	_, err = all.Create(s.ctx, r)
	s.is(err, croft.NotFound, "an appliance that there is not")
	r.Appliance, r.Reuse = "demo", cluster.ReuseNever
	_, err = all.Create(s.ctx, r)
	s.is(err, croft.Conflict, "a name that is taken")
	r.Name, r.Hints.ExcludeSites = "x", []string{"pretend"}
	_, err = all.Create(s.ctx, r)
	s.is(err, croft.NoCapacity, "a request that no site can serve")
	if found, err := all.Find(s.ctx, croft.DefaultProject, "web"); err != nil || string(found.ID) != id {
		s.Errorf("found %+v, %v", found, err)
	}
	_, err = all.Find(s.ctx, croft.DefaultProject, "nobody")
	s.is(err, croft.NotFound, "a cluster that there is not")
	if list, err := all.List(s.ctx, "", cluster.Filter{Appliance: "demo"}); err != nil || len(list) != 1 {
		s.Errorf("the list is %+v, %v", list, err)
	}
	if events, err := all.Events(s.ctx, croft.DefaultProject, id); err != nil || len(events) == 0 {
		s.Errorf("its events are %+v, %v", events, err)
	}
	_, err = all.Account(s.ctx, croft.DefaultProject, id, s.User)
	s.is(err, croft.Invalid, "an account without an agent")
	left, err := all.EndUse(s.ctx, croft.DefaultProject, id, joined.Cluster.Uses[0].ID)
	if err != nil || len(left.Uses) != 1 {
		s.Errorf("after a use: %+v, %v", left, err)
	}
	gone, err := all.Delete(s.ctx, croft.DefaultProject, id, cluster.Removal{User: s.User, Force: true, Abandon: true})
	if err != nil || gone.State != cluster.Deleting && gone.State != cluster.Deleted {
		s.Errorf("deleted: %+v, %v", gone, err)
	}
	_, err = s.Cloud.Appliances.EnableImplementation(s.ctx, "demo", how.ID, false)
	s.must(err)
}
