package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/schedule"
)

// A volume on shared storage has a keeper: one of the hosts that mount the storage, whose agent makes, attaches and
// removes its file. While the volume is attached, the keeper is the host of the instance, and has the lock of the file.

// CreateShared creates a volume on the shared storage with this name or UUID or, if it is named shared, on any one with
// room. It returns once the volume is ordered; its keeper makes the file. Conflict: the name is taken. NoCapacity.
// OverQuota. Invalid. NotFound: no host mounts such a storage.
func (m *Manager) CreateShared(ctx context.Context, project croft.Project, name string, sizeGB int64,
	storage string) (v croft.Volume, err error) {
	if err := errors.Join(schedule.CheckName(name), croft.CheckVolumeSize(sizeGB)); err != nil {
		return v, err
	}
	if err := schedule.CheckStorage(croft.InstanceSettings{Storage: storage}, "", 0); err != nil {
		return v, err
	}
	places, err := m.storages(ctx, storage)
	if err != nil {
		return v, fmt.Errorf("create volume %s: %w", name, err)
	}
	if v, err = m.createOn(ctx, project, name, sizeGB, places); err == nil || !errors.Is(err, errNowhere) {
		return v, err
	}
	only := ""
	if len(places) == 1 {
		only = m.only(ctx, places[0].Provider(), nil)
	}
	full := fmt.Sprintf("the shared storage %s has no DISK_GB:%d left%s", storage, sizeGB, only)
	switch whichever := storage == croft.StorageShared; {
	case errors.Is(err, errClosed) && whichever:
		full = "no host that mounts a shared storage takes orders"
	case errors.Is(err, errClosed):
		full = fmt.Sprintf("no host that mounts the shared storage %s takes orders", storage)
	case whichever:
		full = fmt.Sprintf("no shared storage has DISK_GB:%d left%s", sizeGB, only)
	}
	return v, croft.Errorf(croft.NoCapacity, "create volume %s: %s", name, full)
}

// storages returns the places on the storages that are named so, each with a host that can keep a volume there, sorted
// by name. NotFound: no host mounts one.
func (m *Manager) storages(ctx context.Context, called string) (places []croft.Volume, err error) {
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	names := map[croft.StorageID]string{}
	for _, h := range hosts {
		for _, s := range h.Storages {
			names[s.ID] = s.Name
		}
	}
	known := slices.SortedFunc(maps.Keys(names), func(a, b croft.StorageID) int {
		return strings.Compare(names[a], names[b])
	})
	found := false
	for _, id := range known {
		if called != croft.StorageShared && called != names[id] && called != string(id) {
			continue
		}
		found = true
		if to := keeper(hosts, croft.Volume{Storage: id}); to != "" {
			places = append(places, croft.Volume{Host: to, Storage: id})
		}
	}
	switch {
	case found:
		return places, nil
	case len(known) == 0:
		return nil, croft.Errorf(croft.NotFound, "no host mounts a shared storage: name one in storage.shared of the "+
			"settings of hosts, or make the volume on a host")
	}
	return nil, croft.Errorf(croft.NotFound, "no host mounts a shared storage %s, only %s", called,
		strings.Join(slices.Sorted(maps.Values(names)), ", "))
}

// keeper returns the host that is to keep a volume: preferably one that is not drained; empty: no host can.
func keeper(hosts map[croft.HostID]croft.Host, v croft.Volume) (to croft.HostID) {
	for _, id := range slices.Sorted(maps.Keys(hosts)) {
		if h := hosts[id]; h.CanKeep(v) && !h.IsDead() && (to == "" || hosts[to].Drained && !h.Drained) {
			to = id
		}
	}
	return to
}

// kept returns a volume that is attached to none with a keeper that can carry out orders about it, if it is on shared
// storage: its keeper may be silent or dead, or may not mount the storage any more. Unavailable: no host can keep it.
func (m *Manager) kept(ctx context.Context, v croft.Volume) (croft.Volume, error) {
	if v.Storage == "" || v.Instance != "" {
		return v, nil
	}
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil || hosts[v.Host].CanKeep(v) && !hosts[v.Host].IsDead() {
		return v, err
	}
	to := keeper(hosts, v)
	if to == "" {
		return v, croft.Errorf(croft.Unavailable, "no host that mounts its shared storage is alive")
	}
	next, err := m.Keep(ctx, v, hosts[v.Host], to)
	if err == nil {
		m.Log.Info("volume has another keeper", "volume", v.ID, "host", to, "was", v.Host)
	}
	return next, err
}

// keptFor returns a volume with a keeper as kept does. Conflict: the host of an instance does not mount its storage.
func (m *Manager) keptFor(ctx context.Context, v croft.Volume, inst croft.Instance) (croft.Volume, error) {
	if v.Storage == "" {
		return v, nil
	}
	hosts, err := m.Hosts.Hosts(ctx, inst.Host)
	if err != nil {
		return v, err
	}
	if _, mounted := hosts[inst.Host].Mounts(string(v.Storage)); !mounted {
		return v, croft.Errorf(croft.Conflict, "the host of instance %s does not mount the shared storage that has it: "+
			"create the instance with --volume %s, and it is placed on a host that does", inst.Name, v.Name)
	}
	return m.kept(ctx, v)
}
