package control

import (
	"errors"
	"net/http"
	"strings"

	"croft"
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
