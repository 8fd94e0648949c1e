package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"croft"
	"croft/hosts/audit"
	"croft/internal/lazyregexp"
)

// policy lists what a host may do, by the methods of compute's interfaces; nothing else is served.
// docs/contributors/gate.md has the same list, and a test compares them.
var policy = map[string]method{
	"WatchOrders": stream("wakes for the host's own orders", (*Server).watchOrders),
	"Order": call(
		"the host's own, with its user-data; of another host only whether there is one, for an instance that comes "+
			"from there by the host's own order", (*Server).order),
	"Remains": call(
		"of another host whether it has an order, for an instance that comes from there by the host's own order",
		(*Server).remainsThere),
	"Observed": call("the host's own", (*Server).observed),
	"Observe":  call("the host's own, where it has an order", (*Server).observe),
	"Forget": call("the host's own order where that is a tombstone, with the record where that is the host's",
		(*Server).forget),
	"Origin": call("of an instance that comes to the host with its disk, by the host's own order: name and address "+
		"of the "+
		"host that has the disk", (*Server).origin),
	"Arrived": call("of such an instance, that it is here; and of one that comes or leaves, why that fails",
		(*Server).arrived),
	"HandOver": call("of an instance on the host that came with its disk, that its former host may remove it",
		(*Server).handOver),
	"PutHost": call("the host's own record, cleaned of what is no text", (*Server).putHost),
	"Hosts":   call("the host's own record", (*Server).hosts),
	"Serve":   stream("the host's own agent lock and life, for as long as the stream lasts", (*Server).serve),
	"Instance": call(
		"without user-data; whole else where the instance is on the host; where it is only ordered or claimed "+
			"there, whose it is; else whether it is there", (*Server).instance),
	hostEvidenceCall: call(
		"the host's own orders and observations; records as Instance gives them, and of others that the host names "+
			"on which host they are", (*Server).hostEvidence),
	"Drop": call("the host's own order without a record, or observation without an order", (*Server).drop),
	"EnsureProvider": call("the host's own provider, whatever it says of itself; no sharing with other providers",
		(*Server).ensureProvider),
	"Claims": call("those on the host's own provider", (*Server).claims),
	"Release": call(
		"that of an instance on the host which its order wants gone, or of one without a record that claims on the "+
			"host", (*Server).release),
	"Vacate": call("what an instance claims on the host that is on another one, and does not come to this one",
		(*Server).vacate),
	"WatchVolumes":   stream("wakes for the volumes of the host", (*Server).watchVolumes),
	"Volume":         call("the host's own", (*Server).volume),
	"MadeVolume":     call("of the host's own, which size its file has", (*Server).madeVolume),
	"FailedVolume":   call("of the host's own, why orders about it are not carried out", (*Server).failedVolume),
	"DetachedVolume": call("of the host's own that is to be detached, that it is", (*Server).detachedVolume),
	"ForgetVolume":   call("the host's own that is to be removed", (*Server).forgetVolume),
	"TookSnapshot":   call("of the host's own, when and how it was taken", (*Server).tookSnapshot),
	"RolledBack": call("of the host's own that is to be rolled back to, that it was or why not",
		(*Server).rolledBack),
	"WatchJobs":   stream("wakes for the jobs of the host about backups", (*Server).watchJobs),
	"Job":         call("the host's own, with the access to the store sealed for the host", (*Server).job),
	"Report":      call("what the host did about its own", (*Server).report),
	"WatchImages": stream("wakes for the copies of images that the host is to have", (*Server).watchImages),
	"ImageCopy":   call("the host's own order for a copy", (*Server).imageCopy),
	"ImageSource": call("of an image that an order of the host names: where it is, and the key to it",
		(*Server).imageSource),
	"MadeImage":   call("of the host's own copy, which has to be the image's file", (*Server).madeImage),
	"FailedImage": call("of the host's own copy, why there is none", (*Server).failedImage),
	"ForgetImage": call("the host's own copy that is to be removed", (*Server).forgetImage),
	"Gates":       call("where all gates of the cloud are", (*Server).gates),
	"Usable":      call("whether orders can come", (*Server).usable),
}

// own refuses requests for another host than the caller.
func own(caller, host croft.HostID) error {
	if caller != host {
		return refuse("host %q is not the one that the certificate names", host)
	}
	return nil
}

// whole refuses IDs that are not UUIDs in canonical form: they become parts of keys and of URLs.
func whole(ids ...croft.InstanceID) error {
	for _, id := range ids {
		if canonical, err := croft.ParseInstanceID(string(id)); err != nil || canonical != id {
			return croft.Errorf(croft.Invalid, "%q is not the UUID of an instance", id)
		}
	}
	return nil
}

// about combines own and whole.
func about(caller croft.HostID, id croft.OrderID) error {
	return errors.Join(own(caller, id.Host), whole(id.Instance))
}

