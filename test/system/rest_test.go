package system

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"croft"
)

// invariant is a rule that holds at rest. broken describes its violations.
type invariant struct {
	name   string
	broken func(*world, context.Context) []string
}

// invariants are the rules about claims, records, guests and disks. Other rules are checked while the world runs, by
// watchful, and once everything is removed, by nothingIsLeft.
var invariants = []invariant{
	{"claims are as recorded", (*world).claimsAreAsRecorded},
	{"guests are as recorded", (*world).guestsAreAsRecorded},
	{"guests are of their kind", (*world).guestsAreOfTheirKind},
	{"a volume is in one guest", (*world).aVolumeIsInOneGuest},
	{"nothing is claimed twice", (*world).nothingIsClaimedTwice},
	{"no data is lost", (*world).noDataIsLost},
	{"shared disks outlive hosts", (*world).sharedDisksOutliveHosts},
	{"images are where recorded", (*world).imagesAreWhereRecorded},
	{"chosen addresses are given", (*world).chosenAddressesAreGiven},
	{"PCI devices are as claimed", (*world).devicesAreAsClaimed},
	{"quotas are the sums of records", (*world).quotasAreSums},
}

// records returns the records of the volumes and snapshots of a host.
func (m *machine) records(ctx context.Context) []croft.Volume {
	all, err := m.w.store.Volumes.HostVolumes(ctx, m.id)
	if err != nil {
		m.w.t.Errorf("read the volumes of host%d: %v", m.n, err)
	}
	return all
}

// claimsAreAsRecorded: every instance, volume and snapshot claims on its host, or on the shared storage, exactly what
// its record says, and nothing else claims anything.
func (w *world) claimsAreAsRecorded(ctx context.Context) (bad []string) {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range w.hosts {
		want := map[croft.InstanceID]croft.Resources{}
		for _, st := range all {
			if st.Instance.Host == m.id {
				want[st.Instance.ID] = st.Instance.AllocationsOn(m.id)[m.id]
			}
		}
		for _, v := range croft.LocalVolumes(m.records(ctx)) {
			if v.Snapshot == nil || !v.Snapshot.Lost {
				want[v.ID.Consumer()] = croft.Resources{croft.DiskGB: v.SizeGB}
			}
		}
		bad = append(bad, w.claimedIs(ctx, m.id, fmt.Sprintf("host%d", m.n), want)...)
	}
	if w.sharedDir() == "" {
		return bad
	}
	on, err := w.store.Storages.Storage(ctx, storageName)
	if err != nil {
		return append(bad, err.Error())
	}
	want := map[croft.InstanceID]croft.Resources{}
	for _, st := range all {
		if st.Instance.Storage != "" {
			want[st.Instance.ID] = st.Instance.KeptClaim()
		}
	}
	volumes, err := w.store.Volumes.List(ctx, "")
	if err != nil {
		return append(bad, err.Error())
	}
	for _, v := range volumes {
		if v.Storage != "" {
			want[v.ID.Consumer()] = croft.Resources{croft.DiskGB: v.SizeGB}
		}
	}
	return append(bad, w.claimedIs(ctx, on.ID.Provider(), storageName, want)...)
}

// claimedIs compares the claims on a provider with the recorded ones.
func (w *world) claimedIs(ctx context.Context, on croft.HostID, name string,
	want map[croft.InstanceID]croft.Resources) (bad []string) {
	claims, err := w.claims.Claims(ctx, on)
	if err != nil {
		return []string{fmt.Sprintf("read the claims on %s: %v", name, err)}
	}
	for id, amounts := range claims {
		if !maps.Equal(amounts, want[id]) {
			bad = append(bad, fmt.Sprintf("%s claims %v on %s, and %v is recorded", id, amounts, name, want[id]))
		}
	}
	for id := range want {
		if claims[id] == nil {
			bad = append(bad, fmt.Sprintf("%s is on %s, and claims nothing there", id, name))
		}
	}
	return bad
}

// isBuilt reports whether an instance has a guest and a disk.
func (w *world) isBuilt(st croft.Status) bool {
	return !w.unbuilt(st.Instance) && st.Instance.State != croft.StateHeld &&
		st.Instance.State != croft.StateLost
}

