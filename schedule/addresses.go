package schedule

import (
	"context"
	"maps"
	"slices"

	"croft"
)

// readHolders reads which other instances have the chosen address of the request.
func (s *search) readHolders(ctx context.Context, o *snapshot) (err error) {
	o.holders, err = Holders(ctx, s.inst, s.Records.AddressHolders,
		func(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
			st, err := s.View.FindByID(ctx, id)
			return st.Instance, err
		})
	return err
}

// readAddress is readHolders, and refuses a request whose address is free on no host that its bounds admit. NotFound:
// no such host gives the address to guests. Conflict: other instances have it on all of them.
func (s *search) readAddress(ctx context.Context, o *snapshot) error {
	address := s.inst.Spec.FixedAddress
	if address == "" {
		return nil
	}
	if err := s.readHolders(ctx, o); err != nil {
		return err
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return err
	}
	only := croft.HostID("")
	if at := s.query.anchor(); at >= 0 {
		only = s.query.Groups[at].InTree
	}
	possible, given, holder := false, false, ""
	for _, id := range slices.Sorted(maps.Keys(hosts)) {
		host := hosts[id]
		if only != "" && id != only || s.within(o, host) != nil {
			continue
		}
		possible = true
		if !host.GivesAddress(address) {
			continue
		}
		given = true
		if o.holders[id] == "" {
			return nil
		}
		if holder == "" || holder == anotherInstance {
			holder = o.holders[id]
		}
	}
	switch {
	case !possible: // for other reasons, such as volumes on a host that was removed from the cloud
		return nil
	case !given:
		return croft.Errorf(croft.NotFound, "schedule %s: the address %s is outside the ranges that the networks "+
			"default of its possible hosts give to guests: choose another address, or leave it to the host",
			s.inst.Name, address)
	}
	return croft.Errorf(croft.Conflict, "schedule %s: the address %s is in use by %s: choose another address, or "+
		"remove that instance", s.inst.Name, address, holder)
}

// anotherInstance stands for an instance of another project in messages.
const anotherInstance = "another instance"

// Holders returns which other instances have the chosen address of an instance, by host, in words for its project.
func Holders(ctx context.Context, inst croft.Instance,
	read func(context.Context, string) (map[croft.HostID]croft.InstanceID, error),
	record func(context.Context, croft.InstanceID) (croft.Instance, error)) (map[croft.HostID]string, error) {
	if inst.Spec.FixedAddress == "" {
		return nil, nil
	}
	ids, err := read(ctx, inst.Spec.FixedAddress)
	if err != nil {
		return nil, err
	}
	words := map[croft.HostID]string{}
	for host, id := range ids {
		if id == inst.ID {
			continue
		}
		words[host] = anotherInstance
		if other, err := record(ctx, id); err == nil && other.Project == inst.Project {
			words[host] = "instance " + other.Name
		}
	}
	return words, nil
}

// GivesAddress returns why the usual network of a host cannot give the chosen address to an instance. NoCapacity.
func GivesAddress(spec croft.Spec, host croft.Host, holders map[croft.HostID]string) error {
	switch holder := holders[host.ID]; {
	case !host.GivesAddress(spec.FixedAddress):
		return croft.Errorf(croft.NoCapacity, "has no network that gives the address %s", spec.FixedAddress)
	case holder != "":
		return croft.Errorf(croft.NoCapacity, "its address %s is in use by %s", spec.FixedAddress, holder)
	}
	return nil
}
