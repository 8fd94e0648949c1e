package client

import (
	"context"
	"errors"
	"slices"

	"croft"
	"croft/control/api"
	"croft/hosts"
)

// hostList implements cloud.Hosts, for operators.
type hostList struct{ *Client }

// denied explains to callers who are not operators why they find no hosts.
func (h hostList) denied(ctx context.Context, err error) error {
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	if caller, unknown := h.Caller(ctx); unknown == nil && !caller.Operator() {
		return croft.Errorf(croft.Denied, "hosts are for operators of the cloud, and these credentials are %s's in %s",
			caller.User, caller.Project)
	}
	return err
}

// Records implements cloud.Hosts.
func (h hostList) Records(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	all, err := h.List(ctx)
	if err != nil && len(all) == 0 {
		return nil, err
	}
	found := map[croft.HostID]croft.Host{}
	for _, one := range all {
		if len(ids) == 0 || slices.Contains(ids, one.ID) {
			found[one.ID] = one.Host
		}
	}
	return found, nil
}

// List implements cloud.Hosts.
func (h hostList) List(ctx context.Context) ([]hosts.Host, error) {
	list, err := h.read(ctx)
	if err != nil {
		return nil, err
	}
	var all []hosts.Host
	for _, one := range list.Hosts {
		all = append(all, one.Host)
	}
	if list.Error != "" {
		return all, croft.Errorf(croft.Unavailable, "%s", list.Error)
	}
	return all, nil
}

func (h hostList) read(ctx context.Context) (list api.HostList, err error) {
	list, err = h.ListHosts(ctx)
	return list, h.denied(ctx, err)
}

// Find implements cloud.Hosts.
func (h hostList) Find(ctx context.Context, idOrName string) (hosts.Host, error) {
	found, err := h.GetHost(ctx, api.HostNamed{ID: idOrName})
	for _, st := range found.Statuses {
		found.Host.Instances = append(found.Host.Instances, st.Status())
	}
	return found.Host, h.denied(ctx, err)
}

// Problems implements cloud.Hosts.
func (h hostList) Problems(ctx context.Context) []string {
	list, err := h.read(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	return list.Problems
}
