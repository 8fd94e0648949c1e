package registry

import (
	"context"
	"errors"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
	"croft/internal/lazyregexp"
)

// images manages images. Bring asks a site once, for a bounded time: the site starts or continues the copy, and its
// progress is stored. A later call shows the progress. The manager asks the driver itself while a cluster waits for its
// image, and does not depend on Bring.
// SiteImages manages images that implementations name, and copies them to sites.
type SiteImages struct{ *Registry }

// SiteImages returns the manager of images.
func (r *Registry) SiteImages() SiteImages { return SiteImages{r} }

// image returns a stored image, or the cloud's image of the name. NotFound.
func (r *Registry) image(ctx context.Context, name string) (cluster.SiteImage, error) {
	all, err := r.Catalogue.Images(ctx)
	if err != nil {
		return cluster.SiteImage{}, err
	}
	stored, missing := pick("image", name, all, func(i cluster.SiteImage) string { return i.Name })
	if missing == nil || r.Images == nil {
		return stored, missing
	}
	i, err := r.Images(name)
	if croft.KindOf(err) == croft.NotFound {
		return i, missing
	}
	i.Name, i.Generation = name, 0 // not stored here
	return i, err
}

// List lists the images by name.
func (r SiteImages) List(ctx context.Context) ([]cluster.SiteImage, error) {
	return r.Catalogue.Images(ctx)
}

// Find returns an image. NotFound.
func (r SiteImages) Find(ctx context.Context, name string) (cluster.SiteImage, error) {
	return r.image(ctx, name)
}

var sumForm = lazyregexp.New(`^[0-9a-f]{64}$`)

// Create stores an image. Conflict: the name is taken. Invalid.
func (r SiteImages) Create(ctx context.Context, i cluster.SiteImage) (cluster.SiteImage, error) {
	if err := cluster.CheckName("an image", i.Name); err != nil {
		return i, err
	}
	if i.Format == "" {
		i.Format = "qcow2"
	}
	switch {
	case i.Format != "qcow2" && i.Format != "raw":
		return i, croft.Errorf(croft.Invalid, "%.40q is no format of an image: use qcow2 or raw", i.Format)
	case (i.URL == "") != (i.SHA256 == ""):
		return i, croft.Errorf(croft.Invalid, "give an image both a URL and the SHA-256 of the file there, or neither")
	case i.SHA256 != "" && !sumForm.MatchString(i.SHA256):
		return i, croft.Errorf(croft.Invalid, "%.80q is no SHA-256: it has 64 digits from 0 to f", i.SHA256)
	case i.MinDiskGB < 0 || i.MinRAMMB < 0:
		return i, croft.Errorf(croft.Invalid, "an image cannot need less than no disk or memory")
	}
	if i.URL != "" {
		if err := outbound.CheckURL("image "+i.Name, i.URL); err != nil {
			return i, err
		}
	}
	i.On, i.Created, i.Generation = nil, now(), 0
	i.Updated = i.Created
	return r.Catalogue.PutImage(ctx, i)
}

// Remove removes an image. Copies at sites stay there.
func (r SiteImages) Remove(ctx context.Context, name string) error {
	all, err := r.Catalogue.Images(ctx)
	if err != nil {
		return err
	}
	if _, err := pick("image", name, all, func(i cluster.SiteImage) string { return i.Name }); err != nil {
		return err
	}
	return r.Catalogue.RemoveImage(ctx, name)
}

// Bring starts to copy an image to a site with the credential of a user. With ref, it records instead where the image
// already is. It also stores an image of the cloud's catalogue, to have a record for the copies.
func (r SiteImages) Bring(ctx context.Context, name, site, ref string, project croft.Project,
	user string) (cluster.SiteImage,
	error) {
	i, err := r.image(ctx, name)
	if err != nil {
		return i, err
	}
	at, err := r.site(ctx, site)
	if err != nil {
		return i, err
	}
	key, placed := site, cluster.Placed{Ref: ref, State: cluster.ImageReady}
	if ref != "" {
		if err := checkText("reference", ref); err != nil {
			return i, err
		}
	} else if key, placed, err = r.bring(ctx, i, at, project, user); err != nil {
		return i, err
	}
	return amend(ctx, nil, func(ctx context.Context) (cluster.SiteImage, int64, error) {
		i, err := r.image(ctx, name)
		return i, i.Generation, err
	}, func(i *cluster.SiteImage) error {
		if i.On == nil {
			i.On = map[string]cluster.Placed{}
		}
		i.On[key], i.Updated = placed, now()
		if i.Created.IsZero() {
			i.Created = i.Updated
		}
		return nil
	}, r.Catalogue.PutImage)
}

// bring asks a site to start or continue the copy of an image, and returns the key under which the result is stored.
func (r *Registry) bring(ctx context.Context, i cluster.SiteImage, at cluster.Site, project croft.Project,
	user string) (
	key string, p cluster.Placed, err error) {
	if i.URL == "" {
		return "", p, croft.Errorf(croft.Invalid, "image %s has no URL to fetch it from: give its name at site "+
			"%s", i.Name,
			at.Name)
	}
	driver, err := r.driver(at)
	if err != nil {
		return "", p, err
	}
	access, err := r.accessOf(ctx, at, project, user)
	if err != nil {
		return "", p, err
	}
	key = at.Name
	if access.Credential.ID != "" { // private to the project of the credential
		key += "/" + string(access.Credential.ID)
	} else if at.Type != cluster.Local && at.Type != cluster.Sim {
		return "", p, croft.Errorf(croft.Invalid, "site %s needs a credential of yours to bring an image there: see `croft "+
			"credential create`", at.Name)
	}
	asking, end := context.WithTimeout(ctx, r.Timeout)
	defer end()
	p, err = driver.Bring(asking, access, i)
	if errors.Is(err, croft.Unavailable) {
		return "", p, cluster.Away("bring image %s to site %s: %s", i.Name, at.Name, clean(err, access.Secret))
	}
	if err != nil {
		return "", p, croft.Errorf(croft.KindOf(err), "bring image %s to site %s: %s", i.Name, at.Name,
			clean(err, access.Secret))
	}
	if p.Error != "" {
		p.Error = clean(errors.New(p.Error), access.Secret)
	}
	return key, p, nil
}
