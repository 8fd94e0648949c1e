package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/cluster"
	"croft/schedule/topology"
	"croft/tenant"
)

// amount is a host's amount of a resource class.
type amount struct{ left, capacity int64 }

// free returns the free amounts of hosts, including nested providers.
func (d *Driver) free(ctx context.Context, hosts map[croft.HostID]croft.Host) (
	map[croft.HostID]map[croft.ResourceClass]amount, error) {
	providers, err := d.Scheduler.Claims.Providers(ctx)
	if err != nil {
		return nil, err
	}
	all := map[croft.HostID]map[croft.ResourceClass]amount{}
	for _, p := range providers {
		root := cmp.Or(p.Root, p.ID)
		if _, known := hosts[root]; !known {
			continue
		}
		if all[root] == nil {
			all[root] = map[croft.ResourceClass]amount{}
		}
		for class, inv := range p.Inventories {
			n := all[root][class]
			n.left += max(0, inv.Capacity()-p.Used[class])
			n.capacity += inv.Capacity()
			all[root][class] = n
		}
	}
	return all, nil
}

// Room implements cluster.Driver: it looks for hosts for each role, and counts how many members fit there together.
func (d *Driver) Room(ctx context.Context, _ cluster.SiteAccess, b cluster.Build) (cluster.Room, error) {
	r, err := d.recipe(ctx, b)
	if err != nil {
		return cluster.Room{}, err
	}
	hosts, err := d.Scheduler.Registry.Hosts(ctx)
	if err != nil {
		return cluster.Room{}, err
	}
	p := &packing{rule: r.rule, hosts: hosts, taken: map[string]bool{}, total: croft.Resources{},
		given: croft.Resources{}}
	if p.free, err = d.free(ctx, hosts); err != nil {
		return cluster.Room{}, err
	}
	members := wanted(b)
	if b.Growth {
		members = members[1:]
		if err := d.standAlready(ctx, b, p); err != nil {
			return cluster.Room{}, err
		}
	}
	if why, err := d.overQuota(ctx, r, members); err != nil || why != "" {
		return cluster.Room{Known: true, Why: why}, err
	}
	fits := map[cluster.Role][]croft.HostID{}
	for _, m := range members {
		if _, asked := fits[m.role]; !asked {
			ids, why, err := d.hostsFor(ctx, r, m)
			if err != nil || len(ids) == 0 {
				return cluster.Room{Known: err == nil, Why: why}, err
			}
			fits[m.role] = ids
		}
		p.place(r.made[m.role].query.Total(), fits[m.role])
	}
	return p.room(len(members)), nil
}

// overQuota says why the quota of a project does not allow the members; empty: it does.
func (d *Driver) overQuota(ctx context.Context, r *recipe, members []member) (string, error) {
	if d.Quotas == nil {
		return "", nil
	}
	more := tenant.Amounts{}
	for _, m := range members {
		more = more.Plus(tenant.AmountsOf(croft.Instance{Spec: croft.Spec{Resources: r.made[m.role].query.Total()}}))
	}
	err := d.Quotas.Admit(ctx, r.build.Project, more)
	if croft.KindOf(err) == croft.OverQuota {
		return err.Error(), nil
	}
	return "", err
}

// hostsFor returns the hosts that a member fits on, or why there are none.
func (d *Driver) hostsFor(ctx context.Context, r *recipe, m member) (ids []croft.HostID, why string, err error) {
	q := r.request(m, withBuild)
	if q.Policy, err = d.policy(ctx, r.text); err != nil {
		return nil, "", err
	}
	found, err := d.Scheduler.Explain(ctx, q)
	if err != nil {
		return nil, "", err
	}
	for _, fit := range found.Fits {
		ids = append(ids, fit.ID)
	}
	if len(ids) == 0 {
		why = fmt.Sprintf("the %s: %s", m.role, found.ForTenants())
	}
	return ids, why, nil
}

