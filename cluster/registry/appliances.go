package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"croft"
	"croft/cluster"
	"croft/internal/nearest"
)

// Appliances manages appliances, which say what clusters are for, and their implementations, which say how sites build
// them. In a call, @shop:slurm means the appliance that project shop calls slurm: its own, else the operators'
// appliance. Plain slurm means the operators' appliance, else the appliance of the only project that has one (Conflict:
// several projects have one). Answers contain the plain name, and the project separately.
type Appliances struct{ *Registry }

// Appliances returns the manager of appliances and their implementations.
func (r *Registry) Appliances() Appliances { return Appliances{r} }

// List returns the appliances that a project may use, by name: its own and public ones; an empty project means all.
func (r Appliances) List(ctx context.Context, project croft.Project) ([]cluster.Appliance, error) {
	all, err := r.Catalogue.Appliances(ctx, project)
	if err != nil {
		return nil, err
	}
	own := map[string]bool{} // the project's appliances, which hide others of the same name
	for i := range all {
		of, name := cluster.SplitAppliance(all[i].Name)
		own[name] = own[name] || of != "" && of == project
	}
	all = slices.DeleteFunc(all, func(a cluster.Appliance) bool {
		of, name := cluster.SplitAppliance(a.Name)
		return project != "" && (!a.Public && a.Project != project || own[name] && of != project)
	})
	for i := range all {
		all[i] = plain(all[i])
	}
	slices.SortFunc(all, func(a, b cluster.Appliance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project))
	})
	return all, nil
}

// plain returns an appliance with its name in its project.
func plain(a cluster.Appliance) cluster.Appliance {
	a.Name = cluster.ApplianceName(a.Name)
	return a
}

// plainly returns an implementation with the name that its appliance has in its project.
func plainly(i cluster.Implementation) cluster.Implementation {
	i.Appliance = cluster.ApplianceName(i.Appliance)
	return i
}

// Find returns an appliance. NotFound; Conflict.
func (r Appliances) Find(ctx context.Context, name string) (cluster.Appliance, error) {
	a, err := r.find(ctx, name)
	return plain(a), err
}

// find returns an appliance with its unique name. A name without a project means the appliance without one; if none
// exists, the one of the only project that has an appliance of the name. NotFound. Conflict: several projects have one.
func (r Appliances) find(ctx context.Context, unique string) (cluster.Appliance, error) {
	project, name := cluster.SplitAppliance(unique)
	if err := cluster.CheckAppliance(unique); err != nil { // the name becomes part of a key
		return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q", name)
	}
	a, err := r.Catalogue.Appliance(ctx, unique)
	if err == nil || croft.KindOf(err) != croft.NotFound {
		return a, err
	}
	all, err := r.Catalogue.Appliances(ctx, project)
	if err != nil {
		return cluster.Appliance{}, err
	}
	var namesakes []cluster.Appliance
	var usable []string // hints name only these
	for _, a := range all {
		if project == "" && cluster.ApplianceName(a.Name) == name {
			namesakes = append(namesakes, a)
		}
		if a.Public || project != "" && a.Project == project {
			usable = append(usable, cluster.ApplianceName(a.Name))
		}
	}
	switch len(namesakes) {
	case 0:
		return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q%s", name,
			nearest.Hint(name, usable))
	case 1:
		return namesakes[0], nil
	}
	return cluster.Appliance{}, croft.Errorf(croft.Conflict, "%d projects have an appliance %s: name the project",
		len(namesakes), name)
}

// Create creates an appliance. Conflict: the name is taken. Invalid.
func (r Appliances) Create(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error) {
	if err := cmp.Or(cluster.CheckName("an appliance", a.Name), checkAppliance(&a)); err != nil {
		return a, err
	}
	a.Created, a.Generation = now(), 0
	a.Updated = a.Created
	a.Name = cluster.ScopedAppliance(a.Project, a.Name)
	made, err := r.Catalogue.PutAppliance(ctx, a)
	return plain(made), err
}

// Change changes an appliance if it has the given generation; nil accepts any.
func (r Appliances) Change(ctx context.Context, name string, c cluster.ApplianceChange, generation *int64) (
	cluster.Appliance, error) {
	now, err := amend(ctx, generation, func(ctx context.Context) (cluster.Appliance, int64, error) {
		a, err := r.find(ctx, name)
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
	return plain(now), err
}

// Remove removes an appliance. Conflict: it has implementations.
func (r Appliances) Remove(ctx context.Context, name string) error {
	a, err := r.find(ctx, name)
	if err != nil {
		return err
	}
	return r.Catalogue.RemoveAppliance(ctx, a.Name)
}

// Implementations lists the implementations of an appliance by site and revision.
func (r Appliances) Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error) {
	a, err := r.find(ctx, appliance)
	if err != nil {
		return nil, err
	}
	all, err := r.Catalogue.Implementations(ctx, a.Name)
	for n := range all {
		all[n] = plainly(all[n])
	}
	return all, err
}

// AddImplementation stores the next revision. Invalid: the template has an error; the text names its line.
func (r Appliances) AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error) {
	a, err := r.find(ctx, i.Appliance)
	if err != nil {
		return i, err
	}
	i.Appliance = a.Name
	at, err := r.site(ctx, i.Site)
	if err != nil {
		return i, err
	}
	if err := r.checkImplementation(ctx, i, at); err != nil {
		return i, err
	}
	if i.ID == "" {
		i.ID = cluster.NewImplementationID()
	} else if _, err := croft.ParseClusterID(string(i.ID)); err != nil { // any UUID is valid
		return i, err
	}
	i.Enabled, i.Created, i.Generation = true, now(), 0
	made, err := r.Catalogue.AddImplementation(ctx, i)
	return plainly(made), err
}

// checkImplementation validates an implementation, and lets the driver of its site check the template. Invalid.
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

// declared rejects fixed values that the template does not accept. Invalid.
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

// implementation checks that an implementation belongs to an appliance. NotFound.
func (r Appliances) implementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	a, err := r.find(ctx, appliance)
	if err != nil {
		return err
	}
	i, err := r.Catalogue.Implementation(ctx, id)
	if err == nil && i.Appliance != a.Name {
		err = croft.Errorf(croft.NotFound, "appliance %.80s has no implementation %s", cluster.ApplianceName(a.Name),
			id)
	}
	return err
}

// EnableImplementation permits or ends the use of an implementation for new clusters.
func (r Appliances) EnableImplementation(ctx context.Context, appliance string, id cluster.ImplementationID,
	enabled bool) (cluster.Implementation, error) {
	if err := r.implementation(ctx, appliance, id); err != nil {
		return cluster.Implementation{}, err
	}
	i, err := r.Catalogue.EnableImplementation(ctx, id, enabled)
	return plainly(i), err
}

// RemoveImplementation removes an implementation. Conflict: a cluster was built by it.
func (r Appliances) RemoveImplementation(ctx context.Context, appliance string, id cluster.ImplementationID) error {
	if err := r.implementation(ctx, appliance, id); err != nil {
		return err
	}
	return r.Catalogue.RemoveImplementation(ctx, id)
}
