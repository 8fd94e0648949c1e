package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
)

// removeAll lets users remove everything that the world at rest has, and waits until nothing is left of it.
func (w *world) removeAll() {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute) // not a performance requirement
	defer cancel()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		err := w.removeOnce(ctx)
		left := w.nothingIsLeft(ctx)
		if err == nil && len(left) == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			w.t.Errorf("not everything can be removed: %v", err)
			for _, l := range left {
				w.t.Errorf("nothing is left: %s", l)
			}
			w.recount(left)
			return
		}
	}
}

// removeOnce orders the removal of everything.
func (w *world) removeOnce(ctx context.Context) error {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return err
	}
	for _, st := range all {
		err = errors.Join(err, w.remove(ctx, st.Instance))
	}
	volumes, listed := w.store.Volumes.List(ctx, "")
	for _, v := range volumes {
		w.data.doomVolumes(v.Name)
		err = errors.Join(err, w.disks(0, func(s diskService) error {
			if v.Instance != "" { // its instance is being destroyed
				return nil
			}
			_, err := s.Remove(ctx, v.Project, v.Name)
			return unless(err, croft.NotFound)
		}))
	}
	return errors.Join(err, listed, w.removeImages(ctx), w.removeBackups(ctx))
}

// remove orders the removal of an instance with its snapshots.
func (w *world) remove(ctx context.Context, inst croft.Instance) error {
	err := w.disks(0, func(s diskService) error {
		attached, err := w.store.Volumes.AttachedTo(ctx, inst.ID)
		for _, v := range attached {
			if v.Snapshot != nil && v.Snapshot.Rollback == "" {
				_, removed := s.RemoveSnapshot(ctx, inst, v.Name)
				err = errors.Join(err, unless(removed, croft.NotFound))
			}
		}
		return err
	})
	w.doom(inst.ID)
	return errors.Join(err, w.unprotect(ctx, inst), w.scheduler(0, func(s *schedule.Scheduler) error {
		_, err := s.Destroy(ctx, inst.Project, string(inst.ID), false)
		return unless(err, croft.NotFound)
	}))
}

// unless returns nil for an error of a kind.
func unless(err error, kind croft.Kind) error {
	if croft.KindOf(err) == kind {
		return nil
	}
	return err
}

// ofObjects are the beginnings of the keys that only exist while an object of a user does.
var ofObjects = []string{"instances/", "userdata/", "names/", "macs/", "orders/", "observed/", "volumes/", "groups/",
	"seats/", "placement/consumer/", "backups/records/", "images/", "addresses/",
	"objects/instance/"} // a job of a backup that is gone stays for a minute

// nothingIsLeft: once users have removed everything, no host, etcd or Placement has anything of it.
func (w *world) nothingIsLeft(ctx context.Context) (left []string) {
	keys, err := etcdtest.Keys(ctx, "http://"+w.listen, w.store.Partition())
	if err != nil {
		return []string{err.Error()}
	}
	for _, key := range keys {
		if slices.ContainsFunc(ofObjects, func(p string) bool { return strings.HasPrefix(key, p) }) {
			left = append(left, "the key "+key)
		}
	}
	providers, err := w.claims.Providers(ctx)
	if err != nil {
		left = append(left, err.Error())
	}
	for _, p := range providers {
		for class, amount := range p.Used {
			if amount != 0 {
				left = append(left, fmt.Sprintf("%d %s is claimed of %s", amount, class, p.Name))
			}
		}
	}
	for _, m := range w.hosts {
		domains, err := m.hv.List(ctx)
		if err != nil || len(domains) > 0 {
			left = append(left, fmt.Sprintf("host%d has the guests %v, %v", m.n, idsOf(domains), err))
		}
		left = append(left, m.leftFiles(ctx, nil)...)
	}
	left = append(left, w.sharedDisksOutliveHosts(ctx)...)
	left = append(left, w.repository.left()...)
	return append(left, w.quotasAreSums(ctx)...)
}
