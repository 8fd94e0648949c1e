package cloudtest

import (
	"croft"
	"croft/cluster"
	"croft/control/api"
)

// clustersAreAskedFor checks records only: the cloud's manager decides whether anything is built.
func clustersAreAskedFor(s *suite) {
	c, pretend := s.Client, api.SiteNamed{Name: "pretend"}
	wanted := api.NewSite{Name: "pretend", Type: cluster.Sim, Priority: 3, BuildTimeout: 90e9,
		Defaults: map[string]any{"color": "blue"}}
	site, err := c.CreateSite(s.ctx, wanted)
	s.must(err)
	if found, err := c.GetSite(s.ctx, pretend); err != nil || found.BuildTimeout != wanted.BuildTimeout ||
		site.BuildTimeout != wanted.BuildTimeout || found.Priority != 3 || found.Defaults["color"] != "blue" {
		s.Errorf("found %+v, %v; want %+v", found, err, site)
	}
	_, err = c.CreateSite(s.ctx, wanted)
	s.is(err, croft.Conflict, "a site that is there")
	stale, priority := site.Generation-1, 4
	change := api.SiteChange{SiteNamed: pretend, SiteChange: cluster.SiteChange{Priority: &priority},
		Base: api.MatchOf(stale)}
	_, err = c.ChangeSite(s.ctx, change)
	s.is(err, croft.Conflict, "a change of another generation")
	change.Base = api.MatchOf(site.Generation)
	changed, err := c.ChangeSite(s.ctx, change)
	if err != nil || changed.Priority != 4 || changed.BuildTimeout != site.BuildTimeout {
		s.Errorf("changed to %+v, %v", changed, err)
	}
	_, err = c.GetSite(s.ctx, api.SiteNamed{Name: "nowhere"})
	s.is(err, croft.NotFound, "a site that there is not")
	_, err = c.GetSite(s.ctx, api.SiteNamed{Name: "No name"})
	s.isOneOf(err, "what is no name", croft.Invalid, croft.NotFound)
	if h, err := c.GetSiteHealth(s.ctx, api.SiteInProject{SiteNamed: pretend}); err != nil || !h.Reachable {
		s.Errorf("its health is %+v, %v", h, err)
	}

	demo := api.ApplianceNamed{Name: "demo"}
	_, err = c.CreateAppliance(s.ctx, api.NewAppliance{Name: "demo", Public: true})
	s.must(err)
	how := api.NewImplementation{ApplianceNamed: demo, Site: "pretend", Template: "a: ["}
	_, err = c.AddImplementation(s.ctx, how)
	s.is(err, croft.Invalid, "a template that is none")
	how.Template = "{}"
	first, err := c.AddImplementation(s.ctx, how)
	s.must(err)
	if all, err := c.ListImplementations(s.ctx, demo); err != nil || len(all.Implementations) != 1 ||
		all.Implementations[0].ID != first.ID || first.Template != "{}" || first.Revision != 1 || !first.Enabled {
		s.Errorf("the implementations are %+v, %v", all, err)
	}
	s.is(c.RemoveAppliance(s.ctx, demo), croft.Conflict, "an appliance with implementations")
	s.is(c.RemoveSite(s.ctx, pretend), croft.Conflict, "a site that is used")
	clusterIsAskedFor(s)
	off := api.ImplementationChange{ImplementationNamed: api.ImplementationNamed{ApplianceNamed: demo, ID: first.ID}}
	now, err := c.ChangeImplementation(s.ctx, off)
	if err != nil || now.Enabled {
		s.Errorf("disabled: %+v, %v", now, err)
	}
}

// clusterIsAskedFor requests a cluster, joins it, and releases it.
func clusterIsAskedFor(s *suite) {
	c := s.Client
	spec := cluster.Spec{Name: "web", Appliance: "demo", Slaves: 2, KeepIdle: 3600e9}
	why, err := c.ExplainCluster(s.ctx, api.ClusterCandidates{Spec: spec})
	if err != nil || len(why.Candidates) != 1 || why.Candidates[0].Site != "pretend" {
		s.Errorf("explained as %+v, %v", why, err)
	}
	made, err := c.CreateCluster(s.ctx, api.NewCluster{Spec: spec})
	s.must(err)
	id := string(made.ID)
	if made.Reused || made.KeepIdle != spec.KeepIdle || made.User != s.User || made.Slaves != 2 {
		s.Errorf("created %+v", made)
	}
	for _, reuse := range []cluster.Reuse{"", cluster.ReuseAuto} {
		joined, err := c.CreateCluster(s.ctx, api.NewCluster{Spec: cluster.Spec{Name: "other", Appliance: "demo",
			Reuse: reuse}})
		if err != nil || !joined.Reused || string(joined.ID) != id || len(joined.Uses) < 2 {
			s.Errorf("asked again with reuse %q: %+v, %v", reuse, joined, err)
		}
	}
	spec.Appliance = "none"
	_, err = c.CreateCluster(s.ctx, api.NewCluster{Spec: spec})
	s.is(err, croft.NotFound, "an appliance that there is not")
	spec.Appliance, spec.Reuse = "demo", cluster.ReuseNever
	_, err = c.CreateCluster(s.ctx, api.NewCluster{Spec: spec})
	s.is(err, croft.Conflict, "a name that is taken")
	spec.Name, spec.Hints.ExcludeSites = "x", []string{"pretend"}
	_, err = c.CreateCluster(s.ctx, api.NewCluster{Spec: spec})
	s.is(err, croft.NoCapacity, "a request that no site can serve")
	web := api.ClusterNamed{ID: "web"}
	found, err := c.GetCluster(s.ctx, api.ClusterAwaited{ClusterNamed: web})
	if err != nil || string(found.ID) != id {
		s.Errorf("found %+v, %v", found, err)
	}
	_, err = c.GetCluster(s.ctx, api.ClusterAwaited{ClusterNamed: api.ClusterNamed{ID: "nobody"}})
	s.is(err, croft.NotFound, "a cluster that there is not")
	if list, err := c.ListClusters(s.ctx, api.ClusterFilter{Appliance: "demo"}); err != nil || len(list.Clusters) != 1 {
		s.Errorf("the list is %+v, %v", list, err)
	}
	if list, err := c.ListClusterEvents(s.ctx, web); err != nil || len(list.Events) == 0 {
		s.Errorf("its events are %+v, %v", list, err)
	}
	_, err = c.MakeAccount(s.ctx, web)
	s.is(err, croft.Invalid, "an account without an agent")
	s.must(c.EndUse(s.ctx, api.UseNamed{ClusterNamed: web, Use: found.Uses[0].ID}))
	left, err := c.GetCluster(s.ctx, api.ClusterAwaited{ClusterNamed: web})
	if err != nil || len(left.Uses) != len(found.Uses)-1 {
		s.Errorf("after a use: %+v, %v", left, err)
	}
	gone, err := c.DeleteCluster(s.ctx, api.ClusterRemoval{ClusterNamed: web, Force: true, Abandon: true})
	if err != nil || gone.State != cluster.Deleting && gone.State != cluster.Deleted {
		s.Errorf("deleted: %+v, %v", gone, err)
	}
}
