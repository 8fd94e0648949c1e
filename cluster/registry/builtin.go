package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"croft"
	"croft/cluster"
)

// BuiltIn is an appliance that croft ships, with its implementations.
type BuiltIn struct {
	Appliance       cluster.Appliance
	Implementations []cluster.Implementation // one per site
}

// BuiltInOwner owns the shipped appliances. No user can have this name.
const BuiltInOwner = "(croft)"

// builtInSpace is the name space of the IDs of shipped implementations: the same text has the same ID on every server,
// so that it is stored once.
var builtInSpace = uuid.MustParse("3d3f2a76-9f0c-4b57-8f9c-0a4f0d1c6e21")

// EnsureBuiltIn stores the shipped appliances, and a new revision of each implementation whose text changed. If
// operators disabled an implementation, its next revision is disabled too. An appliance of the same name with another
// owner stays unchanged.
func (r *Registry) EnsureBuiltIn(ctx context.Context, list []BuiltIn) error {
	var errs []error
	for _, b := range list {
		if err := r.ensure(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("appliance %s: %w", b.Appliance.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Registry) ensure(ctx context.Context, b BuiltIn) error {
	a, err := r.Catalogue.Appliance(ctx, b.Appliance.Name)
	if croft.KindOf(err) == croft.NotFound {
		b.Appliance.Owner, b.Appliance.Project = BuiltInOwner, ""
		// another server created it
		if a, err = r.Appliances().Create(ctx, b.Appliance); croft.KindOf(err) == croft.Conflict {
			a, err = r.Catalogue.Appliance(ctx, b.Appliance.Name)
		}
	}
	if err != nil {
		return err
	}
	if a.Owner != BuiltInOwner {
		r.Log.Warn("an appliance has the name of one that croft ships, which is left out", "appliance", a.Name,
			"owner", a.Owner)
		return nil
	}
	there, err := r.Catalogue.Implementations(ctx, a.Name)
	if err != nil {
		return err
	}
	for _, i := range b.Implementations {
		i.Appliance = a.Name
		if err := r.ensureImplementation(ctx, i, there); err != nil {
			return err
		}
	}
	return nil
}

// ensureImplementation adds an implementation, unless the same text was added before.
func (r *Registry) ensureImplementation(ctx context.Context, i cluster.Implementation,
	there []cluster.Implementation) error {
	i.ID = builtInID(i)
	others, enabled := false, false
	for _, other := range there {
		if other.ID == i.ID {
			return nil
		}
		if other.Site == i.Site {
			others, enabled = true, enabled || other.Enabled
		}
	}
	at, err := r.site(ctx, i.Site)
	if croft.KindOf(err) == croft.NotFound {
		return nil // this cloud does not have the site
	}
	if err != nil {
		return err
	}
	if err := r.checkImplementation(ctx, i, at); err != nil {
		return err
	}
	i.Enabled, i.Created, i.Generation = enabled || !others, now(), 0
	// else another server added it
	if _, err := r.Catalogue.AddImplementation(ctx, i); croft.KindOf(err) != croft.Conflict {
		return err
	}
	return nil
}

// builtInID returns the ID of a shipped implementation.
func builtInID(i cluster.Implementation) cluster.ImplementationID {
	text, err := json.Marshal([]any{i.Appliance, i.Site, i.Template, i.Image, i.Resources, i.Parameters})
	if err != nil {
		panic(fmt.Sprintf("registry: encode an implementation: %v", err)) // our own data: cannot fail
	}
	return cluster.ImplementationID(uuid.NewSHA1(builtInSpace, text).String())
}
