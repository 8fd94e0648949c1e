package registry

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"croft"
	"croft/cloud"
	"croft/cluster"
	"croft/internal/nearest"
)

type appliances struct{ *Registry }

// Appliances returns what manages appliances and their implementations.
func (r *Registry) Appliances() cloud.Appliances { return appliances{r} }

// List implements cloud.Appliances.
func (r appliances) List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error) {
	all, err := r.Catalogue.Appliances(ctx)
	if project != "" {
		all = slices.DeleteFunc(all, func(a cluster.Appliance) bool { return !a.Public && a.Project != project })
	}
	return all, err
}

// Find implements cloud.Appliances.
func (r appliances) Find(ctx context.Context, name string) (cluster.Appliance, error) {
	if err := cluster.CheckName("an appliance", name); err != nil { // it becomes part of a key
		return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q", name)
	}
	a, err := r.Catalogue.Appliance(ctx, name)
	if err == nil || croft.KindOf(err) != croft.NotFound {
		return a, err
	}
	all, err := r.Catalogue.Appliances(ctx)
	if err != nil {
		return cluster.Appliance{}, err
	}
	var public []string // others are not hinted at
	for _, a := range all {
		if a.Public {
			public = append(public, a.Name)
		}
	}
	return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q%s", name,
		nearest.Hint(name, public))
}

// Create implements cloud.Appliances.
func (r appliances) Create(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error) {
	if err := checkAppliance(&a); err != nil {
		return a, err
	}
	a.Created, a.Generation = now(), 0
	a.Updated = a.Created
	return r.Catalogue.PutAppliance(ctx, a)
}

// Change implements cloud.Appliances.
func (r appliances) Change(ctx context.Context, name string, c cluster.ApplianceChange, generation *int64) (
	cluster.Appliance, error) {
	return amend(ctx, generation, func(ctx context.Context) (cluster.Appliance, int64, error) {
		a, err := r.Find(ctx, name)
		return a, a.Generation, err
	}, func(a *cluster.Appliance) error {
		set(&a.Description, c.Description)
		set(&a.Public, c.Public)
		set(&a.MinSlaves, c.MinSlaves)
		if c.Agent != nil {
			a.Agent = c.Agent
		}
		a.Updated = now()
		return checkAppliance(a)
	}, r.Catalogue.PutAppliance)
}

// Remove implements cloud.Appliances.
func (r appliances) Remove(ctx context.Context, name string) error {
	if _, err := r.Find(ctx, name); err != nil {
		return err
	}
	return r.Catalogue.RemoveAppliance(ctx, name)
}

// Implementations implements cloud.Appliances.
func (r appliances) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	if _, err := r.Find(ctx, appliance); err != nil {
		return nil, err
	}
	return r.Catalogue.Implementations(ctx, appliance)
}

// AddImplementation implements cloud.Appliances.
func (r appliances) AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error) {
	if _, err := r.Find(ctx, i.Appliance); err != nil {
		return i, err
	}
	at, err := r.site(ctx, i.Site)
	if err != nil {
		return i, err
	}
	if err := r.checkImplementation(ctx, i, at); err != nil {
		return i, err
	}
	if i.ID == "" {
		i.ID = cluster.NewImplementationID()
	} else if _, err := croft.ParseClusterID(string(i.ID)); err != nil { // any UUID
		return i, err
	}
	i.Enabled, i.Created, i.Generation = true, now(), 0
	return r.Catalogue.AddImplementation(ctx, i)
}

// checkImplementation validates an implementation, and has the driver of its site read the template. Invalid.
func (r *Registry) checkImplementation(ctx context.Context, i cluster.Implementation, at cluster.Site) error {
	switch {
	case (i.Template == "") == (i.Image == ""):
		return croft.Errorf(croft.Invalid, "an implementation has either a template or an image")
	case i.Image == "" && strings.TrimSpace(i.Template) == "":
		return croft.Errorf(croft.Invalid, "the template is empty")
	case len(i.Template) > cluster.MaxTemplate:
		return croft.Errorf(croft.Invalid, "the template has %d bytes, at most %d are stored", len(i.Template),
			cluster.MaxTemplate)
	case !utf8.ValidString(i.Template):
		return croft.Errorf(croft.Invalid, "the template is no text in UTF-8")
	}
	for role, resources := range i.Resources {
		if role != cluster.Master && role != cluster.Slave {
			return croft.Errorf(croft.Invalid, "%.40q is no role: use %s and %s", string(role), cluster.Master,
				cluster.Slave)
		}
		for class, n := range resources {
			if n <= 0 {
				return croft.Errorf(croft.Invalid, "a %s needs %d of %s: leave out what it does not need", role, n,
					class)
			}
		}
	}
	if err := checkParameters("the implementation", i.Parameters); err != nil {
		return err
	}
	if i.Image != "" {
		if _, err := r.image(ctx, i.Image); croft.KindOf(err) == croft.NotFound {
			return croft.Errorf(croft.Invalid, "%w", err)
		} else if err != nil {
			return err
		}
	}
	driver, err := r.driver(at)
	if err != nil {
		return err
	}
	contract, err := driver.Check(ctx, i)
	if err != nil {
		return err
	}
	return declared(i, contract)
}

// declared refuses fixed values that the template would not take. Invalid.
func declared(i cluster.Implementation, c cluster.Contract) error {
	var names []string
	for name := range c.Declared {
		names = append(names, name)
	}
	slices.Sort(names)
	for name := range i.Parameters {
		if !slices.Contains(names, name) {
			return croft.Errorf(croft.Invalid, "the template declares no parameter %s%s", name,
				nearest.Hint(name, names))
		}
	}
	return nil
}

// implementation returns one of an appliance. NotFound.
func (r appliances) implementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	i, err := r.Catalogue.Implementation(ctx, id)
	if err == nil && i.Appliance != appliance {
		err = croft.Errorf(croft.NotFound, "appliance %.80s has no implementation %s", appliance, id)
	}
	return err
}

// EnableImplementation implements cloud.Appliances.
func (r appliances) EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID,
	enabled bool) (cluster.Implementation, error) {
	if err := r.implementation(ctx, appliance, id); err != nil {
		return cluster.Implementation{}, err
	}
	return r.Catalogue.EnableImplementation(ctx, id, enabled)
}

// RemoveImplementation implements cloud.Appliances.
func (r appliances) RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	if err := r.implementation(ctx, appliance, id); err != nil {
		return err
	}
	return r.Catalogue.RemoveImplementation(ctx, id)
}