// standAlready adds the hosts of the existing members of a cluster that is to grow.
func (d *Driver) standAlready(ctx context.Context, b cluster.Build, p *packing) error {
	have, err := d.read(ctx, b)
	if err != nil {
		return err
	}
	for _, st := range have {
		if at := p.location(st.Instance.Host); at != "" {
			p.taken[at] = true
		}
	}
	return nil
}

// packing counts how many members fit.
type packing struct {
	rule   croft.AffinityRule
	hosts  map[croft.HostID]croft.Host
	free   map[croft.HostID]map[croft.ResourceClass]amount
	taken  map[string]bool // locations with a member, if each may have only one
	placed int
	barred int             // number of members that would fit without the rule
	total  croft.Resources // sum of the needs of all members
	given  croft.Resources // part of total that was placed
	used   []croft.HostID  // hosts that were candidates
}

// location returns the location of a host that the rule allows only one member at; empty: it allows more.
func (p *packing) location(host croft.HostID) string {
	if p.rule == "" || p.rule.Soft() {
		return ""
	}
	clauses, err := p.rule.Clauses()
	if err != nil || len(clauses) == 0 || clauses[0].Level == croft.LevelHost {
		return string(host)
	}
	path, err := topology.Of(p.hosts[host])
	if err != nil {
		return string(host)
	}
	return path.At(clauses[0].Level).String()
}

// place reserves room for a member on the host that then has the largest fraction of its scarcest resource left.
func (p *packing) place(need croft.Resources, on []croft.HostID) {
	for class, n := range need {
		p.total[class] += n
	}
	if len(p.used) == 0 {
		p.used = on
	}
	best, most, barred := croft.HostID(""), -1.0, false
	for _, id := range on {
		left := p.after(id, need)
		if at := p.location(id); at != "" && p.taken[at] {
			barred = barred || left >= 0
			continue
		}
		if left > most {
			best, most = id, left
		}
	}
	if best == "" {
		if barred {
			p.barred++
		}
		return
	}
	p.placed++
	if at := p.location(best); at != "" {
		p.taken[at] = true
	}
	for class, n := range need {
		a := p.free[best][class]
		a.left -= n
		p.free[best][class] = a
		p.given[class] += n
	}
}

// after returns the fraction of its scarcest resource that a host would have left; negative: the member does not fit.
func (p *packing) after(id croft.HostID, need croft.Resources) float64 {
	least := 1.0
	for class, n := range need {
		a := p.free[id][class]
		if a.left < n || a.capacity == 0 {
			return -1
		}
		least = min(least, float64(a.left-n)/float64(a.capacity))
	}
	return least
}

func (p *packing) room(wanted int) cluster.Room {
	if p.placed == wanted {
		return cluster.Room{Known: true, Fits: true, Free: p.fraction()}
	}
	why := fmt.Sprintf("has room for %d of %d members now", p.placed, wanted)
	if p.barred > 0 {
		return cluster.Room{Known: true, Why: why + ", since they are kept apart"}
	}
	var short []string
	for _, class := range sorted(p.total) {
		left := p.given[class]
		for _, all := range p.free {
			left += all[class].left
		}
		if need := p.total[class]; left < need {
			short = append(short, fmt.Sprintf("needs %d %s, %d are left", need, class, left))
		}
	}
	if len(short) > 0 {
		why = strings.Join(short, ", ")
	}
	return cluster.Room{Known: true, Why: why}
}

// fraction returns the free fraction of the scarcest resource that the members need.
func (p *packing) fraction() float64 {
	least := 1.0
	for class := range p.total {
		var left, capacity int64
		for _, id := range slices.Compact(slices.Sorted(slices.Values(p.used))) {
			left += p.free[id][class].left
			capacity += p.free[id][class].capacity
		}
		if capacity > 0 {
			least = min(least, float64(left)/float64(capacity))
		}
	}
	return max(0, least)
}
