package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule/images"
	"croft/tenant/access"
)

var imageOperations = noun{Tag: "images",
	Description: "The images that requests for instances may name.",
	Operations: []Operation{
		list(Operation{ID: "listImages", At: "GET /v1/images", May: access.EveryHuman,
			Summary: "List the images that requests may name",
			Description: "The images of the catalog, and the beginnings of the addresses of others that tenants " +
				"may name besides. Operators may name any."}, listImages),
		// Operates: the server fetches its URL
		do(Operation{ID: "addImage", At: "POST /v1/images", May: access.Operates,
			Summary: "Add an image with a checked source, which can be brought to sites",
			Status:  http.StatusCreated, Conflict: api.NameTaken},
			func(ctx context.Context, c *call, in api.NewSiteImage) (cluster.SiteImage, error) {
				c.regarding("", actions.Image, "", in.Name)
				made, err := c.Cloud.SiteImages.Create(ctx, cluster.SiteImage{Name: in.Name, URL: in.URL,
					SHA256: in.SHA256, Format: in.Format, MinDiskGB: in.MinDiskGB, MinRAMMB: in.MinRAMMB})
				if err == nil {
					c.w.Header().Set("Location", "/v1/images/"+made.Name)
				}
				return siteImage(c.caller, made), err
			}),
		do(Operation{ID: "getImage", At: "GET /v1/images/{name}", May: access.EveryHuman,
			Summary: "Get an image for sites, and how far it is at each"},
			func(ctx context.Context, c *call, in api.ImageNamed) (cluster.SiteImage, error) {
				have, err := c.Cloud.SiteImages.Find(ctx, in.Name)
				return siteImage(c.caller, have), err
			}),
		do(Operation{ID: "removeImage", At: "DELETE /v1/images/{name}", May: access.Operates,
			Summary: "Remove an image for sites; at the sites it stays", Conflict: api.InUse},
			func(ctx context.Context, c *call, in api.ImageNamed) (nothing, error) {
				return nothing{}, c.Cloud.SiteImages.Remove(ctx, in.Name)
			}),
		do(Operation{ID: "bringImage", At: "PUT /v1/images/{name}/sites/{site}", Also: accepted,
			May: access.Changes, Personal: true,
			Summary: "Bring an image to a site with a credential of the caller, or say what it is called there"},
			bringImage),
	},
}

// source is an image that a request names.
type source struct {
	reference string
	public    bool   // hosts may fetch it only from the internet
	format    string // of the file; empty: not known
	name      string // as the request gives it
	// architecture of the machines that start from it, as it is stated, and by its name or address; empty: none
	arch, guess croft.Arch
}

// image returns where hosts get an image. Hosts fetch the reference and reach more than tenants do: their own files
// and networks. Therefore only operators may name images outside the catalog and the cloud's sources. A name means an
// image of the project or a public one in the cloud's catalog, else one in the files of the server, else one that is
// built in.
func (c *call) image(ctx context.Context, name string) (source, error) {
	if catalogName(name) != "" {
		i, err := c.findImage(ctx, name)
		if err == nil && !i.Usable() {
			err = croft.Errorf(croft.Conflict, "image %s is %s%s", name, i.State, because(c.shownError(i)))
		}
		if !errors.Is(err, croft.NotFound) {
			return source{reference: i.Reference(), format: i.Format, name: name, arch: i.Arch,
				guess: images.GuessArch(name + " " + i.Origin)}, err
		}
	}
	reference, public, arch, err := c.published(name)
	return source{reference: reference, public: public, name: name, arch: arch,
		guess: images.GuessArch(name + " " + reference)}, err
}

// archOf returns the architecture of a machine that is made for these images: the given one, else the one that an image
// states, else the one in the name or address of an image; empty: x86_64. Invalid: an image states another one.
func archOf(given croft.Arch, all ...source) (croft.Arch, error) {
	arch, by := given, "the request names "+string(given)
	for _, s := range all {
		switch {
		case s.arch == "":
		case arch == "":
			arch, by = s.arch, "image "+api.Clip(s.name)+" is for "+string(s.arch)
		case s.arch != arch.Known():
			return "", croft.Errorf(croft.Invalid, "image %s is for %s machines, and %s: name an image of the architecture "+
				"that is wanted", api.Clip(s.name), s.arch, by)
		}
	}
	for _, s := range all {
		arch = cmp.Or(arch, s.guess)
	}
	if given == "" && arch == croft.ArchX86 {
		return "", nil // the default, as in older records
	}
	return arch, nil
}

// disk is image for the disk of an instance. Invalid: it is a CD.
func (c *call) disk(ctx context.Context, name string) (source, error) {
	found, err := c.image(ctx, name)
	if err == nil && found.format == croft.ImageISO {
		err = croft.Errorf(croft.Invalid, "image %s is a CD, from which no disk is made: ask for it with --iso (machine.iso)",
			api.Clip(name))
	}
	return found, err
}

// iso is image for the CD of an instance. Invalid: it is a disk.
func (c *call) iso(ctx context.Context, name string) (*croft.ISO, source, error) {
	found, err := c.image(ctx, name)
	if err == nil && found.format == "qcow2" {
		err = croft.Errorf(croft.Invalid, "image %s is a disk (qcow2) and no CD: give it as the image", api.Clip(name))
	}
	return &croft.ISO{Image: found.reference, Public: found.public}, found, err
}

// because returns the end of a sentence that gives a reason; empty: none is known.
func because(why string) string {
	if why == "" {
		return ": wait until it is ready"
	}
	return ": " + why
}

// published is image without the cloud's catalog.
func (c *call) published(name string) (reference string, public bool, arch croft.Arch, err error) {
	reference, arch, err = c.Images.Reference(name)
	if err != nil || c.caller.Operator() || images.IsName(name) {
		return reference, false, arch, err
	}
	err = c.Images.CheckSource(reference)
	if errors.Is(err, croft.Denied) {
		return "", false, "", api.NewProblem(api.PropertyForbidden, "the image "+api.Clip(name)+": "+err.Error())
	}
	return reference, c.Images.Public(reference), arch, err
}

// catalogName returns the name of an image unless it is an address.
func catalogName(image string) string {
	if !images.IsName(image) {
		return ""
	}
	return image
}

func listImages(ctx context.Context, c *call, _ nothing) (api.Catalog, error) {
	list, err := c.Images.List()
	if err != nil {
		return list, err
	}
	if !c.caller.Operator() { // addresses may have passwords, and names of servers
		for i := range list.Images {
			list.Images[i].URL = ""
		}
	}
	all, err := c.Cloud.SiteImages.List(ctx)
	for _, one := range all {
		list.SiteImages = append(list.SiteImages, siteImage(c.caller, one))
	}
	return list, err
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

func bringImage(ctx context.Context, c *call, in api.ImageAtSite) (cluster.SiteImage, error) {
	if in.Ref != "" && !c.caller.Operator() {
		return cluster.SiteImage{}, api.NewProblem(api.ForbiddenVerb,
			"only operators say what an image is called at a site: all would use it")
	}
	have, err := c.Cloud.SiteImages.Bring(ctx, in.Name, in.Site, in.Ref, c.home(), c.caller.User)
	for _, at := range have.On {
		if at.State == cluster.ImageUploading {
			c.status = http.StatusAccepted
		}
	}
	return siteImage(c.caller, have), fromSite(err)
}
