package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"croft"
)

// disks returns the volumes that a request creates for an instance, without ID and Host. Invalid.
func (r Request) disks(inst croft.Instance) (all []croft.Volume, err error) {
	if len(r.Volumes)+len(r.Disks) > croft.MaxAttached {
		return nil, croft.Errorf(croft.Invalid, "an instance may have %d volumes at most", croft.MaxAttached)
	}
	names := slices.Clone(r.Volumes)
	for i, d := range r.Disks {
		name := d.Name
		if name == "" {
			name = inst.Name + "-disk"
		}
		if d.Name == "" && i > 0 {
			name += fmt.Sprint(i + 1)
		}
		if err := errors.Join(CheckName(name), croft.CheckVolumeSize(d.SizeGB)); err != nil {
			return nil, err
		}
		if slices.Contains(names, name) {
			return nil, croft.Errorf(croft.Invalid, "volume %s is named twice", name)
		}
		names = append(names, name)
		all = append(all, croft.Volume{Project: inst.Project, Name: name, SizeGB: d.SizeGB, Created: inst.Created,
			CopyOf: d.CopyOf})
	}
	return all, croft.CheckMounts(r.Mounts, names)
}

// WithDisks returns the query for a host that has room for the instance and its new volumes. It does not change q.
func (q Query) WithDisks(disks []croft.Volume) Query {
	at := slices.IndexFunc(q.Groups, func(g RequestGroup) bool { return g.Resources[croft.DiskGB] > 0 })
	if len(disks) == 0 || at < 0 {
		return q
	}
	q.Groups = slices.Clone(q.Groups)
	q.Groups[at].Resources = maps.Clone(q.Groups[at].Resources)
	q.Groups[at].Resources[croft.DiskGB] += sizeOf(disks)
	return q
}

func sizeOf(disks []croft.Volume) (sum int64) {
	for _, d := range disks {
		sum += d.SizeGB
	}
	return sum
}

// withoutDisks returns the part of a candidate for WithDisks that the instance itself claims: the volumes are consumers
// of their own.
func withoutDisks(c croft.Candidate, disks []croft.Volume) croft.Candidate {
	sum := sizeOf(disks)
	allocations := map[croft.HostID]croft.Resources{}
	for id, amounts := range c.Allocations {
		if sum > 0 && amounts[croft.DiskGB] > sum {
			amounts = maps.Clone(amounts)
			amounts[croft.DiskGB] -= sum
			sum = 0
		}
		allocations[id] = amounts
	}
	c.Allocations = allocations
	return c
}

// makes returns NoCapacity if a host cannot make the new volumes of a request.
func makes(disks []croft.Volume, host croft.Host) error {
	if len(disks) > 0 && !host.Volumes {
		return croft.Errorf(croft.NoCapacity, "its croft is too old for volumes")
	}
	return nil
}

// takeWithDisks takes a candidate like take, with the new volumes of the request: they are recorded and claimed first,
// and the transaction of the order settles and attaches them. So a caretaker undoes them if this process dies before.
func (a *attempt) takeWithDisks(ctx context.Context, ch *choice, host croft.Host, o *snapshot) (d Decision, err error) {
	if len(a.disks) == 0 {
		return a.take(ctx, ch, host, o, nil)
	}
	begun, err := a.Volumes.Begin(ctx, host.ID, a.disks)
	switch {
	case errors.Is(err, croft.NoCapacity):
		a.dropped[host.ID] = "had room, but another request was faster"
		return Decision{}, nil
	case errors.Is(err, ErrClosed):
		a.dropped[host.ID] = Closed(err)
		return Decision{}, nil
	case err != nil:
		return Decision{}, fmt.Errorf("schedule %s: %w", a.inst.Name, err)
	}
	d, err = a.take(ctx, ch, host, o, begun)
	if d.Host.ID != "" {
		return d, nil
	}
	after, cancel := a.afterwards(ctx)
	defer cancel()
	// Volumes whose order was written meanwhile stay. A pending order cannot be written after this.
	if undo := a.Volumes.Cancel(after, begun); undo != nil {
		err = errors.Join(err, undo)
	}
	return d, err
}
