package client

import (
	"context"
	"net/http"

	"croft"
	"croft/cluster"
	"croft/control/api"
)

// appliances implements cloud.Appliances.
type appliances struct{ *Client }

// appliancePath is the path of an appliance, or of something below it. Invalid: unique cannot be the name of an
// appliance.
func appliancePath(unique string, below ...string) (string, error) {
	if err := cluster.CheckAppliance(unique); err != nil {
		return "", err
	}
	project, name := cluster.SplitAppliance(unique)
	return path(project, append([]string{"v1", "appliances", name}, below...)), nil
}

// List implements cloud.Appliances.
func (a appliances) List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error) {
	var list api.ApplianceList
	err := a.ask(ctx, http.MethodGet, path(project, []string{"v1", "appliances"}), nil, &list)
	return list.Appliances, err
}

// Find implements cloud.Appliances.
func (a appliances) Find(ctx context.Context, name string) (found cluster.Appliance, err error) {
	at, err := appliancePath(name)
	if err != nil {
		return found, err
	}
	return found, a.ask(ctx, http.MethodGet, at, nil, &found)
}

// Create implements cloud.Appliances.
func (a appliances) Create(ctx context.Context, wanted cluster.Appliance) (made cluster.Appliance, err error) {
	return made, a.ask(ctx, http.MethodPost, path(wanted.Project, []string{"v1", "appliances"}),
		api.NewAppliance{Name: wanted.Name, Description: wanted.Description, Public: wanted.Public,
			MinSlaves: wanted.MinSlaves, Agent: wanted.Agent}, &made)
}

// Change implements cloud.Appliances.
func (a appliances) Change(ctx context.Context, name string, change cluster.ApplianceChange, generation *int64) (
	now cluster.Appliance, err error) {
	at, err := appliancePath(name)
	if err != nil {
		return now, err
	}
	return now, a.askWith(ctx, http.MethodPatch, at, match(generation), change, &now)
}

// Remove implements cloud.Appliances.
func (a appliances) Remove(ctx context.Context, name string) error {
	at, err := appliancePath(name)
	if err != nil {
		return err
	}
	return a.ask(ctx, http.MethodDelete, at, nil, nil)
}

// Implementations implements cloud.Appliances.
func (a appliances) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	var list api.ImplementationList
	at, err := appliancePath(appliance, "implementations")
	if err != nil {
		return nil, err
	}
	err = a.ask(ctx, http.MethodGet, at, nil, &list)
	return list.Implementations, err
}

// AddImplementation implements cloud.Appliances.
func (a appliances) AddImplementation(ctx context.Context, i cluster.Implementation) (made cluster.Implementation,
	err error) {
	at, err := appliancePath(i.Appliance, "implementations")
	if err != nil {
		return made, err
	}
	return made, a.ask(ctx, http.MethodPost, at, api.NewImplementationOf(i), &made)
}

// EnableImplementation implements cloud.Appliances.
func (a appliances) EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID,
	enabled bool) (now cluster.Implementation, err error) {
	at, err := appliancePath(appliance, "implementations", string(id))
	if err != nil {
		return now, err
	}
	return now, a.ask(ctx, http.MethodPatch, at, api.ImplementationChange{Enabled: enabled}, &now)
}

// RemoveImplementation implements cloud.Appliances.
func (a appliances) RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	at, err := appliancePath(appliance, "implementations", string(id))
	if err != nil {
		return err
	}
	return a.ask(ctx, http.MethodDelete, at, nil, nil)
}

// siteImages implements cloud.SiteImages.
type siteImages struct{ *Client }

// List implements cloud.SiteImages.
func (s siteImages) List(ctx context.Context) ([]cluster.SiteImage, error) {
	catalog, err := s.ListImages(ctx)
	return catalog.SiteImages, err
}

// Find implements cloud.SiteImages.
func (s siteImages) Find(ctx context.Context, name string) (found cluster.SiteImage, err error) {
	if err := cluster.CheckName("an image", name); err != nil {
		return found, err
	}
	return s.GetImage(ctx, api.ImageNamed{Name: name})
}

// Create implements cloud.SiteImages.
func (s siteImages) Create(ctx context.Context, i cluster.SiteImage) (made cluster.SiteImage, err error) {
	return s.AddImage(ctx, api.NewSiteImage{Name: i.Name, URL: i.URL, SHA256: i.SHA256, Format: i.Format,
		MinDiskGB: i.MinDiskGB, MinRAMMB: i.MinRAMMB})
}

// Remove implements cloud.SiteImages.
func (s siteImages) Remove(ctx context.Context, name string) error {
	if err := cluster.CheckName("an image", name); err != nil {
		return err
	}
	return s.RemoveImage(ctx, api.ImageNamed{Name: name})
}

// Bring implements cloud.SiteImages.
func (s siteImages) Bring(ctx context.Context, name, site, ref string, project croft.Project, _ string) (
	now cluster.SiteImage, err error) {
	if err := cluster.CheckName("an image", name); err != nil {
		return now, err
	}
	return s.BringImage(ctx, api.ImageAtSite{ImageNamed: api.ImageNamed{Name: name},
		InProject: api.InProject{Project: project}, Site: site, Ref: ref})
}
