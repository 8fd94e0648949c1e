package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/jsonlist"
)

// denied explains to callers who are not operators why they find no hosts.
func (c *Client) denied(ctx context.Context, err error) error {
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	if caller, unknown := c.Caller(ctx); unknown == nil && !caller.Operator() {
		return croft.Errorf(croft.Denied, "hosts are for operators of the cloud, and these credentials are %s's in %s",
			caller.User, caller.Project)
	}
	return err
}

// EachHost calls each for every host that ListHosts returns, as soon as it is read, and returns the rest of the list. T
// has the fields that the caller needs of api.Host: of thousands of hosts, all fields take much memory.
func EachHost[T any](ctx context.Context, c *Client, which api.Listing, each func(T)) (list api.HostList, err error) {
	answer, err := c.request(ctx, "GET /v1/hosts", listed{nil, []api.Listing{which}})
	if err != nil {
		return list, err
	}
	defer answer.Body.Close()
	d := json.NewDecoder(answer.Body)
	rest, err := jsonlist.Read(d, "hosts", func() error {
		var h T
		if err := d.Decode(&h); err != nil {
			return err
		}
		each(h)
		return nil
	})
	var text []byte
	if err == nil {
		if text, err = json.Marshal(rest); err == nil {
			err = json.Unmarshal(text, &list)
		}
	}
	if err != nil {
		err = c.unreachable(ctx, err)
	}
	return list, err
}

// HostRecords returns the records of all hosts, even if their claims cannot be read.
func (c *Client) HostRecords(ctx context.Context) (all []croft.Host, err error) {
	list, err := c.ListHosts(ctx)
	for _, h := range list.Hosts {
		all = append(all, h.Host.Host)
	}
	return all, err
}

// HostNames returns the names of all hosts, even if their claims cannot be read.
func (c *Client) HostNames(ctx context.Context) (map[croft.HostID]string, error) {
	all, err := c.HostRecords(ctx)
	names := map[croft.HostID]string{}
	for _, h := range all {
		names[h.ID] = h.Name
	}
	return names, err
}

// AwaitMoved returns once a host has nothing left of the instances that move away from it, or the instances are gone.
// Unavailable: the deadline of ctx passed.
func (c *Client) AwaitMoved(ctx context.Context, from croft.HostID, all []api.Move) error {
	var moved []hosts.Moved
	for _, m := range all {
		moved = append(moved, hosts.Moved{Instance: croft.Instance{ID: m.Instance, Project: m.Project, Name: m.Name},
			To: croft.Host{ID: m.To}, WithDisk: m.WithDisk})
	}
	return hosts.AwaitMoved(ctx, &watched{Client: c}, from, moved)
}

// PullImage makes a host fetch and verify an image, which may be a name of the cloud's catalog, and calls progress
// meanwhile. Unavailable: the host does not answer.
func (c *Client) PullImage(ctx context.Context, in api.NewImage, progress func(croft.Progress)) (*compute.Pulled,
	error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var pulled *compute.Pulled
	at := pathOf("/v1/hosts/{id}/images", in)
	err = c.stream(ctx, http.MethodPost, at, body, http.Header{}, func(e event) (more bool, err error) {
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
		err = croft.Errorf(croft.Unavailable, "pull %s to host %s: the cloud ended the stream", in.Image, in.ID)
	}
	return pulled, c.denied(ctx, err)
}
