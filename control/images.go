package control

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"croft"
	"croft/compute"
	"croft/control/api"
)

// image returns the reference of an image. Hosts fetch the reference and reach more than tenants do: their own files
// and networks. Therefore only operators may name images outside the catalog and the cloud's sources. public reports
// whether hosts may fetch the image only from the internet.
func (c *call) image(name string) (reference string, public bool, err error) {
	reference, err = c.Images.Reference(name)
	if err != nil || c.caller.Operator() || !strings.ContainsAny(name, "/:#") {
		return reference, false, err
	}
	err = c.Images.CheckSource(reference)
	if errors.Is(err, croft.Denied) {
		return "", false, api.NewProblem(api.PropertyForbidden, "the image "+api.Clip(name)+": "+err.Error())
	}
	return reference, c.Images.Public(reference), err
}

func listImages(c *call) error {
	list, err := c.Images.List()
	if err != nil {
		return err
	}
	if !c.caller.Operator() { // addresses may have passwords, and names of servers
		for i := range list.Images {
			list.Images[i].URL = ""
		}
	}
	if c.Cloud.SiteImages != nil {
		ctx, cancel := c.brief()
		defer cancel()
		all, err := c.Cloud.SiteImages.List(ctx)
		if err != nil {
			return err
		}
		for _, one := range all {
			list.SiteImages = append(list.SiteImages, siteImage(c.caller, one))
		}
	}
	return c.answer(http.StatusOK, list)
}

// digest matches a SHA-256, which cannot be a name in the catalog.
var digest = regexp.MustCompile("^[0-9a-f]{64}$")

// listHostImages lists the images in the cache of a host.
func listHostImages(c *call) error {
	return cached(c, c.Cloud.Images.Held)
}

// removeHostImages removes an image from the cache of a host, or without a name all unused images.
func removeHostImages(c *call) error {
	reference := c.query.Get("image")
	if reference != "" && !digest.MatchString(reference) {
		var err error
		if reference, _, err = c.image(reference); err != nil {
			return err
		}
	}
	return cached(c, func(ctx context.Context, h croft.Host) ([]compute.Held, error) {
		return c.Cloud.Images.Remove(ctx, h, reference)
	})
}

func cached(c *call, do func(context.Context, croft.Host) ([]compute.Held, error)) error {
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if h.ID == "" {
		return err
	}
	c.action.about("", aboutHost(h))
	all, err := do(ctx, h.Host)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.HeldList{Images: append([]compute.Held{}, all...)})
}

// pullImage makes a host fetch an image.
func pullImage(c *call) error {
	var given api.NewImage
	if err := c.body(&given); err != nil {
		return err
	}
	reference, _, err := c.image(given.Image) // only operators pull
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.streaming(func(ctx context.Context, e *events) {
		pulled, err := c.Cloud.Images.Pull(ctx, h.Host, given.Image, reference, func(p croft.Progress) {
			_ = e.send("progress", 0, p) // heartbeats notice that a client is gone
		})
		if err != nil {
			_ = e.send("problem", 0, c.problem(err)) // the stream ends either way
			return
		}
		_ = e.send("image", 0, pulled) // likewise
	})
}
