package heat

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"croft"
	"croft/cluster"
)

// The properties of images that the driver created. It never changes or deletes an image without them.
const (
	imageProperty = "croft_image"
	hashProperty  = "croft_sha256"
	doneProperty  = "croft_done" // uploaded bytes, updated every progressPause during an upload
)

// glance is the Glance API of a site, with a session.
type glance struct {
	*session
	c   *gophercloud.ServiceClient
	log *slog.Logger
}

// glance returns the Glance API of the site. Invalid: the site has none.
func (s *session) glance(log *slog.Logger) (*glance, error) {
	client := s.service("image")
	if client == nil {
		return nil, croft.Errorf(croft.Invalid,
			"site %s has no image service; bring the image there yourself, and name its "+
				"reference", s.site.Name)
	}
	client.ResourceBase = strings.TrimSuffix(client.Endpoint, "v2/") + "v2/"
	return &glance{s, client, log}, nil
}

// imageQuery selects the driver's images of one source in the project.
type imageQuery struct{ name, hash, owner string }

// ToImageListQuery implements images.ListOptsBuilder.
func (q imageQuery) ToImageListQuery() (string, error) {
	return "?" + url.Values{imageProperty: {q.name}, hashProperty: {q.hash}, "owner": {q.owner}}.Encode(), nil
}

// images returns the driver's images of a source, oldest first.
func (g *glance) images(ctx context.Context, i cluster.SiteImage) ([]images.Image, error) {
	ctx, cancel := g.brief(ctx)
	defer cancel()
	pages, err := images.List(g.c, imageQuery{i.Name, i.SHA256, g.project}).AllPages(ctx)
	if err != nil {
		return nil, g.explain("list images", err)
	}
	all, err := images.ExtractImages(pages)
	if err != nil {
		return nil, g.explain("list images", err)
	}
	all = slices.DeleteFunc(all, func(found images.Image) bool {
		return found.Owner != g.project || found.Properties[imageProperty] != i.Name ||
			found.Properties[hashProperty] != i.SHA256
	})
	slices.SortStableFunc(all, func(a, b images.Image) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// deleteImage deletes an image of the driver. The next call of Bring repeats a failed deletion.
func (g *glance) deleteImage(ctx context.Context, id string) {
	ctx, cancel := g.brief(context.WithoutCancel(ctx))
	defer cancel()
	if err := images.Delete(ctx, g.c, id).ExtractErr(); err != nil && statusOf(err) != 404 {
		g.log.Warn("an image that is not complete stays at the site", "site", g.site.Name, "image", id,
			"err", g.explain("delete the image", err))
	}
}

// upload creates an image from a source. An image with a wrong hash never becomes usable, because its last byte is not
// sent.
func (g *glance) upload(ctx context.Context, i cluster.SiteImage, u *upload) error {
	source, err := open(ctx, i)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	u.total.Store(source.total)
	id, err := g.createImage(ctx, i)
	if err != nil {
		return err
	}
	u.id.Store(&id)
	source.done = &u.done
	told, stop := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { g.tell(told, id, u) })
	err = g.put(ctx, g.c.ServiceURL("images", id, "file"), source)
	stop()
	telling.Wait()
	if err == nil {
		err = g.checkImage(ctx, id, u.done.Load())
	}
	if source.wrong != nil {
		err = source.wrong
	}
	if err != nil {
		g.deleteImage(ctx, id)
	}
	return err
}

// createImage creates an image without content.
func (g *glance) createImage(ctx context.Context, i cluster.SiteImage) (string, error) {
	ctx, cancel := g.brief(ctx)
	defer cancel()
	format := i.Format
	if format == "" {
		format = "qcow2"
	}
	made, err := whole(
		images.Create(ctx, g.c, images.CreateOpts{Name: i.Name, ContainerFormat: "bare", DiskFormat: format,
			MinDisk: i.MinDiskGB, MinRAM: i.MinRAMMB,
			Properties: map[string]string{imageProperty: i.Name, hashProperty: i.SHA256, doneProperty: "0"}}).Extract(),
	)
	if err != nil {
		return "", g.explain("create the image", err)
	}
	return made.ID, nil
}

// tell stores the progress of an upload in Glance, so that other processes do not replace the upload.
func (g *glance) tell(ctx context.Context, id string, u *upload) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressPause):
		}
		request, cancel := g.brief(ctx)
		err := images.Update(request, g.c, id, images.UpdateOpts{images.UpdateImageProperty{Op: images.ReplaceOp,
			Name: doneProperty, Value: strconv.FormatInt(u.done.Load(), 10)}}).Err
		cancel()
		if err != nil && ctx.Err() == nil {
			g.log.Debug("the progress of an upload is not told", "image", id, "err", err)
		}
	}
}

// checkImage checks that Glance has received the complete image.
func (g *glance) checkImage(ctx context.Context, id string, size int64) error {
	ctx, cancel := g.brief(ctx)
	defer cancel()
	i, err := whole(images.Get(ctx, g.c, id).Extract())
	switch {
	case err != nil:
		return g.explain("read the image", err)
	case i.Status != images.ImageStatusActive || i.SizeBytes != size:
		return croft.Errorf(croft.Unavailable, "site %s: the image is %s and has %d of %d bytes", g.site.Name, i.Status,
			i.SizeBytes, size)
	}
	return nil
}

// put sends a source. It does not use gophercloud, which repeats the rest of a body after it renewed the token, and
// never sends Content-Length.
func (g *glance) put(ctx context.Context, address string, source *source) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, address, source)
	if err != nil {
		return croft.Errorf(croft.Invalid, "site %s: the address of its image service is none", g.site.Name)
	}
	r.ContentLength = source.total // -1: unknown
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("X-Auth-Token", g.provider.Token())
	a, err := g.provider.HTTPClient.Do(r)
	if err != nil {
		return g.explain("upload the image", err)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode/100 == 2 {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	return g.explain("upload the image", gophercloud.ErrUnexpectedResponseCode{Actual: a.StatusCode, Body: body})
}
