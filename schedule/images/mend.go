package images

import (
	"context"
	"errors"
	"slices"
	"time"

	"croft"
)

// startTime is how long the process that saves an instance may take to take the snapshot.
const startTime = 10 * time.Minute

// remedy is what an image needs.
type remedy struct {
	fail   string         // it has failed, with this reason
	lose   string         // it is lost, with this reason
	found  bool           // it was lost, and a host that has it is back
	drop   []croft.HostID // copies that are not needed any more
	add    croft.HostID   // a host that is to get a copy
	origin bool           // from its origin
}

// examine decides what an image needs. A copy on a dead host, or on one that was forgotten, is kept until other hosts
// have the image: the host may return. hosts has all hosts, and takers are those that can get copies, the best first.
func examine(i croft.Image, copies []croft.ImageCopy, hosts map[croft.HostID]croft.Host, takers []croft.HostID,
	now time.Time) (r remedy) {
	if i.State == croft.ImageFailed {
		return r
	}
	var gone []croft.HostID
	made, here := 0, 0
	last := ""
	for _, id := range i.Copies {
		h, known := hosts[id]
		if !known || h.IsDead() {
			gone = append(gone, id)
			last = string(id)
			if known {
				last = h.Name
			}
			continue
		}
		here++
		if slices.ContainsFunc(copies, func(c croft.ImageCopy) bool { return c.Host == id && c.Made }) {
			made++
		}
	}
	if i.State == croft.ImagePending {
		switch {
		case now.After(i.Expires):
			r.fail = "it was not completed in time"
		case i.Saved != "" && i.Snapshot == "" && now.Sub(i.Created) > startTime:
			r.fail = "the program that saved it ended before it had taken a snapshot"
		case here == 0:
			r.fail = "host " + last + ", which was to get it, is gone"
		}
		return r
	}
	switch {
	case made == 0 && here == 0 && i.State == croft.ImageReady:
		r.lose = "the only hosts that had it are gone, the last one was " + last
	case made > 0 && i.State == croft.ImageLost:
		r.found = true
	case made > 0 && len(gone) > 0:
		r.drop = gone
	}
	wanted := min(croft.MinImageCopies, len(takers))
	if here >= wanted || made == 0 && i.Origin == "" {
		return r
	}
	for _, id := range takers {
		if !slices.Contains(i.Copies, id) {
			r.add, r.origin = id, made == 0
			break
		}
	}
	return r
}

// Mend gives up images that stay pending, notes which are lost, and orders copies of images that have too few.
func (m *Manager) Mend(ctx context.Context) error {
	all, err := m.All(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil {
		return err
	}
	takers, err := m.takers(ctx)
	if err != nil && !errors.Is(err, croft.Unavailable) {
		return err
	}
	var failures []error
	for _, i := range all {
		if err := m.mend(ctx, i, hosts, takers); err != nil && !errors.Is(err, croft.Conflict) {
			failures = append(failures, err)
		}
	}
	return errors.Join(append(failures, m.forget(ctx, hosts))...)
}

// mend gives an image what it needs. Conflict: it was changed meanwhile.
func (m *Manager) mend(ctx context.Context, i croft.Image, hosts map[croft.HostID]croft.Host,
	takers []croft.HostID) error {
	copies, err := m.Copies(ctx, i)
	if err != nil {
		return err
	}
	r, next := examine(i, copies, hosts, takers, time.Now()), i
	switch {
	case r.fail != "":
		next.State, next.Error, next.ChargedGB, next.Expires = croft.ImageFailed, r.fail, 0, time.Time{}
		m.Log.Warn("an image is given up", "image", i.ID, "project", i.Project, "name", i.Name, "reason", r.fail)
		i, err = m.DropCopies(ctx, i, next, i.Copies...)
	case r.lose != "":
		next.State, next.Error = croft.ImageLost, r.lose
		m.Log.Warn("an image is lost", "image", i.ID, "project", i.Project, "name", i.Name, "reason", r.lose)
		i, err = m.Change(ctx, i, next)
	case r.found:
		next.State, next.Error = croft.ImageReady, ""
		i, err = m.Change(ctx, i, next)
	case len(r.drop) > 0:
		i, err = m.DropCopies(ctx, i, next, r.drop...)
	}
	if err != nil {
		return err
	}
	if r.add != "" {
		c := croft.ImageCopy{Image: i.ID, Host: r.add, Task: croft.ImageCopied, SHA256: i.SHA256, Format: i.Format,
			SizeBytes: i.SizeBytes, Key: i.Key}
		if r.origin {
			c.Task, c.Origin, c.Public = croft.ImageFetch, i.Origin, i.Restricted
		}
		m.Log.Info("a copy of an image is ordered", "image", i.ID, "host", r.add)
		if i, err = m.AddCopy(ctx, i, c); err != nil {
			return err
		}
	}
	if i.State == croft.ImagePending || i.Snapshot == "" {
		return nil
	}
	if err := m.dropSnapshot(ctx, i); err != nil {
		return err
	}
	next = i
	next.Snapshot = ""
	_, err = m.Change(ctx, i, next)
	return err
}

// dropSnapshot removes the snapshot from which an image was saved.
func (m *Manager) dropSnapshot(ctx context.Context, i croft.Image) error {
	if i.Snapshot == "" || m.Snapshots == nil {
		return nil
	}
	st, err := m.Instances.FindByID(ctx, i.Saved)
	var s croft.Volume
	if err == nil {
		s, err = m.Snapshots.FindSnapshot(ctx, st.Instance, snapshotName(i))
	}
	if err == nil && s.ID == i.Snapshot { // otherwise a user gave the name to another snapshot
		_, err = m.Snapshots.RemoveSnapshot(ctx, st.Instance, s.Name)
	}
	if errors.Is(err, croft.NotFound) { // it ended with its instance, or a user removed it
		return nil
	}
	return err
}

// forget removes the orders to remove copies on hosts that were forgotten.
func (m *Manager) forget(ctx context.Context, hosts map[croft.HostID]croft.Host) error {
	copies, err := m.HostCopies(ctx, "")
	for _, c := range copies {
		if _, known := hosts[c.Host]; known || !c.Removing || err != nil {
			continue
		}
		err = m.ForgetHost(ctx, c.Host)
	}
	return err
}
