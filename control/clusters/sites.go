package clusters

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
func (c Call) site(s cluster.Site) api.Site {
	document := api.SiteOf(s)
	if !c.Caller.Operator() {
		document.CACert, document.Defaults, document.Health.Error = "", nil, ""
	}
	return document
}

func (c Call) listSites() error {
	ctx, cancel := c.Brief()
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

func (c Call) createSite() error {
	var given api.NewSite
	if err := c.Body(&given); err != nil {
		return err
	}
	c.about("", actions.Site, "", given.Name)
	ctx, cancel := c.Brief()
	defer cancel()
	made, err := c.Cloud.Sites.Create(ctx, given.Plain())
	if err != nil {
		return taken(err)
	}
	c.W.Header().Set("Location", "/v1/sites/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, c.site(made))
}

func (c Call) getSite() error {
	ctx, cancel := c.Brief()
	defer cancel()
	s, err := c.Cloud.Sites.Find(ctx, c.R.PathValue("name"))
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, s.Generation, c.site(s))
}

func (c Call) changeSite() error {
	var given api.SiteChange
	if err := c.Body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.R.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	s, err := c.Cloud.Sites.Change(ctx, c.R.PathValue("name"), given.Plain(), base)
	if err != nil {
		return mismatch(err, base)
	}
	return c.tagged(http.StatusOK, s.Generation, c.site(s))
}

func (c Call) removeSite() error {
	ctx, cancel := c.Brief()
	defer cancel()
	if err := c.Cloud.Sites.Remove(ctx, c.R.PathValue("name")); err != nil {
		return used(err)
	}
	return c.nothing()
}

func (c Call) getSiteHealth() error {
	ctx, cancel := c.Brief()
	defer cancel()
	h, err := c.Cloud.Sites.Health(ctx, c.R.PathValue("name"), c.Project, c.Caller.User)
	if err != nil {
		return err
	}
	if !c.Caller.Operator() && h.Site == cluster.LocalSite {
		h.Free = nil // the load of the cloud
	}
	return c.answer(http.StatusOK, h)
}

// Image returns an image as a caller may see it: its source may contain a password, and a private copy at a site is
// only for its user.
func Image(caller access.Caller, i cluster.Image) cluster.Image {
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

func addImage(c Call) error {
	var given api.NewSiteImage
	if err := c.Body(&given); err != nil {
		return err
	}
	c.about("", actions.Image, "", given.Name)
	ctx, cancel := c.Brief()
	defer cancel()
	made, err := c.Cloud.SiteImages.Create(ctx, cluster.Image{Name: given.Name, URL: given.URL, SHA256: given.SHA256,
		Format: given.Format, MinDiskGB: given.MinDiskGB, MinRAMMB: given.MinRAMMB})
	if err != nil {
		return taken(err)
	}
	c.W.Header().Set("Location", "/v1/images/"+made.Name)
	return c.tagged(http.StatusCreated, made.Generation, Image(c.Caller, made))
}

func getImage(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := c.Cloud.SiteImages.Find(ctx, c.R.PathValue("name"))
	if err != nil {
		return err
	}
	return c.tagged(http.StatusOK, have.Generation, Image(c.Caller, have))
}

func removeImage(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	if err := c.Cloud.SiteImages.Remove(ctx, c.R.PathValue("name")); err != nil {
		return used(err)
	}
	return c.nothing()
}

func bringImage(c Call) error {
	var given api.ImageAtSite
	if err := c.Body(&given); err != nil {
		return err
	}
	if given.Ref != "" && !c.Caller.Operator() {
		return api.NewProblem(api.ForbiddenVerb,
			"only operators say what an image is called at a site: all would use it")
	}
	ctx, cancel := c.Brief()
	defer cancel()
	name, site := c.R.PathValue("name"), c.R.PathValue("site")
	have, err := c.Cloud.SiteImages.Bring(ctx, name, site, given.Ref, c.Project, c.Caller.User)
	if err != nil {
		return told(err)
	}
	status := http.StatusOK
	for _, at := range have.On {
		if at.State == cluster.ImageUploading {
			status = http.StatusAccepted
		}
	}
	return c.tagged(status, have.Generation, Image(c.Caller, have))
}
