package heat

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"croft"
	"croft/cluster"
	"croft/internal/lazyregexp"
)

// hashForm matches a SHA-256 in hexadecimal digits.
var hashForm = lazyregexp.New(`^[0-9a-f]{64}$`)

// Bring implements cluster.Driver. An upload runs in the background until Close; a call waits up to Config.Linger for
// it. The progress is stored in Glance, so that other processes know about the upload, and can replace one that
// stopped.
func (d *Driver) Bring(ctx context.Context, at cluster.SiteAccess, i cluster.SiteImage) (cluster.Placed, error) {
	if !hashForm.MatchString(i.SHA256) {
		return cluster.Placed{}, croft.Errorf(croft.Invalid, "image %s has no SHA-256, so it cannot be checked", i.Name)
	}
	s, err := d.sessions.session(ctx, at)
	if err != nil {
		return cluster.Placed{}, err
	}
	g, err := s.glance(d.config.Log)
	if err != nil {
		return cluster.Placed{}, err
	}
	key := uploadKey{at.Site.Name, s.project, i.Name, i.SHA256}
	if u := d.uploads.running(key); u != nil {
		return d.wait(ctx, key, u)
	}
	there, err := g.images(ctx, i)
	if err != nil {
		return cluster.Placed{}, err
	}
	if placed, busy := d.placed(ctx, g, there); busy {
		return placed, nil
	}
	if i.URL == "" {
		return cluster.Placed{State: cluster.ImageMissing,
			Error: "the site does not have the image, and the image has no URL to fetch it from"}, nil
	}
	return d.wait(ctx, key, d.uploads.begin(key, func(ctx context.Context, u *upload) error {
		return g.upload(ctx, i, u)
	}))
}

// placed returns the state of the images at the site. It deletes those whose upload stopped.
func (d *Driver) placed(ctx context.Context, g *glance, there []images.Image) (cluster.Placed, bool) {
	for _, i := range there {
		if i.Status == images.ImageStatusActive {
			return cluster.Placed{Ref: i.ID, State: cluster.ImageReady, Done: i.SizeBytes, Total: i.SizeBytes}, true
		}
	}
	for _, i := range there {
		done, _ := strconv.ParseInt(fmt.Sprint(i.Properties[doneProperty]), 10, 64)
		going := i.Status == images.ImageStatusQueued || i.Status == images.ImageStatusSaving
		if going && !d.uploads.stopped(i.ID, i.UpdatedAt) {
			return cluster.Placed{Ref: i.ID, State: cluster.ImageUploading, Done: done}, true
		}
		g.deleteImage(ctx, i.ID)
	}
	return cluster.Placed{}, false
}

// wait waits up to Config.Linger for an upload, and returns its progress.
func (d *Driver) wait(ctx context.Context, key uploadKey, u *upload) (cluster.Placed, error) {
	placed := cluster.Placed{State: cluster.ImageUploading}
	select {
	case <-u.ended:
		d.uploads.forget(key, u)
		if u.err != nil {
			return cluster.Placed{State: cluster.ImageFailed, Error: u.err.Error()}, nil
		}
		placed.State = cluster.ImageReady
	case <-time.After(d.config.Linger):
	case <-ctx.Done():
	}
	placed.Ref, placed.Done, placed.Total = u.ref(), u.done.Load(), u.total.Load()
	return placed, nil
}