// guestsAreAsRecorded: every host has the guests of its instances and no others, with the processors, the memory and
// the volumes that the records say.
func (w *world) guestsAreAsRecorded(ctx context.Context) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range w.hosts {
		want := map[croft.InstanceID]croft.Status{}
		for _, st := range all {
			if st.Instance.Host == m.id && w.isBuilt(st) {
				want[st.Instance.ID] = st
			}
		}
		domains, err := m.hv.List(ctx)
		if err != nil {
			complain("cannot list the guests of host%d: %v", m.n, err)
		}
		if got, want := idsOf(domains), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
			complain("host%d has the guests %v, and %v are recorded", m.n, got, want)
		}
		attached := map[croft.InstanceID][]croft.VolumeID{}
		for _, v := range m.records(ctx) {
			if v.Snapshot == nil && v.Instance != "" {
				attached[v.Instance] = append(attached[v.Instance], v.ID)
			}
			if v.Snapshot != nil && v.Snapshot.Lost {
				continue
			}
			if v.Snapshot != nil && v.Snapshot.Backup == "" && v.State() == croft.VolumeFailed {
				continue // it is tried once; its user removes it
			}
			if v.Detaching || v.Removing || v.MadeGB != v.SizeGB || v.Snapshot != nil && v.Snapshot.Rollback != "" {
				complain("the orders about %s %s on host%d are not carried out: %+v", v.Noun(), v.ID, m.n, v)
			}
		}
		for _, d := range domains {
			machine, err := m.hv.Machine(d.ID)
			st, is := want[d.ID]
			if err != nil || !is {
				continue
			}
			spec := st.Instance.Spec.Resources
			if machine.VCPUs != spec[croft.VCPU] || machine.MemoryMiB != spec[croft.MemoryMB] {
				complain("the guest of %s has %d processors and %d MiB, and its record says %v", d.ID, machine.VCPUs,
					machine.MemoryMiB, spec)
			}
			has := []croft.VolumeID{}
			for _, v := range machine.Volumes {
				has = append(has, v.ID)
			}
			slices.Sort(has)
			slices.Sort(attached[d.ID])
			if !slices.Equal(has, attached[d.ID]) {
				complain("the guest of %s has the volumes %v, and %v are recorded", d.ID, has, attached[d.ID])
			}
		}
	}
	return bad
}

// aVolumeIsInOneGuest: no two guests have the same volume, on one host or on two.
func (w *world) aVolumeIsInOneGuest(ctx context.Context) (bad []string) {
	in := map[croft.VolumeID]croft.InstanceID{}
	for _, m := range w.hosts {
		domains, err := m.hv.List(ctx)
		if err != nil {
			return []string{err.Error()}
		}
		for _, d := range domains {
			machine, err := m.hv.Machine(d.ID)
			if err != nil {
				return []string{err.Error()}
			}
			for _, v := range machine.Volumes {
				if other := in[v.ID]; other != "" {
					bad = append(bad, fmt.Sprintf("volume %s is in the guests of %s and %s", v.ID, other, d.ID))
				}
				in[v.ID] = d.ID
			}
		}
	}
	return bad
}

// nothingIsClaimedTwice: the claims on a host add up to no more than it offers.
func (w *world) nothingIsClaimedTwice(ctx context.Context) (bad []string) {
	providers, err := w.claims.Providers(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range providers {
		claims, err := w.claims.Claims(ctx, p.ID)
		if err != nil {
			return []string{err.Error()}
		}
		sum := croft.Resources{}
		for _, amounts := range claims {
			for class, amount := range amounts {
				sum[class] += amount
			}
		}
		if p.Name == storageName { // other files in the file system change the free space
			continue
		}
		for class, amount := range sum {
			if inv := p.Inventories[class]; amount > inv.Capacity() {
				bad = append(bad, fmt.Sprintf("%d %s is claimed of %s, which has %d", amount, class, p.Name,
					inv.Capacity()))
			}
		}
	}
	return bad
}

// quotasAreSums: what projects are charged for is what their records say.
func (w *world) quotasAreSums(ctx context.Context) (bad []string) {
	wrong, err := w.store.Projects.Check(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, d := range wrong {
		bad = append(bad, fmt.Sprintf("of project %s %s is counted, and the records say %s", d.Project, d.Counted,
			d.Records))
	}
	return bad
}
