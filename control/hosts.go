package control

import (
	"net/http"

	"croft/control/api"
	"croft/hosts"
)

func (c *call) listHosts() error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Hosts.List(ctx)
	if err != nil && len(all) == 0 {
		return err
	}
	list := api.HostList{Hosts: []api.Host{}, Problems: c.Cloud.Hosts.Problems(ctx)}
	if err != nil {
		list.Error = err.Error()
	}
	for _, h := range all {
		list.Hosts = append(list.Hosts, api.Host{Host: h})
	}
	return c.answer(http.StatusOK, list)
}

func (c *call) getHost() error {
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, c.host(h))
}

// host returns a host with its instances.
func (c *call) host(h hosts.Host) api.Host {
	shown := api.Host{Host: h}
	for _, st := range h.Instances {
		shown.Statuses = append(shown.Statuses, c.instance(st))
	}
	return shown
}
