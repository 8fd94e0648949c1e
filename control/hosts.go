package control

import (
	"net/http"

	"croft/control/api"
)

func listHosts(c *call) error {
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

func getHost(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if err != nil {
		return err
	}
	shown := api.Host{Host: h}
	for _, st := range h.Instances {
		shown.Statuses = append(shown.Statuses, c.instance(st))
	}
	return c.answer(http.StatusOK, shown)
}
