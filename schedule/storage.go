package schedule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// storageName is the form of the name of a shared storage.
var storageName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckStorage checks where a request, with this number of new volumes, wants its disk. Invalid.
func CheckStorage(s croft.InstanceSettings, restart croft.Restart, disks int) error {
	shared := s.Storage != "" && s.Storage != croft.StorageLocal
	switch {
	case s.Storage != "" && !storageName.MatchString(s.Storage):
		return croft.Errorf(croft.Invalid, "storage is %.80q: use local, shared, or the name of a shared storage, "+
			"which has a to "+
			"z, 0 to 9, dots, dashes and underscores", s.Storage)
	case shared && disks > 0:
		return croft.Errorf(croft.Invalid, "storage is %s, and volumes are on the host: they cannot be created "+
			"together; create "+
			"the volume first, or leave one of the two out", s.Storage)
	case restart == croft.RestartElsewhereDisk && !shared:
		return croft.Errorf(croft.Invalid, "restart is %s, and the disk is on the host: it is lost with the host; add "+
			"--storage "+
			"shared, or use %s", restart, croft.RestartElsewhere)
	case restart == croft.RestartElsewhereImage && shared:
		return croft.Errorf(croft.Invalid, "restart is %s, and the disk is on shared storage, where it outlives the "+
			"host: use %s",
			restart, croft.RestartElsewhere)
	}
	return nil
}

// wantsShared reports whether the disk of the request is to lie on shared storage.
func (s *search) wantsShared() bool {
	return s.inst.Storage == "" && s.inst.Spec.Storage != "" && s.inst.Spec.Storage != croft.StorageLocal
}

// keepsDisk reports whether the instance has its disk already, on shared storage, and claims it there.
func (s *search) keepsDisk() bool { return s.inst.Storage != "" }

