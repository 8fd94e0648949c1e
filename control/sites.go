package control

import (
	"net/http"
	"strings"

	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

// site returns a site as the caller may see it: all callers see where passwords are sent, and only operators see the
// trusted certificates and the defaults of templates.
func (c *call) site(s cluster.Site) api.Site {
	document := api.SiteOf(s)
	if !c.caller.Operator() {
		document.CACert, document.Defaults, document.Health.Error = "", nil, ""
	}
	return document
}

func (c *call) listSites() error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Sites.List(ctx)
	if err != nil {
		return err
	}
	list := api.SiteList{Sites: []api.Site{}}
	for _, s := range all {
		list.Sites = append(list.Sites, c.site(s))
	}
	return c.answer(http.StatusOK, list)
}

func (c *call) createSite() error {
	var given api.NewSite
	if err := c.body(&given); err != nil {
		return err
	}
	c.regarding("", actions.Site, "", given.Name)
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.Sites.Create(ctx, given.Plain())
	if err != nil {
		return taken(err)
	}
	c.w.Header().Set("Location", "/v1/sites/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, c.site(made))
}

func (c *call) getSite() error {
	ctx, cancel := c.brief()
	defer cancel()
	s, err := c.Cloud.Sites.Find(ctx, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, s.Generation, c.site(s))
}

func (c *call) changeSite() error {
	var given api.SiteChange
	if err := c.body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	s, err := c.Cloud.Sites.Change(ctx, c.r.PathValue("name"), given.Plain(), base)
	if err != nil {
		return mismatch(err, base)
	}
	return c.tagged(http.StatusOK, s.Generation, c.site(s))
}

func (c *call) removeSite() error {
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.Cloud.Sites.Remove(ctx, c.r.PathValue("name")); err != nil {
		return used(err)
	}
	return c.nothing()
}

func (c *call) getSiteHealth() error {
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Sites.Health(ctx, c.r.PathValue("name"), c.home(), c.caller.User)
	if err != nil {
		return err
	}
	if !c.caller.Operator() && h.Site == cluster.LocalSite {
		h.Free = nil // the load of the cloud
	}
	return c.answer(http.StatusOK, h)
}

// siteImage returns an image as a caller may see it: its source may contain a password, and a private copy at a site is
// only for its user.
func siteImage(caller access.Caller, i cluster.SiteImage) cluster.SiteImage {
	if caller.Operator() {
		return i
	}
	i.URL = ""
	on := map[string]cluster.Placed{}
	for site, at := range i.On {
		if !strings.Contains(site, "/") {
			on[site] = at
		}
	}
	i.On = on
	return i
}

func addImage(c *call) error {
	var given api.NewSiteImage
	if err := c.body(&given); err != nil {
		return err
	}
	c.regarding("", actions.Image, "", given.Name)
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.SiteImages.Create(ctx, cluster.SiteImage{Name: given.Name, URL: given.URL,
		SHA256: given.SHA256,
		Format: given.Format, MinDiskGB: given.MinDiskGB, MinRAMMB: given.MinRAMMB})
	if err != nil {
		return taken(err)
	}
	c.w.Header().Set("Location", "/v1/images/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, siteImage(c.caller, made))
}

func getImage(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := c.Cloud.SiteImages.Find(ctx, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, have.Generation, siteImage(c.caller, have))
}

func removeImage(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.Cloud.SiteImages.Remove(ctx, c.r.PathValue("name")); err != nil {
		return used(err)
	}
	return c.nothing()
}

func bringImage(c *call) error {
	var given api.ImageAtSite
	if err := c.body(&given); err != nil {
		return err
	}
	if given.Ref != "" && !c.caller.Operator() {
		return api.NewProblem(api.ForbiddenVerb,
			"only operators say what an image is called at a site: all would use it")
	}
	ctx, cancel := c.brief()
	defer cancel()
	name, site := c.r.PathValue("name"), c.r.PathValue("site")
	have, err := c.Cloud.SiteImages.Bring(ctx, name, site, given.Ref, c.home(), c.caller.User)
	if err != nil {
		return fromSite(err)
	}
	status := http.StatusOK
	for _, at := range have.On {
		if at.State == cluster.ImageUploading {
			status = http.StatusAccepted
		}
	}
	return c.tagged(status, have.Generation, siteImage(c.caller, have))
}
