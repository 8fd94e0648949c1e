package heat

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"croft"
	"croft/cluster"
)

// The properties of images that we made. Nothing without them is changed or deleted.
const (
	imageProperty = "croft_image"
	hashProperty  = "croft_sha256"
	doneProperty  = "croft_done" // bytes, told every progressPause while an upload goes on
)

// abandoned is how long an upload may tell no progress until another one replaces it.
const abandoned = 6 * progressPause

// hashForm is the form of a SHA-256.
var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Bring implements cluster.Driver. An upload goes on in the background until Close; a call waits for it for
// Config.Linger. Glance keeps how far it is, so other processes know, and replace one that stopped.
func (d *Driver) Bring(ctx context.Context, at cluster.Access, i cluster.Image) (cluster.Placed, error) {
	if !hashForm.MatchString(i.SHA256) {
		return cluster.Placed{}, croft.Errorf(croft.Invalid, "image %s has no SHA-256, so it cannot be checked", i.Name)
	}
	s, err := d.session(ctx, at)
	if err != nil {
		return cluster.Placed{}, err
	}
	client, err := s.glance()
	if err != nil {
		return cluster.Placed{}, err
	}
	key := uploadKey{at.Site.Name, s.project, i.Name, i.SHA256}
	if u := d.uploads.running(key); u != nil {
		return d.wait(ctx, key, u)
	}
	there, err := d.images(ctx, s, client, i)
	if err != nil {
		return cluster.Placed{}, err
	}
	if placed, busy := d.placed(ctx, s, client, there); busy {
		return placed, nil
	}
	if i.URL == "" {
		return cluster.Placed{State: cluster.ImageMissing, Error: "the image is not there, and has no URL to get it from"}, nil
	}
	return d.wait(ctx, key, d.uploads.begin(key, func(ctx context.Context, u *upload) error {
		return d.upload(ctx, s, client, i, u)
	}))
}

// glance returns a client of Glance. Invalid: the site has none.
func (s *session) glance() (*gophercloud.ServiceClient, error) {
	client := s.service("image")
	if client == nil {
		return nil, croft.Errorf(croft.Invalid, "site %s has no image service; bring the image there yourself, and name its "+
			"reference", s.site.Name)
	}
	client.ResourceBase = strings.TrimSuffix(client.Endpoint, "v2/") + "v2/"
	return client, nil
}

// imageQuery asks for our images of one source in the project.
type imageQuery struct{ name, hash, owner string }

// ToImageListQuery implements images.ListOptsBuilder.
func (q imageQuery) ToImageListQuery() (string, error) {
	return "?" + url.Values{imageProperty: {q.name}, hashProperty: {q.hash}, "owner": {q.owner}}.Encode(), nil
}

// images returns our images of a source, oldest first.
func (d *Driver) images(ctx context.Context, s *session, client *gophercloud.ServiceClient, i cluster.Image) (
	[]images.Image, error) {
	ctx, cancel := d.brief(ctx)
	defer cancel()
	pages, err := images.List(client, imageQuery{i.Name, i.SHA256, s.project}).AllPages(ctx)
	if err != nil {
		return nil, s.explain("list images", err)
	}
	all, err := images.ExtractImages(pages)
	if err != nil {
		return nil, s.explain("list images", err)
	}
	all = slices.DeleteFunc(all, func(found images.Image) bool {
		return found.Owner != s.project || found.Properties[imageProperty] != i.Name ||
			found.Properties[hashProperty] != i.SHA256
	})
	slices.SortStableFunc(all, func(a, b images.Image) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// placed says how far images are that are there. Uploads that stopped are deleted.
func (d *Driver) placed(ctx context.Context, s *session, client *gophercloud.ServiceClient, there []images.Image) (
	cluster.Placed, bool) {
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
		d.deleteImage(ctx, s, client, i.ID)
	}
	return cluster.Placed{}, false
}

// deleteImage deletes an image of ours; the next call repeats what fails.
func (d *Driver) deleteImage(ctx context.Context, s *session, client *gophercloud.ServiceClient, id string) {
	ctx, cancel := d.brief(context.WithoutCancel(ctx))
	defer cancel()
	if err := images.Delete(ctx, client, id).ExtractErr(); err != nil && statusOf(err) != 404 {
		d.c.Log.Warn("an image that is not complete stays at the site", "site", s.site.Name, "image", id,
			"err", s.explain("delete the image", err))
	}
}

// wait waits for an upload for a moment, and says how far it is.
func (d *Driver) wait(ctx context.Context, key uploadKey, u *upload) (cluster.Placed, error) {
	placed := cluster.Placed{State: cluster.ImageUploading}
	select {
	case <-u.ended:
		d.uploads.forget(key, u)
		if u.err != nil {
			return cluster.Placed{State: cluster.ImageFailed, Error: u.err.Error()}, nil
		}
		placed.State = cluster.ImageReady
	case <-time.After(d.c.Linger):
	case <-ctx.Done():
	}
	placed.Ref, placed.Done, placed.Total = u.ref(), u.done.Load(), u.total.Load()
	return placed, nil
}