// admitStorage returns NotFound if no host mounts the storage that the request names.
func (s *search) admitStorage(ctx context.Context) error {
	if !s.wantsShared() {
		return nil
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, h := range hosts {
		for _, m := range h.Storages {
			names[m.Name] = true
		}
	}
	switch {
	case s.inst.Spec.Storage == croft.StorageShared && len(names) > 0, names[s.inst.Spec.Storage]:
		return nil
	case len(names) == 0:
		return croft.Errorf(croft.NotFound, "schedule %s: no host mounts a shared storage now: name one in "+
			"storage.shared of the "+
			"settings of hosts, or leave --storage out", s.inst.Name)
	}
	return croft.Errorf(croft.NotFound, "schedule %s: no host mounts a shared storage %s now, only %s", s.inst.Name,
		s.inst.Spec.Storage, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
}

// diskOf returns the provider of a candidate's disk outside the tree of its host; empty: the disk is on the host.
// A provider of another class, or a second one of the disk, makes the candidate useless: false.
func diskOf(c croft.Candidate) (croft.StorageID, bool) {
	host, disk := hostOf(c), croft.StorageID("")
	for id, amounts := range c.Allocations {
		if cmp.Or(c.Summaries[id].Root, id) == host {
			continue
		}
		if disk != "" || len(amounts) != 1 || amounts[croft.DiskGB] == 0 {
			return "", false
		}
		disk = croft.StorageID(id)
	}
	return disk, true
}

// DiskOutside reports whether a candidate has its disk, or anything else, outside of its host.
func DiskOutside(c croft.Candidate) bool {
	disk, ok := diskOf(c)
	return disk != "" || !ok
}

// onStorage returns the candidates whose disk is where the request wants it: on the host, or on shared storage.
func (s *search) onStorage(all []croft.Candidate) []croft.Candidate {
	return slices.DeleteFunc(all, func(c croft.Candidate) bool {
		disk, ok := diskOf(c)
		return !ok || (disk != "") != s.wantsShared()
	})
}

// mounts returns NoCapacity unless a host mounts the storage that the candidate, or the instance, has its disk on.
func (s *search) mounts(host croft.Host, c croft.Candidate) error {
	disk := s.inst.Storage
	if disk == "" {
		disk, _ = diskOf(c)
	}
	if disk == "" {
		return nil
	}
	m, mounted := host.Mounts(string(disk))
	switch {
	case !mounted:
		return croft.Errorf(croft.NoCapacity, "does not mount the shared storage %s", disk)
	case s.wantsShared() && s.inst.Spec.Storage != croft.StorageShared && s.inst.Spec.Storage != m.Name:
		return croft.Errorf(croft.NoCapacity, "its disk would lie on the shared storage %s, not on %s", m.Name,
			s.inst.Spec.Storage)
	}
	return nil
}

// Without returns the query without a resource class.
func (q Query) Without(class croft.ResourceClass) Query {
	q.Groups = slices.Clone(q.Groups)
	for i := range q.Groups {
		q.Groups[i].Resources = maps.Clone(q.Groups[i].Resources)
		delete(q.Groups[i].Resources, class)
	}
	q.Groups = slices.DeleteFunc(q.Groups, func(g RequestGroup) bool { return g.Suffix != "" && len(g.Resources) == 0 })
	return q
}

// Apart returns the query with a resource class in a group of its own, so that terms such as in_tree and member_of do
// not apply to the provider of this class: one that hosts share is in the tree of no host nor in its aggregates.
func (q Query) Apart(class croft.ResourceClass) Query {
	amount := int64(0)
	for _, g := range q.Groups {
		if len(g.Resources) > 1 {
			amount += g.Resources[class]
		}
	}
	if amount == 0 {
		return q
	}
	own := RequestGroup{Suffix: "_" + string(class), Resources: croft.Resources{class: amount}}
	for slices.ContainsFunc(q.Groups, func(g RequestGroup) bool { return g.Suffix == own.Suffix }) {
		own.Suffix += "_"
	}
	q.Groups = append(slices.Clone(q.Groups), own)
	suffixes := 0
	for i, g := range q.Groups {
		if len(g.Resources) > 1 {
			q.Groups[i].Resources = maps.Clone(g.Resources)
			delete(q.Groups[i].Resources, class)
		}
		if g.Suffix != "" {
			suffixes++
		}
	}
	if suffixes > 1 {
		q.GroupPolicy = cmp.Or(q.GroupPolicy, "none")
	}
	slices.SortStableFunc(q.Groups, func(a, b RequestGroup) int { return cmp.Compare(a.Suffix, b.Suffix) })
	return q
}

// asked returns the query that Placement is asked.
func (s *search) asked() Query {
	if s.wantsShared() {
		return s.query.Apart(croft.DiskGB)
	}
	return s.query
}

// withoutStorage returns why the disk of a request for shared storage fits on none that a host mounts, by host.
func (s *search) withoutStorage(providers []croft.Provider,
	hosts map[croft.HostID]croft.Host) map[croft.HostID]string {
	why := map[croft.HostID]string{}
	if !s.wantsShared() {
		return why
	}
	need, name := s.query.Total()[croft.DiskGB], s.inst.Spec.Storage
	for id, host := range hosts {
		why[id] = "does not mount the shared storage " + name
		if name == croft.StorageShared {
			why[id] = "mounts no shared storage"
		}
		for _, p := range providers {
			m, mounted := host.Mounts(string(p.ID))
			if !mounted || name != croft.StorageShared && name != m.Name {
				continue
			}
			free := max(0, p.Inventories[croft.DiskGB].Capacity()-p.Used[croft.DiskGB])
			if need <= free {
				delete(why, id)
				break
			}
			why[id] = fmt.Sprintf("has DISK_GB:%d left on the shared storage %s", free, m.Name)
		}
	}
	return why
}

// WithDisk returns a candidate of a query without the disk, with what the instance claims of its shared storage.
func WithDisk(c croft.Candidate, inst croft.Instance) croft.Candidate {
	if inst.Storage == "" {
		return c
	}
	c.Allocations = maps.Clone(c.Allocations)
	if c.Allocations == nil {
		c.Allocations = map[croft.HostID]croft.Resources{}
	}
	c.Allocations[inst.Storage.Provider()] = inst.KeptClaim()
	return c
}
