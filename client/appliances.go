package client

import (
	"context"

	"croft"
	"croft/cluster"
	"croft/control/api"
)

// appliances implements cloud.Appliances.
type appliances struct{ *Client }

// applianceNamed returns the input that names an appliance. Invalid: unique cannot be the name of an appliance.
func applianceNamed(unique string) (in api.ApplianceNamed, err error) {
	if err := cluster.CheckAppliance(unique); err != nil {
		return in, err
	}
	in.Project, in.Name = cluster.SplitAppliance(unique)
	return in, nil
}

// List implements cloud.Appliances.
func (a appliances) List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error) {
	list, err := a.ListAppliances(ctx, api.InProject{Project: project})
	return list.Appliances, err
}

// Find implements cloud.Appliances.
func (a appliances) Find(ctx context.Context, name string) (found cluster.Appliance, err error) {
	in, err := applianceNamed(name)
	if err != nil {
		return found, err
	}
	return a.GetAppliance(ctx, in)
}

// Create implements cloud.Appliances.
func (a appliances) Create(ctx context.Context, wanted cluster.Appliance) (cluster.Appliance, error) {
	return a.CreateAppliance(ctx, api.NewAppliance{InProject: api.InProject{Project: wanted.Project}, Name: wanted.Name,
		Description: wanted.Description, Public: wanted.Public, MinSlaves: wanted.MinSlaves, Agent: wanted.Agent})
}

// Change implements cloud.Appliances.
func (a appliances) Change(ctx context.Context, name string, change cluster.ApplianceChange, generation *int64) (
	now cluster.Appliance, err error) {
	in, err := applianceNamed(name)
	if err != nil {
		return now, err
	}
	return a.ChangeAppliance(ctx, api.ApplianceChange{ApplianceNamed: in, ApplianceChange: change, Base: generation})
}

// Remove implements cloud.Appliances.
func (a appliances) Remove(ctx context.Context, name string) error {
	in, err := applianceNamed(name)
	if err != nil {
		return err
	}
	return a.RemoveAppliance(ctx, in)
}

// Implementations implements cloud.Appliances.
func (a appliances) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	in, err := applianceNamed(appliance)
	if err != nil {
		return nil, err
	}
	list, err := a.ListImplementations(ctx, in)
	return list.Implementations, err
}

// AddImplementation implements cloud.Appliances.
func (a appliances) AddImplementation(ctx context.Context, i cluster.Implementation) (made cluster.Implementation,
	err error) {
	in := api.NewImplementationOf(i)
	if in.ApplianceNamed, err = applianceNamed(i.Appliance); err != nil {
		return made, err
	}
	return a.Client.AddImplementation(ctx, in)
}

// EnableImplementation implements cloud.Appliances.
func (a appliances) EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID,
	enabled bool) (now cluster.Implementation, err error) {
	in, err := applianceNamed(appliance)
	if err != nil {
		return now, err
	}
	return a.ChangeImplementation(ctx, api.ImplementationChange{
		ImplementationNamed: api.ImplementationNamed{ApplianceNamed: in, ID: id}, Enabled: enabled})
}

// RemoveImplementation implements cloud.Appliances.
func (a appliances) RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	in, err := applianceNamed(appliance)
	if err != nil {
		return err
	}
	return a.Client.RemoveImplementation(ctx, api.ImplementationNamed{ApplianceNamed: in, ID: id})
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
