package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"croft"
)

// Volumes ends requests for volumes whose processes died.
type Volumes interface {
	// Undo gives up the size that a request asked for, with its claim, if its session is still the record's. A record
	// that changed meanwhile is no error.
	Undo(ctx context.Context, v croft.Volume) error
	// Reclaim makes a volume claim its size on its host. NoCapacity: others have claimed that room meanwhile.
	Reclaim(ctx context.Context, v croft.Volume) error
	// Return makes the volumes of a lost instance claim on the hosts of their records again, as far as these have room:
	// the request to recreate it there with them, which claimed elsewhere, died.
	Return(ctx context.Context, id croft.InstanceID) error
}

// ofVolume completes a difference of a volume.
func (c *comparison) ofVolume(v croft.Volume, d Difference) {
	d.Host, d.Instance, d.Project, d.Name, d.Revision, d.Noun = v.Host, v.ID.Consumer(), v.Project,
		v.Name, v.Revision, v.Noun()
	c.add(d)
}

// checkVolumes compares the records of volumes with their claims and files.
func (c *comparison) checkVolumes() {
	for _, v := range c.Volumes {
		if c.Only != "" && v.Host != c.Only {
			continue
		}
		contents, asked := c.Contents[v.Host]
		here := slices.Contains(contents.Volumes, v.ID)
		_, known := c.Hosts[v.Host]
		switch {
		case v.ClaimedGB < v.SizeGB:
			if c.Sessions != nil && !c.Sessions[v.Session] {
				c.ofVolume(v, Difference{Kind: AbandonedVolume, Mendable: true,
					Cause: fmt.Sprintf("the program that asked for %d GiB died before it claimed them", v.SizeGB)})
			}
		case v.Storage != "": // the next request for it gives it a keeper, if its own is gone
			if !v.Removing || c.Hosts != nil && (!known || c.Hosts[v.Host].IsDead()) {
				c.checkShared(v)
			}
		case !known && c.Hosts != nil && v.Removing:
			c.ofVolume(v, Difference{Kind: AbandonedVolume, Mendable: true,
				Cause: "it is to be removed, and its host was forgotten"})
		case !known && c.Hosts != nil:
			c.ofVolume(v, Difference{Kind: LostVolume, Cause: "its host was forgotten, and its data with it",
				Advice: "bring the host back with its state directory, or give the data up: " + removal(v)})
		case v.Removing:
		case v.Snapshot != nil && v.Snapshot.Lost: // the leftover of its instance is reported
			c.checkVolumeClaim(v, 0)
		default:
			c.checkVolumeClaim(v, v.ClaimedGB)
			if asked && v.MadeGB > 0 && !here {
				c.ofVolume(v, Difference{Kind: MissingVolume,
					Cause:  "its file is not on its host: it was removed past croft, and its data with it",
					Advice: "put the file back from a copy, or give it up: " + removal(v)})
			}
		}
	}
	for host, contents := range c.Contents {
		for _, id := range contents.Volumes {
			if v, recorded := c.Volumes[id]; (!recorded || v.Host != host) && !c.carries(host, id) {
				c.add(Difference{Kind: StrayVolume, Host: host, Instance: id.Consumer(), Noun: "volume",
					Cause: "a file of a volume without a record on its host: its host was forgotten and came back, " +
						"or the record was removed past croft",
					Advice: "croft removes no file of a volume without an order: look at it in the directory volumes " +
						"of the host, and remove it there if it is not needed"})
			}
		}
	}
}

// checkShared compares a volume on shared storage with its claim, and reports one that is to be removed by a keeper
// that was forgotten or is dead.
func (c *comparison) checkShared(v croft.Volume) {
	if v.Removing {
		c.ofVolume(v, Difference{Kind: AbandonedVolume, Mendable: true,
			Cause: "it is to be removed, and the host that was to do that was forgotten, or is dead"})
		return
	}
	claims := c.Elsewhere[v.ID.Consumer()]
	if c.Elsewhere == nil || claims[croft.DiskGB] == v.ClaimedGB {
		return
	}
	c.ofVolume(v, Difference{Kind: UnclaimedVolume, Mendable: true, Cause: fmt.Sprintf("it claims %s of its shared "+
		"storage, not DISK_GB:%d: its allocations were changed outside croft, or Placement was restored from an older "+
		"copy", cmp.Or(claims.String(), "nothing"), v.ClaimedGB)})
}

// removal returns the command that removes a volume or a snapshot.
func removal(v croft.Volume) string {
	if v.Snapshot != nil {
		return fmt.Sprintf("croft snapshot remove %s %s --project %s", v.Snapshot.Instance, v.Name, v.Project)
	}
	return fmt.Sprintf("croft volume remove %s --project %s", v.Name, v.Project)
}

// checkVolumeClaim compares the claim of a volume with the amount that it is to claim.
func (c *comparison) checkVolumeClaim(v croft.Volume, wantGB int64) {
	claims, read := c.Claims[v.Host]
	if !read || claims[v.ID.Consumer()][croft.DiskGB] == wantGB {
		return
	}
	c.ofVolume(v, Difference{Kind: UnclaimedVolume, Mendable: true, Cause: fmt.Sprintf("it claims %s on its host, not "+
		"DISK_GB:%d: its allocations were changed outside croft, or Placement was restored from an older copy",
		cmp.Or(claims[v.ID.Consumer()].String(), "nothing"), wantGB)})
}

// isVolume reports whether a consumer is a volume.
func (c *comparison) isVolume(id croft.InstanceID) bool {
	_, is := c.Volumes[croft.VolumeID(id)]
	return is
}

// carries reports whether an order of a host is about a copy of a volume there: it comes or goes with its instance.
func (c *comparison) carries(host croft.HostID, id croft.VolumeID) bool {
	return slices.ContainsFunc(c.Orders, func(o croft.Order) bool {
		return o.Host == host && (slices.Contains(o.Left, id) || o.Move != nil &&
			slices.ContainsFunc(o.Move.Volumes, func(v croft.Volume) bool { return v.ID == id }))
	})
}

// checkVolumePlace looks for a claim of a volume on a host where it is not.
func (c *comparison) checkVolumePlace(host croft.HostID, v croft.Volume) {
	moves := v.Instance != "" && c.Instances[v.Instance].Moving == host
	if v.Provider() == host || moves && v.Storage == "" || v.ClaimedGB < v.SizeGB {
		return
	}
	c.ofVolume(v, Difference{Kind: UnclaimedVolume, Mendable: true, Cause: fmt.Sprintf("it claims on host %s as well, "+
		"where it is not: a move of its instance was interrupted", c.name(host))})
}