func (s *Server) order(ctx context.Context, caller croft.HostID, id croft.OrderID) (orderMessage, error) {
	if err := whole(id.Instance); err != nil {
		return orderMessage{}, err
	}
	if id.Host != caller {
		return s.remains(ctx, caller, id)
	}
	o, err := s.Orders.Order(ctx, caller, id.Instance)
	return sendOrder(o), err
}

// remains serves agents of versions that ask for the order of the previous host.
func (s *Server) remains(ctx context.Context, caller croft.HostID, id croft.OrderID) (orderMessage, error) {
	remains, err := s.remainsThere(ctx, caller, id)
	if err == nil && !remains {
		err = croft.Errorf(croft.NotFound, "nothing is left of instance %s on host %s", id.Instance, id.Host)
	}
	return orderMessage{Order: croft.Order{Host: id.Host, Instance: id.Instance, Want: croft.WantGone}}, err
}

// remainsThere reports to the target host of a move whether a former host of the instance still has an order for it.
func (s *Server) remainsThere(ctx context.Context, caller croft.HostID, id croft.OrderID) (bool, error) {
	if err := whole(id.Instance); err != nil {
		return false, err
	}
	mine, err := s.Orders.Order(ctx, caller, id.Instance)
	if errors.Is(err, croft.NotFound) || err == nil && !slices.Contains(mine.Former(), id.Host) {
		return false, refuse("instance %s does not come from host %q by an order of the one that the certificate names",
			id.Instance, id.Host)
	}
	if err != nil {
		return false, err
	}
	return s.Orders.Remains(ctx, id.Host, id.Instance)
}

func (s *Server) observed(ctx context.Context, caller croft.HostID, id croft.OrderID) (croft.Observation, error) {
	if err := about(caller, id); err != nil {
		return croft.Observation{}, err
	}
	return s.Orders.Observed(ctx, caller, id.Instance)
}

func (s *Server) observe(ctx context.Context, caller croft.HostID, o croft.Observation) (none, error) {
	if err := about(caller, croft.OrderID{Host: o.Host, Instance: o.Instance}); err != nil {
		return none{}, err
	}
	if err := checkObservation(o); err != nil {
		return none{}, err
	}
	return none{}, s.Orders.Observe(ctx, o)
}

// forget uses the stored order and ignores what the host sent.
func (s *Server) forget(ctx context.Context, caller croft.HostID, said orderMessage) (none, error) {
	stored, err := s.storedOrder(ctx, caller, said)
	switch {
	case err != nil:
		return none{}, err
	case stored.Want != croft.WantGone:
		return none{}, refuse("the order of instance %s is not a tombstone", said.Instance)
	}
	return none{}, s.Orders.Forget(ctx, stored)
}

// storedOrder returns the caller's own order as stored. Conflict: it has changed since the caller read it.
func (s *Server) storedOrder(ctx context.Context, caller croft.HostID, said orderMessage) (croft.Order, error) {
	if err := about(caller, said.ID()); err != nil {
		return croft.Order{}, err
	}
	stored, err := s.Orders.Order(ctx, caller, said.Instance)
	if errors.Is(err, croft.NotFound) || err == nil && stored.Revision != said.Revision {
		err = croft.Errorf(croft.Conflict, "the order of instance %s has changed meanwhile", said.Instance)
	}
	return stored, err
}

func (s *Server) origin(ctx context.Context, caller croft.HostID, said orderMessage) (croft.Host, error) {
	stored, err := s.storedOrder(ctx, caller, said)
	if err != nil {
		return croft.Host{}, err
	}
	if stored.Want != croft.WantArriving {
		return croft.Host{}, refuse("instance %s does not come to this host", said.Instance)
	}
	return s.Orders.Origin(ctx, stored)
}

func (s *Server) arrived(ctx context.Context, caller croft.HostID, said arrival) (none, error) {
	stored, err := s.storedOrder(ctx, caller, said.orderMessage)
	if err != nil {
		return none{}, err
	}
	if stored.Want != croft.WantArriving && (stored.Want != croft.WantLeaving || said.Failure == "") {
		return none{}, refuse("instance %s does not come to this host", said.Instance)
	}
	return none{}, s.Orders.Arrived(ctx, stored, said.Failure)
}

func (s *Server) handOver(ctx context.Context, caller croft.HostID, said orderMessage) (none, error) {
	stored, err := s.storedOrder(ctx, caller, said)
	if err != nil {
		return none{}, err
	}
	return none{}, s.Orders.HandOver(ctx, stored)
}

func (s *Server) putHost(ctx context.Context, caller croft.HostID, h host) (none, error) {
	if err := own(caller, h.ID); err != nil {
		return none{}, err
	}
	h.Host.Token = h.Token
	if err := checkHost(&h.Host); err != nil {
		return none{}, err
	}
	return none{}, s.Registry.PutHost(ctx, h.Host)
}

