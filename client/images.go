package client

import (
	"context"
	"encoding/json"
	"net/http"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/control/cloud"
)

// images implements cloud.Images.
type images struct{ *Client }

// Catalog implements cloud.Images.
func (i images) Catalog(ctx context.Context) (cloud.Catalog, error) { return i.ListImages(ctx) }

// Held implements cloud.Images.
func (i images) Held(ctx context.Context, host croft.Host) ([]compute.Held, error) {
	list, err := i.ListHostImages(ctx, api.HostNamed{ID: string(host.ID)})
	return list.Images, hostList(i).denied(ctx, err)
}

// Remove implements cloud.Images. A name's reference comes from the cloud's own catalog.
func (i images) Remove(ctx context.Context, host croft.Host, reference string) ([]compute.Held, error) {
	list, err := i.RemoveHostImages(ctx, api.HostImage{HostNamed: api.HostNamed{ID: string(host.ID)}, Image: reference})
	return list.Images, hostList(i).denied(ctx, err)
}

// Pull implements cloud.Images. A name's reference comes from the cloud's own catalog.
func (i images) Pull(ctx context.Context, host croft.Host, name, reference string,
	progress func(croft.Progress)) (*compute.Pulled, error) {
	body, err := json.Marshal(api.NewImage{Image: reference})
	if err != nil {
		return nil, err
	}
	var pulled *compute.Pulled
	at := path("", []string{"v1", "hosts", string(host.ID), "images"})
	err = i.stream(ctx, http.MethodPost, at, body, http.Header{},
		func(e event) (more bool, err error) {
			switch e.kind {
			case "progress":
				var p croft.Progress
				if err = json.Unmarshal(e.data, &p); err == nil {
					progress(p)
				}
				more = true
			case "image":
				err = json.Unmarshal(e.data, &pulled)
			case "problem":
				p := &api.Problem{}
				if err = json.Unmarshal(e.data, p); err == nil {
					return false, p
				}
			}
			if err != nil {
				err = croft.Errorf(croft.Unavailable, "an event of the cloud cannot be read: %w", err)
			}
			return more, err
		})
	if err == nil && pulled == nil {
		err = croft.Errorf(croft.Unavailable, "pull %s to host %s: the cloud ended the stream", name, host.Name)
	}
	return pulled, hostList(i).denied(ctx, err)
}
