package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"croft"
	"croft/control/api"
)

// pullPage is what the page shows while a host fetches an image. It is sent bit by bit.
type pullPage struct {
	Host, Image, Back string
	Done              string // what was fetched
	refusal                  // why it was not

	v  *visit
	in api.NewImage
}

// pull asks for an image that a host is to fetch, and shows the progress.
func (v *visit) pull() error {
	h, err := v.client.GetHost(v.ctx, v.hostNamed())
	if err != nil {
		return err
	}
	at, image := Root+"/hosts/"+string(h.ID), strings.TrimSpace(v.r.PostForm.Get("image"))
	q := question{Title: "Fetch an image", Name: h.Name, Does: "Fetch", Post: at + "/pull", Back: at,
		About: "The host fetches and verifies the image before it is needed. It goes on only while this page is open.",
		Fields: []field{{Name: "image", Label: "Image", Kind: "text", Required: true, Value: image,
			Help: "As requests for instances name it.", Among: v.imageNames()}}}
	if v.r.Method != http.MethodPost {
		return v.askAbout(http.StatusOK, q)
	}
	if image == "" {
		return v.refused(q, croft.Errorf(croft.Invalid, "name the image"))
	}
	d := &pullPage{Host: h.Name, Image: image, Back: at, v: v,
		in: api.NewImage{HostNamed: api.HostNamed{ID: string(h.ID)}, Image: image}}
	f := v.frame(q.Title+": "+h.Name, d)
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(http.StatusOK)
	if err := pages["pull"].Execute(v.w, f); err != nil { // the status is sent already; browsers may have disconnected
		v.log.Warn("a page is incomplete", "path", v.r.URL.Path, "err", err)
	}
	return nil
}

// Steps yields the progress, in steps of a tenth, until the host has the image or cannot have it.
func (d *pullPage) Steps(yield func(string) bool) {
	ctx, cancel := context.WithTimeout(from(d.v.r), longAction)
	defer cancel()
	show := func(text string) {
		if !yield(text) || http.NewResponseController(d.v.w).Flush() != nil {
			cancel() // the browser is gone
		}
	}
	tenth := int64(-1)
	pulled, err := d.v.client.PullImage(ctx, d.in, func(p croft.Progress) {
		if p.Total > 0 && p.Done*10/p.Total > tenth && ctx.Err() == nil {
			tenth = p.Done * 10 / p.Total
			show(fmt.Sprintf("%s of %s", bytesOf(p.Done), bytesOf(p.Total)))
		}
	})
	if err != nil {
		d.refusal = d.v.refusalOf(err)
		return
	}
	d.Done = fmt.Sprintf("The host has the image: %s, %s, SHA-256 %s.", pulled.Format, bytesOf(pulled.VirtualSize),
		pulled.SHA256)
}

// imageNames suggests images.
func (v *visit) imageNames() []string {
	list, err := v.client.ListImages(v.ctx, api.Listing{Limit: mostNames})
	return names(list.Images, err, func(i api.Image) string { return i.Name })
}