func (s *Server) hosts(ctx context.Context, caller croft.HostID, ids []croft.HostID) (map[croft.HostID]croft.Host,
	error) {
	if !slices.Equal(ids, []croft.HostID{caller}) {
		return nil, refuse("a host reads its own record, and no other")
	}
	return s.Registry.Hosts(ctx, caller)
}

// instance returns the part of a record that concerns the caller.
func (s *Server) instance(ctx context.Context, caller croft.HostID, id croft.InstanceID) (instance, error) {
	if err := whole(id); err != nil {
		return instance{}, err
	}
	inst, err := s.Records.Instance(ctx, id)
	if err != nil || inst.Host == caller {
		return sendInstance(inst), err
	}
	concerned, err := s.concerned(ctx, caller, id)
	if err != nil {
		return instance{}, err
	}
	if !concerned {
		return instance{}, refuse("instance %s is neither ordered nor claimed on this host", id)
	}
	return sendInstance(ownership(inst)), nil
}

// concerned reports whether the caller has an order or a claim of an instance.
func (s *Server) concerned(ctx context.Context, caller croft.HostID, id croft.InstanceID) (bool, error) {
	_, err := s.Orders.Order(ctx, caller, id)
	if !errors.Is(err, croft.NotFound) {
		return err == nil, err
	}
	return s.claimed(ctx, caller, id)
}

func (s *Server) claimed(ctx context.Context, caller croft.HostID, id croft.InstanceID) (bool, error) {
	claims, err := s.Inventory.Claims(ctx, caller)
	if errors.Is(err, croft.NotFound) {
		return false, nil
	}
	_, has := claims[id]
	return has, err
}

// ownership returns the owner in a record, without the spec.
func ownership(inst croft.Instance) croft.Instance {
	return croft.Instance{
		ID: inst.ID, Project: inst.Project, Name: inst.Name, State: inst.State,
		Host: inst.Host, Moving: inst.Moving, Generation: inst.Generation, Revision: inst.Revision,
	}
}

func (s *Server) hostEvidence(ctx context.Context, caller croft.HostID, q evidenceQuery) (hostEvidence, error) {
	if err := errors.Join(own(caller, q.Host), whole(q.More...)); err != nil {
		return hostEvidence{}, err
	}
	claims, err := s.Inventory.Claims(ctx, caller)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return hostEvidence{}, err
	}
	b, err := s.Records.HostEvidence(ctx, caller, q.More...)
	if err != nil {
		return hostEvidence{}, err
	}
	concerns := maps.Clone(claims)
	if concerns == nil {
		concerns = map[croft.InstanceID]croft.Resources{}
	}
	for _, o := range b.Orders {
		concerns[o.Instance] = nil
	}
	known := map[croft.HostID]croft.Host{}
	if me, ok := b.Hosts[caller]; ok {
		known[caller] = me
	}
	for id, inst := range b.Instances {
		if inst.Host == caller {
			continue
		}
		if _, concerned := concerns[id]; !concerned {
			b.Instances[id] = croft.Instance{ID: id, Host: inst.Host}
			continue
		}
		b.Instances[id] = ownership(inst)
		if other, ok := b.Hosts[inst.Host]; ok {
			known[other.ID] = croft.Host{ID: other.ID, Name: other.Name}
		}
	}
	b.Hosts = known
	return sendEvidence(b), nil
}

func (s *Server) drop(ctx context.Context, caller croft.HostID, d audit.Difference) (none, error) {
	if err := about(caller, croft.OrderID{Host: d.Host, Instance: d.Instance}); err != nil {
		return none{}, err
	}
	if d.Kind != audit.LostOrder && d.Kind != audit.LostObservation {
		return none{}, refuse("a %s is not the host's own", d.Kind)
	}
	return none{}, s.Records.Drop(ctx, audit.Difference{Kind: d.Kind, Host: caller, Instance: d.Instance,
		Revision: d.Revision})
}

// Limits on a provider, more than any host has.
const (
	mostClasses, mostTraits, mostAggregates = 64, 512, 64
	mostCustom                              = 64 // names with the prefix CUSTOM_
	// sharing makes a provider's inventory available to all in its aggregates; a host with it would get claims
	// of other hosts' instances.
	sharing croft.Trait = "MISC_SHARES_VIA_AGGREGATE"
)

// symbol is the form of Placement's names of classes and traits.
var symbol = lazyregexp.New(`^[A-Z0-9_]{1,255}$`)

