package heat

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stackresources"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft/cluster"
	"croft/cluster/heat/template"
)

// master is the name of the master's resource in templates whose machines are compared with Nova.
const master = "master"

// resource is one resource of a stack, as Heat lists it.
type resource struct {
	Name     string `json:"resource_name"`
	Parent   string `json:"parent_resource"`
	Status   string `json:"resource_status"`
	Type     string `json:"resource_type"`
	Physical string `json:"physical_resource_id"`
	Links    []struct{ Rel, Href string }
}

// number returns the number of a member of a group.
func (r resource) number(group string) (int, bool) {
	n, err := strconv.Atoi(r.Name)
	return n, err == nil && r.Parent == group && !strings.HasPrefix(r.Status, "DELETE_COMPLETE")
}

// stack returns name and ID of the stack that contains the resource. For the members of a group this is a nested stack.
func (r resource) stack() (name, id string) {
	for _, link := range r.Links {
		if _, path, found := strings.Cut(link.Href, "/stacks/"); found && link.Rel == "stack" {
			name, id, _ = strings.Cut(path, "/")
		}
	}
	return name, id
}

// resources lists the resources of a stack and of its groups.
func (a *api) resources(ctx context.Context, name, id string) ([]resource, error) {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	pages, err := stackresources.List(a.c, name, id, stackresources.ListOpts{Depth: 1}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	var body struct {
		Resources []resource `json:"resources"`
	}
	err = pages.(stackresources.ResourcePage).ExtractInto(&body)
	return body.Resources, err
}

// lost returns the machines of a stack that Nova does not have any more. Heat goes on showing machines that were
// deleted directly in Nova. Only the resource "master" and the group of slaves that can be removed by name are
// compared, since only their members are known. At a site without Nova, nothing is lost.
func (a *api) lost(ctx context.Context, b cluster.Build, c cluster.Contract, name, id string) ([]resource, error) {
	nova := a.service("compute")
	if nova == nil || !c.RemoveNamed {
		return nil, nil
	}
	all, err := a.resources(ctx, name, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.brief(ctx)
	defer cancel()
	pages, err := servers.ListSimple(nova, servers.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := servers.ExtractServers(pages)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, s := range listed {
		there[s.ID] = true
	}
	group := template.Group(text(b.Implementation))
	return slices.DeleteFunc(all, func(r resource) bool {
		_, slave := r.number(group)
		ours := r.Type == "OS::Nova::Server" && strings.HasSuffix(r.Status, "_COMPLETE") && r.Physical != "" &&
			(slave || r.Name == master && r.Parent == "")
		return !ours || there[r.Physical] || !absent(ctx, nova, r.Physical)
	}), nil
}

// absent reports whether Nova says that one server does not exist. A list is no proof: it also lacks the servers of a
// cell that is down.
func absent(ctx context.Context, nova *gophercloud.ServiceClient, id string) bool {
	_, err := servers.Get(ctx, nova, id).Extract()
	return gophercloud.ResponseCodeIs(err, http.StatusNotFound)
}

// missed marks the members whose machines Nova does not have.
func missed(seen *cluster.Seen, lost []resource, st *stacks.RetrievedStack, b cluster.Build) {
	group, g := template.Group(text(b.Implementation)), numberingOf(st)
	for _, r := range lost {
		role, index := cluster.Master, 0
		if n, slave := r.number(group); slave {
			role, index = cluster.Slave, g.index(n)
		}
		id := cluster.IDOf(b.Cluster, role, index)
		for i := range seen.Members {
			if m := &seen.Members[i]; m.ID == id {
				m.State, m.Step, m.Error = cluster.MemberGone, "", "its server was deleted in Nova"
			}
		}
	}
}

// replace marks the lost slaves, so that the next update of the stack creates them again, and returns their number. A
// failure to read or mark them does not prevent the resize.
func (d *Driver) replace(ctx context.Context, a *api, b cluster.Build, c cluster.Contract,
	st *stacks.RetrievedStack) int {
	lost, err := a.lost(ctx, b, c, st.Name, st.ID)
	marked := 0
	for _, r := range lost {
		if r.Parent == "" {
			continue // the master, which is never replaced
		}
		if err = a.markUnhealthy(ctx, r); err == nil {
			marked++
		}
	}
	if err != nil {
		d.config.Log.Warn("slaves that Nova does not have may not be made again", "cluster", b.Cluster, "err",
			a.explain("compare the slaves with Nova", err))
	}
	return marked
}

func (a *api) markUnhealthy(ctx context.Context, r resource) error {
	ctx, cancel := a.brief(ctx)
	defer cancel()
	name, id := r.stack()
	opts := stackresources.MarkUnhealthyOpts{MarkUnhealthy: true, ResourceStatusReason: "Nova has no such server"}
	return stackresources.MarkUnhealthy(ctx, a.c, name, id, r.Name, opts).ExtractErr()
}
