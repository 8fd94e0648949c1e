package hosts

import (
	"context"
	"errors"
	"slices"

	"croft"
)

// volumeClaim is a volume of an instance, and its claim as read before the record of the instance is written.
type volumeClaim struct {
	volume croft.Volume
	had    croft.Claim
}

// settled reports whether a volume is made as it is claimed, and no order about it is open.
func settled(v croft.Volume) bool {
	return !v.Detaching && !v.Removing && v.ClaimedGB == v.SizeGB && v.MadeGB == v.ClaimedGB
}

// volumeClaims returns the volumes of an instance that is to claim on a host. Their records are fenced: a request that
// changes one of them fails, or has already changed its claim. Conflict: one is being changed, so it cannot move; on
// the instance's own host such volumes are left out, since the request that changes them settles their claims.
func (f *Fleet) volumeClaims(ctx context.Context, inst croft.Instance, to croft.HostID) (all []volumeClaim, err error) {
	if f.Volumes == nil {
		return nil, nil
	}
	attached, err := f.Volumes.AttachedTo(ctx, inst.ID)
	if err != nil {
		return nil, err
	}
	for _, v := range attached {
		if v.Snapshot != nil {
			continue
		}
		had, err := f.Claims.ClaimOf(ctx, v.ID.Consumer())
		if err != nil {
			return nil, err
		}
		v, err = f.Volumes.Fence(ctx, v)
		switch {
		case errors.Is(err, croft.NotFound):
			continue
		case err != nil:
			return nil, err
		case v.Instance != inst.ID || v.Host != inst.Host || to != inst.Host && !settled(v):
			return nil, croft.Errorf(croft.Conflict, "its volume %s is being changed", v.Name)
		case v.Removing || v.ClaimedGB < v.SizeGB:
			continue
		}
		all = append(all, volumeClaim{v, had})
	}
	return all, nil
}

// takeVolumes makes the volumes of an instance claim on the hosts where it does: where it is, where it moves to, and
// where a former host still has copies. It returns the volumes.
func (f *Fleet) takeVolumes(ctx context.Context, inst croft.Instance, all []volumeClaim, claim croft.Candidate) (
	volumes []croft.Volume, err error) {
	for _, c := range all {
		if c.volume.Storage != "" { // it claims of its storage, wherever the instance is
			volumes = append(volumes, c.volume)
			continue
		}
		next := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{}}
		for host := range claim.Allocations {
			_, has := c.had.Allocations[host]
			if has || host == inst.Host || host == inst.Moving {
				next.Allocations[host] = croft.Resources{croft.DiskGB: c.volume.ClaimedGB}
			}
		}
		owner := croft.Owner{Partition: f.Partition, Project: c.volume.Project, Type: croft.VolumeConsumerType}
		if err := f.Claims.Reclaim(ctx, c.had, owner, next); err != nil {
			return nil, err
		}
		volumes = append(volumes, c.volume)
	}
	return volumes, nil
}

// onShared returns the volumes of an instance that are on shared storage.
func (f *Fleet) onShared(ctx context.Context, inst croft.Instance) ([]croft.Volume, error) {
	if f.Volumes == nil {
		return nil, nil
	}
	attached, err := f.Volumes.AttachedTo(ctx, inst.ID)
	return slices.DeleteFunc(attached, func(v croft.Volume) bool { return v.Storage == "" }), err
}

// unmounted returns why a host cannot have volumes on shared storage; empty: it can.
func unmounted(all []croft.Volume, host croft.Host) string {
	for _, v := range all {
		if _, mounted := host.Mounts(string(v.Storage)); !mounted {
			return "it does not mount the shared storage that has volume " + v.Name
		}
	}
	return ""
}