func (s *Server) ensureProvider(ctx context.Context, caller croft.HostID, p croft.Provider) (none, error) {
	if err := own(caller, p.ID); err != nil {
		return none{}, err
	}
	if len(p.Inventories) > mostClasses || len(p.Traits) > mostTraits || len(p.Aggregates) > mostAggregates ||
		len(p.Name) > 200 {
		return none{},
			croft.Errorf(croft.Invalid, "the host has too many classes, traits or aggregates, or too long a name")
	}
	names := map[string]bool{}
	name := func(name string) {
		if strings.HasPrefix(name, "CUSTOM_") {
			names[name] = true
		}
	}
	for class, inventory := range p.Inventories {
		name(string(class))
		if err := inventory.Check(); err != nil {
			return none{}, fmt.Errorf("the inventory of %.80q: %w", class, err)
		}
		if !symbol.MatchString(string(class)) {
			return none{}, croft.Errorf(croft.Invalid, "%q is no resource class", class)
		}
	}
	for _, trait := range p.Traits {
		name(string(trait))
		if !symbol.MatchString(string(trait)) {
			return none{}, croft.Errorf(croft.Invalid, "%q is no trait", trait)
		}
		if trait == sharing {
			return none{}, refuse("a host shares nothing with others: %s is for an operator to set", sharing)
		}
	}
	for _, aggregate := range p.Aggregates {
		if _, err := uuid.Parse(aggregate); err != nil || len(aggregate) != 36 {
			return none{}, croft.Errorf(croft.Invalid, "%q is no aggregate", aggregate)
		}
	}
	if len(names) > mostCustom {
		return none{}, croft.Errorf(croft.Invalid, "a host has at most %d custom traits and resource classes",
			mostCustom)
	}
	for _, aggregate := range p.Aggregates {
		names[aggregate] = true
	}
	if err := s.allowed.of(caller).bring(names); err != nil {
		return none{}, err
	}
	p = croft.Provider{ID: caller, Name: p.Name, Inventories: p.Inventories, Traits: p.Traits,
		Aggregates: p.Aggregates}
	return none{}, s.Inventory.EnsureProvider(ctx, p)
}

func (s *Server) claims(ctx context.Context, caller croft.HostID,
	of croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	if err := own(caller, of); err != nil {
		return nil, err
	}
	return s.Inventory.Claims(ctx, caller)
}

// release removes the claim of an instance that the host was ordered to remove, or of an instance that no
// longer exists.
func (s *Server) release(ctx context.Context, caller croft.HostID, id croft.InstanceID) (none, error) {
	if err := whole(id); err != nil {
		return none{}, err
	}
	return none{}, s.Inventory.Release(ctx, id, func(ctx context.Context) ([]croft.HostID, error) {
		inst, err := s.Records.Instance(ctx, id)
		switch {
		case errors.Is(err, croft.NotFound): // its claims on other hosts do not concern this host
			return s.mayReleaseVolume(ctx, caller, croft.VolumeID(id))
		case err != nil:
			return nil, err
		}
		condemned, err := s.condemned(ctx, caller, inst)
		if err == nil && !condemned {
			err = refuse("the claim of instance %s is not this host's to release", id)
		}
		return inst.Places(), err
	})
}

// vacate removes the remaining claim on the host of an instance that moved away.
func (s *Server) vacate(ctx context.Context, caller croft.HostID, id croft.InstanceID) (none, error) {
	if err := whole(id); err != nil {
		return none{}, err
	}
	return none{}, s.Inventory.Release(ctx, id, func(ctx context.Context) ([]croft.HostID, error) {
		inst, err := s.Records.Instance(ctx, id)
		switch {
		case err != nil && !errors.Is(err, croft.NotFound):
			return nil, err
		case err == nil && (inst.State == croft.StateScheduling || slices.Contains(inst.Places(), caller)):
			return nil, refuse("what instance %s claims here is for what comes", id)
		}
		return []croft.HostID{caller}, nil
	})
}

// condemned reports whether an instance is on the caller and its order is a tombstone.
func (s *Server) condemned(ctx context.Context, caller croft.HostID, inst croft.Instance) (bool, error) {
	if inst.Host != caller {
		return false, nil
	}
	o, err := s.Orders.Order(ctx, caller, inst.ID)
	if errors.Is(err, croft.NotFound) {
		return false, nil
	}
	return err == nil && o.Want == croft.WantGone, err
}

func (s *Server) usable(ctx context.Context, _ croft.HostID, _ none) (none, error) {
	return none{}, s.Usable(ctx)
}

// checkAPI validates the address of an agent: clients send it the agent's token, and trust only a server with
// the certificate of that host.
func checkAPI(api string) error {
	u, err := url.Parse(api)
	if api != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "https") {
		return croft.Errorf(croft.Invalid, "%q is not an address of an agent's API", api)
	}
	return nil
}

func (s *Server) gates(ctx context.Context, _ croft.HostID, _ none) ([]string, error) {
	return s.Gates(ctx)
}
