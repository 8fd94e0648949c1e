package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// Host is a host with what it has to do.
type Host struct {
	croft.Host
	Instances []croft.Status  `json:"-"`
	Count     int             `json:"instances"`
	Offered   croft.Resources `json:"offered"` // what may be claimed in all
	Claimed   croft.Resources `json:"claimed"`
	Traits    []croft.Trait   `json:"traits,omitempty"`
	// Etcd is what its server is to the others; empty where it serves none.
	Etcd croft.MemberRole `json:"etcd,omitempty"`
}

// State says in a word how a host is.
func (h Host) State() string {
	switch {
	case !h.Alive:
		return "silent"
	case h.Drained:
		return "drained"
	}
	return "ready"
}

// List returns all hosts by name. Of claims there is what Placement answers: where it
// does not, they are missing and err says why, beside the hosts.
func (o *Operator) List(ctx context.Context) ([]Host, error) {
	providers, noClaims := o.Claims.Providers(ctx)
	all, err := o.list(ctx, providers)
	if err != nil {
		return nil, err
	}
	return all, noClaims
}

// list is List with what is known of claims.
func (o *Operator) list(ctx context.Context, providers []croft.Provider) ([]Host, error) {
	known, err := o.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	instances, err := o.Records.List(ctx, "")
	if err != nil {
		return nil, err
	}
	on := map[croft.HostID][]croft.Status{}
	for _, st := range instances {
		on[st.Instance.Host] = append(on[st.Instance.Host], st)
	}
	offers := map[croft.HostID]croft.Provider{}
	for _, p := range providers {
		offers[p.ID] = p
	}
	members, err := o.Members.EtcdMembers(ctx)
	if err != nil {
		return nil, err
	}
	all := []Host{}
	for id, h := range known {
		all = append(all, hostOn(h, on[id], offers))
	}
	all = withMembers(all, members)
	slices.SortFunc(all, func(a, b Host) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	shareNames(all)
	return all, nil
}

// hostOn is a host with its instances and with what it offers, where that is known.
func hostOn(h croft.Host, on []croft.Status, offers map[croft.HostID]croft.Provider) Host {
	full := Host{Host: h, Instances: on, Count: len(on)}
	p, known := offers[h.ID]
	if !known {
		return full
	}
	full.Offered, full.Claimed, full.Traits = croft.Resources{}, croft.Resources{}, p.Traits
	for class, inv := range p.Inventories {
		full.Offered[class], full.Claimed[class] = inv.Capacity(), p.Used[class]
	}
	return full
}

// withMembers tells of the hosts what their servers of etcd are. A server of a host that
// is not on record is one that joins, or is forgotten only half.
func withMembers(all []Host, members []croft.EtcdMember) []Host {
	onRecord := len(all)
	for _, m := range members {
		i := slices.IndexFunc(all, func(h Host) bool { return h.ID == m.Host })
		if i < 0 {
			i = len(all)
			all = append(all, aloneHost(m))
		}
		all[i].Etcd = m.Role
		switch m.Role {
		case croft.MemberSilent:
			all[i].Problems = append(all[i].Problems,
				"its etcd does not answer: bring it back, or forget the host, before another one is lost")
		case croft.MemberLearns:
			all[i].Problems = append(all[i].Problems, "its etcd has no voice yet: it has to catch up with the others")
		case croft.MemberMissing:
			if i >= onRecord && !m.Alone {
				continue // that is said already
			}
			all[i].Problems = append(all[i].Problems, "the others do not know its etcd: "+takeUp(all[i])+
				", or forget it")
		}
	}
	return all
}

// takeUp is what makes the server of a host a member that the others do not know. Where
// the host runs, it goes on without: so it is after etcd was restored elsewhere.
func takeUp(h Host) string {
	if h.Alive {
		return "let it join again with croft up --join - --etcd-member"
	}
	return "start croft up on it"
}

// aloneHost is a machine that serves etcd and is no host, or no longer.
func aloneHost(m croft.EtcdMember) Host {
	h := Host{Host: croft.Host{ID: m.Host, Name: m.Name, Alive: m.Role == croft.MemberLeads ||
		m.Role == croft.MemberFollows}}
	if !m.Alone {
		h.Alive, h.Problems = false,
			[]string{"its etcd is on record and the host is not: it joins and has not finished (croft up there goes on), or was forgotten by half (croft host forget it once more)"}
	}
	return h
}

// shareNames tells of hosts that have one name; they are sorted by it.
func shareNames(all []Host) {
	for i := range all {
		other := i - 1
		if i == 0 || all[i-1].Name != all[i].Name {
			other = i + 1
		}
		if other < len(all) && all[other].Name == all[i].Name {
			all[i].Problems = append(all[i].Problems,
				fmt.Sprintf(
					"host %s is called %s too: give one of them another host.name; until then name them by UUID",
					all[other].ID, all[i].Name))
		}
	}
}

// Find returns the host with this UUID or name, as List does. NotFound; Conflict:
// several have the name.
func (o *Operator) Find(ctx context.Context, idOrName string) (Host, error) {
	all, noClaims := o.List(ctx)
	if all == nil {
		return Host{}, noClaims
	}
	h, err := among(all, idOrName)
	if err != nil {
		return h, err
	}
	return h, noClaims
}

// find is Find without claims, for which nobody but Placement need be asked.
func (o *Operator) find(ctx context.Context, idOrName string) (Host, error) {
	all, err := o.list(ctx, nil)
	if err != nil {
		return Host{}, err
	}
	return among(all, idOrName)
}

// among picks the host with this UUID, else the one of this name: a host that is called
// like the UUID of another is not in that one's way.
func among(all []Host, idOrName string) (Host, error) {
	var found []Host
	id, _ := croft.ParseHostID(idOrName) // not one: then it is a name
	for _, h := range all {
		if id != "" && h.ID == id {
			return h, nil
		}
		if h.Name == idOrName {
			found = append(found, h)
		}
	}
	switch len(found) {
	case 0:
		var known []string
		for _, h := range all {
			known = append(known, h.Name)
		}
		return Host{}, croft.Errorf(croft.NotFound, "there is no host %s; `croft host list` shows all%s", idOrName,
			nearest.Hint(idOrName, known))
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, h := range found {
		ids = append(ids, string(h.ID))
	}
	return Host{}, croft.Errorf(croft.Conflict, "%d hosts are called %s: give the UUID, one of %s", len(found),
		idOrName, strings.Join(ids, ", "))
}

// Drain keeps new claims away from a host; what is on it stays.
func (o *Operator) Drain(ctx context.Context, idOrName string) (Host, error) {
	h, err := o.find(ctx, idOrName)
	if err == nil {
		err = o.Hosts.Drain(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("drain host %s: %w", idOrName, err)
	}
	return h, nil
}

// Enable lets new claims come to a host again.
func (o *Operator) Enable(ctx context.Context, idOrName string) (Host, error) {
	h, err := o.find(ctx, idOrName)
	if err == nil {
		err = o.Hosts.Enable(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("enable host %s: %w", idOrName, err)
	}
	return h, nil
}

// Accept lets a host be served from another machine or state directory than before.
// Conflict: the one from before is alive.
func (o *Operator) Accept(ctx context.Context, idOrName string) (Host, error) {
	h, err := o.find(ctx, idOrName)
	if err == nil && h.Alive {
		err = croft.Errorf(croft.Conflict,
			"the agent that served it before is alive; stop that one for good first, with its guests")
	}
	if err == nil {
		err = o.Hosts.Accept(ctx, h.ID)
	}
	if err != nil {
		return h, fmt.Errorf("accept host %s: %w", idOrName, err)
	}
	return h, nil
}

// Forget removes a host that is gone for good. Conflict: it is alive, or has
// instances, and force does not say that they are to be buried: their claims and names
// are free then, and tombstones wait for the host, should it ever return.
func (o *Operator) Forget(ctx context.Context, idOrName string, force bool) (Host, error) {
	h, err := o.find(ctx, idOrName)
	if err == nil {
		err = o.forget(ctx, h, force)
	}
	if err != nil {
		return h, fmt.Errorf("forget host %s: %w", idOrName, err)
	}
	o.Log.Info("host forgotten", "host", h.ID)
	return h, nil
}

func (o *Operator) forget(ctx context.Context, h Host, force bool) error {
	switch {
	case !force && h.Alive:
		return croft.Errorf(croft.Conflict, "it is alive; stop its agent first, or add --force")
	case !force && h.Count > 0:
		return croft.Errorf(croft.Conflict, "%s on it; destroy or move them first, or bury them with --force",
			counted(h.Count))
	}
	if err := o.Members.MayRemoveEtcdMember(ctx, h.ID); err != nil {
		return err
	}
	if !force {
		if err := o.nobodyWaitsFor(ctx, h.ID); err != nil {
			return err
		}
	}
	// From here on nobody writes another order for it, so what is buried is all.
	if err := o.Hosts.Drain(ctx, h.ID); err != nil {
		return err
	}
	if err := o.buryAll(ctx, h.ID, force); err != nil {
		return err
	}
	if err := o.freeClaims(ctx, h.ID); err != nil {
		return err
	}
	if err := o.Claims.RemoveProvider(ctx, h.ID); err != nil {
		return err
	}
	if err := o.Hosts.ForgetHost(ctx, h.ID); err != nil {
		return err
	}
	// Last, so that a host which loses its server can tell whether it is forgotten.
	return o.Members.RemoveEtcdMember(ctx, h.ID)
}

// nobodyWaitsFor returns a Conflict where an instance that was moved away from a host waits until that
// has nothing of it left: once the host is forgotten it waits no more, though its guest may run there.
func (o *Operator) nobodyWaitsFor(ctx context.Context, host croft.HostID) error {
	b, err := o.Ledger.Books(ctx)
	if err != nil {
		return err
	}
	for _, order := range b.Orders {
		if inst, exists := b.Instances[order.Instance]; order.Host == host && exists &&
			slices.Contains(inst.Former(), host) {
			return croft.Errorf(croft.Conflict,
				"instance %s was moved away from it and may still run there; bring the host back, or add --force if it is gone for good", inst.Name)
		}
	}
	return nil
}

// RemoveMember takes a host's server out of etcd, where it has one; the host stays.
// Conflict: the others would be too few.
func (o *Operator) RemoveMember(ctx context.Context, h Host) error {
	if err := o.Members.RemoveEtcdMember(ctx, h.ID); err != nil {
		return fmt.Errorf("take the etcd of host %s out: %w", h.Name, err)
	}
	if h.Etcd != "" {
		o.Log.Info("etcd goes on without a host's", "host", h.ID)
	}
	return nil
}

func counted(n int) string {
	if n == 1 {
		return "one instance is"
	}
	return fmt.Sprintf("%d instances are", n)
}

// buryAll ends the instances of a host, as `schedule destroy --force` does.
func (o *Operator) buryAll(ctx context.Context, host croft.HostID, force bool) error {
	all, err := o.Records.List(ctx, "")
	if err != nil {
		return err
	}
	for _, st := range all {
		inst := st.Instance
		if inst.Host != host {
			continue
		}
		if !force {
			return croft.Errorf(croft.Conflict, "instance %s has just come to it; try again", inst.Name)
		}
		if inst.State != croft.StateDestroying { // from here on nobody moves it away, with its claim
			inst, err = o.Records.Reorder(ctx, inst, o.order(inst, host, croft.WantGone, inst.Generation+1))
			if err != nil {
				return fmt.Errorf("condemn instance %s: %w", inst.Name, err)
			}
		}
		// The claim before the record, while there is one to repeat this by.
		if err := o.Claims.Release(ctx, inst.ID, inst.Places()...); err != nil {
			return err
		}
		if err := o.Records.Bury(ctx, inst, o.order(inst, host, croft.WantGone, inst.Generation+1)); err != nil {
			return fmt.Errorf("bury instance %s: %w", inst.Name, err)
		}
		o.Log.Info("instance buried", "instance", inst.ID, "host", host)
	}
	return nil
}

// freeClaims releases what is claimed from a host that has no instances: claims that
// crashes left. Those of requests under way end by themselves, since no order can
// follow; Placement keeps the provider until they have.
func (o *Operator) freeClaims(ctx context.Context, host croft.HostID) error {
	claims, err := o.Claims.Claims(ctx, host)
	if errors.Is(err, croft.NotFound) || err == nil && len(claims) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := o.Ledger.Books(ctx)
	if err != nil {
		return err
	}
	for id := range claims {
		if _, exists := b.Instances[id]; exists {
			continue
		}
		if err := o.Claims.Release(ctx, id, host); err != nil {
			return err
		}
	}
	return nil
}
